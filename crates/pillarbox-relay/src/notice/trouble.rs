//! Looks at what relays report that keeps them from delivering: sinks that are away, destinations that are paused, stalls.

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
use uuid::Uuid;

use super::{
    AboutTrouble, Kind, Message, Notices, Telling, Told, ToldState,
    deliver::{Line, open_channels},
};
use crate::store::{StoreError, Trouble, TroubleKind};

/// Sets these apart from the fingerprints of dead letters.
const PREFIX: &str = "trouble-";
/// Looks in the time that a trouble must last.
const LOOKS: u32 = 3;
const LOOK_EVERY_MIN: Duration = Duration::from_millis(500);
/// While nothing is reported, what was told is read at every so many looks only.
const IDLE_LOOKS: u32 = 10;
/// Troubles told by one look.
const NEWS_MAX: usize = 20;

pub(super) fn is_trouble(fingerprint: &str) -> bool {
    fingerprint.starts_with(PREFIX)
}

fn fingerprint(trouble: &Trouble) -> String {
    let text = format!("{}\0{}", trouble.kind.as_str(), trouble.what);
    format!("{PREFIX}{:012x}", key_hash(&text) & 0xffff_ffff_ffff)
}

/// What a look needs, and what the looks before it saw.
pub struct TroubleWatch {
    notices: Arc<dyn Notices>,
    wait: Duration,
    relay: String,
    outbox: String,
    /// Since when each was reported, or is not reported any more although it was told. In memory: a relay that restarts
    /// waits again.
    changed: HashMap<String, (bool, Timestamp)>,
    /// Looks since what was told was read, when that had no open trouble.
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
                "what relays report can't be looked at, to tell people of it"
            ),
        }
    }
}

impl TroubleWatch {
    pub fn new(notices: Arc<dyn Notices>, wait: Duration, relay: &str, outbox: &str) -> Self {
        Self {
            notices,
            wait,
            relay: relay.to_owned(),
            outbox: outbox.to_owned(),
            changed: HashMap::new(),
            idle: None,
        }
    }

    /// One look: writes down what is news, with a delivery for each channel. How many notices.
    pub async fn look(&mut self, channels: &[String]) -> Result<usize, StoreError> {
        let reported = merged(self.notices.troubles().await?);
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
        for (fingerprint, is_there) in self.lasting(now, &reported, &told).into_iter().take(NEWS_MAX) {
            let before = told.get(&*fingerprint).copied();
            let telling = match (is_there, reported.get(&fingerprint)) {
                (true, Some(reported)) => self.opened(now, &fingerprint, reported, before),
                _ => self.recovered(now, before),
            };
            if let Some(telling) = telling {
                count += usize::from(self.notices.tell(&telling, channels).await?);
            }
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

    /// What has been there, or gone, for long enough, and was not told.
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
    ) -> Option<Telling> {
        let Reported { trouble, relays } = reported;
        let about = AboutTrouble::new(fingerprint, trouble, *relays, &self.outbox, &self.relay);
        Some(telling(now, Kind::TroubleOpened, ToldState::Open, before, about))
    }

    /// `None`: nobody was told of it.
    fn recovered(&self, now: Timestamp, before: Option<&Told>) -> Option<Telling> {
        let before = before?;
        let unknown = || {
            let trouble = Trouble {
                kind: TroubleKind::Destination,
                what: "unknown".into(),
                why: "unknown".into(),
                since: before.told_at,
            };
            AboutTrouble::new(&before.fingerprint, &trouble, 0, &self.outbox, &self.relay)
        };
        let mut about = AboutTrouble::deserialize(&before.about).unwrap_or_else(|_| unknown());
        about.relays = 0;
        about.relay.clone_from(&self.relay);
        let over = (Kind::TroubleRecovered, ToldState::Recovered);
        Some(telling(now, over.0, over.1, Some(before), about))
    }
}

/// Each trouble once, with the reason of the relay that met it first.
fn merged(troubles: Vec<Trouble>) -> BTreeMap<String, Reported> {
    let mut merged: BTreeMap<String, Reported> = BTreeMap::new();
    for trouble in troubles {
        match merged.get_mut(&fingerprint(&trouble)) {
            None => {
                merged.insert(fingerprint(&trouble), Reported { trouble, relays: 1 });
            }
            Some(known) => {
                known.relays += 1;
                if trouble.since < known.trouble.since {
                    known.trouble = trouble;
                }
            }
        }
    }
    merged
}

fn telling(
    now: Timestamp,
    kind: Kind,
    state: ToldState,
    before: Option<&Told>,
    about: AboutTrouble,
) -> Telling {
    let message = Message {
        kind,
        timestamp: now,
        data: about,
    };
    Telling {
        fingerprint: message.data.fingerprint.clone(),
        before: before.map_or(0, |told| told.n),
        state,
        count: message.data.relays,
        last_died_at: message.data.since,
        id: Uuid::now_v7(),
        body: message.body(),
        about: serde_json::to_value(&message.data).unwrap_or_default(),
    }
}
