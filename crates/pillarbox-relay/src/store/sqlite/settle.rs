//! Settling: one statement for deliveries, one transaction for everything else.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Value, json, value::RawValue};
use sqlx::{SqlStr, Sqlite, Transaction};

use super::{
    assumptions,
    connection::{Connections, micros, now, time},
    discover::{json as text, size},
};
use crate::{
    dead::Failure,
    event::{Lane, Seq},
    settlement::{FailedTry, Settlement},
    store::{
        HeldLane, Settled, StoreError,
        sql::{append_to_log, some_failures},
    },
};

pub(super) async fn settle(
    at: &Connections,
    held: &[HeldLane],
    settlement: &Settlement,
) -> Result<Settled, StoreError> {
    let fence = Fence::new(held);
    if settlement.is_empty() {
        return Ok(Settled { free: Vec::new() });
    }
    if settlement.is_plain() && settlement.logged.is_empty() {
        let written = sqlx::query(at.statements.settle_published.clone())
            .bind(now())
            .bind(text(&settlement.published))
            .bind(&fence.held)
            .bind(fence.count)
            .execute(at.writer())
            .await
            .map_err(|e| at.error(e))?
            .rows_affected();
        // Fewer than given: they were settled before, or the lanes were lost.
        if written < settlement.published.len() as u64 {
            at.counted(1);
            fence.check(at, at.reader()).await?;
        }
        return Ok(Settled { free: Vec::new() });
    }
    let mut tx = at.begin().await?;
    at.counted(1);
    fence.check(at, &mut *tx).await?;
    let mut batch = Batch {
        at,
        tx: &mut tx,
        now: now(),
    };
    let mut failures = HashMap::new();
    let touched = batch.write(settlement, &fence, &mut failures).await?;
    if !settlement.logged.is_empty() || settlement.logged_dead().next().is_some() {
        assumptions::check_log(at, batch.tx).await?;
        append_to_log(at, batch.tx, settlement, &failures).await?;
    }
    let free = batch.release(&touched).await?;
    at.commit(tx).await?;
    Ok(Settled { free })
}

/// The lanes and the epochs under which they are held.
struct Fence {
    held: String,
    count: i64,
}

impl Fence {
    fn new(held: &[HeldLane]) -> Self {
        Self {
            held: text(
                &held
                    .iter()
                    .map(|held| (held.lane, held.epoch))
                    .collect::<Vec<_>>(),
            ),
            count: size(held.len()),
        }
    }

    async fn check<'c, E>(&self, at: &Connections, connection: E) -> Result<(), StoreError>
    where
        E: sqlx::Executor<'c, Database = Sqlite>,
    {
        let valid: i64 = sqlx::query_scalar(at.statements.settle_fence.clone())
            .bind(&self.held)
            .fetch_one(connection)
            .await
            .map_err(|e| at.error(e))?;
        if valid == self.count {
            Ok(())
        } else {
            Err(StoreError::fenced())
        }
    }
}

pub(super) struct Batch<'a> {
    pub(super) at: &'a Connections,
    pub(super) tx: &'a mut Transaction<'static, Sqlite>,
    pub(super) now: i64,
}

