//! The side table: which events may be tried now, and which keys wait.

use std::time::Duration;

use pillarbox::lane::key_hash;
use sqlx::{Row, sqlite::SqliteRow};

use super::{
    connection::{Connections, now},
    discover::{lanes_json, size},
    row,
};
use crate::{
    event::{Lane, Seq},
    store::{Due, DueEvent, DuePlace, HeldLane, PageLimit, StoreError},
};

/// Before every due event: due times are later than 1970.
const FIRST_PLACE: DuePlace = DuePlace { due_at: 0, seq: 0 };

pub(super) async fn due(
    at: &Connections,
    held: &[HeldLane],
    after: Option<DuePlace>,
    limit: PageLimit,
) -> Result<Due, StoreError> {
    let after = after.unwrap_or(FIRST_PLACE);
    let (now, lanes) = (now(), lanes_json(held));
    let rows = sqlx::query(at.statements.due_events.clone())
        .bind(now)
        .bind(&lanes)
        .bind(size(limit.events))
        .bind(size(limit.bytes))
        .bind(size(limit.payload_bytes_max))
        .bind(after.due_at)
        .bind(after.seq)
        .fetch_all(at.reader())
        .await
        .map_err(|e| at.error(e))?;
    let mut due = Due::default();
    let mut candidates = 0;
    for row in &rows {
        candidates = row.try_get::<i64, _>(row::CANDIDATES).map_err(|e| at.error(e))?;
        read(row, limit, &mut due).map_err(|e| at.error(e))?;
    }
    due.next = if size(rows.len()) < candidates {
        Some(Duration::ZERO)
    } else {
        next_due(at, now, &lanes).await?
    };
    due.group_by_key();
    Ok(due)
}

fn read(row: &SqliteRow, limit: PageLimit, due: &mut Due) -> Result<(), sqlx::Error> {
    due.more_after = match row.try_get(row::MORE)? {
        true => Some(DuePlace {
            due_at: row.try_get(row::MORE + 1)?,
            seq: row.try_get(row::MORE + 2)?,
        }),
        false => None,
    };
    let delayed = row.try_get(row::DELAYED)?;
    if row.try_get::<Option<Seq>, _>(0)?.is_none() {
        return Ok(());
    }
    match row::event(row, limit)? {
        Ok(event) => due.events.push(DueEvent { event, delayed }),
        Err(unreadable) => due.unreadable.push(unreadable),
    }
    Ok(())
}

async fn next_due(at: &Connections, now: i64, lanes: &str) -> Result<Option<Duration>, StoreError> {
    let next: Option<i64> = sqlx::query_scalar(at.statements.due_next.clone())
        .bind(now)
        .bind(lanes)
        .fetch_optional(at.reader())
        .await
        .map_err(|e| at.error(e))?;
    Ok(next.map(|next| Duration::from_micros(u64::try_from(next - now).unwrap_or(0))))
}

pub(super) async fn blocked_keys(
    at: &Connections,
    held: &[HeldLane],
) -> Result<Vec<(Lane, u64)>, StoreError> {
    let keys: Vec<(Lane, String)> = sqlx::query_as(at.statements.due_blocked_keys.clone())
        .bind(lanes_json(held))
        .fetch_all(at.reader())
        .await
        .map_err(|e| at.error(e))?;
    Ok(keys
        .into_iter()
        .map(|(lane, key)| (lane, key_hash(&key)))
        .collect())
}
