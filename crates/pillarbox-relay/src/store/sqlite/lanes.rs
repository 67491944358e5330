//! Leases on lanes. The write lock lets one relay at a time change them.

use std::time::Duration;

use super::{
    connection::{Connections, micros, now},
    discover::{json, size},
};
use crate::{
    event::{Lane, Seq},
    store::{Census, HeldLane, RelayId, StoreError, Trouble, trouble},
};

pub(super) async fn heartbeat(
    at: &Connections,
    relay: RelayId,
    name: &str,
    ttl: Duration,
    held: &[HeldLane],
) -> Result<Census, StoreError> {
    let (sql, relay) = (&at.statements, relay.to_string());
    let mut tx = at.begin().await?;
    let now = now();
    let until = now.saturating_add(micros(ttl));
    at.counted(4);
    let beat = sqlx::query(sql.lanes_heartbeat.clone())
        .bind(&relay)
        .bind(name)
        .bind(now)
        .bind(until);
    beat.execute(&mut *tx).await.map_err(|e| at.error(e))?;
    let bury = sqlx::query(sql.lanes_bury_relays.clone()).bind(now);
    bury.execute(&mut *tx).await.map_err(|e| at.error(e))?;
    let held: Vec<Lane> = sqlx::query_scalar(sql.lanes_renew.clone())
        .bind(&relay)
        .bind(until)
        .bind(marks_json(held))
        .fetch_all(&mut *tx)
        .await
        .map_err(|e| at.error(e))?;
    let (relays, rank): (u16, u16) = sqlx::query_as(sql.lanes_census.clone())
        .bind(&relay)
        .fetch_one(&mut *tx)
        .await
        .map_err(|e| at.error(e))?;
    at.commit(tx).await?;
    Ok(Census { relays, rank, held })
}

pub(super) async fn take(
    at: &Connections,
    relay: RelayId,
    count: usize,
    ttl: Duration,
) -> Result<Vec<HeldLane>, StoreError> {
    // Read the time after the lock is taken, so that a lease is never compared with an old time.
    let mut tx = at.begin().await?;
    let now = now();
    at.counted(1);
    let rows: Vec<(Lane, i64, Seq)> = sqlx::query_as(at.statements.lanes_take.clone())
        .bind(relay.to_string())
        .bind(now)
        .bind(now.saturating_add(micros(ttl)))
        .bind(size(count))
        .fetch_all(&mut *tx)
        .await
        .map_err(|e| at.error(e))?;
    at.commit(tx).await?;
    let held = rows.into_iter().map(|(lane, epoch, low_mark)| HeldLane {
        lane,
        epoch,
        low_mark,
    });
    Ok(held.collect())
}

pub(super) async fn release(at: &Connections, relay: RelayId, held: &[HeldLane]) -> Result<(), StoreError> {
    sqlx::query(at.statements.lanes_release.clone())
        .bind(relay.to_string())
        .bind(marks_json(held))
        .execute(at.writer())
        .await
        .map_err(|e| at.error(e))?;
    Ok(())
}

pub(super) async fn leave(at: &Connections, relay: RelayId) -> Result<(), StoreError> {
    let mut tx = at.begin().await?;
    for sql in [&at.statements.lanes_leave_lanes, &at.statements.lanes_leave] {
        at.counted(1);
        let query = sqlx::query(sql.clone()).bind(relay.to_string());
        query.execute(&mut *tx).await.map_err(|e| at.error(e))?;
    }
    at.commit(tx).await
}

pub(super) async fn report(at: &Connections, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
    sqlx::query(at.statements.lanes_report.clone())
        .bind(relay.to_string())
        .bind(trouble::to_json(troubles))
        .execute(at.writer())
        .await
        .map_err(|e| at.error(e))?;
    Ok(())
}

fn marks_json(held: &[HeldLane]) -> String {
    let marks = held.iter().map(|held| (held.lane, held.epoch, held.low_mark));
    json(&marks.collect::<Vec<_>>())
}
