//! Headers as rows contain them: the same in every store, for every producer.

use std::collections::BTreeMap;

use serde_json::Value;

/// Reads a JSON object of strings. Numbers and booleans become strings; other values can't be headers.
pub(super) fn read(json: &[u8]) -> Result<BTreeMap<String, String>, String> {
    if json.is_empty() || json == b"{}" {
        return Ok(BTreeMap::new());
    }
    let values: BTreeMap<String, Value> =
        serde_json::from_slice(json).map_err(|_| "headers are not an object".to_owned())?;
    values
        .into_iter()
        .map(|(name, value)| match value {
            Value::String(text) => Ok((name, text)),
            Value::Number(number) => Ok((name, number.to_string())),
            Value::Bool(truth) => Ok((name, truth.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => Err(format!("header `{name}` is not a text")),
        })
        .collect()
}
