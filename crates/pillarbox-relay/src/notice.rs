//! Telling people of dead letters and of what keeps relays from delivering: once for each cause, not for each event; and
//! once more when it is over.
//!
//! `watch` looks at the open dead letters and at what was told before; `trouble` looks at what relays report;
//! [`decide`] says what is news; the store writes it down ([`Notices::tell`]) together with a delivery for each [`Channel`]. `deliver` carries the deliveries out, each
//! channel by itself. Several relays share the tables: of two that find the same news, one writes it down, and a
//! delivery is claimed before it is tried. Events never wait for any of this.

mod channel;
mod command;
mod decide;
mod deliver;
mod log;
mod message;
mod signature;
mod trouble;
mod watch;
mod webhook;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

pub use self::{
    channel::{Channel, ChannelError, ChannelOptions, NoticeError, open},
    command::CommandChannel,
    decide::{Gone, News, decide, gone},
    log::LogChannel,
    message::{About, AboutTrouble, Kind, Message},
    signature::{Secret, SecretError},
    trouble::TroubleWatch,
    watch::Watch,
    webhook::WebhookChannel,
};
use crate::{
    dead::DeadLetters,
    engine::progress::Progress,
    store::{StoreError, Trouble},
};

/// When to tell, and how hard to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// While more events die of a cause that was told, it is told again at most once in this time.
    pub quiet_period: Duration,
    /// How long the first deaths are gathered, so that a notice has a count.
    pub gather: Duration,
    /// How often to look without being woken: other processes' letters, replays and discards are seen by then.
    pub look_every: Duration,
    /// How long a cause must be gone before people hear that it is.
    pub recovery_wait: Duration,
    /// How long a sink, a destination or a relay must be in trouble, or be well again, before people hear of it. `None`:
    /// they never do.
    pub trouble_wait: Option<Duration>,
    /// The waits before a delivery is tried again. After the last it is given up.
    pub retry_delays: Vec<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quiet_period: Duration::from_secs(900),
            gather: Duration::from_secs(2),
            look_every: Duration::from_secs(60),
            recovery_wait: Duration::from_secs(10),
            // Longer than a broker's restart, and than a new relay needs to find the trouble of another that ended.
            trouble_wait: Some(Duration::from_secs(30)),
            // About a day in all.
            retry_delays: [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800, 28_800]
                .map(Duration::from_secs)
                .to_vec(),
        }
    }
}

/// A cause that events are dead of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCause {
    pub fingerprint: String,
    /// Open letters.
    pub count: u64,
    pub last_died_at: Timestamp,
}

/// Causes that [`Notices::open`] returns at most.
pub const CAUSES_MAX: usize = 10_000;

/// What people were told last about a fingerprint.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub fingerprint: String,
    /// Notices so far.
    pub n: u64,
    pub state: ToldState,
    /// Open letters then.
    pub count: u64,
    /// When the latest of them died.
    pub last_died_at: Timestamp,
    pub told_at: Timestamp,
    /// What was said, for whoever told it; null when it can't be read.
    pub about: serde_json::Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToldState {
    /// People know that events are dead of it.
    Open,
    /// People know that it is over.
    Recovered,
}

/// A notice to be written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Telling {
    pub fingerprint: String,
    /// How many notices there were when it was decided: another relay that was quicker has made it one more.
    pub before: u64,
    pub state: ToldState,
    pub count: u64,
    pub last_died_at: Timestamp,
    /// What is said, to be found again in [`Told`].
    pub about: serde_json::Value,
    /// The same at every try, so that a receiver can drop copies.
    pub id: Uuid,
    /// What is delivered.
    pub body: String,
}

/// A delivery that was claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub fingerprint: String,
    pub n: u64,
    pub id: Uuid,
    pub body: String,
    /// Tries, this one among them.
    pub attempts: u32,
}

/// What a claim found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    One(Box<Delivery>),
    /// Nothing is due; when the next one will be, where there is one.
    Nothing {
        next: Option<Duration>,
    },
}

/// What became of the letters of a fingerprint that has no open ones left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    pub replayed: u64,
    pub discarded: u64,
    /// Of the replayed: not delivered yet, and not dead again.
    pub waiting: u64,
}

/// What was told, remembered beside the outbox, by the database's clock.
///
/// `tell` writes a notice and its deliveries whole or not at all, and only when nobody told the same fingerprint in the
/// meantime. A claimed delivery is nobody else's until its lease ends, `delivered` removes it, or `failed` makes it due
/// later, or never again. Of one channel and fingerprint, a later notice is not claimed while an earlier one waits.
#[async_trait]
pub trait Notices: Send + Sync + 'static {
    /// The causes of the open letters, the most numerous first: at most [`CAUSES_MAX`]. This is looked at all the time, so
    /// it is cheaper than [`DeadLetters::groups`].
    async fn open(&self) -> Result<Vec<OpenCause>, StoreError>;

    /// Open letters of this fingerprint that died later than that.
    async fn died_since(&self, fingerprint: &str, after: Timestamp) -> Result<u64, StoreError>;

    /// What the living relays report that keeps them from delivering, of each relay by itself.
    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError>;

    /// The database's time, and what was told, the latest first: at most [`CAUSES_MAX`].
    async fn told(&self) -> Result<(Timestamp, Vec<Told>), StoreError>;

    /// Whether it was written down: not when another relay was first.
    async fn tell(&self, telling: &Telling, channels: &[String]) -> Result<bool, StoreError>;

    /// What became of the letters of this fingerprint that died at this time or later and are not open.
    async fn outcome(&self, fingerprint: &str, since: Timestamp) -> Result<Outcome, StoreError>;

    /// Takes one delivery of this channel that is due.
    async fn claim(&self, channel: &str, lease: Duration) -> Result<Claim, StoreError>;

    async fn delivered(&self, channel: &str, delivery: &Delivery) -> Result<(), StoreError>;

    /// `retry_in`: `None` when it is given up; it is kept, with the error, until it is forgotten.
    async fn failed(
        &self,
        channel: &str,
        delivery: &Delivery,
        retry_in: Option<Duration>,
        error: &str,
    ) -> Result<(), StoreError>;

    /// Drops what is over and was told longer ago than this, and deliveries as old.
    async fn forget(&self, age: Duration) -> Result<(), StoreError>;
}

/// What a notifier works with.
pub struct Notifier {
    pub dead_letters: Arc<dyn DeadLetters>,
    pub notices: Arc<dyn Notices>,
    pub channels: Vec<Arc<dyn Channel>>,
    pub options: Options,
    /// Its own deaths wake it.
    pub progress: Arc<Progress>,
    /// The relay's name.
    pub relay: String,
    /// The outbox's table.
    pub outbox: String,
}

impl Notifier {
    /// Tells people until it is stopped. What is cut off is told again by the next relay.
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
            let watch = TroubleWatch::new(self.notices.clone(), wait, &self.relay, &self.outbox);
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

    /// As stored; what is unknown is told anew.
    pub fn from_stored(text: &str) -> Self {
        match text {
            "open" => Self::Open,
            _ => Self::Recovered,
        }
    }
}
