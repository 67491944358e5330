//! Checks the troubles that relays report: sinks that are away, destinations that are paused, stalls.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use pillarbox::lane::key_hash;
use serde::Deserialize;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    AboutTrouble, Kind, Notices, Telling, Told, ToldState,
    deliver::{Line, open_channels},
};
use crate::store::{Store, StoreError, Trouble, TroubleKind};

/// Distinguishes these from the fingerprints of dead letters.
const PREFIX: &str = "trouble-";
/// The number of checks within the time that a trouble must last.
const LOOKS: u32 = 3;
const LOOK_EVERY_MIN: Duration = Duration::from_millis(500);
/// While no trouble is reported, the earlier notices are read only at every n-th check.
const IDLE_LOOKS: u32 = 10;
/// The most troubles that one check announces.
const NEWS_MAX: usize = 20;

pub(super) fn is_trouble(fingerprint: &str) -> bool {
    fingerprint.starts_with(PREFIX)
}

fn fingerprint(trouble: &Trouble) -> String {
    let text = format!("{}\0{}", trouble.kind.as_str(), trouble.what);
    format!("{PREFIX}{:012x}", key_hash(&text) & 0xffff_ffff_ffff)
}

/// What a check needs, and what earlier checks found.
pub struct TroubleWatch {
    store: Arc<dyn Store>,
    notices: Notices,
    wait: Duration,
    relay: String,
    outbox: String,
    /// Since when each trouble has been reported, or has been gone although it was announced. Kept in memory: a
    /// restarted relay waits again.
    changed: HashMap<String, (bool, Timestamp)>,
    /// Checks since the earlier notices were last read, if none of them was an open trouble.
    idle: Option<u32>,
}

/// A trouble, and how many relays report it.
struct Reported {
    trouble: Trouble,
    relays: u64,
}

pub(super) async fn keep(mut watch: TroubleWatch, lines: Vec<Arc<Line>>, stop: CancellationToken) {
    let every = (watch.wait / LOOKS).max(LOOK_EVERY_MIN);
    loop {
        tokio::select! {
            () = sleep(every) => {}
            () = stop.cancelled() => return,
        }
        match watch.look(&open_channels(&lines)).await {
            Ok(0) => {}
            Ok(_) => lines.iter().for_each(|line| line.wake.notify_one()),
            Err(error) => tracing::debug!(
                why = error.chain(),
                "could not read the troubles of relays, for notices"
            ),
        }
    }
}

impl TroubleWatch {
    pub fn new(store: Arc<dyn Store>, notices: Notices, wait: Duration, relay: &str, outbox: &str) -> Self {
        Self {
            store,
            notices,
            wait,
            relay: relay.to_owned(),
            outbox: outbox.to_owned(),
            changed: HashMap::new(),
            idle: None,
        }
    }

    /// One check: stores the news, with a delivery for each channel. Returns the number of notices.
    pub async fn look(&mut self, channels: &[String]) -> Result<usize, StoreError> {
        let reported = merged(self.store.troubles().await?);
        if reported.is_empty() && self.is_idle() {
            return Ok(0);
        }
        let (now, told) = self.notices.told().await?;
        let told: HashMap<&str, &Told> = told
            .iter()
            .filter(|told| is_trouble(&told.fingerprint))
            .map(|told| (&*told.fingerprint, told))
            .collect();
        let any_open = told.values().any(|told| told.state == ToldState::Open);
        self.idle = (reported.is_empty() && !any_open).then_some(0);

        let mut count = 0;
        for (fingerprint, reported) in grown(&reported, &told).take(NEWS_MAX) {
            let telling = self.opened(now, fingerprint, reported, told.get(&**fingerprint).copied());
            count += usize::from(self.notices.tell(&telling, channels).await?);
        }
        for (fingerprint, is_there) in self.lasting(now, &reported, &told).into_iter().take(NEWS_MAX) {
            let before = told.get(&*fingerprint).copied();
            let (telling, channels) = match (is_there, reported.get(&fingerprint)) {
                (true, Some(reported)) => (self.opened(now, &fingerprint, reported, before), channels),
                _ => {
                    let Some((telling, is_silent)) = self.recovered(now, before) else {
                        continue;
                    };
                    (telling, if is_silent { &channels[..0] } else { channels })
                }
            };
            let told = self.notices.tell(&telling, channels).await?;
            count += usize::from(told && !channels.is_empty());
        }
        Ok(count)
    }

