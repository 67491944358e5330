//! Opens the sinks, and checks that they answer and have the streams they need.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use pillarbox_relay::{
    connect::{self, OpenSink},
    sink::{Comparison, SinkError, SinkErrorKind, StreamState, Streams},
};

use crate::{
    config::{NamedSink, Settings},
    output::{Context, tell},
};

/// How long the start waits for a sink's answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The sinks by the names that routes use.
pub(super) fn open(settings: &Settings) -> Result<BTreeMap<Arc<str>, OpenSink>> {
    let open = |NamedSink { name, options }: &NamedSink| {
        let sink = connect::sink(options).map_err(|error| anyhow!("sink `{name}`: {error}"))?;
        Ok((name.clone(), sink))
    };
    settings.sinks.iter().map(open).collect()
}

/// Contacts each sink, and checks or creates its streams. A sink that is away does not prevent the start: it
/// is contacted again while the relay runs. Neither does a missing stream if there are others. Returns what
/// must prevent the start: no stream at all, or refused credentials.
pub(super) async fn streams(
    settings: &Settings,
    sinks: &BTreeMap<Arc<str>, OpenSink>,
    apply: bool,
    context: &Context,
) -> Option<anyhow::Error> {
    for NamedSink { name, options } in &settings.sinks {
        let Some(open) = sinks.get(name) else { continue };
        let streams = open.streams.clone().filter(|_| options.has_streams());
        let answer = match &streams {
            Some(streams) => in_time(ask(&**streams, apply)).await,
            None => in_time(open.sink.check()).await.map(|()| Vec::new()),
        };
        match answer {
            Ok(states) if apply => say_applied(&states, context),
            Ok(states) => {
                let none = states.iter().all(|state| state.state == Comparison::Missing);
                match missing(name, &states) {
                    Some(problem) if none && settings.sinks.len() == 1 => return Some(problem),
                    Some(problem) => tell(&format!("{problem}. Its events wait; others continue.")),
                    None => {}
                }
            }
            Err(error) if away(&error) => {
                tell(&format!(
                    "Sink `{name}` is away: {error}. Its events wait; retrying."
                ));
                if let Some(streams) = streams {
                    tokio::spawn(later(name.clone(), streams, apply));
                }
            }
            Err(error) => return Some(anyhow!("sink `{name}`: {error}")),
        }
    }
    None
}

async fn in_time<T>(answer: impl Future<Output = Result<T, SinkError>>) -> Result<T, SinkError> {
    let silent = || SinkError::new(SinkErrorKind::Timeout, "it does not answer");
    tokio::time::timeout(PATIENCE, answer)
        .await
        .unwrap_or_else(|_| Err(silent()))
}

async fn ask(streams: &dyn Streams, apply: bool) -> Result<Vec<StreamState>, SinkError> {
    if apply {
        streams.apply_streams().await
    } else {
        streams.check_streams().await
    }
}

fn away(error: &SinkError) -> bool {
    matches!(
        error.kind,
        SinkErrorKind::Unreachable | SinkErrorKind::Unavailable | SinkErrorKind::Timeout
    )
}

/// Retries until the sink answers.
async fn later(name: Arc<str>, streams: Arc<dyn Streams>, apply: bool) {
    let mut interval = Duration::from_secs(1);
    loop {
        tokio::time::sleep(interval).await;
        interval = (interval * 2).min(Duration::from_secs(30));
        match ask(&*streams, apply).await {
            Err(error) if away(&error) => {}
            Err(error) => {
                return tracing::error!(sink = %name, %error, "could not check or create the streams");
            }
            Ok(states) => {
                if let Some(problem) = missing(&name, &states).filter(|_| !apply) {
                    tracing::error!(sink = %name, "{problem}");
                }
                return;
            }
        }
    }
}

fn missing(name: &str, states: &[StreamState]) -> Option<anyhow::Error> {
    let names = |wanted: fn(&Comparison) -> bool| -> Vec<&str> {
        states
            .iter()
            .filter(|state| wanted(&state.state))
            .map(|state| state.name.as_str())
            .collect()
    };
    let differing = names(|state| matches!(state, Comparison::Differs { .. }));
    if !differing.is_empty() {
        tracing::warn!(sink = %name, streams = %differing.join(", "), "streams differ from the configuration: see `pillarbox streams check`");
    }
    let missing = names(|state| *state == Comparison::Missing);
    (!missing.is_empty()).then(|| {
        anyhow!(
            "sink `{name}` has no stream or topic {}: run `pillarbox streams apply`, or `pillarbox run --apply-streams`",
            missing.join(", ")
        )
    })
}

fn say_applied(states: &[StreamState], context: &Context) {
    for state in states {
        match state.state {
            Comparison::Same => {}
            Comparison::Missing => context.say(&format!("Made {}.", state.name)),
            Comparison::Differs { .. } => context.say(&format!("Changed {}.", state.name)),
        }
    }
}
