//! The parts of a shape as the configuration writes them.

use super::{Field, Place, Value};

/// A part of a shape that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("`{0}` is not a field of an event; it can be {fields}, payload, payload->key, headers->name, row->column, or 'text'", fields = names())]
    Unknown(String),
    #[error("`{0}` needs a key after each `->`")]
    Path(String),
    #[error(
        "a place in the body is empty, or has an empty key: write `name`, `group.name`, `*` or `group.*`"
    )]
    Place,
}

fn names() -> String {
    Field::ALL.map(|(name, _)| name).join(", ")
}

impl Value {
    /// `id`, `payload`, `payload->customer->id`, `headers->correlation-id`, `row->column->key` or `'fixed'`.
    pub fn parse(text: &str) -> Result<Self, ShapeError> {
        let text = text.trim();
        if let Some(fixed) = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')) {
            return Ok(Self::Fixed(fixed.to_owned()));
        }
        let mut steps = text.split("->").map(str::trim).map(str::to_owned);
        let first = steps.next().unwrap_or_default();
        let keys: Vec<String> = steps.collect();
        if keys.iter().any(String::is_empty) {
            return Err(ShapeError::Path(text.to_owned()));
        }
        match (first.as_str(), keys.as_slice()) {
            ("payload", _) => Ok(Self::Payload(keys)),
            ("headers", [name]) => Ok(Self::Header(name.clone())),
            ("row", [column, rest @ ..]) => Ok(Self::Row(column.clone(), rest.to_vec())),
            (name, []) => match Field::ALL.into_iter().find(|(known, _)| *known == name) {
                Some((_, field)) => Ok(Self::Field(field)),
                None => Err(ShapeError::Unknown(text.to_owned())),
            },
            _ => Err(ShapeError::Unknown(text.to_owned())),
        }
    }
}

impl Place {
    /// `name`, `group.name`, `*` or `group.*`.
    pub fn parse(text: &str) -> Result<Self, ShapeError> {
        let mut keys: Vec<String> = text.split('.').map(str::to_owned).collect();
        let spread = keys.last().is_some_and(|key| key == "*");
        if spread {
            keys.pop();
        }
        match keys.iter().any(String::is_empty) {
            true => Err(ShapeError::Place),
            false => Ok(Self { keys, spread }),
        }
    }
}
