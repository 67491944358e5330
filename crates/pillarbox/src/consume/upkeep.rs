//! What has to be done beside consuming: the inbox is thinned out, and the consumer says that it is there.

use std::time::Duration;

use uuid::Uuid;

use super::Consumer;
use crate::inbox::{Database, Inbox, InboxError, Place};

/// How often. A consumer that is silent for some hours is taken for one that will not come back.
const EVERY: Duration = Duration::from_secs(3_600);
/// The first time, so that a service that restarts every half hour does it too.
const FIRST: Duration = Duration::from_secs(60);

pub(super) struct Upkeep<D> {
    pub(super) inbox: Inbox,
    /// This consumer, among all that there ever were of its group.
    pub(super) member: Uuid,
    database: D,
    group: String,
    retention: Option<Duration>,
    deaths_max: u32,
}

impl<D: Database> Upkeep<D> {
    pub(super) fn new(consumer: &Consumer<D>, inbox: Inbox) -> Self {
        Self {
            inbox,
            member: Uuid::now_v7(),
            database: consumer.database.clone(),
            group: consumer.group.clone(),
            retention: consumer.options.inbox_retention,
            deaths_max: consumer.options.deaths_max,
        }
    }

    /// Whoever does not leave in order has died, and what it had at work is suspected.
    pub(super) async fn enter(&self) -> Result<(), InboxError> {
        match self.deaths_max {
            0 => Ok(()),
            _ => self.database.enter(self.place(), self.member).await,
        }
    }

    pub(super) async fn leave(&self) {
        if self.deaths_max > 0
            && let Err(error) = self.database.leave(self.place(), self.member).await
        {
            tracing::debug!(%error, "that the consumer left could not be written down");
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
                tracing::warn!(group = self.group, %error, "that the consumer is there could not be written down");
            }
        }
    }

    async fn forget(&self, age: Duration) {
        match self.inbox.forget(&self.database, &self.group, age).await {
            Ok(0) => {}
            Ok(forgotten) => tracing::debug!(group = self.group, forgotten, "the inbox was thinned out"),
            Err(error) => tracing::warn!(group = self.group, %error, "the inbox could not be thinned out"),
        }
    }

    async fn stay(&self) -> Result<(), InboxError> {
        self.database.enter(self.place(), self.member).await?;
        self.database.tidy(self.place()).await
    }

    fn place(&self) -> Place<'_> {
        Place {
            inbox: &self.inbox,
            group: &self.group,
        }
    }
}