    fn is_idle(&mut self) -> bool {
        match &mut self.idle {
            Some(looks) if *looks < IDLE_LOOKS => {
                *looks += 1;
                true
            }
            _ => false,
        }
    }

    /// Troubles that have lasted, or have been gone, for long enough and were not announced.
    fn lasting(
        &mut self,
        now: Timestamp,
        reported: &BTreeMap<String, Reported>,
        told: &HashMap<&str, &Told>,
    ) -> Vec<(String, bool)> {
        let is_open = |fingerprint: &str| {
            told.get(fingerprint)
                .is_some_and(|it| it.state == ToldState::Open)
        };
        let new = reported
            .keys()
            .filter(|it| !is_open(it))
            .map(|it| (it.clone(), true));
        let gone = told
            .keys()
            .filter(|it| is_open(it) && !reported.contains_key(**it));
        let news: HashMap<String, bool> = new.chain(gone.map(|it| ((*it).to_owned(), false))).collect();
        self.changed
            .retain(|fingerprint, (is_there, _)| news.get(fingerprint) == Some(&*is_there));
        let mut lasting = Vec::new();
        for (fingerprint, is_there) in news {
            let (_, since) = *self.changed.entry(fingerprint.clone()).or_insert((is_there, now));
            let lasted = Duration::try_from(now.duration_since(since)).unwrap_or_default();
            if lasted >= self.wait {
                lasting.push((fingerprint, is_there));
            }
        }
        lasting.sort();
        lasting
    }

    fn opened(
        &self,
        now: Timestamp,
        fingerprint: &str,
        reported: &Reported,
        before: Option<&Told>,
    ) -> Telling {
        let Reported { trouble, relays } = reported;
        let about = AboutTrouble::new(fingerprint, trouble, *relays, &self.outbox, &self.relay);
        telling(now, Kind::TroubleOpened, before, about)
    }

    /// And whether nobody is told. A loss never recovers: relays only stop showing it. `None`: it was never announced.
    fn recovered(&self, now: Timestamp, before: Option<&Told>) -> Option<(Telling, bool)> {
        let before = before?;
        let unknown = || {
            let trouble = Trouble {
                kind: TroubleKind::Destination,
                what: "unknown".into(),
                why: "unknown".into(),
                since: before.told_at,
                events: None,
            };
            AboutTrouble::new(&before.fingerprint, &trouble, 0, &self.outbox, &self.relay)
        };
        let mut about = AboutTrouble::deserialize(&before.about).unwrap_or_else(|_| unknown());
        about.relays = 0;
        about.relay.clone_from(&self.relay);
        let is_silent = about.trouble == TroubleKind::Loss;
        Some((
            telling(now, Kind::TroubleRecovered, Some(before), about),
            is_silent,
        ))
    }
}

/// Announced losses of which more events were found since.
fn grown<'a>(
    reported: &'a BTreeMap<String, Reported>,
    told: &HashMap<&str, &Told>,
) -> impl Iterator<Item = (&'a String, &'a Reported)> {
    reported.iter().filter(|(fingerprint, reported)| {
        let told = told.get(&***fingerprint);
        let open = told.filter(|told| told.state == ToldState::Open);
        open.is_some_and(|told| reported.trouble.events.is_some_and(|events| events > told.count))
    })
}

/// Each trouble once, with the reason from the relay that met it first. Each relay finds losses of its own.
fn merged(troubles: Vec<Trouble>) -> BTreeMap<String, Reported> {
    let mut merged: BTreeMap<String, Reported> = BTreeMap::new();
    for trouble in troubles {
        match merged.get_mut(&fingerprint(&trouble)) {
            None => {
                merged.insert(fingerprint(&trouble), Reported { trouble, relays: 1 });
            }
            Some(known) => {
                known.relays += 1;
                let both = known.trouble.events.zip(trouble.events);
                let events = both.map(|(known, more)| known + more);
                if trouble.since < known.trouble.since {
                    known.trouble = trouble;
                }
                known.trouble.events = events;
            }
        }
    }
    merged
}

fn telling(now: Timestamp, kind: Kind, before: Option<&Told>, about: AboutTrouble) -> Telling {
    let of = (about.events.unwrap_or(about.relays), about.since);
    let fingerprint = about.fingerprint.clone();
    Telling::new(now, kind, before, fingerprint, of, about)
}
