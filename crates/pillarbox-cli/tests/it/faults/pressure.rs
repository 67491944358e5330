//! Producers at full speed while the relay is killed, paused, or can't reach its sink: the backlog stays at the hard limit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::{EnqueueError, Event, Outbox};
use pillarbox_testkit::proxy::{Fault, Proxy};
use pillarbox_testkit::servers::{self, Nats};
use sqlx::PgPool;
use tokio::time::Instant;

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

/// Writes at full speed until producers were refused often. How many events were taken.
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

/// What no relay has settled.
async fn waiting(pool: &PgPool) -> u64 {
    number(
        pool,
        "select count(*) from outbox_events where status <> 'published'",
    )
    .await
}

/// It is full, and nobody else feels it.
async fn held_at_the_limit(pool: &PgPool) {
    let waiting = waiting(pool).await;
    // The limit, and the transactions that were in flight.
    assert!(waiting <= HARD + WRITERS, "{waiting} wait");
    sqlx::query("insert into orders values (1)")
        .execute(pool)
        .await
        .unwrap();
    enqueue(pool, "orders.money").await.expect("never refused");
}

async fn until_taken(pool: &PgPool) {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = enqueue(pool, "orders.bulk").await {
        assert!(matches!(error, EnqueueError::Busy { .. }), "{error}");
        assert!(
            Instant::now() < deadline,
            "producers are refused for ever: {error}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
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

    // Paused, and going on.
    let relay = scene.relay("paused").await;
    figures_are_there(pool).await;
    relay.signal("STOP").await;
    assert!(fill(pool).await >= HARD / 2);
    held_at_the_limit(pool).await;
    relay.signal("CONT").await;
    until_taken(pool).await;

    // Its sink is away, and back.
    proxy.set(Fault::Refuse).await;
    fill(pool).await;
    held_at_the_limit(pool).await;
    proxy.set(Fault::Pass).await;
    until_taken(pool).await;

    // Killed, and another comes.
    relay.kill().await;
    fill(pool).await;
    held_at_the_limit(pool).await;
    let relay = scene.relay("next").await;
    until_taken(pool).await;
    let deadline = Instant::now() + PATIENCE;
    while waiting(pool).await > 0 {
        assert!(Instant::now() < deadline, "not all is delivered");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    relay.stop().await;
}

async fn figures_are_there(pool: &PgPool) {
    let deadline = Instant::now() + PATIENCE;
    while number(
        pool,
        "select count(*) from outbox_events_pressure where isfinite(measured_at)",
    )
    .await
        < 2
    {
        assert!(Instant::now() < deadline, "no figures");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
