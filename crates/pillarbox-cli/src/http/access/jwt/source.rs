//! The issuer's keys, and when it is asked for them. If the issuer is away, the known keys go on.

mod reading;

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use futures::future::BoxFuture;
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use super::keys::Keys;
use crate::config::JwtSettings;

/// A token with an unknown key asks the issuer at once, but not more often than this: anybody can send such tokens.
const ASK_EVERY: Duration = Duration::from_secs(30);
/// The same as long as no key is known: then no token can be accepted.
const FIRST_EVERY: Duration = Duration::from_secs(5);
/// How long other requests wait while one asks.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Reads the JWKS once.
type Read = dyn Fn() -> BoxFuture<'static, Result<Vec<u8>, String>> + Send + Sync;

#[derive(Clone)]
pub(super) struct Source {
    read: Arc<Read>,
    refresh: Duration,
    /// `None`: no keys were read yet.
    known: Arc<RwLock<Option<Arc<Keys>>>>,
    /// Held while the issuer is asked.
    asked: Arc<Mutex<Asked>>,
}

/// When a token last made us ask.
#[derive(Default)]
struct Asked {
    without_keys: Option<Instant>,
    for_a_key: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    Key,
    /// The issuer could not be asked since the start, or is being asked.
    Keys,
}

impl Source {
    pub(super) fn new(settings: &JwtSettings) -> Self {
        Self::with_reading(reading::from(&settings.keys), settings.refresh)
    }

    fn with_reading(read: Arc<Read>, refresh: Duration) -> Self {
        Self {
            read,
            refresh,
            known: Arc::default(),
            asked: Arc::default(),
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
        // One request asks, the others wait for its answer, but not in a queue behind an issuer that hangs.
        let Ok(asked) = timeout(WAIT_MAX, self.asked.clone().lock_owned()).await else {
            return Err(Unknown::Keys);
        };
        if let Some(keys) = find() {
            return Ok(keys);
        }
        let (last, every) = match self.known() {
            None => (asked.without_keys, FIRST_EVERY),
            Some(_) => (asked.for_a_key, ASK_EVERY),
        };
        if last.is_none_or(|last| last.elapsed() >= every) {
            // In a task of its own: a client that goes away must not end it.
            let _ = tokio::spawn(self.clone().ask(asked)).await;
        }
        match find() {
            Some(keys) => Ok(keys),
            None if self.known().is_none() => Err(Unknown::Keys),
            None => Err(Unknown::Key),
        }
    }

    async fn ask(self, mut asked: OwnedMutexGuard<Asked>) {
        let first = self.known().is_none();
        if let Err(why) = self.read().await {
            tracing::warn!(why, "a token has an unknown key, and the issuer can't be asked");
        }
        // Counted from the end: requests that waited meanwhile must not ask again.
        let last = match first {
            true => &mut asked.without_keys,
            false => &mut asked.for_a_key,
        };
        *last = Some(Instant::now());
    }

    fn known(&self) -> Option<Arc<Keys>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn read(&self) -> Result<(), String> {
        let keys = Keys::read(&(self.read)().await?)?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
