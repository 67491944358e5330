//! The configuration as it may be shown: in force, with every secret masked.

use pillarbox_relay::connect::redacted;
use serde_json::Value;
use url::Url;

use super::schema::Config;

/// The configuration as YAML, defaults filled in.
pub(crate) fn in_force(config: &Config) -> Result<(String, Value), serde_json::Error> {
    let mut value = serde_json::to_value(config)?;
    mask(&mut value);
    let mut text = String::new();
    if let Value::Object(map) = &value {
        write_map(&mut text, map, 0);
    }
    Ok((text, value))
}

/// An address without what is secret in it: a password, a NATS token (which stands where a user would), a query's secrets.
pub(crate) fn address(url: &str) -> String {
    let shown = redacted(url);
    let Ok(mut parsed) = Url::parse(&shown) else {
        return shown;
    };
    let secret = |name: &str| {
        ["password", "token", "secret", "sslkey"]
            .iter()
            .any(|word| name.to_ascii_lowercase().contains(word))
    };
    let mut changed = false;
    if matches!(parsed.scheme(), "nats" | "tls")
        && parsed.password().is_none()
        && !parsed.username().is_empty()
    {
        changed = parsed.set_username("***").is_ok();
    }
    let pairs: Vec<(String, String)> = parsed.query_pairs().into_owned().collect();
    if pairs.iter().any(|(name, _)| secret(name)) {
        changed = true;
        parsed.query_pairs_mut().clear().extend_pairs(
            pairs
                .iter()
                .map(|(name, value)| (name.as_str(), if secret(name) { "***" } else { value.as_str() })),
        );
    }
    if changed { parsed.to_string() } else { shown }
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::Array(webhooks) if key == "webhooks" => webhooks.iter_mut().for_each(mask_webhook),
                    Value::String(url) if key == "url" || key.ends_with("_url") => *url = address(url),
                    value => mask(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(mask),
        _ => {}
    }
}

/// Everything behind the host of its address may be a token.
fn mask_webhook(webhook: &mut Value) {
    let Value::Object(map) = webhook else { return };
    for (key, value) in map {
        match (key.as_str(), value) {
            ("url", Value::String(url)) => {
                let origin = Url::parse(url).map(|url| url.origin().ascii_serialization());
                *url = origin.map_or_else(|_| "***".to_owned(), |origin| origin + "/***");
            }
            ("secret", secret @ Value::String(_)) => *secret = "***".into(),
            ("secrets", Value::Array(secrets)) => {
                secrets.iter_mut().for_each(|secret| *secret = "***".into())
            }
            _ => {}
        }
    }
}

fn write_map(text: &mut String, map: &serde_json::Map<String, Value>, depth: usize) {
    for (key, value) in map {
        let indent = "  ".repeat(depth);
        match value {
            Value::Null => {}
            Value::Object(below) if !below.is_empty() => {
                text.push_str(&format!("{indent}{key}:\n"));
                write_map(text, below, depth + 1);
            }
            Value::Array(list) if list.iter().any(Value::is_object) => {
                text.push_str(&format!("{indent}{key}:\n"));
                // An entry on one line: JSON's braces are YAML too.
                for entry in list {
                    text.push_str(&format!("{indent}  - {entry}\n"));
                }
            }
            plain => text.push_str(&format!("{indent}{key}: {plain}\n")),
        }
    }
}
