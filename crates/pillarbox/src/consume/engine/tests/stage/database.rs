//! A database in memory: what is committed, and what a transaction would commit.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::time::sleep;

use crate::{
    enqueue::{EnqueueError, Enqueued, Outbox},
    event::{Event, EventId},
    inbox::{Attempts, Begun, Database, Inbox, InboxError, Place, Remember, Seen, Sighting},
    pressure::Pressure,
    transaction::{Transaction, sealed},
};

pub(super) const MEMBER: &str = "this consumer";
pub(super) const STRANGER: &str = "another consumer";

#[derive(Clone, Default)]
pub(super) struct Memory {
    pub(super) tables: Arc<Mutex<Tables>>,
}

#[derive(Default)]
pub(super) struct Tables {
    pub(super) processed: HashSet<EventId>,
    pub(super) effects: Vec<String>,
    pub(super) begun: HashMap<EventId, u32>,
    pub(super) away: bool,
    pub(super) begins: usize,
    pub(super) commits_take: Duration,
    /// So many transactions fail to begin because of a conflict.
    pub(super) conflicts: usize,
}

#[derive(Default)]
pub(super) struct Open {
    pub(super) tables: Arc<Mutex<Tables>>,
    pub(super) remembered: Option<EventId>,
    pub(super) ended: Option<EventId>,
    pub(super) effects: Vec<String>,
}

impl Memory {
    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap()
    }

    pub(super) fn there(&self) -> Result<(), InboxError> {
        match self.tables().away {
            true => Err(InboxError::Database("away".into())),
            false => Ok(()),
        }
    }
}

impl Transaction for Open {}
impl Remember for Open {}

/// Handlers in these tests never enqueue.
impl sealed::Write for Open {
    async fn insert(&mut self, _: &Outbox, _: &[Event]) -> Result<Vec<Enqueued>, EnqueueError> {
        Err(EnqueueError::NoTransaction)
    }

    async fn pressure(&mut self, _: &Outbox, _: &str) -> Result<Option<Pressure>, EnqueueError> {
        Ok(None)
    }
}

impl sealed::Remember for Open {
    async fn remember(&mut self, _: &Inbox, sighting: Sighting<'_>) -> Result<Seen, InboxError> {
        if self.tables.lock().unwrap().processed.contains(sighting.event_id) {
            return Ok(Seen::Before);
        }
        self.remembered = Some(sighting.event_id.clone());
        Ok(Seen::First)
    }

    async fn ended(&mut self, _: &Inbox, _: &str, event_id: &EventId) -> Result<(), InboxError> {
        self.ended = Some(event_id.clone());
        Ok(())
    }
}

impl Attempts for Memory {
    async fn enter(&self, _: Place<'_>, member: &EventId) -> Result<(), InboxError> {
        self.there()?;
        self.tables().begun.insert(member.clone(), 0);
        Ok(())
    }

    async fn leave(&self, _: Place<'_>, member: &EventId) -> Result<(), InboxError> {
        self.there()?;
        self.tables().begun.remove(member);
        Ok(())
    }

    async fn tidy(&self, _: Place<'_>) -> Result<(), InboxError> {
        self.there()
    }

    async fn begun(&self, _: Place<'_>) -> Result<Vec<Begun>, InboxError> {
        self.there()?;
        let tables = self.tables();
        let rows = tables.begun.iter();
        Ok(rows
            .map(|(id, times)| Begun {
                id: id.clone(),
                times: *times,
            })
            .collect())
    }

    async fn begins(&self, _: Place<'_>, id: &EventId, alone: bool) -> Result<Option<u32>, InboxError> {
        self.there()?;
        let mut tables = self.tables();
        if tables.processed.contains(id) {
            return Ok(None);
        }
        let times = tables.begun.entry(id.clone()).or_default();
        *times = (*times + u32::from(alone)).max(1);
        Ok(Some(*times))
    }

    async fn ends(&self, _: Place<'_>, id: &EventId) -> Result<(), InboxError> {
        self.there()?;
        let mut tables = self.tables();
        let left = tables.begun.remove(id).unwrap_or_default();
        if left > 1 {
            tables.begun.insert(id.clone(), left - 1);
        }
        Ok(())
    }
}

impl Database for Memory {
    type Transaction = Open;

    async fn begin(&self) -> Result<Open, InboxError> {
        self.tables().begins += 1;
        self.there()?;
        let conflicts = self.tables().conflicts;
        if conflicts > 0 {
            self.tables().conflicts = conflicts - 1;
            return Err(InboxError::Database("a conflict".into()));
        }
        Ok(Open {
            tables: self.tables.clone(),
            ..Open::default()
        })
    }

    async fn commit(&self, tx: Open) -> Result<(), InboxError> {
        let takes = self.tables().commits_take;
        sleep(takes).await;
        self.there()?;
        let mut tables = self.tables();
        tables.processed.extend(tx.remembered);
        tables.effects.extend(tx.effects);
        if let Some(id) = tx.ended {
            tables.begun.remove(&id);
        }
        Ok(())
    }

    async fn migrate(&self, _: &Inbox) -> Result<(), InboxError> {
        Ok(())
    }

    async fn check(&self, _: &Inbox) -> Result<(), InboxError> {
        self.there()
    }

    async fn forget_some(&self, _: &Inbox, _: &str, _: Duration) -> Result<u64, InboxError> {
        Ok(0)
    }

    fn is_away(error: &(dyn std::error::Error + 'static)) -> bool {
        error.to_string().contains("away")
    }

    fn is_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut chain = std::iter::successors(Some(error), |error| error.source());
        chain.any(|error| error.to_string().contains("conflict"))
    }
}
