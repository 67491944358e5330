//! The meaning of the registry's answers.

use std::sync::Arc;

use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{Known, NOT_FOUND_HOLDS, Schema};
use crate::{http_client, tls::handshake_error};

const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Deserialize)]
struct Found {
    /// The schema as text. Without `schemaType` it is `AVRO`.
    schema: String,
    #[serde(rename = "schemaType", default)]
    schema_type: Option<String>,
    #[serde(default)]
    references: Vec<Value>,
}

/// `Err`: the registry is away, or something else answers in its place.
pub(super) async fn known(
    answer: Result<Response, reqwest::Error>,
    subject: &str,
    version: i32,
) -> Result<Known, String> {
    // Without the address, which may contain more than the host.
    let answer = answer.map_err(|error| failed(error.without_url()))?;
    let until = Instant::now() + NOT_FOUND_HOLDS;
    match answer.status() {
        StatusCode::OK => {}
        // An unknown subject or version, or an invalid version.
        StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY => return Ok(Known::Missing { until }),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(format!(
                "it answers {}: check the user and password in `schema_registry_url`",
                answer.status()
            ));
        }
        status => return Err(format!("it answers {status}")),
    }
    let body = http_client::body(answer, ANSWER_BYTES_MAX)
        .await
        .map_err(|error| match error {
            http_client::HttpClientError::Client(error) => failed(error.without_url()),
            other => other.to_string(),
        })?;
    let found: Found = serde_json::from_slice(&body)
        .map_err(|_| "its answer is not the answer of a schema registry".to_owned())?;
    Ok(match compile(&found, subject, version) {
        Ok(schema) => Known::Schema(Arc::new(schema)),
        Err(problem) => Known::Broken {
            problem: format!(
                "the registry's schema `{subject}`, version {version}, can't be used: {problem}"
            )
            .into(),
            until,
        },
    })
}

fn compile(found: &Found, subject: &str, version: i32) -> Result<Schema, String> {
    let kind = found.schema_type.as_deref().unwrap_or("AVRO");
    if kind != "JSON" {
        return Err(format!(
            "it is of type {kind}; payloads are JSON and need one of type JSON"
        ));
    }
    if !found.references.is_empty() {
        return Err("it refers to other schemas of the registry, which is not supported".into());
    }
    let schema: Value =
        serde_json::from_str(&found.schema).map_err(|error| format!("its text is not JSON: {error}"))?;
    Schema::compile(
        &format!("{subject}, version {version}"),
        &schema,
        "schemas://registry/",
        Arc::default(),
    )
}

fn failed(error: reqwest::Error) -> String {
    if let Some(error) = handshake_error(&error) {
        return format!(
            "no TLS connection ({error}). Check that the registry's certificate names this host and is trusted \
             (`schema_registry_ca`), and whether it wants one of ours (`schema_registry_cert` and `schema_registry_key`)"
        );
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}
