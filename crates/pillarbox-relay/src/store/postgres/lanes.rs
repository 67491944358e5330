//! Lanes: which relay publishes what, by the database's clock.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use pillarbox::table::Tables;
use sqlx::Row;

use super::{
    connection::{Connection, Sql, arguments, statement},
    lanes_and_epochs, microseconds,
    seen::Seen,
};
use crate::{
    event::{Lane, Seq},
    store::{Census, HeldLane, RelayId, StoreError, Trouble, trouble},
};

pub(super) struct Statements {
    heartbeat: Sql,
    take: Sql,
    release: Sql,
    leave: Sql,
    report: Sql,
    /// The start of the server that answered the last heartbeat.
    server_start: Mutex<Option<i64>>,
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            heartbeat: statement(tables, include_str!("sql/lanes/heartbeat.sql")),
            take: statement(tables, include_str!("sql/lanes/take.sql")),
            release: statement(tables, include_str!("sql/lanes/release.sql")),
            leave: statement(tables, include_str!("sql/lanes/leave.sql")),
            report: statement(tables, include_str!("sql/lanes/report.sql")),
            server_start: Mutex::default(),
        }
    }

    pub(super) async fn heartbeat(
        &self,
        connection: &Connection,
        seen: &Seen,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        let (lanes, epochs) = lanes_and_epochs(held);
        let server = self.server_start();
        let arguments = arguments!(
            relay,
            name,
            microseconds(ttl),
            lanes,
            epochs,
            low_marks(held),
            seen.of(held),
            server,
        )?;
        let row = connection.row(&self.heartbeat, arguments).await?;
        let started: i64 = row.try_get(3).map_err(|e| connection.explain(e))?;
        if server.is_some_and(|before| before != started) {
            // Nothing was renewed. The lanes are taken again, with the low marks that this server has.
            self.release(connection, seen, relay, held).await?;
        }
        *self.server_start.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        let read = || -> Result<Census, sqlx::Error> {
            let mut held: Vec<Lane> = row
                .try_get::<Vec<i16>, _>(0)?
                .into_iter()
                .map(|lane| lane as Lane)
                .collect();
            held.sort_unstable();
            Ok(Census {
                relays: number(row.try_get::<i64, _>(1)? + 1),
                rank: number(row.try_get(2)?),
                held,
            })
        };
        read().map_err(|e| connection.explain(e))
    }

    pub(super) async fn take(
        &self,
        connection: &Connection,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError> {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let arguments = arguments!(relay, count, microseconds(ttl))?;
        connection
            .rows(&self.take, arguments)
            .await?
            .iter()
            .map(|row| {
                Ok(HeldLane {
                    lane: row.try_get::<i16, _>(0)? as Lane,
                    epoch: row.try_get(1)?,
                    low_mark: row.try_get(2)?,
                })
            })
            .collect::<Result<_, sqlx::Error>>()
            .map_err(|e| connection.explain(e))
    }

    pub(super) async fn release(
        &self,
        connection: &Connection,
        seen: &Seen,
        relay: RelayId,
        held: &[HeldLane],
    ) -> Result<(), StoreError> {
        let (lanes, epochs) = lanes_and_epochs(held);
        let (marks, seen, server) = (low_marks(held), seen.of(held), self.server_start());
        let arguments = arguments!(relay, lanes, epochs, marks, seen, server)?;
        connection.rows(&self.release, arguments).await.map(drop)
    }

    fn server_start(&self) -> Option<i64> {
        *self.server_start.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn leave(&self, connection: &Connection, relay: RelayId) -> Result<(), StoreError> {
        connection.rows(&self.leave, arguments!(relay)?).await.map(drop)
    }

    pub(super) async fn report(
        &self,
        connection: &Connection,
        relay: RelayId,
        troubles: &[Trouble],
    ) -> Result<(), StoreError> {
        let arguments = arguments!(relay, trouble::to_json(troubles))?;
        connection.rows(&self.report, arguments).await.map(drop)
    }
}

fn low_marks(held: &[HeldLane]) -> Vec<Seq> {
    held.iter().map(|held| held.low_mark).collect()
}

fn number(count: i64) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
