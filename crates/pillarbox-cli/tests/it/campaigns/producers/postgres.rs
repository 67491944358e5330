//! Producers that use the library, the SQL function and a plain insert; short and long transactions,
//! savepoints, two-phase commits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pillarbox::{Event, Outbox};
use pillarbox_testkit::ledger::Ledger;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{AssertSqlSafe, Executor, PgPool, Postgres, Transaction};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Turn, Written, events, sleep};

const WRITERS: u64 = 3;
/// The SQLSTATE if a prepared transaction does not exist.
const UNKNOWN_TRANSACTION: &str = "42704";
/// Much longer than the database is away in a storm.
const DECIDE_MAX: Duration = Duration::from_secs(120);

pub(in crate::campaigns) fn start(
    pool: &PgPool,
    ledger: &Arc<Ledger>,
    seed: u64,
    stop: &CancellationToken,
) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    let application = |n: u64| Application {
        pool: pool.clone(),
        ledger: Arc::clone(ledger),
        rng: StdRng::seed_from_u64(seed.wrapping_add(1_000 + n)),
        stop: stop.clone(),
    };
    for n in 0..WRITERS {
        writers.spawn(application(n).write_on(Turn::short));
    }
    writers.spawn(application(WRITERS).write_on(Turn::long));
    writers.spawn(application(WRITERS + 1).prepare_on());
    writers
}

/// How an event is written.
#[derive(Clone, Copy)]
enum Way {
    Library,
    Function,
    Insert,
}

struct Application {
    pool: PgPool,
    ledger: Arc<Ledger>,
    rng: StdRng,
    stop: CancellationToken,
}

impl Application {
    async fn write_on(mut self, next: fn(&mut StdRng) -> Turn) {
        while !self.stop.is_cancelled() {
            let turn = next(&mut self.rng);
            let way = match self.rng.random_range(0..3) {
                0 => Way::Library,
                1 => Way::Function,
                _ => Way::Insert,
            };
            // An error before the commit means that nothing was committed.
            let _ = self.transact(&turn, way).await;
            sleep(turn.pause, &self.stop).await;
        }
    }

    async fn transact(&self, turn: &Turn, way: Way) -> anyhow::Result<()> {
        let mut tx = self.pool.begin().await?;
        let written = write(&mut tx, way, &turn.key, turn.count).await?;
        if turn.savepoint {
            tx.execute("savepoint before_more").await?;
            let more = write(&mut tx, way, &turn.key, 1).await?;
            tx.execute("rollback to savepoint before_more").await?;
            more.rolled_back(&self.ledger);
        }
        sleep(turn.open, &self.stop).await;
        if turn.rolls_back {
            let _ = tx.rollback().await;
            written.rolled_back(&self.ledger);
        } else if tx.commit().await.is_ok() {
            written.committed(&self.ledger);
        } else {
            written.in_doubt(&self.ledger);
        }
        Ok(())
    }

    /// Two-phase commits. They use plain inserts, because these never notify.
    async fn prepare_on(mut self) {
        while !self.stop.is_cancelled() {
            let turn = Turn::long(&mut self.rng);
            let open = Duration::from_millis(self.rng.random_range(0..3_000));
            let key = turn.key.replace("slow", "prepared");
            if let Ok(mut tx) = self.pool.begin().await
                && let Ok(written) = write(&mut tx, Way::Insert, &key, turn.count).await
            {
                let name = Uuid::now_v7();
                let prepared = tx
                    .execute(AssertSqlSafe(format!("prepare transaction '{name}'")))
                    .await
                    .is_ok();
                // The session has no transaction any more. This only updates the client's state.
                let _ = tx.rollback().await;
                sleep(open, &self.stop).await;
                if prepared && !turn.rolls_back {
                    self.decide(&format!("commit prepared '{name}'")).await;
                    written.committed(&self.ledger);
                } else {
                    self.decide(&format!("rollback prepared '{name}'")).await;
                    written.rolled_back(&self.ledger);
                }
            }
            sleep(turn.pause, &self.stop).await;
        }
    }

    /// Repeats until the result is known. An earlier attempt may have succeeded without an answer, and a
    /// `prepare` without an answer may have failed.
    async fn decide(&self, sql: &str) {
        let start = Instant::now();
        loop {
            match self.pool.execute(AssertSqlSafe(sql.to_owned())).await {
                Ok(_) => return,
                Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(UNKNOWN_TRANSACTION) => {
                    return;
                }
                Err(error) => {
                    assert!(start.elapsed() < DECIDE_MAX, "{sql} gets no answer: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// The row of the counter makes other writers of this key wait until the transaction ends.
async fn write(
    tx: &mut Transaction<'_, Postgres>,
    way: Way,
    key: &str,
    count: u64,
) -> anyhow::Result<Written> {
    let last: i64 = sqlx::query_scalar(
        "insert into counters values ($1, $2) on conflict (key) do update set n = counters.n + $2 returning n",
    )
    .bind(key)
    .bind(count as i64)
    .fetch_one(&mut **tx)
    .await?;
    let events = events(key, count, last as u64);
    for (event, _) in &events {
        insert(tx, way, event).await?;
    }
    Ok(Written::new(key, &events))
}

async fn insert(tx: &mut Transaction<'_, Postgres>, way: Way, event: &Event) -> anyhow::Result<()> {
    let sql = match way {
        Way::Library => {
            Outbox::default().enqueue(tx, event).await?;
            return Ok(());
        }
        Way::Function => "select pillarbox.enqueue($2, $5, $3, $6::text, aggregate_type => $4, id => $1)",
        Way::Insert => {
            "insert into outbox_events (id, topic, event_type, aggregate_type, aggregate_id, payload)
             values ($1, $2, $3, $4, $5, $6)"
        }
    };
    sqlx::query(sql)
        .bind(event.id.to_string())
        .bind(&event.topic)
        .bind(&event.event_type)
        .bind(&event.aggregate_type)
        .bind(&event.aggregate_id)
        .bind(std::str::from_utf8(&event.payload)?)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
