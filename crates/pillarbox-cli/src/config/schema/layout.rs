//! A table that exists: which column is what.

use std::{borrow::Cow, collections::BTreeMap};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Layout {
    /// A layout to begin with: `processed-flag`, `status-words`, `project-events`, `storage-outbox` or
    /// `debezium`. The other keys change it.
    pub preset: Option<String>,
    /// For each field of an event the column it is in, or [another place](ADOPT.md#fields).
    #[schemars(extend("x-default" = "those of the preset"))]
    pub fields: BTreeMap<String, String>,
    /// For each [state](ADOPT.md#states) the values of the columns that show it: `published: { status: DONE }`.
    #[schemars(extend("x-default" = "those of the preset"))]
    pub states: BTreeMap<String, BTreeMap<String, Word>>,
    /// The columns that a relay keeps up to date, for each [record](ADOPT.md#records): `attempts: tries`.
    #[schemars(extend("x-default" = "those of the preset"))]
    pub records: BTreeMap<String, String>,
    /// More columns, for [messages](ADOPT.md#messages) that need them.
    pub carried: Vec<String>,
    /// Delete a row when its event was published.
    pub delete_published: bool,
}

/// The value of a column, written as text, a number or a boolean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Word(pub String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self(text)),
            Value::Bool(truth) => Ok(Self(truth.to_string())),
            Value::Number(number) => Ok(Self(number.to_string())),
            _ => Err(D::Error::custom("a text, a number or a boolean is needed")),
        }
    }
}

impl JsonSchema for Word {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Word".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "boolean", "integer"] })
    }
}
