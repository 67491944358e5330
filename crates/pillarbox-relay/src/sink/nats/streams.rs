//! Compares the existing streams with the configuration.
//!
//! A stream is read and written as the server's JSON. Settings that are unknown here (of a newer server, or an
//! operator's own limits) stay unchanged.

use std::collections::BTreeSet;

use async_nats::{RequestErrorKind, jetstream::ErrorCode};
use serde_json::{Map, Value, json};

use super::{
    connect::{Connection, Link},
    outcome::{Denied, inbox_denied, misconfigured},
};
use crate::sink::{Comparison, SinkError, SinkErrorKind, Storage, StreamSpec, StreamState};

type Config = Map<String, Value>;

/// An answer of JetStream: the result or its error.
pub(super) struct Answer(pub(super) Result<Value, ApiError>);

pub(super) struct ApiError {
    pub(super) code: u64,
    pub(super) text: String,
}

/// Whether JetStream answers. Missing streams are found by their events, because a missing stream must not stop the
/// others.
pub(super) async fn answers(connection: &Connection) -> Result<(), SinkError> {
    // A user without this permission got an answer as well, and may be able to publish.
    if let Some(Answer(Err(error))) = ask_if_allowed(connection, "$JS.API.INFO".into(), &Value::Null).await? {
        return Err(SinkError::new(
            SinkErrorKind::Unavailable,
            format!("JetStream: {} (error {})", error.text, error.code),
        ));
    }
    Ok(())
}

pub(super) async fn compare_all(
    connection: &Connection,
    specs: &[StreamSpec],
) -> Result<Vec<StreamState>, SinkError> {
    let mut states = Vec::with_capacity(specs.len());
    for spec in specs {
        states.push(state(spec, find(connection, &spec.name).await?.as_ref()));
    }
    Ok(states)
}

/// Looks at all streams first, so that an impossible change is reported before anything is changed.
pub(super) async fn apply_all(
    connection: &Connection,
    specs: &[StreamSpec],
) -> Result<Vec<StreamState>, SinkError> {
    let mut found = Vec::with_capacity(specs.len());
    for spec in specs {
        let config = find(connection, &spec.name).await?;
        if let Some(there) = config
            .as_ref()
            .map(storage)
            .filter(|there| there != name(spec.storage))
        {
            return Err(misconfigured(format!(
                "stream {} has {there} storage and the configuration says {}. JetStream can't change that: correct the \
                 configuration, or copy the stream to a new one",
                spec.name,
                name(spec.storage),
            )));
        }
        found.push(config);
    }
    let mut states = Vec::with_capacity(specs.len());
    for (spec, config) in specs.iter().zip(found) {
        let state = state(spec, config.as_ref());
        match state.state {
            Comparison::Same => {}
            Comparison::Missing => write(connection, "CREATE", spec, Config::new()).await?,
            Comparison::Differs { .. } => {
                write(connection, "UPDATE", spec, config.unwrap_or_default()).await?
            }
        }
        states.push(state);
    }
    Ok(states)
}

fn state(spec: &StreamSpec, config: Option<&Config>) -> StreamState {
    let state = match config.map(|config| differences(spec, config)) {
        None => Comparison::Missing,
        Some(differences) if differences.is_empty() => Comparison::Same,
        Some(differences) => Comparison::Differs { differences },
    };
    StreamState {
        name: spec.name.clone(),
        state,
    }
}

fn differences(spec: &StreamSpec, config: &Config) -> Vec<String> {
    let mut differences = Vec::new();
    let mut compare = |setting: &str, there: String, configured: String| {
        if there != configured {
            differences.push(format!("{setting}: {there} there, {configured} configured"));
        }
    };
    let listed = |subjects: BTreeSet<&str>| subjects.into_iter().collect::<Vec<_>>().join(" ");
    let there = config.get("subjects").and_then(Value::as_array);
    compare(
        "subjects",
        listed(there.into_iter().flatten().filter_map(Value::as_str).collect()),
        listed(spec.subjects.iter().map(String::as_str).collect()),
    );
    let number = |name: &str| config.get(name).and_then(Value::as_u64).unwrap_or_default();
    compare(
        "replicas",
        number("num_replicas").to_string(),
        spec.replicas.to_string(),
    );
    compare("storage", storage(config), name(spec.storage).to_owned());
    compare(
        "duplicate_window",
        format!(
            "{:?}",
            std::time::Duration::from_nanos(number("duplicate_window"))
        ),
        format!("{:?}", spec.duplicate_window),
    );
    differences
}

fn storage(config: &Config) -> String {
    config
        .get("storage")
        .and_then(Value::as_str)
        .unwrap_or("file")
        .to_owned()
}

fn name(storage: Storage) -> &'static str {
    match storage {
        Storage::File => "file",
        Storage::Memory => "memory",
    }
}

