//! Producers that use the library: commits, rollbacks, savepoints. SQLite has one writer, so a long
//! transaction counts as a fault here, not as a producer.

use std::sync::Arc;

use pillarbox::Outbox;
use pillarbox_testkit::ledger::Ledger;
use rand::{SeedableRng, rngs::StdRng};
use sqlx::{Executor, Sqlite, SqlitePool, Transaction};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Turn, Written, events, sleep};

const WRITERS: u64 = 3;

pub(in crate::campaigns) fn start(
    pool: &SqlitePool,
    ledger: &Arc<Ledger>,
    seed: u64,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    for n in 0..WRITERS {
        let rng = StdRng::seed_from_u64(seed.wrapping_add(1_000 + n));
        writers.spawn(write_on(pool.clone(), Arc::clone(ledger), rng, stop.clone()));
    }
    writers
}

async fn write_on(pool: SqlitePool, ledger: Arc<Ledger>, mut rng: StdRng, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let turn = Turn::short(&mut rng);
        // An error before the commit means that nothing was committed.
        let _ = transact(&pool, &ledger, &turn, &stop).await;
        sleep(turn.pause, &stop).await;
    }
}

async fn transact(
    pool: &SqlitePool,
    ledger: &Ledger,
    turn: &Turn,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut tx = pool.begin_with("begin immediate").await?;
    let written = write(&mut tx, &turn.key, turn.count).await?;
    if turn.savepoint {
        tx.execute("savepoint before_more").await?;
        let more = write(&mut tx, &turn.key, 1).await?;
        tx.execute("rollback to savepoint before_more").await?;
        more.rolled_back(ledger);
    }
    sleep(turn.open, stop).await;
    if turn.rolls_back {
        let _ = tx.rollback().await;
        written.rolled_back(ledger);
    } else if tx.commit().await.is_ok() {
        written.committed(ledger);
    } else {
        written.in_doubt(ledger);
    }
    Ok(())
}

async fn write(tx: &mut Transaction<'_, Sqlite>, key: &str, count: u64) -> anyhow::Result<Written> {
    let last: i64 = sqlx::query_scalar(
        "insert into counters values (?1, ?2) on conflict (key) do update set n = n + ?2 returning n",
    )
    .bind(key)
    .bind(count as i64)
    .fetch_one(&mut **tx)
    .await?;
    let events = events(key, count, last as u64);
    for (event, _) in &events {
        Outbox::default().enqueue(tx, event).await?;
    }
    Ok(Written::new(key, &events))
}
