//! From the keys to what the relay is given, with the checks a schema can't make.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use pillarbox::{Limits, table::Tables};
use pillarbox_relay::{
    Options,
    connect::{DatabaseOptions, SinkOptions},
    retry::RetryPolicy,
    route::{Pattern, Route, Routes},
    sink::{self, StreamSpec},
};
use url::Url;

use super::{Loaded, schema, unknown::nearest};

const STORES: &[&str] = &["postgres", "postgresql", "sqlite"];
const SINKS: &[&str] = &["nats", "tls", "http-stream", "stdout", "null"];

/// What the commands work with.
#[derive(Clone)]
pub(crate) struct Settings {
    pub database: DatabaseOptions,
    pub default_database: bool,
    pub sinks: Vec<NamedSink>,
    pub routes: Routes,
    pub relay: Options,
    pub limits: Limits,
    pub listen: SocketAddr,
    pub health_checks: bool,
}

#[derive(Clone)]
pub(crate) struct NamedSink {
    pub name: Arc<str>,
    pub options: SinkOptions,
}

/// What is wrong, each with the path of its key.
type Problems = Vec<(String, String)>;

pub(super) fn settings(loaded: &Loaded) -> Result<Settings, Problems> {
    let outbox = &loaded.config.outbox;
    let mut problems = Problems::new();
    not_built(outbox, &mut problems);
    let database = database(&outbox.database, &mut problems);
    let mut sinks = sinks(outbox, &mut problems);
    let routes = routes(outbox, &sinks, &mut problems);
    streams(outbox, &mut sinks, &mut problems);
    let relay = relay(outbox, &mut problems);
    if !outbox.http.listen.ip().is_loopback() {
        problems.push((
            "outbox.http.listen".into(),
            format!(
                "{} can be reached from other machines, and access by token is not built yet. Use 127.0.0.1 or [::1]",
                outbox.http.listen
            ),
        ));
    }
    let (Some(database), Some(routes), true) = (database, routes, problems.is_empty()) else {
        return Err(problems);
    };
    Ok(Settings {
        database,
        default_database: loaded.default_database,
        sinks,
        routes,
        limits: Limits {
            payload_bytes_max: relay.payload_bytes_max,
            ..Limits::default()
        },
        relay,
        listen: outbox.http.listen,
        health_checks: outbox.monitoring.enable_health_checks,
    })
}

/// Keys whose function comes later: they are known, and only the value that says "off" is taken.
fn not_built(outbox: &schema::Outbox, problems: &mut Problems) {
    let (database, dlq) = (&outbox.database, &outbox.dlq);
    let (validation, monitoring) = (&outbox.validation, &outbox.monitoring);
    let later = [
        (
            "database.wal_table_name",
            database.wal_table_name.is_some(),
            "the write-ahead log as a source",
            "leave it out",
        ),
        (
            "publisher.enable_wal_integration",
            outbox.publisher.enable_wal_integration,
            "the write-ahead log as a source",
            "set it to false",
        ),
        (
            "dlq.auto_dlq_after_max_retries",
            !dlq.auto_dlq_after_max_retries,
            "retrying for ever",
            "set it to true",
        ),
        (
            "dlq.dlq_notification_enabled",
            dlq.dlq_notification_enabled,
            "telling somebody of a dead letter",
            "set it to false",
        ),
        (
            "dlq.dlq_retention_days",
            dlq.dlq_retention_days.is_some(),
            "deleting old dead letters",
            "leave it out: they are kept",
        ),
        (
            "dlq.enable_manual_replay",
            dlq.enable_manual_replay,
            "replaying dead letters",
            "set it to false",
        ),
        (
            "validation.enable_schema_validation",
            validation.enable_schema_validation,
            "checking payloads by schema",
            "set it to false",
        ),
        (
            "validation.enable_business_rule_validation",
            validation.enable_business_rule_validation,
            "checking payloads by rules",
            "set it to false",
        ),
        (
            "validation.schema_registry_url",
            validation.schema_registry_url.is_some(),
            "a schema registry",
            "leave it out",
        ),
        (
            "monitoring.enable_metrics",
            monitoring.enable_metrics,
            "metrics",
            "set it to false",
        ),
        (
            "monitoring.metrics_prefix",
            monitoring.metrics_prefix != "outbox",
            "metrics",
            "leave it out",
        ),
        (
            "monitoring.alert_on_dlq_events",
            monitoring.alert_on_dlq_events,
            "alerts",
            "set it to false",
        ),
    ];
    for (key, asked, what, instead) in later {
        if asked {
            problems.push((
                format!("outbox.{key}"),
                format!("{what}: this is not built yet; {instead}"),
            ));
        }
    }
    for (index, route) in outbox.routes.iter().enumerate() {
        if route.after_death == schema::AfterDeath::Block {
            problems.push((
                format!("outbox.routes.{index}.after_death"),
                "`block` is not built yet: after a death its key goes on; use `continue`".into(),
            ));
        }
    }
}

