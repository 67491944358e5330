//! What a payload looks like, without saying what it says: its structure and its keys, and none of its values.

use serde_json::{Map, Value, json};

const DEPTH_MAX: usize = 8;
/// Of a list; the others mostly look the same.
const ITEMS_MAX: usize = 2;
const KEYS_MAX: usize = 50;
const KEY_CHARS_MAX: usize = 80;
/// Stands for what was left out.
const MORE: &str = "…";

/// `None` for what is not JSON.
pub fn masked(payload: &[u8]) -> Option<Value> {
    serde_json::from_slice(payload)
        .ok()
        .map(|value| mask(value, DEPTH_MAX))
}

fn mask(value: Value, depth: usize) -> Value {
    match value {
        Value::Null => Value::Null,
        Value::Bool(_) => json!(true),
        Value::Number(_) => json!(0),
        Value::String(_) => json!("string"),
        Value::Array(items) if items.is_empty() => json!([]),
        Value::Object(fields) if fields.is_empty() => json!({}),
        Value::Array(_) | Value::Object(_) if depth == 0 => json!(MORE),
        Value::Array(items) => {
            let more = items.len() > ITEMS_MAX;
            let shown = items
                .into_iter()
                .take(ITEMS_MAX)
                .map(|item| mask(item, depth - 1));
            shown.chain(more.then(|| json!(MORE))).collect()
        }
        Value::Object(fields) => {
            let more = fields.len() > KEYS_MAX;
            let shown = fields
                .into_iter()
                .take(KEYS_MAX)
                .map(|(key, value)| (shortened(key), mask(value, depth - 1)));
            let mut shown: Map<String, Value> = shown.collect();
            if more {
                shown.insert(MORE.to_owned(), json!(MORE));
            }
            Value::Object(shown)
        }
    }
}

fn shortened(key: String) -> String {
    match key.char_indices().nth(KEY_CHARS_MAX) {
        Some((end, _)) => format!("{}{MORE}", &key[..end]),
        None => key,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn structure_and_keys_stay_and_no_value_does() {
        let payload =
            br#"{"name":"Ada","age":36,"ok":false,"none":null,"tags":["a","b","c"],"at":{"x":1.5,"y":[]}}"#;
        assert_eq!(
            masked(payload).unwrap(),
            json!({"name": "string", "age": 0, "ok": true, "none": null, "tags": ["string", "string", "…"], "at": {"x": 0, "y": []}})
        );
        assert_eq!(masked(b"{"), None);
    }

    #[test]
    fn what_is_large_or_deep_is_cut() {
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert_eq!(
            masked(deep.as_bytes()).unwrap().to_string(),
            "[[[[[[[[\"…\"]]]]]]]]"
        );
        let wide: Map<String, Value> = (0..200).map(|n| (format!("{n:0100}"), json!(n))).collect();
        let wide = masked(Value::Object(wide).to_string().as_bytes()).unwrap();
        assert!(wide.as_object().unwrap().len() <= KEYS_MAX + 1);
        assert!(wide.to_string().len() < 100 * KEYS_MAX);
    }

    proptest! {
        #[test]
        fn no_text_of_a_payload_is_shown(text in "[a-z]{8,20}", number in 1_000_000_u64..) {
            prop_assume!(text != "string");
            let payload = json!([{ "a": text, "b": [[number, text]] }, text]).to_string();
            let shown = masked(payload.as_bytes()).unwrap().to_string();
            prop_assert!(!shown.contains(&text) && !shown.contains(&number.to_string()), "{shown}");
        }
    }
}