impl Batch<'_> {
    /// Writes everything except the order within keys. Returns the keys whose order may have changed. Collects the
    /// failures of events that leave the side table.
    async fn write(
        &mut self,
        settlement: &Settlement,
        fence: &Fence,
        failures: &mut HashMap<Seq, Box<RawValue>>,
    ) -> Result<BTreeSet<(Lane, String)>, StoreError> {
        let sql = &self.at.statements;
        let parked = settlement.published_parked.iter();
        let published: Vec<Seq> = settlement
            .published
            .iter()
            .copied()
            .chain(parked.map(|p| p.seq))
            .collect();
        if !published.is_empty() {
            self.at.counted(1);
            sqlx::query(sql.settle_published.clone())
                .bind(self.now)
                .bind(text(&published))
                .bind(&fence.held)
                .bind(fence.count)
                .execute(&mut **self.tx)
                .await
                .map_err(|e| self.at.error(e))?;
        }
        let failed = failed(settlement, self.now);
        self.timed(&sql.settle_failed, &failed).await?;
        let aside = aside(settlement);
        self.plain(&sql.settle_put_aside, &aside).await?;
        self.plain(&sql.settle_parked, &[failed, aside].concat()).await?;
        let dead = dead(settlement, self.now);
        // Letters first: afterwards it is unknown which of these were dead before.
        self.timed(&sql.settle_bury, &dead).await?;
        self.timed(&sql.settle_dead, &dead).await?;

        let mut touched = keys(settlement);
        let leaving: Vec<Seq> = published
            .into_iter()
            .chain(settlement.dead.iter().map(|d| d.seq))
            .collect();
        if !leaving.is_empty() {
            self.at.counted(1);
            let left: Vec<(Lane, String, Seq, String)> = sqlx::query_as(sql.settle_unparked.clone())
                .bind(text(&leaving))
                .fetch_all(&mut **self.tx)
                .await
                .map_err(|e| self.at.error(e))?;
            for (lane, key, seq, stored) in left {
                // An unreadable event that died has no key in the settlement. The side table has it.
                touched.insert((lane, key));
                failures.extend(some_failures(Some(stored)).map(|stored| (seq, stored)));
            }
        }
        self.after_deaths(&settlement.dead).await?;
        Ok(touched)
    }

    /// Records an action on letters, each with the id of the new event or null.
    pub(super) async fn tell(
        &mut self,
        letters: &[Value],
        action: &str,
        by: &str,
        why: Option<&str>,
    ) -> Result<(), StoreError> {
        self.at.counted(1);
        sqlx::query(self.at.statements.settle_dead_told.clone())
            .bind(self.now)
            .bind(text(letters))
            .bind(action)
            .bind(by)
            .bind(why)
            .execute(&mut **self.tx)
            .await
            .map_err(|e| self.at.error(e))?;
        Ok(())
    }

    /// Orders the keys again, and returns those that are free.
    pub(super) async fn release(
        &mut self,
        touched: &BTreeSet<(Lane, String)>,
    ) -> Result<Vec<(Lane, String)>, StoreError> {
        if touched.is_empty() {
            return Ok(Vec::new());
        }
        let sql = &self.at.statements;
        let keys: Vec<Value> = touched.iter().map(|key| json!(key)).collect();
        self.plain(&sql.settle_head_waits, &keys).await?;
        self.timed(&sql.settle_head_due, &keys).await?;
        self.at.counted(1);
        sqlx::query_as(sql.settle_free.clone())
            .bind(text(&keys))
            .fetch_all(&mut **self.tx)
            .await
            .map_err(|e| self.at.error(e))
    }

    pub(super) async fn plain(&mut self, sql: &SqlStr, rows: &[Value]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.at.counted(1);
        let query = sqlx::query(sql.clone()).bind(text(rows));
        query
            .execute(&mut **self.tx)
            .await
            .map_err(|e| self.at.error(e))?;
        Ok(())
    }

    pub(super) async fn timed(&mut self, sql: &SqlStr, rows: &[Value]) -> Result<(), StoreError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.at.counted(1);
        let query = sqlx::query(sql.clone()).bind(self.now).bind(text(rows));
        query
            .execute(&mut **self.tx)
            .await
            .map_err(|e| self.at.error(e))?;
        Ok(())
    }
}

fn failed(settlement: &Settlement, now: i64) -> Vec<Value> {
    let rows = settlement.failed.iter().map(|f| {
        json!({
            "seq": f.parked.seq, "lane": f.parked.lane, "key": f.parked.key, "state": "failed",
            "due_at": now.saturating_add(micros(f.retry_in)), "attempts": f.attempts,
            "failure": failure(&f.failure, now),
        })
    });
    rows.collect()
}

fn aside(settlement: &Settlement) -> Vec<Value> {
    let held = settlement
        .held
        .iter()
        .map(|p| json!({"seq": p.seq, "lane": p.lane, "key": p.key, "state": "held", "due_at": null}));
    let delayed = settlement.delayed.iter().map(|d| {
        json!({
            "seq": d.parked.seq, "lane": d.parked.lane, "key": d.parked.key, "state": "delayed",
            "due_at": d.available_at.as_microsecond(),
        })
    });
    held.chain(delayed).collect()
}

fn dead(settlement: &Settlement, now: i64) -> Vec<Value> {
    let rows = settlement.dead.iter().map(|d| {
        json!({
            "seq": d.seq, "attempts": d.attempts, "reason": d.reason.as_str(), "failure": failure(&d.failure, now),
            "tried": d.tried, "fingerprint": d.fingerprint(),
        })
    });
    rows.collect()
}

/// As stored. An error's text comes from outside, and SQLite's own tools end a text at a NUL.
pub(super) fn failure(failure: &FailedTry, now: i64) -> Failure {
    Failure {
        at: time(now),
        error: failure.error.replace('\0', "\u{fffd}"),
        sink: failure.sink.as_deref().map(str::to_owned),
        relay: failure.relay.to_string(),
    }
}

fn keys(settlement: &Settlement) -> BTreeSet<(Lane, String)> {
    let parked = settlement.published_parked.iter().chain(&settlement.held);
    parked
        .chain(settlement.failed.iter().map(|f| &f.parked))
        .map(|p| (p.lane, p.key.clone()))
        .chain(
            settlement
                .dead
                .iter()
                .filter_map(|d| Some((d.lane, d.key.clone()?))),
        )
        .collect()
}
