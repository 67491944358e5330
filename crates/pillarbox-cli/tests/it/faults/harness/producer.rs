//! An application. In one transaction it increments a row of its own and writes an event about it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pillarbox::{EnqueueError, Enqueued, EventId, Outbox};
use pillarbox_testkit::ledger::Ledger;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use sqlx::{PgPool, Postgres, Transaction};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, Scene, event};

#[derive(Clone)]
pub(in super::super) struct Producer {
    pool: PgPool,
    ledger: Arc<Ledger>,
}

/// The events of one transaction.
#[derive(Debug, Clone)]
pub(in super::super) struct Written {
    key: String,
    events: Vec<(EventId, u64)>,
}

impl Producer {
    pub(in super::super) fn new(scene: &Scene) -> Self {
        Self {
            pool: scene.pool.clone(),
            ledger: scene.ledger.clone(),
        }
    }

    pub(in super::super) async fn begin(&self) -> Transaction<'static, Postgres> {
        self.pool.begin().await.unwrap()
    }

    /// Writes `count` events of a key. The lock on the row makes other writers of this key wait until the
    /// transaction ends.
    pub(in super::super) async fn write(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        key: &str,
        count: u64,
    ) -> Result<Written, EnqueueError> {
        let last: i64 = sqlx::query_scalar(
            "insert into counters values ($1, $2)
             on conflict (key) do update set n = counters.n + $2 returning n",
        )
        .bind(key)
        .bind(count as i64)
        .fetch_one(&mut **tx)
        .await?;
        let last = last as u64;
        let events: Vec<_> = (last - count + 1..=last).map(|n| (event(key, n), n)).collect();
        let enqueued = Outbox::default()
            .enqueue_all(
                tx,
                &events.iter().map(|(event, _)| event.clone()).collect::<Vec<_>>(),
            )
            .await?;
        assert!(enqueued.iter().all(|enqueued| *enqueued == Enqueued::New));
        Ok(Written {
            key: key.to_owned(),
            events: events.into_iter().map(|(event, n)| (event.id, n)).collect(),
        })
    }

    /// Writes events and commits.
    pub(in super::super) async fn place(&self, key: &str, count: u64) {
        let mut tx = self.begin().await;
        let written = self.write(&mut tx, key, count).await.unwrap();
        tx.commit().await.unwrap();
        self.committed(&written);
    }

    pub(in super::super) fn committed(&self, written: &Written) {
        for (id, n) in &written.events {
            self.ledger.committed(id.clone(), &written.key, *n);
        }
    }

    pub(in super::super) fn rolled_back(&self, written: &Written) {
        for (id, _) in &written.events {
            self.ledger.rolled_back(id.clone());
        }
    }

    /// If a commit got no answer, asks the database whether the events exist.
    async fn look_up(&self, written: &Written) {
        let there: i64 = sqlx::query_scalar("select count(*) from outbox_events where id = any($1)")
            .bind(
                written
                    .events
                    .iter()
                    .map(|(id, _)| id.clone())
                    .collect::<Vec<_>>(),
            )
            .fetch_one(&self.pool)
            .await
            .unwrap();
        if there == 0 {
            self.rolled_back(written);
        } else {
            self.committed(written);
        }
    }
}

/// Many concurrent transactions until it is stopped. Some roll back, some commit late.
pub(in super::super) struct Load {
    producer: Producer,
    stop: CancellationToken,
    writers: JoinSet<()>,
    in_doubt: Arc<Mutex<Vec<Written>>>,
}

const WRITERS: u64 = 4;
const KEYS: u32 = 48;

impl Load {
    pub(in super::super) fn start(scene: &Scene, seed: u64) -> Self {
        let mut load = Self {
            producer: Producer::new(scene),
            stop: CancellationToken::new(),
            writers: JoinSet::new(),
            in_doubt: Arc::default(),
        };
        for writer in 0..WRITERS {
            let rng = StdRng::seed_from_u64(seed ^ writer);
            load.writers.spawn(write_on(
                load.producer.clone(),
                rng,
                load.stop.clone(),
                load.in_doubt.clone(),
            ));
        }
        load
    }

    /// Stops the load. After that the ledger contains everything it did.
    pub(in super::super) async fn stop(mut self) {
        self.stop.cancel();
        let ended = async {
            while let Some(ended) = self.writers.join_next().await {
                ended.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, ended)
            .await
            .expect("the producers did not end");
        let in_doubt = std::mem::take(&mut *self.in_doubt.lock().unwrap());
        for written in in_doubt {
            self.producer.look_up(&written).await;
        }
    }
}

async fn write_on(
    producer: Producer,
    mut rng: StdRng,
    stop: CancellationToken,
    in_doubt: Arc<Mutex<Vec<Written>>>,
) {
    while !stop.is_cancelled() {
        let (key, count) = (
            format!("key-{}", rng.random_range(0..KEYS)),
            rng.random_range(1..=3),
        );
        let (rolls_back, late) = (rng.random_bool(0.1), rng.random_bool(0.02));
        let late = Duration::from_millis(if late { rng.random_range(50..400) } else { 0 });
        let pause = Duration::from_millis(rng.random_range(0..4));
        // An error here means that the database is away, so nothing was committed.
        if let Ok(mut tx) = producer.pool.begin().await
            && let Ok(written) = producer.write(&mut tx, &key, count).await
        {
            tokio::time::sleep(late).await;
            if rolls_back {
                let _ = tx.rollback().await;
                producer.rolled_back(&written);
            } else if tx.commit().await.is_ok() {
                producer.committed(&written);
            } else {
                in_doubt.lock().unwrap().push(written);
            }
        }
        tokio::time::sleep(pause).await;
    }
}
