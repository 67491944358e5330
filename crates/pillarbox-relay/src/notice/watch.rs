//! Looks at the dead letters now and then, and soon after this relay's own deaths.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use jiff::Timestamp;
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    About, CAUSES_MAX, Gone, Kind, Message, News, Notices, Options, Outcome, Telling, Told, ToldState,
    decide,
    deliver::{Line, open_channels},
    gone,
    trouble::is_trouble,
};
use crate::{
    dead::{DeadFilter, DeadLetters},
    engine::progress::Progress,
    store::StoreError,
};

/// How often to see whether this relay has given an event up: reading a counter.
const TICK: Duration = Duration::from_millis(500);
/// A look reads every open letter: 0.08 to 0.6 s with 100,000 of them, 1.4 to 2.2 s with 1,000,000 (PostgreSQL 15, two shared
/// cores, more and less busy). The rest
/// after it is so many times as long, so that looking takes at most 2 % of the time.
const REST: u32 = 50;
/// New causes told by one look. A cause for each event would otherwise be a notice for each event.
const NEWS_MAX: usize = 20;
/// What is over is forgotten after this.
const KEPT: Duration = Duration::from_secs(30 * 86_400);
const FORGET_EVERY: Duration = Duration::from_secs(3_600);

/// What a look needs.
pub struct Watch {
    pub dead_letters: Arc<dyn DeadLetters>,
    pub notices: Arc<dyn Notices>,
    pub options: Options,
    pub relay: String,
    pub outbox: String,
    pub gone: Gone,
}

pub(super) async fn keep(
    mut watch: Watch,
    lines: Vec<Arc<Line>>,
    progress: Arc<Progress>,
    stop: CancellationToken,
) {
    let (mut due, mut not_before) = (Instant::now(), Instant::now());
    let mut forgotten = None;
    let mut seen = 0;
    loop {
        while Instant::now() < due {
            let dead = progress.dead.load(Ordering::Relaxed);
            if dead != seen {
                seen = dead;
                due = due.min(Instant::now() + watch.options.gather).max(not_before);
            }
            tokio::select! {
                () = sleep(TICK.min(watch.options.gather).min(due - Instant::now())) => {}
                () = stop.cancelled() => return,
            }
        }
        seen = progress.dead.load(Ordering::Relaxed);
        let started = Instant::now();
        let looked = watch.look(&open_channels(&lines)).await;
        let rest = rest(started.elapsed(), looked.is_ok(), watch.options.look_every);
        let wait = match looked {
            Ok(told) => {
                if told > 0 {
                    lines.iter().for_each(|line| line.wake.notify_one());
                }
                watch.until_next()
            }
            Err(error) => {
                tracing::debug!(
                    why = error.chain(),
                    "dead letters can't be looked at, to tell people of them"
                );
                watch.options.look_every
            }
        };
        not_before = Instant::now() + rest;
        due = (Instant::now() + wait).max(not_before);
        if forgotten.is_none_or(|at: Instant| at.elapsed() > FORGET_EVERY) {
            forgotten = Some(Instant::now());
            let _ = watch.notices.forget(KEPT).await;
        }
    }
}

/// How long not to look after a look. One that failed took as long as a database is waited for, which says nothing about
/// what a look costs.
fn rest(took: Duration, succeeded: bool, look_every: Duration) -> Duration {
    let rest = took.saturating_mul(REST);
    if succeeded { rest } else { rest.min(look_every) }
}

