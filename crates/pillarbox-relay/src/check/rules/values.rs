//! An event as a rule sees it. It is converted to CEL's values when a rule needs them, once for all rules.

use std::{collections::HashMap, sync::OnceLock};

use cel::common::{
    types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt},
    value::{CowVal, Val},
};
use cel::context::VariableResolver;
use pillarbox::Event;
use serde_json::Value;

/// The names that a rule can use.
pub(super) const VARIABLES: &[&str] = &[
    "payload",
    "headers",
    "id",
    "topic",
    "stream",
    "event_type",
    "schema_version",
    "aggregate_type",
    "aggregate_id",
    "aggregate_version",
    "key",
    "project_id",
    "user_id",
];

pub struct Subject<'e> {
    event: &'e Event,
    payload: &'e Value,
    payload_made: OnceLock<Box<dyn Val + 'e>>,
}

impl<'e> Subject<'e> {
    pub fn new(event: &'e Event, payload: &'e Value) -> Self {
        Self {
            event,
            payload,
            payload_made: OnceLock::new(),
        }
    }
}

impl VariableResolver for Subject<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let event = self.event;
        Some(match variable {
            "payload" => CowVal::Borrowed(self.payload_made.get_or_init(|| value(self.payload)).as_ref()),
            "headers" => {
                let entry =
                    |(name, value): (&'b String, &'b String)| (CelMapKey::from(name.as_str()), text(value));
                let headers: HashMap<CelMapKey<'b>, Box<dyn Val + 'b>> =
                    event.headers.iter().map(entry).collect();
                CowVal::owned(CelMap::from(headers))
            }
            "id" => CowVal::owned(CelString::from(event.id.to_string())),
            "topic" => CowVal::Owned(text(&event.topic)),
            "stream" => optional(event.stream.as_deref()),
            "event_type" => CowVal::Owned(text(&event.event_type)),
            "schema_version" => CowVal::owned(CelInt::from(i64::from(event.schema_version))),
            "aggregate_type" => CowVal::Owned(text(&event.aggregate_type)),
            "aggregate_id" => CowVal::Owned(text(&event.aggregate_id)),
            "aggregate_version" => match event.aggregate_version {
                Some(version) => CowVal::owned(CelInt::from(version)),
                None => CowVal::owned(CelNull),
            },
            "key" => CowVal::Owned(text(event.key())),
            "project_id" => optional(event.project_id.as_deref()),
            "user_id" => optional(event.user_id.as_deref()),
            _ => return None,
        })
    }
}

fn text(text: &str) -> Box<dyn Val + '_> {
    Box::new(CelString::from(text))
}

fn optional(value: Option<&str>) -> CowVal<'_, '_> {
    match value {
        Some(value) => CowVal::Owned(text(value)),
        None => CowVal::owned(CelNull),
    }
}

/// Converts JSON to CEL. A whole number becomes an int if it fits.
fn value(json: &Value) -> Box<dyn Val + '_> {
    match json {
        Value::Null => Box::new(CelNull),
        Value::Bool(value) => Box::new(CelBool::from(*value)),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Box::new(CelInt::from(value)),
            (None, Some(value)) => Box::new(CelUInt::from(value)),
            (None, None) => Box::new(CelDouble::from(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(value) => text(value),
        Value::Array(list) => Box::new(CelList::from(list.iter().map(value).collect::<Vec<_>>())),
        Value::Object(map) => {
            let entries: HashMap<CelMapKey<'_>, Box<dyn Val + '_>> = map
                .iter()
                .map(|(name, entry)| (CelMapKey::from(name.as_str()), value(entry)))
                .collect();
            Box::new(CelMap::from(entries))
        }
    }
}
