//! From an address in the configuration to a store or a sink: the one place that knows them all.

use std::{sync::Arc, time::Duration};

use pillarbox::table::Tables;
use url::{Position, Url};

use crate::{
    check::versions::AggregateVersions,
    dead::DeadLetters,
    notice::Notices,
    reprocess::Schedules,
    sink::{Sink, SinkError, SinkErrorKind, StreamSpec, Streams, TopicSpec},
    store::{Admin, Store, StoreError, StoreErrorKind},
};

/// A database with an outbox.
#[derive(Clone)]
pub struct DatabaseOptions {
    /// `postgres://…`, `mongodb://…` or `sqlite:…`.
    pub url: String,
    pub tables: Tables,
    pub claim: Claim,
    /// LISTEN and NOTIFY (PostgreSQL). Off: only the poll wakes the relay.
    pub notify: bool,
    /// The address is a transaction pooler (PgBouncer): nothing may be kept in a session.
    pub pooler: bool,
    pub connections_max: u32,
    pub connect_timeout: Duration,
    /// How long a statement may take (PostgreSQL). A connection that has gone silent must not hang the relay for ever.
    pub answer_timeout: Duration,
}

impl DatabaseOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tables: Tables::default(),
            claim: Claim::default(),
            notify: true,
            pooler: false,
            connections_max: 5,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
        }
    }
}

/// How relays share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Claim {
    /// A relay leases lanes of keys: each key keeps its order.
    #[default]
    Lanes,
    /// A relay locks the events themselves, as they come (MongoDB). No order is kept beyond a batch.
    Rows,
}

#[derive(Clone)]
pub struct OpenStore {
    /// `postgres`, `mongodb`, `sqlite`.
    pub kind: &'static str,
    pub store: Arc<dyn Store>,
    pub admin: Arc<dyn Admin>,
    pub dead_letters: Arc<dyn DeadLetters>,
    pub notices: Arc<dyn Notices>,
    pub schedules: Arc<dyn Schedules>,
    /// What the check of aggregates' versions asks.
    pub versions: Arc<dyn AggregateVersions>,
}

/// Opens a store. It does not connect yet: a database that is away shows at the first use, and may come back.
pub fn store(options: &DatabaseOptions) -> Result<OpenStore, StoreError> {
    if options.claim == Claim::Rows && !matches!(scheme(&options.url), "mongodb" | "mongodb+srv") {
        return Err(StoreError::new(
            StoreErrorKind::Misconfigured,
            "`claim: rows` is built for MongoDB only: leave it out, and relays share the work by lanes, which keeps order",
        ));
    }
    match scheme(&options.url) {
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => {
            let store = Arc::new(crate::store::postgres::PostgresStore::open(options)?);
            Ok(OpenStore {
                kind: "postgres",
                store: store.clone(),
                admin: store.clone(),
                dead_letters: store.clone(),
                notices: store.clone(),
                schedules: store.clone(),
                versions: store,
            })
        }
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            let store = Arc::new(crate::store::sqlite::SqliteStore::open(options)?);
            Ok(OpenStore {
                kind: "sqlite",
                store: store.clone(),
                admin: store.clone(),
                dead_letters: store.clone(),
                notices: store.clone(),
                schedules: store.clone(),
                versions: store,
            })
        }
        #[cfg(feature = "mongodb")]
        "mongodb" | "mongodb+srv" => {
            let store = Arc::new(crate::store::mongodb::MongoStore::open(options)?);
            let engine: Arc<dyn Store> = match options.claim {
                Claim::Lanes => store.clone(),
                Claim::Rows => Arc::new(crate::store::mongodb::RowsStore::new(store.clone())),
            };
            Ok(OpenStore {
                kind: "mongodb",
                store: engine,
                admin: store.clone(),
                dead_letters: store.clone(),
                notices: store.clone(),
                schedules: store.clone(),
                versions: store,
            })
        }
        other => {
            let unknown = || {
                format!(
                    "`{other}:` is no database this build knows. Use postgres://user@host/database, mongodb://host/database or sqlite:path"
                )
            };
            let message = built_without(other).unwrap_or_else(unknown);
            Err(StoreError::new(StoreErrorKind::Misconfigured, message))
        }
    }
}

/// A place that takes events.
#[derive(Clone)]
pub struct SinkOptions {
    /// `nats://host:port`, `kafka://host:port`, `http-stream:`, `stdout:` or `null:`.
    pub url: String,
    /// The streams that are to exist there (NATS).
    pub streams: Vec<StreamSpec>,
    /// The topics that are to exist there (Kafka).
    pub topics: Vec<TopicSpec>,
    /// How long to wait for the other side's word on one event.
    pub publish_timeout: Duration,
}

