//! The checks that an event must pass before it is published.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Validation {
    /// Check payloads against JSON Schemas, from `schema_folder` or from `schema_registry_url`.
    #[schemars(extend("x-default" = "off"))]
    pub enable_schema_validation: Option<bool>,
    /// A folder of schemas. `OrderPlaced/2.json` or `OrderPlaced.v2.json` is version 2 of `OrderPlaced`;
    /// `OrderPlaced.json` is for the versions without a file of their own.
    pub schema_folder: Option<PathBuf>,
    /// How often to look whether the folder has changed.
    pub schema_reload_seconds: u64,
    /// A schema registry with Confluent's HTTP API, instead of a folder: `http://user:password@host:port`.
    pub schema_registry_url: Option<String>,
    /// The certificate authorities to trust for a registry with `https://`, a file of PEM. The default is
    /// those of the machine.
    pub schema_registry_ca: Option<PathBuf>,
    /// The relay's certificate, for a registry that asks for one: a file of PEM. It needs `schema_registry_key`.
    pub schema_registry_cert: Option<PathBuf>,
    /// The key of `schema_registry_cert`, a file of PEM.
    pub schema_registry_key: Option<PathBuf>,
    /// The subject of an event: text and at least one of `{event_type}`, `{topic}`, `{aggregate_type}`, for
    /// example `{topic}-value`. The version is the event's `schema_version`.
    pub schema_registry_subject: String,
    /// What to do with events whose schema is not known yet while the registry is away. `wait`: they wait,
    /// and their keys with them. `pass`: they are delivered unchecked. `reject`: they become dead letters.
    pub schema_registry_when_away: WhenAway,
    /// What to do with an event type that has no schema. `pass`: deliver it unchecked. `reject`: it becomes a
    /// dead letter.
    pub schema_missing: SchemaMissing,
    /// What to do with an event that does not match its schema. `reject`: it becomes a dead letter. `warn`:
    /// it is delivered, and the log says so, at most every 10 s for each schema.
    pub schema_on_failure: OnFailure,
    /// Check events against `rules`.
    #[schemars(extend("x-default" = "off"))]
    pub enable_business_rule_validation: Option<bool>,
    /// Rules in CEL, the Common Expression Language; at most 200.
    pub rules: Vec<Rule>,
    /// Whether the versions of an aggregate must increase. An event is stale if its `aggregate_version` is
    /// not higher than that of the last event of its aggregate that passed. `warn`: the log says so.
    /// `reject`: it becomes a dead letter. Run `pillarbox migrate` after turning it on: it needs an index.
    pub aggregate_versions: AggregateVersions,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// The rule's name in failures.
    pub name: String,
    /// The event types it is for. `*` stands for any text, as in `STORAGE_TRANSACTION_*`.
    #[serde(default = "any")]
    pub event_type: String,
    /// A CEL expression that must be true, for example `size(payload.stores_involved) > 0`.
    pub rule: String,
    /// What people read when it fails.
    #[serde(default)]
    #[schemars(extend("x-default" = "the rule"))]
    pub message: Option<String>,
    /// What to do with an event that fails. `reject`: it becomes a dead letter. `warn`: it is delivered, and
    /// the log says so now and then.
    #[serde(default)]
    pub on_failure: OnFailure,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnFailure {
    #[default]
    Reject,
    Warn,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WhenAway {
    #[default]
    Wait,
    Pass,
    Reject,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SchemaMissing {
    #[default]
    Pass,
    Reject,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AggregateVersions {
    #[default]
    Off,
    Warn,
    Reject,
}

impl Default for Validation {
    fn default() -> Self {
        Self {
            enable_schema_validation: None,
            schema_folder: None,
            schema_reload_seconds: 5,
            schema_registry_url: None,
            schema_registry_ca: None,
            schema_registry_cert: None,
            schema_registry_key: None,
            schema_registry_subject: "{event_type}".into(),
            schema_registry_when_away: WhenAway::default(),
            schema_missing: SchemaMissing::default(),
            schema_on_failure: OnFailure::default(),
            enable_business_rule_validation: None,
            rules: Vec::new(),
            aggregate_versions: AggregateVersions::default(),
        }
    }
}

fn any() -> String {
    "*".into()
}
