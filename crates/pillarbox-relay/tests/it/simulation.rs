//! Runs the engine over a store and two sinks in memory. Time advances only when every task waits. Each
//! history comes from a seed, and faults overlap in it. A failure prints its seed;
//! `PILLARBOX_SEED=… cargo test -p pillarbox-relay --test it simulation` repeats that history.
//!
//! The parts: [`workload`] (what applications commit), [`faults`] (what goes wrong), [`fleet`] (relays that
//! start, stop and pause), [`broker`] (a sink with destinations), [`operator`] (a person), [`oracle`] (what
//! must hold at the end) and [`peace`] (what must be delivered in time).

pub(crate) mod broker;
mod clock;
mod faults;
mod fleet;
mod gate;
mod operator;
mod oracle;
mod peace;
mod workload;

use std::time::{Duration, Instant};

use pillarbox_testkit::memory::MemoryStore;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use self::{broker::Broker, fleet::Fleet, oracle::Oracle};

/// The histories of a normal run, always the same. With `PILLARBOX_TORTURE_SECONDS`, new ones are tried for
/// that long.
const HISTORIES: std::ops::Range<u64> = 1..601;

/// Histories that once broke a promise.
const FOUND: [u64; 2] = [508_285, 100_849];

#[test]
fn torture_simulation_holds_every_promise_in_every_history() {
    let number = |variable: &str| {
        let value = std::env::var(variable).ok()?;
        Some(value.parse::<u64>().expect("a whole number"))
    };
    let (seed, seconds) = (number("PILLARBOX_SEED"), number("PILLARBOX_TORTURE_SECONDS"));
    let began = Instant::now();
    let tried = match (seed, seconds) {
        (Some(seed), None) => try_all([seed]),
        (None, None) => try_all(FOUND.into_iter().chain(HISTORIES)),
        (seed, Some(seconds)) => {
            // A campaign starts at its seed and counts up.
            let start = seed.unwrap_or_else(|| rand::random::<u32>().into());
            println!("from seed {start} on");
            let in_time = |_: &u64| began.elapsed() < Duration::from_secs(seconds);
            try_all((start..).take_while(in_time))
        }
    };
    println!("{tried} histories in {:.1} s", began.elapsed().as_secs_f64());
}

fn try_all(seeds: impl IntoIterator<Item = u64>) -> usize {
    let mut tried = 0;
    for seed in seeds {
        let result = std::panic::catch_unwind(|| history(seed));
        assert!(
            result.is_ok(),
            "the history of PILLARBOX_SEED={seed} broke a promise (above)"
        );
        tried += 1;
    }
    tried
}

/// `cargo xtask test` must give the same result every time.
#[test]
fn a_history_is_the_same_every_time() {
    for seed in 1..11 {
        let first = history(seed);
        for _ in 0..3 {
            assert_eq!(history(seed), first, "seed {seed}");
        }
    }
}

/// A trace to compare two runs: the order of arrivals, the final state of each event, and the duration.
type Trace = (Vec<(String, i64)>, Vec<String>, Duration);

/// Runs one history: a workload, relays that start and stop, and faults; then everything settles, and the
/// oracle checks the result.
fn history(seed: u64) -> Trace {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        clock::start();
        let began = tokio::time::Instant::now();
        let mut rng = StdRng::seed_from_u64(seed);
        let store = MemoryStore::with_clock(clock::now);
        let near = Broker::new(&mut rng);
        let far = near.beside(&mut rng);
        let brokers = [near, far];
        let workload = tokio::spawn(workload::run(store.clone(), StdRng::seed_from_u64(rng.random())));
        let operator = operator::Operator::start(&store, &brokers[0], StdRng::seed_from_u64(rng.random()));
        let fleet = Fleet::new(&store, &brokers, &mut rng);
        faults::run(&store, &brokers, &fleet, &mut rng).await;
        peace::some_destinations_stay_away(&store, &brokers, &fleet, &mut rng).await;
        let rolled_back = workload.await.unwrap();
        peace::everything_arrives_in_time(&store, &brokers, &fleet).await;
        let discarded = operator.stop();
        fleet.stop().await;
        let oracle = Oracle {
            rows: store.rows(),
            seen: brokers[0].stored(),
            rolled_back,
            discarded,
            blocking: store.blocking(),
        };
        oracle.check();
        oracle.trace(began.elapsed())
    })
}
