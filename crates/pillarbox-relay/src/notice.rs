//! Notifies people of dead letters and of troubles: once for each cause, not for each event, and once more when it
//! is over.
//!
//! - `watch` compares the open dead letters with the notices sent before. `trouble` does the same with relays'
//!   reports.
//! - [`decide`] decides what is news.
//! - [`Notices`] stores a notice, with a delivery for each [`Channel`].
//! - `deliver` sends the deliveries, for each channel separately.
//!
//! Several relays share the records. If two relays find the same news, one of them writes it. A delivery is claimed
//! before it is tried. Events never wait for any of this.

mod channel;
mod command;
mod decide;
mod deliver;
mod log;
mod message;
mod store;
mod trouble;
mod watch;
mod webhook;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::Serialize;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

pub use self::{
    channel::{Channel, ChannelError, ChannelOptions, NoticeError, open},
    command::CommandChannel,
    decide::{Gone, News, decide, gone},
    log::LogChannel,
    message::{About, AboutTrouble, Kind, Message, Sample},
    store::{Claim, Delivery, Notices},
    trouble::TroubleWatch,
    watch::Watch,
    webhook::WebhookChannel,
};
use crate::{dead::DeadLetters, engine::progress::Progress, store::Store};

/// When to send notices, and how often to retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// While more events die of a known cause, a further notice is sent at most once in this time.
    pub quiet_period: Duration,
    /// How long to collect the first deaths, so that a notice has a count.
    pub gather: Duration,
    /// How often to check without being woken. This is how late letters, replays and discards of other processes
    /// are noticed.
    pub look_every: Duration,
    /// How long a cause must be gone before its recovery is announced.
    pub recovery_wait: Duration,
    /// How long a trouble must last, or be over, before people are notified. `None`: never.
    pub trouble_wait: Option<Duration>,
    /// The waits before each retry of a delivery. After the last one, the delivery is given up.
    pub retry_delays: Vec<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quiet_period: Duration::from_secs(900),
            gather: Duration::from_secs(2),
            look_every: Duration::from_secs(60),
            recovery_wait: Duration::from_secs(10),
            // Longer than a broker's restart, and longer than a new relay needs to find the trouble of one that
            // ended.
            trouble_wait: Some(Duration::from_secs(30)),
            // About a day in total.
            retry_delays: [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800, 28_800]
                .map(Duration::from_secs)
                .to_vec(),
        }
    }
}

/// The last notice about a fingerprint.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub fingerprint: String,
    /// The number of notices so far.
    pub n: u64,
    pub state: ToldState,
    /// The number of open letters at that time.
    pub count: u64,
    /// When the latest of them died.
    pub last_died_at: Timestamp,
    pub told_at: Timestamp,
    /// The content of the notice, for the code that wrote it; null if it can't be read.
    pub about: serde_json::Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToldState {
    /// People were notified that events died of it.
    Open,
    /// People were notified that it is over.
    Recovered,
}

/// A notice to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Telling {
    pub fingerprint: String,
    /// The number of notices when this one was decided. If another relay was faster, the number is higher by now.
    pub before: u64,
    pub state: ToldState,
    pub count: u64,
    pub last_died_at: Timestamp,
    /// The content of the notice, stored for [`Told`].
    pub about: serde_json::Value,
    /// The same for every attempt, so that a receiver can drop copies.
    pub id: Uuid,
    /// The text that is delivered.
    pub body: String,
    /// The database's time when it was decided. Deliveries are sent in this order.
    pub decided_at: Timestamp,
}

impl Telling {
    /// `count` and `last_died_at` are as in [`Told`].
    fn new<A: Serialize>(
        now: Timestamp,
        kind: Kind,
        before: Option<&Told>,
        fingerprint: String,
        (count, last_died_at): (u64, Timestamp),
        about: A,
    ) -> Self {
        let message = Message {
            kind,
            timestamp: now,
            data: about,
        };
        Self {
            fingerprint,
            before: before.map_or(0, |told| told.n),
            state: match kind {
                Kind::Recovered | Kind::TroubleRecovered => ToldState::Recovered,
                _ => ToldState::Open,
            },
            count,
            last_died_at,
            id: Uuid::now_v7(),
            body: message.body(),
            about: serde_json::to_value(&message.data).unwrap_or_default(),
            decided_at: now,
        }
    }
}

/// Everything that a notifier needs.
pub struct Notifier {
    pub dead_letters: Arc<dyn DeadLetters>,
    pub notices: Notices,
    /// For the reports of relays.
    pub store: Arc<dyn Store>,
    pub channels: Vec<Arc<dyn Channel>>,
    pub options: Options,
    /// Wakes the notifier when this relay's events die.
    pub progress: Arc<Progress>,
    /// The relay's name.
    pub relay: String,
    /// The outbox's table.
    pub outbox: String,
}

impl Notifier {
    /// Sends notices until it is stopped. If it is interrupted, the next relay sends the notice again.
    pub fn start(self, tasks: &TaskTracker, stop: &CancellationToken) {
        let lines: Vec<Arc<deliver::Line>> = self
            .channels
            .into_iter()
            .map(|channel| Arc::new(deliver::Line::new(channel)))
            .collect();
        for line in &lines {
            let delivering = deliver::keep(
                line.clone(),
                self.notices.clone(),
                self.options.clone(),
                stop.clone(),
            );
            tasks.spawn(delivering);
        }
        if let Some(wait) = self.options.trouble_wait {
            let watch = TroubleWatch::new(self.store, self.notices.clone(), wait, &self.relay, &self.outbox);
            tasks.spawn(trouble::keep(watch, lines.clone(), stop.clone()));
        }
        let watch = Watch {
            dead_letters: self.dead_letters,
            notices: self.notices,
            options: self.options,
            relay: self.relay,
            outbox: self.outbox,
            gone: Gone::default(),
        };
        tasks.spawn(watch::keep(watch, lines, self.progress, stop.clone()));
    }
}

impl ToldState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Recovered => "recovered",
        }
    }

    /// From the stored text. An unknown state causes a new notice.
    pub fn from_stored(text: &str) -> Self {
        match text {
            "open" => Self::Open,
            _ => Self::Recovered,
        }
    }
}
