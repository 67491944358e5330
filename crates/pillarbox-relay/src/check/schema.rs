//! One compiled JSON Schema, and its check of a payload.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use jsonschema::{PatternOptions, Retrieve, Uri, ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;

/// At most this many problems of a payload are reported.
const PROBLEMS_MAX: usize = 5;
const PROBLEM_CHARS_MAX: usize = 300;
/// The largest size of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// A compiled schema.
pub struct Schema {
    /// The name for people.
    pub name: String,
    validator: Validator,
}

/// A part of a payload that does not match the schema.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// A JSON pointer. `/` means the whole payload.
    pub path: String,
    /// Contains no values of the payload.
    pub text: String,
}

impl Schema {
    /// Compiles a schema. References can only use the schemas in `others`, by their addresses; nothing is fetched.
    /// Patterns are matched in linear time, so they can't use look-around or back references.
    pub fn compile(
        name: &str,
        schema: &Value,
        address: &str,
        others: Arc<HashMap<String, Value>>,
    ) -> Result<Self, String> {
        let build = || {
            jsonschema::options()
                .with_base_uri(address)
                .with_retriever(Others(others))
                .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
                .build(schema)
        };
        // Neither somebody else's registry nor the crate may crash the relay.
        catch_unwind(AssertUnwindSafe(build))
            .map_err(|_| "it can't be compiled".to_owned())?
            .map(|validator| Self {
                name: name.to_owned(),
                validator,
            })
            .map_err(|error| {
                let place = match error.instance_path().as_str() {
                    "" => String::new(),
                    path => format!("at {path}: "),
                };
                short(&format!("{place}{error}"))
            })
    }

    /// Empty if the payload matches the schema.
    pub fn problems(&self, payload: &Value) -> Vec<Problem> {
        if self.validator.is_valid(payload) {
            return Vec::new();
        }
        self.validator
            .iter_errors(payload)
            .take(PROBLEMS_MAX)
            .map(|error| Problem {
                path: match error.instance_path().as_str() {
                    "" => "/".to_owned(),
                    path => short(path),
                },
                text: short(&text(&error)),
            })
            .collect()
    }
}

/// What was expected. With backticks, because text in double quotes is not part of a failure's fingerprint.
fn text(error: &ValidationError<'_>) -> String {
    match error.kind() {
        // The only kind whose masked text would show a value: the name of a property.
        ValidationErrorKind::PropertyNames { error } => format!("the name of a property: {}", text(error)),
        ValidationErrorKind::Required {
            property: Value::String(name),
        } => format!("the property `{name}` is missing"),
        _ => error.masked_with("the value").to_string().replace('"', "`"),
    }
}

fn short(text: &str) -> String {
    text.chars().take(PROBLEM_CHARS_MAX).collect()
}

/// The schemas that references can use.
struct Others(Arc<HashMap<String, Value>>);

impl Retrieve for Others {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        self.0.get(uri.as_str()).cloned().ok_or_else(|| {
            format!("`{uri}` is not among the schemas here, and nothing is fetched from elsewhere").into()
        })
    }
}
