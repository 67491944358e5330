//! The effective configuration for display, with every secret masked.

use std::borrow::Cow;

use anyhow::{Result, anyhow};
use pillarbox_relay::{
    connect::{self, redacted},
    driver::{self, address::redacted_url},
};
use serde_json::Value;
use url::{Url, form_urlencoded};

use super::{Settings, schema::Config};

/// The configuration as YAML, defaults filled in.
pub(crate) fn in_force(config: &Config) -> Result<(String, Value), serde_json::Error> {
    let mut value = serde_json::to_value(config)?;
    mask(&mut value);
    let mut text = String::new();
    if let Value::Object(map) = &value {
        write_map(&mut text, map, 0);
    }
    Ok((printable(&text), value))
}

/// Whether a relay could be created from the settings. It makes no connection, but checks the files that
/// addresses name.
pub(crate) fn can_be_opened(settings: &Settings) -> Result<()> {
    connect::store(&settings.database).map_err(|error| anyhow!("`outbox.database`: {}", error.chain()))?;
    for sink in &settings.sinks {
        connect::sink(&sink.options)
            .map_err(|error| anyhow!("`outbox.sinks.{}`: {error}", word(&sink.name)))?;
    }
    Ok(())
}

/// An address without its secrets: a password, a token (which is in the place of the user), secrets of the
/// query.
pub(crate) fn address(url: &str) -> String {
    let shown = match is_webhook(url) {
        true => redacted_url(url),
        false => redacted(url),
    };
    with_masked_query(&without_user_token(shown))
}

/// A user without a password is a token at most servers with HTTP.
fn without_user_token(shown: String) -> String {
    let Ok(mut parsed) = Url::parse(&shown) else {
        return shown;
    };
    let is_token = matches!(parsed.scheme(), "http" | "https")
        && parsed.password().is_none()
        && !parsed.username().is_empty();
    match is_token && parsed.set_username("***").is_ok() {
        true => parsed.to_string(),
        false => shown,
    }
}

/// Without the values of parameters whose names look like those of secrets. It works on the text, because an address
/// with several servers is not a URL.
fn with_masked_query(url: &str) -> String {
    let Some((before, query)) = url.split_once('?') else {
        return url.to_owned();
    };
    // A fragment has no use in these addresses. It may be the rest of a secret.
    let (query, fragment) = match query.split_once('#') {
        Some((query, _)) => (query, "#***"),
        None => (query, ""),
    };
    let masked = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => pair.to_owned(),
    };
    let query: Vec<String> = query.split('&').map(masked).collect();
    format!("{before}?{}{fragment}", query.join("&"))
}

/// Whether a parameter of this name may be a secret. Too many are masked rather than too few.
fn is_secret(name: &str) -> bool {
    let decoded = form_urlencoded::parse(name.as_bytes()).next();
    let name = decoded.map_or_else(String::new, |(name, _)| name.to_lowercase());
    let within = [
        "password",
        "passwd",
        "pwd",
        "token",
        "secret",
        "apikey",
        "api_key",
        "api-key",
        "signature",
    ];
    let at_the_end = ["key", "auth", "sig"];
    within.iter().any(|word| name.contains(word)) || at_the_end.iter().any(|word| name.ends_with(word))
}

/// The address of a sink. Everything behind the host of a webhook may be a token.
pub(crate) fn sink_address(url: &str) -> String {
    match is_webhook(url) {
        true => redacted(url),
        false => address(url),
    }
}

/// Whether it would be a webhook if it were the address of a sink.
fn is_webhook(url: &str) -> bool {
    driver::sink(url).is_some_and(|driver| driver.about.kind == "webhook")
}

/// A word of a file, safe to quote in a message: text after `://` may contain a password wherever it is.
pub(super) fn word(text: &str) -> Cow<'_, str> {
    match text.split_once("://") {
        Some((before, _)) => format!("{before}://…").into(),
        None => text.into(),
    }
}

fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::Object(headers) if key == "headers" => {
                        headers.values_mut().for_each(|header| *header = "***".into());
                    }
                    Value::Object(sinks) if key == "sinks" => sinks.values_mut().for_each(mask_sink),
                    Value::Array(webhooks) if key == "webhooks" => webhooks.iter_mut().for_each(mask_webhook),
                    Value::Array(secrets) if key == "secrets" => {
                        secrets.iter_mut().for_each(|secret| *secret = "***".into());
                    }
                    // An address in a rule or its message is not a setting.
                    Value::String(_) if key == "rule" || key == "message" => {}
                    Value::String(url) if key == "url" || key.ends_with("_url") => *url = address(url),
                    value => mask(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(mask),
        // An address in the wrong place may still contain a password.
        Value::String(text) if text.contains("://") => *text = address(text),
        _ => {}
    }
}

fn mask_sink(sink: &mut Value) {
    let shown = sink["url"].as_str().map(sink_address);
    mask(sink);
    if let (Some(shown), Some(url)) = (shown, sink.get_mut("url")) {
        *url = shown.into();
    }
}

/// Everything behind the host of a webhook's address may be a token.
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

/// JSON strings are also YAML, except for some characters that YAML wants escaped. They occur only inside
/// strings.
fn printable(text: &str) -> String {
    let escaped = |sign: char| matches!(sign, '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    let mut out = String::with_capacity(text.len());
    for sign in text.chars() {
        match escaped(sign) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(sign))),
            false => out.push(sign),
        }
    }
    out
}

/// A user-defined name, such as a sink's, may contain anything.
fn yaml_key(key: &str) -> String {
    let plain = key.starts_with(|sign: char| sign.is_ascii_alphabetic())
        && key
            .chars()
            .all(|sign| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-'));
    match plain {
        true => key.to_owned(),
        false => Value::from(key).to_string(),
    }
}

fn write_map(text: &mut String, map: &serde_json::Map<String, Value>, depth: usize) {
    for (key, value) in map {
        let indent = "  ".repeat(depth);
        let key = yaml_key(key);
        match value {
            Value::Null => {}
            Value::Object(below) if !below.is_empty() => {
                text.push_str(&format!("{indent}{key}:\n"));
                write_map(text, below, depth + 1);
            }
            Value::Array(list) if list.iter().any(Value::is_object) => {
                text.push_str(&format!("{indent}{key}:\n"));
                // An entry on one line: JSON's braces are also YAML.
                for entry in list {
                    text.push_str(&format!("{indent}  - {entry}\n"));
                }
            }
            plain => text.push_str(&format!("{indent}{key}: {plain}\n")),
        }
    }
}