impl Watch {
    /// One look: writes down what is news, with a delivery for each channel. How many notices.
    pub async fn look(&mut self, channels: &[String]) -> Result<usize, StoreError> {
        let (now, mut told) = self.notices.told().await?;
        told.retain(|told| !is_trouble(&told.fingerprint));
        let causes = self.notices.open().await?;
        let mut outcomes: HashMap<&str, Outcome> = HashMap::new();
        for told in gone(&causes, causes.len() < CAUSES_MAX, &told) {
            let outcome = self.notices.outcome(&told.fingerprint, since(told)).await?;
            if outcome.waiting == 0 {
                outcomes.insert(&told.fingerprint, outcome);
            }
        }
        let over: Vec<&str> = outcomes.keys().copied().collect();
        let (quiet, wait) = (self.options.quiet_period, self.options.recovery_wait);
        let mut news = decide(now, &causes, &told, &over, &mut self.gone, quiet, wait);
        if news.len() > NEWS_MAX {
            let wait = news.len() - NEWS_MAX;
            tracing::warn!(
                wait,
                "many different causes: the rest is told after the next look"
            );
            news.truncate(NEWS_MAX);
        }
        let known: HashMap<&str, &Told> = told.iter().map(|told| (&*told.fingerprint, told)).collect();
        let mut count = 0;
        for news in &news {
            let before = known.get(&*news.fingerprint).copied();
            let telling = match (before, outcomes.get(&*news.fingerprint)) {
                (Some(before), Some(outcome)) => Some(self.recovered(now, before, *outcome)),
                _ => self.opened(now, news, before).await?,
            };
            if let Some(telling) = telling {
                count += usize::from(self.notices.tell(&telling, channels).await?);
            }
        }
        Ok(count)
    }

    fn until_next(&self) -> Duration {
        let every = self.options.look_every;
        match self.gone.any() {
            true => every.min(self.options.recovery_wait),
            false => every,
        }
    }

    /// `None`: there is nothing to tell any more.
    async fn opened(
        &self,
        now: Timestamp,
        news: &News,
        before: Option<&Told>,
    ) -> Result<Option<Telling>, StoreError> {
        let filter = DeadFilter {
            fingerprint: Some(news.fingerprint.clone()),
            ..DeadFilter::default()
        };
        let Some(group) = self.dead_letters.groups(&filter).await?.pop() else {
            return Ok(None);
        };
        let mut about = About::group(&group, group.count, &self.outbox, &self.relay);
        if let Some(before) = before.filter(|_| news.kind == Kind::More) {
            let died = self
                .notices
                .died_since(&group.fingerprint, before.last_died_at)
                .await?;
            about.new = died.max(group.count.saturating_sub(before.count)).max(1);
            // Of those that were open at some time since people were told, not only of those that still are.
            about.first_died_at = about.first_died_at.min(since(before));
        }
        Ok(Some(telling(now, news.kind, ToldState::Open, before, about)))
    }

    fn recovered(&self, now: Timestamp, before: &Told, outcome: Outcome) -> Telling {
        let unknown = || About::nothing(&before.fingerprint, "unknown", now, &self.outbox, &self.relay);
        let mut about = said(before).unwrap_or_else(unknown);
        (about.count, about.new, about.keys, about.topics) = (0, 0, 0, 0);
        about.replayed = Some(outcome.replayed);
        about.discarded = Some(outcome.discarded);
        about.relay.clone_from(&self.relay);
        about.look = format!(
            "pillarbox dead list --letters --done --fingerprint {}",
            before.fingerprint
        );
        telling(now, Kind::Recovered, ToldState::Recovered, Some(before), about)
    }
}

/// When the first of the letters died that people were told of.
fn since(told: &Told) -> Timestamp {
    said(told).map_or(told.last_died_at, |about| about.first_died_at)
}

/// `None` when it can't be read.
fn said(told: &Told) -> Option<About> {
    About::deserialize(&told.about).ok()
}

fn telling(now: Timestamp, kind: Kind, state: ToldState, before: Option<&Told>, about: About) -> Telling {
    let message = Message {
        kind,
        timestamp: now,
        data: about,
    };
    let body = message.body();
    let about = message.data;
    Telling {
        fingerprint: about.fingerprint.clone(),
        before: before.map_or(0, |told| told.n),
        state,
        count: about.count,
        last_died_at: about.last_died_at,
        id: Uuid::now_v7(),
        body,
        about: serde_json::to_value(about).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_look_is_repeated_as_soon_as_usual() {
        let (every, timeout) = (Duration::from_secs(30), Duration::from_secs(60));
        assert_eq!(rest(timeout, false, every), every);
        assert_eq!(rest(timeout, true, every), timeout * REST);
        let quick = Duration::from_millis(1);
        assert_eq!(rest(quick, false, every), quick * REST);
    }
}