async fn find(connection: &Connection, stream: &str) -> Result<Option<Config>, SinkError> {
    check_name(stream)?;
    match ask(connection, &format!("STREAM.INFO.{stream}"), &Value::Null)
        .await?
        .0
    {
        Ok(mut info) => match info.get_mut("config").map(Value::take) {
            Some(Value::Object(config)) => Ok(Some(config)),
            _ => Err(SinkError::new(
                SinkErrorKind::Unavailable,
                format!("JetStream's answer about stream {stream} has no configuration"),
            )),
        },
        Err(error) if ErrorCode(error.code) == ErrorCode::STREAM_NOT_FOUND => Ok(None),
        Err(error) => Err(SinkError::new(
            SinkErrorKind::Unavailable,
            format!("stream {stream}: {} (error {})", error.text, error.code),
        )),
    }
}

async fn write(
    connection: &Connection,
    verb: &str,
    spec: &StreamSpec,
    mut config: Config,
) -> Result<(), SinkError> {
    let window = u64::try_from(spec.duplicate_window.as_nanos()).unwrap_or(u64::MAX);
    config.insert("name".into(), json!(spec.name));
    config.insert("subjects".into(), json!(spec.subjects));
    config.insert("num_replicas".into(), json!(spec.replicas));
    config.insert("storage".into(), json!(name(spec.storage)));
    config.insert("duplicate_window".into(), json!(window));
    let subject = format!("STREAM.{verb}.{}", spec.name);
    match ask(connection, &subject, &Value::Object(config)).await?.0 {
        Ok(_) => Ok(()),
        Err(error) => Err(misconfigured(format!(
            "JetStream refuses stream {}: {} (error {})",
            spec.name, error.text, error.code
        ))),
    }
}

/// A stream's name must be one token of a subject, because JetStream is asked about it by subject.
fn check_name(stream: &str) -> Result<(), SinkError> {
    if !is_name(stream) {
        return Err(misconfigured(format!(
            "{stream:?} is not a valid stream name: white space and . * > / \\ are not allowed"
        )));
    }
    Ok(())
}

/// Whether it can be the name of a stream or a domain.
pub(super) fn is_name(text: &str) -> bool {
    let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\');
    !text.is_empty() && !text.contains(bad)
}

async fn ask(connection: &Connection, what: &str, payload: &Value) -> Result<Answer, SinkError> {
    ask_domain(connection, None, what, payload).await
}

/// Asks the JetStream of a domain. `None`: that of the connection.
pub(super) async fn ask_domain(
    connection: &Connection,
    domain: Option<&str>,
    what: &str,
    payload: &Value,
) -> Result<Answer, SinkError> {
    let subject = match domain {
        None => format!("$JS.API.{what}"),
        Some(domain) => format!("$JS.{domain}.API.{what}"),
    };
    let answer = ask_if_allowed(connection, subject.clone(), payload).await?;
    answer.ok_or_else(|| misconfigured(format!("this NATS user may not publish to {subject}. Grant it")))
}

/// `None`: this user has no permission for the request.
async fn ask_if_allowed(
    connection: &Connection,
    subject: String,
    payload: &Value,
) -> Result<Option<Answer>, SinkError> {
    let body = if payload.is_null() {
        String::new()
    } else {
        payload.to_string()
    };
    let (mut link, mut refusals) = (
        connection.shared.link.subscribe(),
        connection.shared.link.subscribe(),
    );
    let before = link.borrow().refusals;
    // The server reports a missing permission separately from the answers.
    let refused = |link: &Link| {
        link.denied
            .iter()
            .any(|(n, denied)| *n > before && *denied == Denied::Publish(subject.clone()))
    };
    let response = tokio::select! {
        response = connection.client.request(subject.clone(), body.into()) => response,
        _ = link.wait_for(|link| link.cannot_receive_acks(&connection.inbox)) => return Err(inbox_denied()),
        _ = refusals.wait_for(refused) => return Ok(None),
    };
    let message = response.map_err(|error| match error.kind() {
        RequestErrorKind::NoResponders => SinkError::new(
            SinkErrorKind::Unavailable,
            "JetStream does not answer. Is it enabled on this server (nats-server -js) and for this account?",
        ),
        RequestErrorKind::TimedOut => SinkError::new(
            SinkErrorKind::Timeout,
            format!("JetStream did not answer {subject} in time"),
        ),
        _ => SinkError::new(SinkErrorKind::Unreachable, format!("{subject}: {error}")),
    })?;
    let value: Value = serde_json::from_slice(&message.payload).map_err(|error| {
        SinkError::new(
            SinkErrorKind::Unavailable,
            format!("JetStream's answer to {subject} can't be read: {error}"),
        )
    })?;
    Ok(Some(Answer(match value.get("error") {
        None => Ok(value),
        Some(error) => Err(ApiError {
            code: error.get("err_code").and_then(Value::as_u64).unwrap_or_default(),
            text: error
                .get("description")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
        }),
    })))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_difference_is_a_line_of_its_own() {
        let spec = StreamSpec {
            name: "S".into(),
            subjects: vec!["b.>".into(), "a.>".into()],
            replicas: 3,
            storage: Storage::File,
            duplicate_window: Duration::from_secs(120),
        };
        let there = json!({ "subjects": ["a.>", "b.>"], "num_replicas": 1, "storage": "file",
            "duplicate_window": 60_000_000_000u64 });
        let differences = differences(&spec, there.as_object().unwrap());
        assert_eq!(
            differences,
            [
                "replicas: 1 there, 3 configured",
                "duplicate_window: 60s there, 120s configured"
            ]
        );
    }
}
