//! JSON objects that are put together from others, without changing a byte of their values.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A value that grows.
#[derive(Debug)]
pub(super) enum Node {
    Raw(Box<RawValue>),
    /// In the order of the message.
    Object(Vec<(String, Node)>),
}

impl Default for Node {
    fn default() -> Self {
        Self::Object(Vec::new())
    }
}

impl Node {
    /// Puts a value at a place. With `spread`, it is an object whose fields are put there.
    pub(super) fn put(&mut self, keys: &[String], value: &RawValue, spread: bool) -> Result<(), String> {
        let Some((key, rest)) = keys.split_first() else {
            if !spread {
                *self = Self::Raw(value.to_owned());
                return Ok(());
            }
            let fields = self.fields()?;
            if value.get() != "null" {
                for (name, value) in object(value.get().as_bytes())? {
                    *field(fields, &name) = Self::Raw(value);
                }
            }
            return Ok(());
        };
        field(self.fields()?, key).put(rest, value, spread)
    }

    fn fields(&mut self) -> Result<&mut Vec<(String, Self)>, String> {
        if let Self::Raw(raw) = self {
            let fields = match raw.get() {
                "null" => Vec::new(),
                json => object(json.as_bytes())?,
            };
            *self = Self::Object(
                fields
                    .into_iter()
                    .map(|(name, value)| (name, Self::Raw(value)))
                    .collect(),
            );
        }
        match self {
            Self::Object(fields) => Ok(fields),
            Self::Raw(_) => Err("a value is not an object".to_owned()),
        }
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.append(&mut out);
        out
    }

    fn append(&self, out: &mut Vec<u8>) {
        match self {
            Self::Raw(raw) => out.extend_from_slice(raw.get().as_bytes()),
            Self::Object(fields) => {
                out.push(b'{');
                for (n, (name, value)) in fields.iter().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    out.extend_from_slice(serde_json::Value::from(name.as_str()).to_string().as_bytes());
                    out.push(b':');
                    value.append(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// The field with this name; a new one comes last.
fn field<'a>(fields: &'a mut Vec<(String, Node)>, name: &str) -> &'a mut Node {
    let place = fields.iter().position(|(known, _)| known == name);
    let place = place.unwrap_or_else(|| {
        fields.push((name.to_owned(), Node::default()));
        fields.len() - 1
    });
    &mut fields[place].1
}

/// The value behind these keys; `None` if it is not there.
pub(super) fn find(json: &[u8], keys: &[String]) -> Result<Option<String>, String> {
    let mut value: Box<RawValue> =
        serde_json::from_slice(json).map_err(|error| format!("a value is not JSON: {error}"))?;
    for key in keys {
        let Ok(fields) = object(value.get().as_bytes()) else {
            return Ok(None);
        };
        // As in PostgreSQL's jsonb, the last one counts.
        match fields.into_iter().rev().find(|(name, _)| name == key) {
            Some((_, found)) => value = found,
            None => return Ok(None),
        }
    }
    Ok(Some(value.get().to_owned()))
}

/// The fields of an object, in their order.
fn object(json: &[u8]) -> Result<Vec<(String, Box<RawValue>)>, String> {
    serde_json::from_slice::<Fields>(json)
        .map(|fields| fields.0)
        .map_err(|_| "fields can be added to an object only, and this value is not one".to_owned())
}

struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(Fields(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(parts: &[(&str, &str, bool)]) -> Result<String, String> {
        let mut node = Node::default();
        for (keys, json, spread) in parts {
            let keys: Vec<String> = keys.split_terminator('.').map(str::to_owned).collect();
            let value = RawValue::from_string((*json).to_owned()).unwrap();
            node.put(&keys, &value, *spread)?;
        }
        Ok(String::from_utf8(node.write()).unwrap())
    }

    #[test]
    fn fields_are_added_without_changing_a_value() {
        let payload =
            r#"{"big":12345678901234567890123,"a":1.50,"a":{"x":"\u00e9"},"metadata":{"k":[1, 2]}}"#;
        assert_eq!(
            built(&[
                ("", payload, true),
                ("metadata.id", r#""e1""#, false),
                ("metadata.k", "3", false),
                ("messageId", r#""e1""#, false),
                ("deep.er", "null", false),
            ])
            .unwrap(),
            r#"{"big":12345678901234567890123,"a":{"x":"\u00e9"},"metadata":{"k":3,"id":"e1"},"messageId":"e1","deep":{"er":null}}"#
        );
    }

    #[test]
    fn null_is_an_empty_object_and_other_values_are_none() {
        assert_eq!(
            built(&[("m", "null", false), ("m.id", "1", false)]).unwrap(),
            r#"{"m":{"id":1}}"#
        );
        assert!(built(&[("m", "[1]", false), ("m.id", "1", false)]).is_err());
        assert!(built(&[("", "7", true)]).is_err());
    }

    #[test]
    fn a_path_finds_a_value_or_nothing() {
        let keys = |path: &str| path.split_terminator('.').map(str::to_owned).collect::<Vec<_>>();
        let json = br#"{"a":{"b":"x","b":"y"},"n":1}"#;
        for (path, found) in [
            ("", Some(r#"{"a":{"b":"x","b":"y"},"n":1}"#)),
            ("a.b", Some(r#""y""#)),
            ("a.c", None),
            ("n.b", None),
        ] {
            assert_eq!(find(json, &keys(path)).unwrap().as_deref(), found, "{path}");
        }
        assert!(find(b"{", &[]).is_err());
    }
}
