//! The parts of dead letters that are specific to PostgreSQL.

use std::collections::BTreeSet;

use async_trait::async_trait;
use pillarbox::{Event, EventId, Limits};
use sqlx::{Postgres, Transaction};

use super::{
    PostgresStore,
    connection::{arguments, statement},
    row,
};
use crate::{
    dead::Actor,
    event::{Lane, Seq},
    store::{StoreError, sql::DeadLetterStore},
};

type Tx = Transaction<'static, Postgres>;

#[async_trait]
impl DeadLetterStore for PostgresStore {
    async fn event_of(&self, seq: Seq, id: &EventId) -> Result<Option<Event>, StoreError> {
        let sql = statement(self.connection.tables(), include_str!("sql/dead/event.sql"));
        let limits = Limits::default();
        let arguments = arguments!(seq, id.to_string(), limits.payload_bytes_max as i32)?;
        let rows = self.connection.rows(&sql, arguments).await?;
        let event = rows.first().and_then(|row| row::event(row, 0, &limits).ok());
        Ok(event.map(|stored| stored.event))
    }

    async fn lock_lanes(&self, tx: &mut Tx, lanes: &[Lane]) -> Result<(), StoreError> {
        let lanes: Vec<i16> = lanes.iter().map(|lane| i16::from(*lane)).collect();
        let lock = statement(self.connection.tables(), include_str!("sql/dead/lanes.sql"));
        self.connection
            .rows_in(tx, &lock, arguments!(lanes)?)
            .await
            .map(drop)
    }

    async fn copy_events(&self, tx: &mut Tx, seqs: &[Seq], actor: &Actor) -> Result<(), StoreError> {
        let copy = statement(self.connection.tables(), include_str!("sql/dead/copy.sql"));
        let arguments = arguments!(seqs, &actor.by, &actor.why)?;
        self.connection.rows_in(tx, &copy, arguments).await.map(drop)
    }

    async fn order_keys(&self, tx: &mut Tx, keys: BTreeSet<(Lane, String)>) -> Result<(), StoreError> {
        let keys = keys
            .into_iter()
            .map(|(lane, key)| (i16::from(lane), key))
            .collect();
        self.settle.next(&self.connection, tx, keys).await.map(drop)
    }
}