fn database(database: &schema::Database, problems: &mut Problems) -> Option<DatabaseOptions> {
    let before = problems.len();
    let key = |name: &str| format!("outbox.database.{name}");
    if let Err(problem) = scheme(&database.url, STORES) {
        problems.push((
            key("url"),
            format!("{problem}. Use postgres://user@host/database or sqlite:path"),
        ));
    }
    if database.pooler && database.notify == Some(true) {
        problems.push((
            key("notify"),
            "a transaction pooler can't pass notifications on: leave `notify` out, or set `pooler` to false"
                .into(),
        ));
    }
    positive(problems, key("connections_max"), database.connections_max.into());
    positive(problems, key("connect_timeout_ms"), database.connect_timeout_ms);
    positive(problems, key("payload_bytes_max"), database.payload_bytes_max);
    let tables = Tables::new(&database.table_name, database.dlq_table_name.as_deref())
        .map_err(|error| {
            let which = if error.name == database.table_name {
                "table_name"
            } else {
                "dlq_table_name"
            };
            problems.push((key(which), error.to_string()));
        })
        .ok()?;
    (problems.len() == before).then(|| DatabaseOptions {
        tables,
        notify: database.notify.unwrap_or(!database.pooler),
        pooler: database.pooler,
        connections_max: database.connections_max,
        connect_timeout: Duration::from_millis(database.connect_timeout_ms),
        ..DatabaseOptions::new(database.url.clone())
    })
}

fn sinks(outbox: &schema::Outbox, problems: &mut Problems) -> Vec<NamedSink> {
    let mut sinks = Vec::new();
    for (name, sink) in &outbox.sinks {
        let key = |field: &str| format!("outbox.sinks.{name}.{field}");
        if let Err(problem) = scheme(&sink.url, SINKS) {
            problems.push((
                key("url"),
                format!("{problem}. Use nats://host:port, http-stream:, stdout: or null:"),
            ));
        }
        positive(problems, key("publish_timeout_ms"), sink.publish_timeout_ms);
        sinks.push(NamedSink {
            name: name.as_str().into(),
            options: SinkOptions {
                publish_timeout: Duration::from_millis(sink.publish_timeout_ms),
                ..SinkOptions::new(sink.url.clone())
            },
        });
    }
    sinks
}

fn routes(outbox: &schema::Outbox, sinks: &[NamedSink], problems: &mut Problems) -> Option<Routes> {
    if outbox.routes.is_empty() {
        if let [only] = sinks {
            return Some(Routes::to_one(&only.name));
        }
        problems.push((
            "outbox.routes".into(),
            format!("there are {} sinks and no routes: say which topics go where, for example {{ topic: \">\", sink: {} }}", sinks.len(), sinks[0].name),
        ));
        return None;
    }
    let mut routes = Vec::new();
    for (index, route) in outbox.routes.iter().enumerate() {
        let key = |field: &str| format!("outbox.routes.{index}.{field}");
        known_sink(sinks, &route.sink, key("sink"), problems);
        match Pattern::new(&route.topic) {
            Ok(topic) => routes.push(Route {
                topic,
                sink: route.sink.as_str().into(),
                stream: route.stream.as_deref().map(Arc::from),
            }),
            Err(error) => problems.push((key("topic"), error.to_string())),
        }
    }
    Some(Routes::new(routes))
}

/// Gives each stream to its sink.
fn streams(outbox: &schema::Outbox, sinks: &mut [NamedSink], problems: &mut Problems) {
    let with_streams: Vec<Arc<str>> = sinks
        .iter()
        .filter(|sink| has_streams(&sink.options.url))
        .map(|sink| sink.name.clone())
        .collect();
    for (index, stream) in outbox.streams.iter().enumerate() {
        let key = |field: &str| format!("outbox.streams.{index}.{field}");
        positive(problems, key("replicas"), stream.replicas.into());
        positive(
            problems,
            key("duplicate_window_seconds"),
            stream.duplicate_window_seconds,
        );
        if stream.subjects.is_empty() {
            problems.push((key("subjects"), "a stream takes at least one subject".into()));
        }
        for subject in &stream.subjects {
            if let Err(error) = Pattern::new(subject) {
                problems.push((key("subjects"), error.to_string()));
            }
        }
        let owner = match (&stream.sink, with_streams.as_slice()) {
            (Some(name), _) => {
                known_sink(sinks, name, key("sink"), problems);
                name.as_str().into()
            }
            (None, [only]) => only.clone(),
            (None, []) => {
                problems.push((key("name"), "no sink has streams: only a nats:// one does".into()));
                continue;
            }
            (None, _) => {
                problems.push((
                    key("name"),
                    "several sinks have streams: say which by `sink`".into(),
                ));
                continue;
            }
        };
        let Some(sink) = sinks.iter_mut().find(|sink| sink.name == owner) else {
            continue;
        };
        if !has_streams(&sink.options.url) {
            problems.push((
                key("sink"),
                format!("`{owner}` has no streams: only a nats:// sink does"),
            ));
        }
        sink.options.streams.push(StreamSpec {
            name: stream.name.clone(),
            subjects: stream.subjects.clone(),
            replicas: stream.replicas as usize,
            storage: match stream.storage {
                schema::Storage::File => sink::Storage::File,
                schema::Storage::Memory => sink::Storage::Memory,
            },
            duplicate_window: Duration::from_secs(stream.duplicate_window_seconds),
        });
    }
}

