//! The administration of the store in memory, for tests.

use std::collections::BTreeSet;

use async_trait::async_trait;
use jiff::Timestamp;
use pillarbox::{Enqueued, Event, Limits, lane::LANES};
use tokio::time::Instant;

use pillarbox_relay::catalog::{EXAMPLE_BYTES_MAX, KINDS_MAX, Kind, Look};
use pillarbox_relay::event::Seq;

use pillarbox_relay::store::{
    Admin, Sample, StoreError,
    admin::{AdminEnqueueError, RECENT_PAYLOAD_BYTES_MAX, Recent, RelayStatus, StoreStatus},
};

use super::{MemoryStore, Row, Status, world::World};

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

    async fn sample(&self) -> Result<Sample, StoreError> {
        let world = self.call().await?;
        let status = world.status();
        let parked = world.parked.values().filter(|row| !row.delayed);
        let keys: BTreeSet<_> = parked.map(|row| (row.lane, &row.key)).collect();
        let mut sample = Sample {
            keys_held: keys.len() as u64,
            pending: status.pending,
            failed: status.failed,
            held: status.held,
            delayed: status.delayed,
            oldest_age: status.oldest_age,
            lanes_without_owner: LANES - status.lanes_held,
            relays: status.relays.len() as u16,
            rows: Some(world.rows.len() as u64),
            ..Sample::default()
        };
        let dead = world.rows.values().filter(|row| row.status == Status::Dead);
        for reason in dead.filter_map(|row| row.dead_reason) {
            *sample.dead.entry(reason).or_default() += 1;
        }
        Ok(sample)
    }

    /// A look at pending events may always begin at the first one here.
    async fn low_mark(&self) -> Result<Seq, StoreError> {
        self.call().await.map(|_| 0)
    }

    async fn recent(&self, count: usize) -> Result<Vec<Recent>, StoreError> {
        let world = self.call().await?;
        let small = |row: &&Row| row.stored.event.payload.len() <= RECENT_PAYLOAD_BYTES_MAX;
        let latest = world.rows.values().rev().take(count).filter(small);
        let mut recent: Vec<Recent> = latest
            .map(|row| Recent {
                event: row.stored.clone(),
                status: format!("{:?}", row.status).to_lowercase(),
            })
            .collect();
        recent.reverse();
        Ok(recent)
    }

    async fn kinds(&self, last: usize) -> Result<Look, StoreError> {
        Ok(self.call().await?.kinds(last))
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
    fn kinds(&self, last: usize) -> Look {
        let latest: Vec<_> = self
            .rows
            .values()
            .rev()
            .take(last)
            .map(|row| &row.stored)
            .collect();
        let mut kinds: Vec<Kind> = Vec::new();
        for stored in &latest {
            let event = &stored.event;
            let same = |kind: &&mut Kind| {
                (&kind.event_type, kind.schema_version, &kind.topic, &kind.stream)
                    == (
                        &event.event_type,
                        event.schema_version,
                        &event.topic,
                        &event.stream,
                    )
            };
            match kinds.iter_mut().find(same) {
                Some(kind) => kind.count += 1,
                None => kinds.push(Kind {
                    event_type: event.event_type.clone(),
                    schema_version: event.schema_version,
                    topic: event.topic.clone(),
                    stream: event.stream.clone(),
                    count: 1,
                    last_seen: stored.created_at,
                    aggregate_type: event.aggregate_type.clone(),
                    payload: Some(event.payload.clone()).filter(|it| it.len() <= EXAMPLE_BYTES_MAX),
                }),
            }
        }
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
        kinds.truncate(KINDS_MAX);
        Look {
            events: latest.len() as u64,
            since: latest.iter().map(|stored| stored.created_at).min(),
            kinds,
        }
    }

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
                troubles: relay.troubles.clone(),
            })
            .collect();
        status
    }
}
