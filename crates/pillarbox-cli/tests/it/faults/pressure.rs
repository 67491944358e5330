//! Producers write at full speed while the relay is killed, paused, or can't reach its sink. The backlog
//! stays at the hard limit.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use pillarbox::{EnqueueError, Event, Outbox};
use pillarbox_testkit::proxy::{Fault, Proxy};
use pillarbox_testkit::servers::{self, Nats};
use pillarbox_testkit::wait;
use sqlx::PgPool;

use super::harness::{Config, PATIENCE, Scene};

const HARD: u64 = 400;
const WRITERS: u64 = 8;
const CLASSES: &str = "{ classes: [{ name: money, topics: ['orders.money'], never_refuse: true }, \
                       { name: bulk, soft: 200, hard: 400, max_delay_ms: 5 }] }";

async fn enqueue(pool: &PgPool, topic: &str) -> Result<(), EnqueueError> {
    let mut tx = pool.begin().await?;
    let event = Event::to(topic)
        .event_type("OrderPlaced")
        .aggregate("order", "o-1");
    Outbox::default().enqueue(&mut tx, &event).await?;
    Ok(tx.commit().await?)
}

/// Writes at full speed until producers were refused often. Returns how many events were accepted.
async fn fill(pool: &PgPool) -> u64 {
    let (taken, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (pool, taken, refused) = (pool.clone(), taken.clone(), refused.clone());
            tokio::spawn(async move {
                while refused.load(Ordering::Relaxed) < 10 * WRITERS {
                    match enqueue(&pool, "orders.bulk").await {
                        Ok(()) => taken.fetch_add(1, Ordering::Relaxed),
                        Err(EnqueueError::Busy { class, limit, .. }) => {
                            assert_eq!((&*class, limit), ("bulk", HARD));
                            refused.fetch_add(1, Ordering::Relaxed)
                        }
                        Err(error) => panic!("{error}"),
                    };
                }
            })
        })
        .collect();
    for writer in writers {
        tokio::time::timeout(PATIENCE, writer).await.unwrap().unwrap();
    }
    taken.load(Ordering::Relaxed)
}

async fn number(pool: &PgPool, sql: &'static str) -> u64 {
    let n: i64 = sqlx::query_scalar(sql).fetch_one(pool).await.unwrap();
    u64::try_from(n).unwrap()
}

/// How many events are not settled.
async fn waiting(pool: &PgPool) -> u64 {
    number(
        pool,
        "select count(*) from outbox_events where status <> 'published'",
    )
    .await
}

/// Checks that the backlog is not above the limit, and that other writes are not refused.
async fn held_at_the_limit(pool: &PgPool) {
    let waiting = waiting(pool).await;
    // The limit plus the transactions that were in flight.
    assert!(waiting <= HARD + WRITERS, "{waiting} wait");
    sqlx::query("insert into orders values (1)")
        .execute(pool)
        .await
        .unwrap();
    enqueue(pool, "orders.money").await.expect("never refused");
}

async fn until_taken(pool: &PgPool) {
    wait::until_ok(async || {
        let taken = enqueue(pool, "orders.bulk").await;
        taken.map_err(|error| {
            assert!(matches!(error, EnqueueError::Busy { .. }), "{error}");
            format!("producers are refused for ever: {error}")
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_is_away_lets_producers_write_no_more_than_the_hard_limit() {
    let (Some(postgres), Some(nats)) = (servers::postgres().await, Nats::start().await) else {
        return;
    };
    let proxy = Proxy::in_front_of(&nats.url()).await;
    let mut config = Config::new(&postgres.database().await, &proxy.through(&nats.url()));
    config.backpressure = CLASSES.into();
    config.lease_ms = 2_000;
    let scene = Scene::with(config);
    scene.prepare().await;
    let pool = &scene.pool;
    sqlx::query("create table orders (id int)")
        .execute(pool)
        .await
        .unwrap();

    // The relay is paused and continues.
    let relay = scene.relay("paused").await;
    figures_are_there(pool).await;
    relay.signal("STOP").await;
    assert!(fill(pool).await >= HARD / 2);
    held_at_the_limit(pool).await;
    relay.signal("CONT").await;
    until_taken(pool).await;

    // The sink is away and comes back.
    proxy.set(Fault::Refuse).await;
    fill(pool).await;
    held_at_the_limit(pool).await;
    proxy.set(Fault::Pass).await;
    until_taken(pool).await;

    // The relay is killed, and another one starts.
    relay.kill().await;
    fill(pool).await;
    held_at_the_limit(pool).await;
    let relay = scene.relay("next").await;
    until_taken(pool).await;
    wait::until("all is delivered", async || waiting(pool).await == 0).await;
    relay.stop().await;
}

async fn figures_are_there(pool: &PgPool) {
    let figures = "select count(*) from outbox_events_pressure where isfinite(measured_at)";
    wait::until("there are figures", async || number(pool, figures).await >= 2).await;
}
