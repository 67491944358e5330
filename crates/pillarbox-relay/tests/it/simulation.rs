//! The engine over a store and two sinks in memory, with time that passes only when everybody waits: thousands of
//! histories, each from a seed, with crashes, outages, lost answers and late commits. A failure prints its seed:
//! `PILLARBOX_SEED=… cargo test -p pillarbox-relay --test it simulation` runs that one again.

pub(crate) mod broker;
mod operator;
mod oracle;
mod workload;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use pillarbox_relay::{
    Options, Relay, RelayHandle, Sink,
    retry::RetryPolicy,
    route::{AfterDeath, Pattern, Route, Routes},
    store::memory::{MemoryStore, Status},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use self::{broker::Broker, oracle::Oracle};

/// How many histories an ordinary run tries; `PILLARBOX_TORTURE_SECONDS` goes on for longer.
const HISTORIES: u64 = 1_000;

#[test]
fn torture_simulation_holds_every_promise_in_every_history() {
    let one = std::env::var("PILLARBOX_SEED")
        .ok()
        .and_then(|seed| seed.parse::<u64>().ok());
    let seconds = std::env::var("PILLARBOX_TORTURE_SECONDS")
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    if let (Some(seed), None) = (one, seconds) {
        return history(seed);
    }
    // A campaign goes on from its seed.
    let start = one.unwrap_or_else(|| rand::random::<u32>().into());
    let began = Instant::now();
    let mut tried = 0;
    let more = |tried| match seconds {
        Some(seconds) => began.elapsed() < Duration::from_secs(seconds),
        None => tried < HISTORIES,
    };
    while more(tried) {
        let seed = start.wrapping_add(tried);
        let result = std::panic::catch_unwind(|| history(seed));
        assert!(
            result.is_ok(),
            "the history of PILLARBOX_SEED={seed} broke a promise (above)"
        );
        tried += 1;
    }
    println!(
        "{tried} histories from seed {start} on, in {:.1} s",
        began.elapsed().as_secs_f64()
    );
}

/// One history: a workload, relays that come and go, faults, then peace; then the oracle.
fn history(seed: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut rng = StdRng::seed_from_u64(seed);
        let store = MemoryStore::default();
        let near = Broker::new(&mut rng);
        let far = near.beside(&mut rng);
        let brokers = [near, far];
        let workload = tokio::spawn(workload::run(store.clone(), StdRng::seed_from_u64(rng.random())));
        let operator = operator::Operator::start(&store, &brokers[0], StdRng::seed_from_u64(rng.random()));
        trouble(&store, &brokers, &mut rng).await;
        let rolled_back = workload.await.unwrap();
        let relay = start(&store, &brokers, &mut rng);
        peace(&store, &brokers).await;
        relay.stop().await.unwrap();
        Oracle {
            rows: store.rows(),
            seen: brokers[0].stored(),
            rolled_back,
            discarded: operator.stop(),
            blocking: store.blocking(),
        }
        .check();
    });
}

fn start(store: &MemoryStore, brokers: &[Broker; 2], rng: &mut StdRng) -> RelayHandle {
    let [near, far] = brokers.clone().map(|broker| Arc::new(broker) as Arc<dyn Sink>);
    let route = |topic: &str, sink: &str, after_death: AfterDeath| Route {
        topic: Pattern::new(topic).unwrap(),
        sink: sink.into(),
        stream: None,
        envelope: Default::default(),
        after_death,
    };
    Relay {
        store: Arc::new(store.clone()),
        sinks: BTreeMap::from([("near".into(), near), ("far".into(), far)]),
        routes: Routes::new(vec![
            route("near.strict", "near", AfterDeath::Block),
            route("far.state", "far", AfterDeath::Latest),
            route("near.>", "near", AfterDeath::Skip),
            route("far.>", "far", AfterDeath::Skip),
        ]),
        options: Options {
            batch_events_max: rng.random_range(1..12),
            publishers_max: rng.random_range(1..5),
            window_events_max: rng.random_range(8..60),
            seed: rng.random(),
            retry: RetryPolicy {
                attempts_max: 5,
                ..RetryPolicy::default()
            },
            sweep_interval: Duration::from_secs(3),
            ..Options::default()
        },
    }
    .start()
}

/// Relays start, stop and crash while the store and the broker come and go.
async fn trouble(store: &MemoryStore, brokers: &[Broker; 2], rng: &mut StdRng) {
    let mut relays = vec![start(store, brokers, rng)];
    for _ in 0..rng.random_range(5..30) {
        tokio::time::sleep(Duration::from_millis(rng.random_range(1..2_000))).await;
        match rng.random_range(0..9) {
            0 | 1 if relays.len() < 3 => relays.push(start(store, brokers, rng)),
            2 if !relays.is_empty() => {
                let at = rng.random_range(0..relays.len());
                relays.swap_remove(at).abort();
            }
            3 if !relays.is_empty() => {
                let at = rng.random_range(0..relays.len());
                // It may have to wait for a store that is away.
                tokio::spawn(relays.swap_remove(at).stop());
            }
            4 => store.set_away(rng.random()),
            5 => brokers[rng.random_range(0..2)].set_away(rng.random()),
            7 => store.set_stalled(rng.random()),
            6 => brokers[rng.random_range(0..2)].set_loss(if rng.random() {
                rng.random_range(0.0..0.5)
            } else {
                0.0
            }),
            _ => {}
        }
    }
    store.set_away(false);
    store.set_stalled(false);
    for broker in brokers {
        broker.set_away(false);
        broker.set_loss(0.0);
    }
    for relay in relays {
        if rng.random() {
            relay.abort();
        } else {
            relay.stop().await.unwrap();
        }
    }
}

/// Waits until every committed event is published or dead.
async fn peace(store: &MemoryStore, brokers: &[Broker; 2]) {
    let settled = async {
        loop {
            let rows = store.rows();
            if rows
                .iter()
                .all(|row| matches!(row.status, Status::Published | Status::Dead))
                && brokers.iter().all(Broker::is_quiet)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(3_600), settled)
        .await
        .is_err()
    {
        let stuck: Vec<_> = store
            .rows()
            .into_iter()
            .filter(|row| !matches!(row.status, Status::Published | Status::Dead))
            .map(|row| {
                (
                    row.stored.seq,
                    row.stored.event.key().to_owned(),
                    row.status,
                    row.stored.attempts,
                )
            })
            .collect();
        panic!("after an hour of peace these are neither published nor dead: {stuck:?}");
    }
}
