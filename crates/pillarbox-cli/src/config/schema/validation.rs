//! What an event must fulfil before it is published.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Validation {
    /// Hold payloads against the JSON Schemas of `schema_folder` or of `schema_registry_url`. Off unless given.
    pub enable_schema_validation: Option<bool>,
    /// A folder of schemas: `OrderPlaced/2.json` or `OrderPlaced.v2.json` is version 2 of `OrderPlaced`, `OrderPlaced.json`
    /// stands for the versions without a file of their own.
    pub schema_folder: Option<PathBuf>,
    /// How often to look whether the folder has changed.
    pub schema_reload_seconds: u64,
    /// A schema registry with Confluent's HTTP API: `http://user:password@host:port`.
    pub schema_registry_url: Option<String>,
    /// The subject of an event, with `{event_type}`, `{topic}` and `{aggregate_type}` in it. The version is the event's
    /// `schema_version`.
    pub schema_registry_subject: String,
    /// What to do with events whose schema is not known yet while the registry is away.
    pub schema_registry_when_away: WhenAway,
    /// What to do with an event type that has no schema.
    pub schema_missing: SchemaMissing,
    /// What becomes of an event whose payload does not fit its schema.
    pub schema_on_failure: OnFailure,
    /// Hold events against `rules`. Off unless given.
    pub enable_business_rule_validation: Option<bool>,
    /// Rules in CEL, the Common Expression Language.
    pub rules: Vec<Rule>,
    /// Whether the versions of an aggregate must increase.
    pub aggregate_versions: AggregateVersions,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// What failures call it.
    pub name: String,
    /// The event types it is for; `*` stands for any text.
    #[serde(default = "any")]
    pub event_type: String,
    /// An expression that must give true, such as `size(payload.stores_involved) > 0`.
    pub rule: String,
    /// What people read when it does not; the rule itself unless given.
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// `reject`: a dead letter. `warn`: delivered, and the log says so.
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
    /// They wait, and their keys with them.
    #[default]
    Wait,
    /// They are delivered unchecked.
    Pass,
    /// They are dead letters.
    Reject,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SchemaMissing {
    #[default]
    Pass,
    Reject,
}

/// `warn` and `reject` need an index: run `pillarbox migrate` after turning it on.
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
