//! What is news, given what is open now and what was told before. No I/O; time comes in.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;

use super::{Kind, OpenCause, Told, ToldState};

/// One thing to tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    pub kind: Kind,
    pub fingerprint: String,
}

/// Since when told fingerprints have no open letters. In memory: a relay that restarts waits again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gone(HashMap<String, Timestamp>);

impl Gone {
    /// Whether some are gone and not told yet.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }
}

/// Told fingerprints that have no open letters. `complete`: the causes are all there are.
pub fn gone<'a>(causes: &[OpenCause], complete: bool, told: &'a [Told]) -> Vec<&'a Told> {
    if !complete {
        return Vec::new();
    }
    let open: HashSet<&str> = causes.iter().map(|cause| cause.fingerprint.as_str()).collect();
    told.iter()
        .filter(|told| told.state == ToldState::Open && !open.contains(told.fingerprint.as_str()))
        .collect()
}

/// What to tell now. `over` are the told fingerprints that have no open letters and whose replayed events are
/// delivered.
///
/// A cause is told at once when it is new or comes again; while more die of it, once in a quiet period; and when it has
/// been over for `recovery_wait`, that it is.
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
            // A letter may be committed after a later one: then its time is no news, but the count is.
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
