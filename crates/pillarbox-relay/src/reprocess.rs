//! Replays dead letters on a schedule, each a limited number of times.
//!
//! [`due`] decides when. [`Schedules`] makes sure that only one of several relays does it. [`run`] does it.

mod due;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

pub use self::due::{Due, When, due};
use crate::{
    dead::{Actor, DeadFilter, DeadLetters, ReplayAs},
    store::{
        StoreError,
        records::{Change, Content, RecordKey, Records},
    },
};

/// Letters for each transaction.
const CHUNK: usize = 500;
/// The longest time between two reads of the database's clock.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The pause before a database that is away is asked again.
const AWAY: Duration = Duration::from_secs(10);

/// What to replay, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub name: String,
    pub when: When,
    pub filter: DeadFilter,
    /// Letters for each run.
    pub limit: usize,
    /// Letters that were replayed this often, by a schedule or a person, are skipped.
    pub times_max: u32,
    /// Younger letters wait for a later run.
    pub min_age: Duration,
}

/// The space of the [`Records`] of schedules.
const SPACE: &str = "schedule";

/// The last runs of schedules, by the database's clock. Several relays share them, and one relay claims each run.
#[derive(Clone)]
pub struct Schedules {
    records: Arc<dyn Records>,
}

/// The last run of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRun {
    pub at: Timestamp,
    version: u64,
}

impl Schedules {
    pub fn new(records: Arc<dyn Records>) -> Self {
        Self { records }
    }

    /// The database's time, and when this schedule ran last.
    pub async fn last_run(&self, name: &str) -> Result<(Timestamp, Option<LastRun>), StoreError> {
        let (now, runs) = self.records.read(SPACE, Some(name), 1).await?;
        let last = runs.first().map(|run| LastRun {
            at: run.written_at,
            version: run.version,
        });
        Ok((now, last))
    }

    /// Records that the schedule runs now. False: another relay has run it since `last`.
    pub async fn claim_run(&self, name: &str, last: Option<LastRun>) -> Result<bool, StoreError> {
        let run = Change {
            key: RecordKey::new(SPACE, name),
            version: last.map_or(0, |last| last.version),
            content: Some(Content {
                value: "{}".into(),
                due_in: None,
                keep_for: None,
            }),
        };
        self.records.write(&[run]).await
    }
}

pub struct Reprocessor {
    pub dead_letters: Arc<dyn DeadLetters>,
    pub schedules: Schedules,
    pub list: Vec<Schedule>,
    /// The relay's name, for the letters' history.
    pub relay: String,
}

impl Reprocessor {
    /// Runs until it is stopped. A run that fails halfway is not repeated: the next one takes the rest.
    pub async fn keep(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let mut wait = LOOK_EVERY;
            for schedule in &self.list {
                match self.turn(schedule).await {
                    Ok(next) => wait = wait.min(next),
                    Err(error) => {
                        wait = wait.min(AWAY);
                        let (schedule, why) = (&*schedule.name, error.chain());
                        tracing::warn!(schedule, why, "could not replay dead letters");
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Runs the schedule if it is due. Returns the time until it may be due again.
    async fn turn(&self, schedule: &Schedule) -> Result<Duration, StoreError> {
        let (now, last) = self.schedules.last_run(&schedule.name).await?;
        match due(now, last.map(|last| last.at), schedule.when) {
            Due::In(wait) => return Ok(wait),
            // Seen for the first time: the interval starts now.
            Due::First => {
                self.schedules.claim_run(&schedule.name, last).await?;
                return Ok(Duration::from_millis(100));
            }
            Due::Now => {}
        }
        if self.schedules.claim_run(&schedule.name, last).await? {
            let actor = Actor {
                by: format!("reprocessor ({})", self.relay),
                why: Some(schedule.name.clone()),
            };
            let replayed = run(&*self.dead_letters, schedule, &actor).await?;
            if replayed > 0 {
                tracing::info!(schedule = schedule.name, replayed, "replayed dead letters");
            }
        }
        Ok(Duration::from_millis(100))
    }
}

/// Replays the letters that the schedule selects, with the same ids, in chunks. Returns the number of letters.
///
/// All of them are selected before the first one is replayed, so a letter that dies again meanwhile waits for the
/// next run.
pub async fn run(letters: &dyn DeadLetters, schedule: &Schedule, actor: &Actor) -> Result<usize, StoreError> {
    let chosen = letters
        .replayable(
            &schedule.filter,
            schedule.min_age,
            schedule.times_max,
            schedule.limit,
        )
        .await?;
    let mut replayed = 0;
    for ids in chosen.chunks(CHUNK) {
        let filter = DeadFilter {
            ids: ids.to_vec(),
            ..schedule.filter.clone()
        };
        replayed += letters.replay(&filter, ids.len(), ReplayAs::Same, actor).await?;
    }
    Ok(replayed)
}