impl SinkOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            streams: Vec::new(),
            topics: Vec::new(),
            publish_timeout: Duration::from_secs(5),
        }
    }

    /// Whether anything is to exist there.
    pub fn has_streams(&self) -> bool {
        !self.streams.is_empty() || !self.topics.is_empty()
    }
}

#[derive(Clone)]
pub struct OpenSink {
    /// `nats`, `kafka`, `http-stream`, `stdout`, `null`.
    pub kind: &'static str,
    pub sink: Arc<dyn Sink>,
    /// Where the sink has streams one can check and make.
    pub streams: Option<Arc<dyn Streams>>,
    /// Where the HTTP API has something to serve.
    #[cfg(feature = "http-stream")]
    pub http_stream: Option<Arc<crate::sink::http_stream::HttpStream>>,
}

impl OpenSink {
    fn plain(kind: &'static str, sink: Arc<dyn Sink>) -> Self {
        Self {
            kind,
            sink,
            streams: None,
            #[cfg(feature = "http-stream")]
            http_stream: None,
        }
    }
}

/// Opens a sink. It does not wait for a connection.
pub fn sink(options: &SinkOptions) -> Result<OpenSink, SinkError> {
    match scheme(&options.url) {
        #[cfg(feature = "nats")]
        "nats" | "tls" => {
            let sink = Arc::new(crate::sink::nats::NatsSink::open(options)?);
            Ok(OpenSink {
                streams: Some(sink.clone()),
                ..OpenSink::plain("nats", sink)
            })
        }
        #[cfg(feature = "kafka")]
        "kafka" => {
            let sink = Arc::new(crate::sink::kafka::KafkaSink::open(options)?);
            Ok(OpenSink {
                streams: Some(sink.clone()),
                ..OpenSink::plain("kafka", sink)
            })
        }
        #[cfg(feature = "http-stream")]
        "http-stream" => {
            let sink = Arc::new(crate::sink::http_stream::HttpStream::default());
            Ok(OpenSink {
                http_stream: Some(sink.clone()),
                ..OpenSink::plain("http-stream", sink)
            })
        }
        "stdout" => Ok(OpenSink::plain(
            "stdout",
            Arc::new(crate::sink::stdout::Stdout::default()),
        )),
        "null" => Ok(OpenSink::plain("null", Arc::new(crate::sink::null::Null))),
        other => {
            let unknown = || {
                format!(
                    "`{other}:` is no sink this build knows. Use nats://host:port, kafka://host:port, http-stream:, \
                     stdout: or null:"
                )
            };
            let message = built_without(other).unwrap_or_else(unknown);
            Err(SinkError::new(SinkErrorKind::Misconfigured, message))
        }
    }
}

/// Why an address that nothing above opened may be right all the same: it is known, and left out of this build.
fn built_without(scheme: &str) -> Option<String> {
    let (name, feature) = match scheme {
        "postgres" | "postgresql" => ("PostgreSQL", "postgres"),
        "sqlite" => ("SQLite", "sqlite"),
        "mongodb" | "mongodb+srv" => ("MongoDB", "mongodb"),
        "nats" | "tls" => ("NATS", "nats"),
        "kafka" => ("Kafka", "kafka"),
        "http-stream" => ("the HTTP stream", "http-stream"),
        _ => return None,
    };
    Some(format!("built without {name}: build with --features {feature}"))
}

/// An address as it may be shown: without its password.
pub fn redacted(url: &str) -> String {
    if matches!(scheme(url), "mongodb" | "mongodb+srv") {
        return redacted_mongodb(url);
    }
    let (list, query) = url.split_once('?').unwrap_or((url, ""));
    if !matches!(scheme(url), "nats" | "tls" | "kafka") || !list.contains(',') {
        return redacted_one(url);
    }
    let servers = servers(list);
    // A comma before the user's end may belong to the password.
    let last_user = servers.iter().rposition(|server| server.contains('@'));
    if last_user.is_some_and(|last| servers[..last].iter().any(|server| !server.contains('@'))) {
        return scheme_alone(url);
    }
    let shown: Vec<String> = servers.iter().map(|server| redacted_one(server)).collect();
    let separator = if query.is_empty() { "" } else { "?" };
    format!("{}{separator}{query}", shown.join(","))
}

/// The servers of an address that may name several, `nats://a,b`, each as an address of its own.
pub fn servers(url: &str) -> Vec<String> {
    let list = url.split_once('?').map_or(url, |(list, _)| list);
    let scheme = list.split_once("://").map_or("nats", |(scheme, _)| scheme);
    let whole = |server: &str| match server.contains("://") {
        true => server.to_owned(),
        false => format!("{scheme}://{server}"),
    };
    list.split(',')
        .filter(|server| !server.is_empty())
        .map(whole)
        .collect()
}

