//! One JSON Schema, compiled, and what it says of a payload.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use jsonschema::{PatternOptions, Retrieve, Uri, ValidationError, Validator, error::ValidationErrorKind};
use serde_json::Value;

/// Problems of one payload that are told.
const PROBLEMS_MAX: usize = 5;
const PROBLEM_CHARS_MAX: usize = 300;
/// What a pattern may take when compiled.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// A compiled schema.
pub struct Schema {
    /// What people know it by.
    pub name: String,
    validator: Validator,
}

/// A part of a payload that is not as the schema wants it.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    /// A JSON pointer; `/` for the whole.
    pub path: String,
    /// Without the payload's values.
    pub text: String,
}

impl Schema {
    /// Compiles it. References reach what is in `others`, by its address, and nothing else: nothing is fetched.
    /// Patterns are matched in linear time, so they can't look around or back.
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
        // A registry is somebody else's, and so is the crate: neither may bring the relay down.
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

    /// Nothing when the payload is as it should be.
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

/// What was expected. Backticks, because what stands between double quotes does not tell failures apart.
fn text(error: &ValidationError<'_>) -> String {
    match error.kind() {
        // The only kind whose masked text would show a value: a property's name.
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

/// The schemas that may be referred to.
struct Others(Arc<HashMap<String, Value>>);

impl Retrieve for Others {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        self.0.get(uri.as_str()).cloned().ok_or_else(|| {
            format!("`{uri}` is not among the schemas here, and nothing is fetched from elsewhere").into()
        })
    }
}
