//! The events of the side table, and which of them may be tried now.

use std::time::Duration;

use pillarbox::{Limits, lane::key_hash, table::Tables};
use sqlx::{Row, postgres::PgRow};

use super::{
    connection::{Connection, Sql, arguments, statement},
    row,
};
use crate::{
    event::{Lane, Seq},
    store::{Due, DueEvent, DuePlace, HeldLane, PageLimit, StoreError},
};

/// Where the columns of the event begin in the statement's rows.
const EVENT_COLUMNS: usize = 8;

/// Before every due event: due times are later than 1970.
const FIRST_PLACE: DuePlace = DuePlace { due_at: 0, seq: 0 };

pub(super) struct Statements {
    due: Sql,
    blocked_keys: Sql,
}

impl Statements {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            due: statement(tables, include_str!("sql/due/events.sql")),
            blocked_keys: statement(tables, include_str!("sql/due/blocked_keys.sql")),
        }
    }

    pub(super) async fn due(
        &self,
        connection: &Connection,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError> {
        let after = after.unwrap_or(FIRST_PLACE);
        let arguments = arguments!(
            lanes(held),
            limit.events.max(1) as i64,
            limit.payload_bytes_max as i64,
            limit.bytes as i64,
            after.due_at,
            after.seq,
        )?;
        let mut rows = connection.rows(&self.due, arguments).await?;
        // Sorted by the place in the answer, because SQL does not guarantee the order.
        rows.sort_by_key(|row| row.try_get::<Option<i64>, _>(1).ok().flatten());
        read(&rows, limit).map_err(|e| connection.explain(e))
    }

    pub(super) async fn blocked_keys(
        &self,
        connection: &Connection,
        held: &[HeldLane],
    ) -> Result<Vec<(Lane, u64)>, StoreError> {
        connection
            .rows(&self.blocked_keys, arguments!(lanes(held))?)
            .await?
            .iter()
            .map(|row| Ok((row.try_get::<i16, _>(0)? as Lane, key_hash(row.try_get(1)?))))
            .collect::<Result<_, sqlx::Error>>()
            .map_err(|e| connection.explain(e))
    }
}

fn read(rows: &[PgRow], limit: PageLimit) -> Result<Due, sqlx::Error> {
    let limits = Limits::default().payload_bytes_max(limit.payload_bytes_max);
    let mut due = Due::default();
    let (mut taken, mut waiting) = (0, 0);
    for row in rows {
        due.next = row
            .try_get::<Option<i64>, _>(0)?
            .map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0)));
        waiting = row.try_get::<i64, _>(2)?;
        if row.try_get::<Option<i64>, _>(1)?.is_none() {
            continue;
        }
        taken += 1;
        due.more_after = match row.try_get(3)? {
            true => Some(DuePlace {
                due_at: row.try_get(4)?,
                seq: row.try_get(5)?,
            }),
            false => None,
        };
        if row.try_get::<Option<Seq>, _>(EVENT_COLUMNS)?.is_none() {
            continue;
        }
        match row::event(row, EVENT_COLUMNS, &limits) {
            Ok(event) => due.events.push(DueEvent {
                event,
                delayed: row.try_get(6)?,
            }),
            Err(unreadable) => due.unreadable.push(unreadable),
        }
    }
    if taken < waiting {
        due.next = Some(Duration::ZERO);
    }
    due.group_by_key();
    Ok(due)
}

fn lanes(held: &[HeldLane]) -> Vec<i16> {
    held.iter().map(|held| i16::from(held.lane)).collect()
}
