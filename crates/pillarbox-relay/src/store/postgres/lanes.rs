//! Lanes: who publishes what, by the database's clock.

use std::time::Duration;

use pillarbox::table::Tables;
use sqlx::Row;

use super::{
    connection::{Connection, Sql, arguments, statement},
    lanes_and_epochs, microseconds,
};
use crate::{
    event::{Lane, Seq},
    store::{Census, HeldLane, RelayId, StoreError, troubles},
};

pub(super) struct Statements {
    heartbeat: Sql,
    take: Sql,
    release: Sql,
    leave: Sql,
    report: Sql,
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            heartbeat: statement(tables, include_str!("lanes_heartbeat.sql")),
            take: statement(tables, include_str!("lanes_take.sql")),
            release: statement(tables, include_str!("lanes_release.sql")),
            leave: statement(tables, include_str!("lanes_leave.sql")),
            report: statement(tables, include_str!("lanes_report.sql")),
        }
    }

    pub(super) async fn heartbeat(
        &self,
        connection: &Connection,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        let (lanes, epochs) = lanes_and_epochs(held);
        let arguments = arguments!(relay, name, microseconds(ttl), lanes, epochs, low_marks(held))?;
        let row = connection.row(&self.heartbeat, arguments).await?;
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
        relay: RelayId,
        held: &[HeldLane],
    ) -> Result<(), StoreError> {
        let (lanes, epochs) = lanes_and_epochs(held);
        let arguments = arguments!(relay, lanes, epochs, low_marks(held))?;
        connection.rows(&self.release, arguments).await.map(drop)
    }

    pub(super) async fn leave(&self, connection: &Connection, relay: RelayId) -> Result<(), StoreError> {
        connection.rows(&self.leave, arguments!(relay)?).await.map(drop)
    }

    pub(super) async fn report(
        &self,
        connection: &Connection,
        relay: RelayId,
        troubles: &[String],
    ) -> Result<(), StoreError> {
        let arguments = arguments!(relay, troubles::to_json(troubles))?;
        connection.rows(&self.report, arguments).await.map(drop)
    }
}

fn low_marks(held: &[HeldLane]) -> Vec<Seq> {
    held.iter().map(|held| held.low_mark).collect()
}

fn number(count: i64) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}
