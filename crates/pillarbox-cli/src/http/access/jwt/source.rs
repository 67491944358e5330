//! Where the issuer's keys come from. If the issuer is away, the known keys go on.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use pillarbox_relay::http_client;
use reqwest::Client;
use tokio::{sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::keys::Keys;
use crate::config::{JwtSettings, KeySource};

/// A JWKS has a few kilobytes.
const BYTES_MAX: usize = 256 * 1024;
const TIMEOUT: Duration = Duration::from_secs(5);
/// A token with an unknown key asks the issuer at once, but not more often than this: anybody can send such tokens.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// The same as long as no key is known: then no token can be accepted.
const FIRST_EVERY: Duration = Duration::from_secs(5);

pub(super) struct Source {
    from: KeySource,
    client: Option<Client>,
    refresh: Duration,
    /// `None`: no keys were read yet.
    known: RwLock<Option<Arc<Keys>>>,
    asked: Mutex<Asked>,
}

/// When a token last made us ask.
#[derive(Default)]
struct Asked {
    without_keys: Option<Instant>,
    for_a_key: Option<Instant>,
}

pub(super) enum Unknown {
    Key,
    /// The issuer could not be asked since the start.
    Keys,
}

impl Source {
    pub(super) fn new(settings: &JwtSettings) -> Self {
        Self {
            from: settings.keys.clone(),
            client: http_client::client(TIMEOUT).ok(),
            refresh: settings.refresh,
            known: RwLock::default(),
            asked: Mutex::default(),
        }
    }

    /// Reads the keys now and then, until `stop`.
    pub(super) async fn refresh(&self, stop: CancellationToken) {
        loop {
            let wait = match self.read().await {
                Ok(()) => self.refresh,
                Err(why) => {
                    tracing::warn!(
                        why,
                        "the keys of the tokens' issuer can't be read; the known ones go on"
                    );
                    self.refresh.min(ASK_EVERY)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Keys that contain this one.
    pub(super) async fn with(&self, id: Option<&str>) -> Result<Arc<Keys>, Unknown> {
        let find = || self.known().filter(|keys| keys.find(id).is_some());
        if let Some(keys) = find() {
            return Ok(keys);
        }
        // One request asks, the others wait for its answer.
        let mut asked = self.asked.lock().await;
        if let Some(keys) = find() {
            return Ok(keys);
        }
        let (last, every) = match self.known() {
            None => (&mut asked.without_keys, FIRST_EVERY),
            Some(_) => (&mut asked.for_a_key, ASK_EVERY),
        };
        if last.is_none_or(|last| last.elapsed() >= every) {
            *last = Some(Instant::now());
            if let Err(why) = self.read().await {
                tracing::warn!(why, "a token has an unknown key, and the issuer can't be asked");
            }
        }
        match find() {
            Some(keys) => Ok(keys),
            None if self.known().is_none() => Err(Unknown::Keys),
            None => Err(Unknown::Key),
        }
    }

    fn known(&self) -> Option<Arc<Keys>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn read(&self) -> Result<(), String> {
        let jwks = match &self.from {
            KeySource::File(file) => from_file(file).await,
            KeySource::Url(url) => self.fetched(url).await,
        };
        let keys = Keys::read(&jwks?)?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys));
        Ok(())
    }

    /// The address is not shown: it may have a password.
    async fn fetched(&self, url: &Url) -> Result<Vec<u8>, String> {
        let client = self.client.as_ref().ok_or("there is no HTTP client")?;
        let answer = client.get(url.clone()).send().await;
        let answer = answer.map_err(|error| chain(&error.without_url()))?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!("it answered {status}"));
        }
        let body = http_client::body(answer, BYTES_MAX).await;
        body.map_err(|error| match error {
            http_client::HttpClientError::Client(error) => chain(&error.without_url()),
            other => other.to_string(),
        })
    }
}

async fn from_file(file: &Path) -> Result<Vec<u8>, String> {
    let wrong = |why: String| format!("{}: {why}", file.display());
    let found = tokio::fs::metadata(file)
        .await
        .map_err(|error| wrong(error.to_string()))?;
    if found.len() > BYTES_MAX as u64 {
        return Err(wrong(format!("it has more than {BYTES_MAX} bytes")));
    }
    tokio::fs::read(file)
        .await
        .map_err(|error| wrong(error.to_string()))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
