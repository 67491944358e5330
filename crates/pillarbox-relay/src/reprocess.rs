//! Sends dead letters again on a schedule, a bounded number of times each.
//!
//! [`due`] says when; [`Schedules`] sees to it that one of several relays does it; [`run`] does it.

mod due;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::due::{Due, When, due};
use crate::{
    dead::{Actor, DeadFilter, DeadLetters, ReplayAs},
    store::StoreError,
};

/// Letters of one transaction.
const CHUNK: usize = 500;
/// The longest time between two looks at the clock of the database.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// A database that is away is asked again after this.
const AWAY: Duration = Duration::from_secs(10);

/// What is sent again, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub name: String,
    pub when: When,
    pub filter: DeadFilter,
    /// Letters of one run.
    pub limit: usize,
    /// A letter that was replayed so often, by whomever, is left alone.
    pub times_max: u32,
    /// Letters that died more recently wait for a later run.
    pub min_age: Duration,
}

/// When schedules ran, remembered beside the outbox, by the database's clock; and which letters they may take.
#[async_trait]
pub trait Schedules: Send + Sync + 'static {
    /// The time, and when this schedule ran last.
    async fn last_run(&self, name: &str) -> Result<(Timestamp, Option<Timestamp>), StoreError>;

    /// Writes down that it runs now. False: another relay was first, as it did not run last when we believe.
    async fn claim_run(&self, name: &str, last: Option<Timestamp>) -> Result<bool, StoreError>;

    /// Open letters that match, died at least so long ago and were replayed fewer than so many times; the oldest first.
    async fn candidates(
        &self,
        filter: &DeadFilter,
        min_age: Duration,
        times_max: u32,
        limit: usize,
    ) -> Result<Vec<Uuid>, StoreError>;
}

pub struct Reprocessor {
    pub dead_letters: Arc<dyn DeadLetters>,
    pub schedules: Arc<dyn Schedules>,
    pub list: Vec<Schedule>,
    /// The relay's name, for the letters' history.
    pub relay: String,
}

impl Reprocessor {
    /// Goes on until it is stopped. A run that fails half-way is done with: the next one takes the rest.
    pub async fn keep(self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let mut wait = LOOK_EVERY;
            for schedule in &self.list {
                match self.turn(schedule).await {
                    Ok(next) => wait = wait.min(next),
                    Err(error) => {
                        wait = wait.min(AWAY);
                        let (schedule, why) = (&*schedule.name, error.chain());
                        tracing::warn!(schedule, why, "dead letters could not be sent again");
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Runs the schedule if it is due. How long until it may be again.
    async fn turn(&self, schedule: &Schedule) -> Result<Duration, StoreError> {
        let (now, last) = self.schedules.last_run(&schedule.name).await?;
        match due(now, last, schedule.when) {
            Due::In(wait) => return Ok(wait),
            // Seen for the first time: its time begins now.
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
            let replayed = run(&*self.dead_letters, &*self.schedules, schedule, &actor).await?;
            if replayed > 0 {
                tracing::info!(schedule = schedule.name, replayed, "dead letters are sent again");
            }
        }
        Ok(Duration::from_millis(100))
    }
}

/// Sends again what the schedule chooses, with the same ids, in pieces. How many letters.
///
/// They are chosen before the first one goes: what dies again meanwhile waits for the next run.
pub async fn run(
    letters: &dyn DeadLetters,
    schedules: &dyn Schedules,
    schedule: &Schedule,
    actor: &Actor,
) -> Result<usize, StoreError> {
    let chosen = schedules
        .candidates(
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