fn relay(outbox: &schema::Outbox, problems: &mut Problems) -> Options {
    let (publisher, retry) = (&outbox.publisher, &outbox.retry_policy);
    for (name, value) in [
        ("batch_size", publisher.batch_size.into()),
        ("poll_interval_ms", publisher.poll_interval_ms),
        (
            "max_concurrent_publishers",
            publisher.max_concurrent_publishers.into(),
        ),
        ("window_events_max", publisher.window_events_max.into()),
        ("window_bytes_max", publisher.window_bytes_max),
    ] {
        positive(problems, format!("outbox.publisher.{name}"), value);
    }
    if publisher.lease_ms < 500 {
        problems.push((
            "outbox.publisher.lease_ms".into(),
            "a lease must be 500 ms or longer: it is renewed over the network".into(),
        ));
    }
    let key = |name: &str| format!("outbox.retry_policy.{name}");
    positive(
        problems,
        key("default_max_attempts"),
        retry.default_max_attempts.into(),
    );
    positive(
        problems,
        key("default_base_delay_ms"),
        retry.default_base_delay_ms,
    );
    if retry.default_max_delay_ms < retry.default_base_delay_ms {
        problems.push((
            key("default_max_delay_ms"),
            "it is shorter than `default_base_delay_ms`".into(),
        ));
    }
    if !(1.0..=100.0).contains(&retry.default_backoff_multiplier) {
        problems.push((
            key("default_backoff_multiplier"),
            "it must be between 1 and 100".into(),
        ));
    }
    let [low, high] = retry.jitter_range;
    if !(low > 0.0 && low <= high && high <= 10.0) {
        problems.push((
            key("jitter_range"),
            "it must be two numbers, the smaller first, above 0 and up to 10".into(),
        ));
    }
    Options {
        name: publisher.name.clone().unwrap_or_else(machine_name),
        batch_events_max: publisher.batch_size as usize,
        publishers_max: publisher.max_concurrent_publishers as usize,
        window_events_max: publisher.window_events_max as usize,
        window_bytes_max: as_size(publisher.window_bytes_max),
        payload_bytes_max: as_size(outbox.database.payload_bytes_max),
        poll_interval_max: Duration::from_millis(publisher.poll_interval_ms),
        lease: Duration::from_millis(publisher.lease_ms),
        retry: RetryPolicy {
            attempts_max: retry.default_max_attempts,
            base_delay: Duration::from_millis(retry.default_base_delay_ms),
            max_delay: Duration::from_millis(retry.default_max_delay_ms),
            multiplier: retry.default_backoff_multiplier,
            jitter: if retry.enable_jitter {
                (low, high)
            } else {
                (1.0, 1.0)
            },
        },
        ..Options::default()
    }
}

fn known_sink(sinks: &[NamedSink], name: &str, key: String, problems: &mut Problems) {
    if sinks.iter().any(|sink| &*sink.name == name) {
        return;
    }
    let hint = match nearest(name, sinks.iter().map(|sink| &*sink.name)) {
        Some(near) => format!("Did you mean `{near}`?"),
        None => format!(
            "There are: {}.",
            sinks
                .iter()
                .map(|sink| &*sink.name)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    };
    problems.push((key, format!("there is no sink `{name}`. {hint}")));
}

/// Whether an address is one of these kinds and can be read. The message never shows the address: it may hold a password.
fn scheme(url: &str, known: &[&str]) -> Result<(), String> {
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err("this is no address: there is no `scheme:` in front".into());
    };
    if !known.contains(&scheme) {
        let hint = nearest(scheme, known.iter().copied())
            .map_or_else(String::new, |near| format!(" (did you mean `{near}:`?)"));
        return Err(format!("`{scheme}:` is not known here{hint}"));
    }
    if rest.starts_with("//") && !scheme.starts_with("sqlite") {
        let parsed = Url::parse(url).map_err(|error| format!("the address can't be read: {error}"))?;
        if parsed.host_str().is_none_or(str::is_empty)
            && !parsed.query().unwrap_or_default().contains("host=")
        {
            return Err("the address has no host".into());
        }
    } else if matches!(scheme, "postgres" | "postgresql" | "nats" | "tls") {
        return Err(format!("`{scheme}:` is followed by `//` and a host"));
    }
    Ok(())
}

fn has_streams(url: &str) -> bool {
    url.starts_with("nats:") || url.starts_with("tls:")
}

fn positive(problems: &mut Problems, key: String, value: u64) {
    if value == 0 {
        problems.push((key, "it must be 1 or more".into()));
    }
}

fn as_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn machine_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "relay".into())
}
