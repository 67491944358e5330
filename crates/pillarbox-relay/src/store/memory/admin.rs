//! What a test asks of the store in memory, as a person would of a database.

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{Enqueued, Event, Limits};
use tokio::time::Instant;

use super::{
    super::{
        Admin, StoreError,
        admin::{AdminEnqueueError, RelayStatus, StoreStatus},
    },
    MemoryStore, Status,
    world::World,
};

#[async_trait]
impl Admin for MemoryStore {
    fn migration_sql(&self) -> String {
        "-- a store in memory has no tables\n".into()
    }

    async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        self.call().await.map(|_| Vec::new())
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        Ok(self.call().await?.status())
    }

    async fn enqueue(&self, limits: &Limits, events: &[Event]) -> Result<Vec<Enqueued>, AdminEnqueueError> {
        drop(self.call().await?);
        let mut transaction = self.begin();
        let enqueued = transaction.enqueue_all(limits, events)?;
        transaction.commit();
        Ok(enqueued)
    }
}

impl World {
    fn status(&self) -> StoreStatus {
        let now = Timestamp::now();
        let mut status = StoreStatus::default();
        let mut oldest: Option<Timestamp> = None;
        for row in self.rows.values() {
            let later = row.stored.event.available_at.is_some_and(|at| at > now);
            let count = match row.status {
                Status::Pending if later => &mut status.delayed,
                Status::Pending => &mut status.pending,
                Status::Failed => &mut status.failed,
                Status::Held => &mut status.held,
                Status::Delayed => &mut status.delayed,
                Status::Dead => &mut status.dead,
                Status::Published => continue,
            };
            *count += 1;
            if matches!(row.status, Status::Failed | Status::Held)
                || (row.status == Status::Pending && !later)
            {
                let created = row.stored.created_at;
                oldest = Some(oldest.map_or(created, |oldest| oldest.min(created)));
            }
        }
        status.oldest_age = oldest.map(|at| now.duration_since(at).try_into().unwrap_or_default());
        let now = Instant::now();
        let held = |by: Option<_>| {
            let lanes = self
                .lanes
                .values()
                .filter(|lane| lane.until.is_some_and(|until| until > now));
            lanes
                .filter(|lane| lane.owner.is_some() && (by.is_none() || lane.owner == by))
                .count() as u16
        };
        status.lanes_held = held(None);
        let living = self.relays.iter().filter(|(_, relay)| relay.until > now);
        status.relays = living
            .map(|(id, relay)| RelayStatus {
                id: *id,
                name: relay.name.clone(),
                lanes: held(Some(*id)),
                last_seen: now - relay.seen,
            })
            .collect();
        status
    }
}
