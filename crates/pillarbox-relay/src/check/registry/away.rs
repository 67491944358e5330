//! A registry that is away. It is asked now and then until it answers, even if no event needs it at that time.

use std::{
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use tokio::time::Instant;

use super::{Key, Registry};

/// The first and the longest wait between two requests while it is away.
const FIRST: Duration = Duration::from_millis(500);
const MAX: Duration = Duration::from_secs(15);

pub(super) struct Away {
    why: String,
    since: Instant,
    /// The schema to ask for: the one that was needed last. A registry may fail for one subject and answer for all
    /// others.
    wanted: Key,
}

impl Registry {
    /// Why the registry is away, if it is.
    pub(in crate::check) fn down(&self) -> Option<String> {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.as_ref().map(|away| away.why.clone())
    }

    /// When an event that waits for the registry should be checked again. The longer the outage, the longer the wait.
    pub(in crate::check) fn ask_again_in(&self) -> Duration {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let since = away.as_ref().map_or(Duration::ZERO, |away| away.since.elapsed());
        (since / 2).clamp(Duration::from_secs(1), MAX)
    }

    /// Like [`down`](Self::down). Also remembers `key` for the next request.
    pub(super) fn down_for(&self, key: &Key) -> Option<String> {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let away = away.as_mut()?;
        away.wanted.clone_from(key);
        Some(away.why.clone())
    }

    pub(super) fn is_away(self: &Arc<Self>, key: &Key, why: &str) -> String {
        let why = format!("the schema registry is away: {why}");
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(away) = &mut *away {
            away.why.clone_from(&why);
        } else {
            tracing::warn!(why, "schemas are not available");
            let since = Instant::now();
            *away = Some(Away {
                why: why.clone(),
                since,
                wanted: key.clone(),
            });
            tokio::spawn(ask_until_it_answers(Arc::downgrade(self), since));
        }
        why
    }

    pub(super) fn is_back(&self) {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        if away.take().is_some() {
            tracing::info!("the schema registry answers again");
        }
    }

    /// `None`: the registry has answered since.
    fn wanted(&self, since: Instant) -> Option<Key> {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let away = away.as_ref().filter(|away| away.since == since)?;
        Some(away.wanted.clone())
    }

    fn is_still_away(&self, since: Instant, why: &str) {
        let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(away) = away.as_mut().filter(|away| away.since == since) {
            away.why = format!("the schema registry is away: {why}");
        }
    }
}

/// Also ends when the registry is dropped.
async fn ask_until_it_answers(registry: Weak<Registry>, since: Instant) {
    let mut wait = FIRST;
    loop {
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(MAX);
        let Some(registry) = registry.upgrade() else {
            return;
        };
        let Some(key) = registry.wanted(since) else {
            return;
        };
        match registry.ask(&key).await {
            Ok(known) => return registry.note(&key, &known),
            Err(why) => registry.is_still_away(since, &why),
        }
    }
}
