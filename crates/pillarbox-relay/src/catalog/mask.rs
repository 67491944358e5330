//! The structure of a payload: its names, but none of its values. A key that is not a name (an address, a number, a
//! token: `{"ada@example.com": 5}`) counts as a value.

use serde_json::{Map, Value, json};

const DEPTH_MAX: usize = 8;
/// How many items of a list are shown. The others are usually similar.
const ITEMS_MAX: usize = 2;
const KEYS_MAX: usize = 50;
const NAME_CHARS_MAX: usize = 40;
const DIGITS_MAX: usize = 4;
/// Replaces keys that are values.
const KEY: &str = "<key>";
/// Replaces what was left out.
const MORE: &str = "…";

/// `None` if the payload is not JSON.
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
            let mut shown = Map::new();
            for (key, value) in fields.into_iter().take(KEYS_MAX) {
                let key = if is_name(&key) { key } else { KEY.to_owned() };
                shown.entry(key).or_insert_with(|| mask(value, depth - 1));
            }
            if more {
                shown.insert(MORE.to_owned(), json!(MORE));
            }
            Value::Object(shown)
        }
    }
}

/// Whether it looks like the name of a field: one or more words, with at most one short number.
fn is_name(key: &str) -> bool {
    let first = |c: char| c.is_alphabetic() || "_$@".contains(c);
    let inner = |c: char| c.is_alphanumeric() || "_$-.:".contains(c);
    let is_digit = |c: char| c.is_ascii_digit();
    let numbers = key.split(|c| !is_digit(c)).filter(|run| !run.is_empty());
    key.starts_with(first)
        && key.chars().skip(1).all(inner)
        && key.chars().count() <= NAME_CHARS_MAX
        && numbers.clone().count() <= 1
        && numbers.map(str::len).sum::<usize>() <= DIGITS_MAX
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn structure_and_names_stay_and_no_value_does() {
        let payload =
            br#"{"name":"Ada","age":36,"ok":false,"none":null,"tags":["a","b","c"],"at":{"x":1.5,"y":[]}}"#;
        assert_eq!(
            masked(payload).unwrap(),
            json!({"name": "string", "age": 0, "ok": true, "none": null, "tags": ["string", "string", "…"], "at": {"x": 0, "y": []}})
        );
        assert_eq!(masked(b"{"), None);
    }

    #[test]
    fn large_and_deep_values_are_cut() {
        let deep = "[".repeat(100) + &"]".repeat(100);
        assert_eq!(
            masked(deep.as_bytes()).unwrap().to_string(),
            "[[[[[[[[\"…\"]]]]]]]]"
        );
        let wide: Map<String, Value> = (0..200).map(|n| (format!("field_{n}"), json!(n))).collect();
        let wide = masked(Value::Object(wide).to_string().as_bytes()).unwrap();
        assert_eq!(wide.as_object().unwrap().len(), KEYS_MAX + 1);
    }

    #[test]
    fn a_key_that_is_a_value_is_masked_too() {
        for name in [
            "id",
            "order_id",
            "line1",
            "iso3166",
            "sha256-sum",
            "$schema",
            "@type",
            "xsi:type",
            "größe",
        ] {
            assert!(is_name(name), "{name}");
        }
        for value in [
            "",
            "ada@example.com",
            "Ada Lovelace",
            "+49 170 1234567",
            "4111111111111111",
            "c0ffee00-e29b-41d4-a716-446655440000",
            "sk_live_51H8abcdefGHIJKL",
            "o-123456",
            "a\u{1b}[31m",
            &"x".repeat(41),
        ] {
            assert!(!is_name(value), "{value}");
        }
        assert_eq!(
            masked(br#"{"balances":{"ada@example.com":{"cents":5},"bob@example.com":{"cents":7}}}"#).unwrap(),
            json!({"balances": {"<key>": {"cents": 0}}})
        );
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
