//! Reads the JWKS from a file or over HTTP.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use pillarbox_relay::http_client;
use reqwest::Client;
use url::Url;

use super::Read;
use crate::config::KeySource;

/// A JWKS has a few kilobytes.
const BYTES_MAX: usize = 256 * 1024;
const TIMEOUT: Duration = Duration::from_secs(5);

pub(super) fn from(keys: &KeySource) -> Arc<Read> {
    match keys.clone() {
        KeySource::File(file) => Arc::new(move || Box::pin(from_file(file.clone()))),
        KeySource::Url(url) => {
            let client = http_client::client(TIMEOUT).ok();
            Arc::new(move || Box::pin(fetched(client.clone(), url.clone())))
        }
    }
}

/// The address is not shown: it may have a password.
async fn fetched(client: Option<Client>, url: Url) -> Result<Vec<u8>, String> {
    let client = client.ok_or("there is no HTTP client")?;
    let answer = client.get(url).send().await.map_err(http_client::words)?;
    let status = answer.status();
    if !status.is_success() {
        return Err(format!("it answered {status}"));
    }
    let body = http_client::body(answer, BYTES_MAX).await;
    body.map_err(|error| match error {
        http_client::HttpClientError::Client(error) => http_client::words(error),
        other => other.to_string(),
    })
}

async fn from_file(file: PathBuf) -> Result<Vec<u8>, String> {
    contents(&file)
        .await
        .map_err(|why| format!("{}: {why}", file.display()))
}

async fn contents(file: &Path) -> Result<Vec<u8>, String> {
    let found = tokio::fs::metadata(file)
        .await
        .map_err(|error| error.to_string())?;
    if found.len() > BYTES_MAX as u64 {
        return Err(format!("it has more than {BYTES_MAX} bytes"));
    }
    tokio::fs::read(file).await.map_err(|error| error.to_string())
}
