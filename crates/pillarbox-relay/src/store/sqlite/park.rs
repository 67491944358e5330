//! The side table: what may be tried now, and which keys wait.

use std::time::Duration;

use pillarbox::lane::key_hash;
use sqlx::Row;

use super::{
    connection::{Connections, now},
    discover::{lanes_json, size},
    row,
};
use crate::{
    event::Lane,
    store::{Due, DueEvent, HeldLane, PageLimit, StoreError},
};

pub(super) async fn due(at: &Connections, held: &[HeldLane], limit: PageLimit) -> Result<Due, StoreError> {
    let (now, lanes) = (now(), lanes_json(held));
    let rows = sqlx::query(at.statements.due.clone())
        .bind(now)
        .bind(&lanes)
        .bind(size(limit.events))
        .bind(size(limit.bytes))
        .bind(size(limit.payload_bytes_max))
        .fetch_all(at.reader())
        .await
        .map_err(|e| at.error(e))?;
    let mut due = Due::default();
    let mut candidates = 0;
    for row in &rows {
        candidates = row.try_get::<i64, _>(row::CANDIDATES).map_err(|e| at.error(e))?;
        let delayed = row.try_get(row::DELAYED).map_err(|e| at.error(e))?;
        match row::event(row, limit).map_err(|e| at.error(e))? {
            Ok(event) => due.events.push(DueEvent { event, delayed }),
            Err(unreadable) => due.unreadable.push(unreadable),
        }
    }
    due.next = if size(rows.len()) < candidates {
        Some(Duration::ZERO)
    } else {
        next_due(at, now, &lanes).await?
    };
    Ok(due)
}

async fn next_due(at: &Connections, now: i64, lanes: &str) -> Result<Option<Duration>, StoreError> {
    let next: Option<i64> = sqlx::query_scalar(at.statements.next_due.clone())
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
    let keys: Vec<(Lane, String)> = sqlx::query_as(at.statements.blocked.clone())
        .bind(lanes_json(held))
        .fetch_all(at.reader())
        .await
        .map_err(|e| at.error(e))?;
    Ok(keys
        .into_iter()
        .map(|(lane, key)| (lane, key_hash(&key)))
        .collect())
}
