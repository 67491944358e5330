//! Decides what is news, from the open causes and the notices sent before. No I/O; time is a parameter.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;

use super::{Kind, Told, ToldState};
use crate::dead::OpenCause;

/// One piece of news.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    pub kind: Kind,
    pub fingerprint: String,
}

/// Since when each announced fingerprint has had no open letters. Kept in memory: a restarted relay waits again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gone(HashMap<String, Timestamp>);

impl Gone {
    /// Whether a fingerprint is gone and its recovery not announced yet.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Announced fingerprints that have no open letters. `complete`: `causes` contains all causes.
pub fn gone<'a>(causes: &[OpenCause], complete: bool, told: &'a [Told]) -> Vec<&'a Told> {
    if !complete {
        return Vec::new();
    }
    let open: HashSet<&str> = causes.iter().map(|cause| cause.fingerprint.as_str()).collect();
    told.iter()
        .filter(|told| told.state == ToldState::Open && !open.contains(told.fingerprint.as_str()))
        .collect()
}

/// What to announce now. `over` are the announced fingerprints that have no open letters and whose replayed events
/// are delivered.
///
/// A cause is announced at once when it is new or returns, once in a quiet period while more events die of it, and
/// once more when it has been over for `recovery_wait`.
pub fn decide(
    now: Timestamp,
    causes: &[OpenCause],
    told: &[Told],
    over: &[&str],
    since: &mut Gone,
    quiet_period: Duration,
    recovery_wait: Duration,
) -> Vec<News> {
    let known: HashMap<&str, &Told> = told
        .iter()
        .map(|told| (told.fingerprint.as_str(), told))
        .collect();
    let mut news: Vec<News> = causes
        .iter()
        .filter_map(|cause| {
            let told = known.get(cause.fingerprint.as_str()).copied();
            Some(News {
                kind: kind(now, cause, told, quiet_period)?,
                fingerprint: cause.fingerprint.clone(),
            })
        })
        .collect();
    let over: HashSet<&str> = over.iter().copied().collect();
    since
        .0
        .retain(|fingerprint, _| over.contains(fingerprint.as_str()));
    for fingerprint in over {
        let first = *since.0.entry(fingerprint.to_owned()).or_insert(now);
        if passed(first, now, recovery_wait) {
            news.push(News {
                kind: Kind::Recovered,
                fingerprint: fingerprint.to_owned(),
            });
        }
    }
    news
}

fn kind(now: Timestamp, cause: &OpenCause, told: Option<&Told>, quiet_period: Duration) -> Option<Kind> {
    match told {
        Some(told) if told.state == ToldState::Open => {
            // A letter may be committed after a later one. Then its time is not newer, but the count is higher.
            let grown = cause.last_died_at > told.last_died_at || cause.count > told.count;
            (grown && passed(told.told_at, now, quiet_period)).then_some(Kind::More)
        }
        _ => Some(Kind::Opened),
    }
}

fn passed(since: Timestamp, now: Timestamp, wait: Duration) -> bool {
    Duration::try_from(now.duration_since(since)).is_ok_and(|passed| passed >= wait)
}

#[cfg(test)]
mod tests;
