//! The parts of dead letters that are specific to SQLite.

use std::collections::BTreeSet;

use async_trait::async_trait;
use pillarbox::{Event, EventId, Limits};
use serde_json::{Value, json};
use sqlx::{Sqlite, Transaction};

use super::{SqliteStore, connection::now, discover::size, row, settle::Batch};
use crate::{
    dead::Actor,
    event::{Lane, Seq},
    store::{PageLimit, StoreError, sql::DeadLetterStore},
};

type Tx = Transaction<'static, Sqlite>;

#[async_trait]
impl DeadLetterStore for SqliteStore {
    async fn event_of(&self, seq: Seq, _id: &EventId) -> Result<Option<Event>, StoreError> {
        let at = &*self.connections;
        let limit = PageLimit {
            events: 1,
            bytes: usize::MAX,
            payload_bytes_max: Limits::default().payload_bytes_max,
        };
        let found = sqlx::query(at.statements.dead_event.clone())
            .bind(seq)
            .bind(size(limit.payload_bytes_max))
            .fetch_optional(at.reader())
            .await
            .map_err(|e| at.error(e))?;
        let Some(row) = found else { return Ok(None) };
        let event = row::event(&row, limit).map_err(|e| at.error(e))?;
        Ok(event.ok().map(|stored| stored.event))
    }

    /// Nothing to do: the transaction has the only write lock.
    async fn lock_lanes(&self, _tx: &mut Tx, _lanes: &[Lane]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn copy_events(&self, tx: &mut Tx, seqs: &[Seq], actor: &Actor) -> Result<(), StoreError> {
        let at = &*self.connections;
        let copies: Vec<Value> = seqs.iter().map(|seq| json!([seq, EventId::new()])).collect();
        let mut batch = Batch { at, tx, now: now() };
        batch.timed(&at.statements.dead_copy, &copies).await?;
        batch
            .tell(&copies, "replayed", &actor.by, actor.why.as_deref())
            .await
    }

    async fn order_keys(&self, tx: &mut Tx, keys: BTreeSet<(Lane, String)>) -> Result<(), StoreError> {
        let mut batch = Batch {
            at: &self.connections,
            tx,
            now: now(),
        };
        batch.release(&keys).await.map(drop)
    }
}
