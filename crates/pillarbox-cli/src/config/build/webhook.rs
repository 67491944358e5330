//! Webhooks as sinks.

use pillarbox_relay::{driver, http_client, signature::Secret, sink::webhook::WebhookOptions, tls::TlsFiles};

use super::{Problems, within};
use crate::config::schema::{self, Sink};

const SECRETS_MAX: usize = 10;
const HEADERS_MAX: usize = 20;
const REQUESTS_MAX: u64 = 1_000;
const RESERVED: [&str; 3] = ["connection", "content-length", "transfer-encoding"];

/// The messages never show a secret or the value of a header.
pub(super) fn options(sink: &Sink, key: &str, problems: &mut Problems) -> WebhookOptions {
    let Some(given) = &sink.webhook else {
        return WebhookOptions::default();
    };
    let driver = driver::sink(&sink.url);
    if driver.is_some_and(|driver| driver.about.kind != "webhook") {
        let text = "only a sink at https:// or http:// has it: leave it out";
        problems.push((key.to_owned(), text.into()));
    }
    let below = |name: &str| format!("{key}.{name}");
    within(problems, below("requests_max"), given.requests_max, REQUESTS_MAX);
    WebhookOptions {
        secrets: secrets(given, below("secrets"), problems),
        headers: headers(given, below("headers"), problems),
        requests_max: given.requests_max as usize,
        tls: tls(given, below("key"), problems),
    }
}

fn secrets(given: &schema::WebhookSink, key: String, problems: &mut Problems) -> Vec<Secret> {
    if given.secrets.len() > SECRETS_MAX {
        problems.push((key, format!("the maximum is {SECRETS_MAX} secrets")));
        return Vec::new();
    }
    let mut secrets = Vec::new();
    for secret in &given.secrets {
        match Secret::parse(secret) {
            Ok(secret) => secrets.push(secret),
            Err(error) => problems.push((key.clone(), error.to_string())),
        }
    }
    secrets
}

fn headers(given: &schema::WebhookSink, key: String, problems: &mut Problems) -> http_client::HeaderMap {
    if given.headers.len() > HEADERS_MAX {
        problems.push((key, format!("the maximum is {HEADERS_MAX} headers")));
        return http_client::HeaderMap::new();
    }
    let reserved = |name: &&String| {
        let lower = name.to_ascii_lowercase();
        lower.starts_with("webhook-") || RESERVED.contains(&&*lower)
    };
    if let Some(name) = given.headers.keys().find(reserved) {
        problems.push((key, format!("the relay sets `{name}` itself: leave it out")));
        return http_client::HeaderMap::new();
    }
    http_client::secret_headers(&given.headers).unwrap_or_else(|error| {
        problems.push((key, error.to_string()));
        http_client::HeaderMap::new()
    })
}

fn tls(given: &schema::WebhookSink, key: String, problems: &mut Problems) -> TlsFiles {
    let identity = match (&given.cert, &given.key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        _ => {
            problems.push((key, "it needs both `cert` and `key`, or neither".into()));
            None
        }
    };
    TlsFiles {
        ca: given.ca.clone(),
        identity,
    }
}