/// One user stands before all hosts; what is before the last `@` may be a password, however it is written.
fn redacted_mongodb(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return scheme_alone(url);
    };
    let (user, place) = match rest.rsplit_once('@') {
        None => (String::new(), rest),
        Some((user, place)) => match user.split_once(':') {
            Some((name, _)) => (format!("{name}:***@"), place),
            None => (format!("{user}@"), place),
        },
    };
    let (hosts, options) = place.split_once('?').unwrap_or((place, ""));
    let shown = options.split('&').map(|option| match option.split_once('=') {
        // `tlsCertificateKeyFilePassword`, `authMechanismProperties=AWS_SESSION_TOKEN:…`, `proxyPassword`.
        Some((name, _))
            if ["password", "properties"]
                .iter()
                .any(|end| name.to_lowercase().ends_with(end)) =>
        {
            format!("{name}=***")
        }
        _ => option.to_owned(),
    });
    let shown = shown.collect::<Vec<_>>().join("&");
    let separator = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{user}{hosts}{separator}{shown}")
}

fn redacted_one(url: &str) -> String {
    match Url::parse(url) {
        // A password with a `/`, `?` or `#` in it ends the host early: its rest stands where a path would.
        Ok(parsed) if parsed[Position::BeforePath..].contains('@') => scheme_alone(url),
        Ok(mut parsed) if parsed.password().is_some() => match parsed.set_password(Some("***")) {
            Ok(()) => parsed.to_string(),
            Err(()) => scheme_alone(url),
        },
        // A name without a password is a token of NATS.
        Ok(mut parsed) if matches!(parsed.scheme(), "nats" | "tls") && !parsed.username().is_empty() => {
            match parsed.set_username("***") {
                Ok(()) => parsed.to_string(),
                Err(()) => scheme_alone(url),
            }
        }
        Ok(_) => url.to_owned(),
        // What can't be parsed can't be cleaned either.
        Err(_) => scheme_alone(url),
    }
}

/// All that may be shown of an address nobody can read; nothing, where what stands before its colon is no scheme.
fn scheme_alone(url: &str) -> String {
    let scheme = scheme(url);
    let plain = scheme.len() <= 20 && scheme.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
    match plain {
        true => format!("{scheme}:…"),
        false => "…".into(),
    }
}

fn scheme(url: &str) -> &str {
    url.split_once(':').map_or(url, |(scheme, _)| scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        assert_eq!(
            redacted("postgres://app:secret@127.0.0.1/shop"),
            "postgres://app:***@127.0.0.1/shop"
        );
        assert_eq!(redacted("nats://127.0.0.1:4222"), "nats://127.0.0.1:4222");
        assert_eq!(
            redacted("nats://t0ken@127.0.0.1:4222"),
            "nats://***@127.0.0.1:4222"
        );
        assert_eq!(
            redacted("nats://app:secret@a:4222,b:4222?ca=x.pem"),
            "nats://app:***@a:4222,nats://b:4222?ca=x.pem"
        );
        for (url, shown) in [
            (
                "mongodb://app:geheim@a:1,b:2/shop?replicaSet=rs0",
                "mongodb://app:***@a:1,b:2/shop?replicaSet=rs0",
            ),
            ("mongodb://a:1,b:2/shop", "mongodb://a:1,b:2/shop"),
            (
                "mongodb+srv://app:ge/he@im@c.example/shop",
                "mongodb+srv://app:***@c.example/shop",
            ),
            (
                "mongodb://a/shop?tlsCertificateKeyFilePassword=geheim&authMechanismProperties=AWS_SESSION_TOKEN:geheim",
                "mongodb://a/shop?tlsCertificateKeyFilePassword=***&authMechanismProperties=***",
            ),
        ] {
            assert_eq!(redacted(url), shown);
        }
        for password in ["1/geheim", "1?geheim", "1#geheim", "/geheim"] {
            let shown = redacted(&format!("postgres://app:{password}@127.0.0.1/shop"));
            assert!(!shown.contains("geheim"), "{shown}");
        }
        assert!(!redacted("nats://app:12,34@a:4222").contains("12"));
        assert!(!redacted("postgres://app:se cret@[bad/shop").contains("cret"));
        assert_eq!(redacted("t0ken@127.0.0.1:4222"), "…");
        assert_eq!(
            redacted("kafka://app:secret@a:9092,b:9092?sasl=plain"),
            "kafka://app:***@a:9092,kafka://b:9092?sasl=plain"
        );
        assert_eq!(redacted("kafka://app@a:9092"), "kafka://app@a:9092");
    }

    #[test]
    fn what_a_build_left_out_is_told_with_the_way_to_get_it() {
        assert_eq!(
            built_without("kafka").as_deref(),
            Some("built without Kafka: build with --features kafka")
        );
        for known in ["postgres", "sqlite", "mongodb", "nats", "tls", "http-stream"] {
            assert!(built_without(known).is_some(), "{known}");
        }
        assert_eq!(built_without("amqp"), None);
    }
}
