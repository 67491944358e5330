//! Checks the dead letters regularly, and soon after events of this relay have died.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    About, Gone, Kind, News, Notices, Options, Sample, Telling, Told, decide,
    deliver::{Line, open_channels},
    gone,
    trouble::is_trouble,
};
use crate::{
    dead::{CAUSES_MAX, CauseResult, DeadFilter, DeadLetters, DeadState},
    engine::progress::Progress,
    store::StoreError,
};

/// How often to check whether an event of this relay has died. This only reads a counter.
const TICK: Duration = Duration::from_millis(500);
/// A check reads every open letter: 0.08 to 0.6 s with 100,000 of them, 1.4 to 2.2 s with 1,000,000 (PostgreSQL 15,
/// two shared cores with varying load). The pause after it is this many times as long, so that checks take at most
/// 2 % of the time.
const REST: u32 = 50;
/// The most new causes that one check announces. If each event had its own cause, each would get a notice
/// otherwise.
const NEWS_MAX: usize = 20;
/// The smallest difference between two times in a database.
const MICROSECOND: SignedDuration = SignedDuration::from_micros(1);
const FORGET_EVERY: Duration = Duration::from_secs(3_600);

/// What a check needs.
pub struct Watch {
    pub dead_letters: Arc<dyn DeadLetters>,
    pub notices: Notices,
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
                    "could not read the dead letters, for notices"
                );
                watch.options.look_every
            }
        };
        not_before = Instant::now() + rest;
        due = (Instant::now() + wait).max(not_before);
        if forgotten.is_none_or(|at: Instant| at.elapsed() > FORGET_EVERY) {
            forgotten = Some(Instant::now());
            let _ = watch.notices.forget().await;
        }
    }
}

/// The pause after a check. A failed check took as long as the database's timeout, which says nothing about the
/// cost of a check.
fn rest(took: Duration, succeeded: bool, look_every: Duration) -> Duration {
    let rest = took.saturating_mul(REST);
    if succeeded { rest } else { rest.min(look_every) }
}

impl Watch {
    /// One check: stores the news, with a delivery for each channel. Returns the number of notices.
    pub async fn look(&mut self, channels: &[String]) -> Result<usize, StoreError> {
        let (now, mut told) = self.notices.told().await?;
        told.retain(|told| !is_trouble(&told.fingerprint));
        let causes = self.dead_letters.causes().await?;
        let mut outcomes: HashMap<&str, CauseResult> = HashMap::new();
        for told in gone(&causes, causes.len() < CAUSES_MAX, &told) {
            let outcome = self.dead_letters.outcome(&told.fingerprint, since(told)).await?;
            if outcome.waiting == 0 {
                outcomes.insert(&told.fingerprint, outcome);
            }
        }
        let over: Vec<&str> = outcomes.keys().copied().collect();
        let (quiet, wait) = (self.options.quiet_period, self.options.recovery_wait);
        let mut news = decide(now, &causes, &told, &over, &mut self.gone, quiet, wait);
        if news.len() > NEWS_MAX {
            let wait = news.len() - NEWS_MAX;
            tracing::warn!(wait, "many different causes: the next check sends the rest");
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

    /// `None`: there is nothing to announce any more.
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
        let sample = self.sample(&filter).await?;
        let mut about = About::group(&group, sample, &self.outbox, &self.relay);
        if let Some(before) = before.filter(|_| news.kind == Kind::More) {
            let later = DeadFilter {
                since: Some(before.last_died_at.saturating_add(MICROSECOND).unwrap_or(now)),
                ..filter
            };
            let died = self.dead_letters.touched(&later).await?;
            about.new = died.count.max(group.count.saturating_sub(before.count)).max(1);
            // Include letters that were open at some time since the last notice, not only those that still are.
            about.first_died_at = about.first_died_at.min(since(before));
        }
        Ok(Some(telling(now, news.kind, before, about)))
    }

    /// The latest open letter. `None`: all were replayed or discarded since the cause was counted.
    async fn sample(&self, filter: &DeadFilter) -> Result<Option<Sample>, StoreError> {
        let latest = self
            .dead_letters
            .list(filter, Some(DeadState::Open), None, 1)
            .await?;
        let Some(letter) = latest.first() else {
            return Ok(None);
        };
        let details = self.dead_letters.show(&letter.id).await?;
        Ok(details.as_ref().map(Sample::of))
    }

    fn recovered(&self, now: Timestamp, before: &Told, outcome: CauseResult) -> Telling {
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
        telling(now, Kind::Recovered, Some(before), about)
    }
}

fn telling(now: Timestamp, kind: Kind, before: Option<&Told>, about: About) -> Telling {
    let of = (about.count, about.last_died_at);
    let fingerprint = about.fingerprint.clone();
    Telling::new(now, kind, before, fingerprint, of, about)
}

/// When the first of the announced letters died.
fn since(told: &Told) -> Timestamp {
    said(told).map_or(told.last_died_at, |about| about.first_died_at)
}

/// `None` when it can't be read.
fn said(told: &Told) -> Option<About> {
    About::deserialize(&told.about).ok()
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
