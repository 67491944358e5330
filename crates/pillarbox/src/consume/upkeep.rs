//! Background work of a consumer: deletes old inbox entries, and records that the consumer is alive.

use std::time::Duration;

use super::Consumer;
use crate::{
    event::EventId,
    inbox::{Database, Inbox, InboxError, Place},
};

/// The interval. A consumer that has recorded nothing for some hours is considered gone.
const EVERY: Duration = Duration::from_secs(3_600);
/// The first run comes early, so that it also happens in a service that restarts every half hour.
const FIRST: Duration = Duration::from_secs(60);

pub(super) struct Upkeep<D> {
    pub(super) inbox: Inbox,
    /// The id of this consumer process. No other consumer of the group ever has the same one.
    pub(super) member: EventId,
    database: D,
    group: String,
    retention: Option<Duration>,
    deaths_max: u32,
}

impl<D: Database> Upkeep<D> {
    pub(super) fn new(consumer: &Consumer<D>, inbox: Inbox) -> Self {
        Self {
            inbox,
            member: EventId::new(),
            database: consumer.database.clone(),
            group: consumer.group.clone(),
            retention: consumer.options.inbox_retention,
            deaths_max: consumer.options.deaths_max,
        }
    }

    /// A consumer that does not deregister has died, and the events that it was handling are suspects.
    pub(super) async fn enter(&self) -> Result<(), InboxError> {
        match self.deaths_max {
            0 => Ok(()),
            _ => self.database.enter(self.place(), &self.member).await,
        }
    }

    pub(super) async fn leave(&self) {
        if self.deaths_max > 0
            && let Err(error) = self.database.leave(self.place(), &self.member).await
        {
            tracing::debug!(%error, "could not record that the consumer left");
        }
    }

    pub(super) async fn run(self) {
        let mut pause = FIRST;
        loop {
            tokio::time::sleep(pause).await;
            pause = EVERY;
            if let Some(age) = self.retention {
                self.forget(age).await;
            }
            if self.deaths_max > 0
                && let Err(error) = self.stay().await
            {
                tracing::warn!(group = self.group, %error, "could not record that the consumer is alive");
            }
        }
    }

    async fn forget(&self, age: Duration) {
        match self.inbox.forget(&self.database, &self.group, age).await {
            Ok(0) => {}
            Ok(forgotten) => tracing::debug!(group = self.group, forgotten, "deleted old inbox entries"),
            Err(error) => tracing::warn!(group = self.group, %error, "could not delete old inbox entries"),
        }
    }

    async fn stay(&self) -> Result<(), InboxError> {
        self.database.enter(self.place(), &self.member).await?;
        self.database.tidy(self.place()).await
    }

    fn place(&self) -> Place<'_> {
        Place {
            inbox: &self.inbox,
            group: &self.group,
        }
    }
}
