//! Where events go: sinks, routes, and the streams and topics that must exist.

use std::{borrow::Cow, collections::BTreeMap, path::PathBuf};

use pillarbox_relay::driver;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sink {
    #[schemars(extend("description" = driver::sink_summaries()))]
    pub url: String,
    /// How long to wait for the sink's answer about one event.
    #[serde(default = "publish_timeout_ms")]
    pub publish_timeout_ms: u64,
    /// How requests are made, for a sink at `https://` or `http://`.
    #[serde(default)]
    pub webhook: Option<WebhookSink>,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WebhookSink {
    /// Each of them signs the requests: `whsec_` and 24 to 64 bytes in base64 (`openssl rand -base64 32`).
    /// Give two while you change secrets. Without a secret, requests are not signed.
    pub secrets: Vec<String>,
    /// HTTP headers of each request, such as `authorization`. Their values are never shown or logged.
    pub headers: BTreeMap<String, String>,
    /// How many requests of a relay may wait for an answer at one time.
    pub requests_max: u32,
    /// The certificate authorities to trust for the receiver, a file of PEM. The default is those of the
    /// machine.
    pub ca: Option<PathBuf>,
    /// The relay's certificate, for a receiver that asks for one: a file of PEM. It needs `key`.
    pub cert: Option<PathBuf>,
    /// The key of `cert`, a file of PEM.
    pub key: Option<PathBuf>,
}

impl Default for WebhookSink {
    fn default() -> Self {
        Self {
            secrets: Vec::new(),
            headers: BTreeMap::new(),
            requests_max: 16,
            ca: None,
            cert: None,
            key: None,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    /// A pattern as in NATS: tokens between dots. `*` matches one token; a final `>` matches all the rest.
    pub topic: String,
    /// A name under `sinks`.
    pub sink: String,
    /// The stream that must store the event (NATS), or the topic it goes to (Kafka). If an event names one
    /// itself, that one is used.
    #[serde(default)]
    pub stream: Option<String>,
    /// The format of the events. `raw`: the payload is the body, the rest are headers. `cloudevents`: binary
    /// mode. `cloudevents_structured`: one JSON object. `pillarbox`: one JSON object with everything.
    /// `debezium`: as Debezium's outbox event router.
    #[serde(default)]
    pub envelope: Envelope,
    /// The `source` of CloudEvents: a URI or a path.
    #[serde(default)]
    #[schemars(extend("x-default" = "`/<aggregate_type>`"))]
    pub source: Option<String>,
    /// The message, field by field, instead of an envelope. See [ADOPT.md](ADOPT.md#messages).
    #[serde(default)]
    pub shape: Option<Shape>,
    /// What happens to a key after one of its events died. `skip`: it continues with the next event. `block`:
    /// it waits until somebody replays or discards the dead letter. `latest`: it continues with the newest
    /// event of that topic, for topics whose events each contain the whole state.
    #[serde(default)]
    pub after_death: AfterDeath,
    /// Record what becomes of these events in the event log.
    #[serde(default)]
    #[schemars(extend("x-default" = "`outbox.event_log.enabled`"))]
    pub event_log: Option<bool>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Shape {
    /// A shape to begin with: `payload`, `message-id`, `event-id` or `storage-outbox`. The other keys add to it.
    pub preset: Option<String>,
    /// The fields of the body, in alphabetical order, and what each contains: `messageId: id`. Without any, the
    /// body is the payload, byte for byte.
    pub body: BTreeMap<String, String>,
    /// The headers: `tenant: headers->tenant`. One without a value is left out.
    pub headers: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Envelope {
    #[default]
    Raw,
    #[serde(rename = "cloudevents")]
    CloudEvents,
    #[serde(rename = "cloudevents_structured")]
    CloudEventsStructured,
    Pillarbox,
    Debezium,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AfterDeath {
    #[default]
    Skip,
    Block,
    Latest,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stream {
    /// The stream's name.
    pub name: String,
    /// The subjects it stores, at least one, with `*` and `>` as in NATS.
    pub subjects: Vec<String>,
    /// How many servers keep a copy.
    #[serde(default = "one")]
    pub replicas: u32,
    /// Whether the servers keep events on disk or in memory.
    #[serde(default)]
    pub storage: Storage,
    /// How long the stream remembers an event's id to drop a copy.
    #[serde(default = "duplicate_window_seconds")]
    pub duplicate_window_seconds: u64,
    /// A name under `sinks`. Required if there are several NATS sinks.
    #[serde(default)]
    #[schemars(extend("x-default" = "the one NATS sink"))]
    pub sink: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Storage {
    #[default]
    File,
    Memory,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Topic {
    /// The topic's name: letters, digits, `.`, `_` and `-`, up to 249.
    pub name: String,
    /// How many partitions. Missing ones are added. Fewer than the topic has is an error, because Kafka can't
    /// remove partitions.
    #[serde(default)]
    #[schemars(extend("x-default" = "the brokers' choice"))]
    pub partitions: Option<u32>,
    /// How many brokers keep a copy. It is only used to create a topic; if the topic exists with another
    /// number, that is an error.
    #[serde(default)]
    #[schemars(extend("x-default" = "the brokers' choice"))]
    pub replication: Option<u32>,
    /// Settings under Kafka's own names: `{ retention.ms: 604800000, cleanup.policy: delete }`.
    #[serde(default)]
    pub settings: BTreeMap<String, TopicSetting>,
    /// A name under `sinks`. Required if there are several Kafka sinks.
    #[serde(default)]
    #[schemars(extend("x-default" = "the one Kafka sink"))]
    pub sink: Option<String>,
}

/// Kafka's settings are text, but people write numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum TopicSetting {
    Truth(bool),
    Whole(i64),
    Number(f64),
    Text(String),
}

impl JsonSchema for TopicSetting {
    fn schema_name() -> Cow<'static, str> {
        "TopicSetting".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "number", "boolean"] })
    }
}

impl std::fmt::Display for TopicSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Truth(value) => value.fmt(f),
            Self::Whole(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl Sink {
    /// The default sink: this process's own HTTP stream.
    pub(crate) fn embedded() -> Self {
        Self {
            url: "http-stream:".into(),
            publish_timeout_ms: publish_timeout_ms(),
            webhook: None,
        }
    }
}

fn publish_timeout_ms() -> u64 {
    5_000
}

fn duplicate_window_seconds() -> u64 {
    120
}

fn one() -> u32 {
    1
}
