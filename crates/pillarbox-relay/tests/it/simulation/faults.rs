//! Faults. Each kind starts and ends independently, so faults overlap, also while the system recovers from
//! others.

use std::time::Duration;

use pillarbox_testkit::memory::MemoryStore;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::time::Instant;

use super::{
    broker::{Absence, Broker, TOPICS},
    fleet::Fleet,
};

#[derive(Debug, Clone, Copy)]
enum Fault {
    StoreAway,
    StoreStalls,
    StoreLosesAnswers,
    SinkUnreachable(usize),
    SinkSilent(usize),
    SinkLoses(usize),
    Destination(usize),
    Join,
    Leave,
    Crash,
    Pause,
}

/// Runs some kinds of faults for some time, then ends all of them.
pub(super) async fn run(store: &MemoryStore, brokers: &[Broker; 2], fleet: &Fleet, rng: &mut StdRng) {
    let all = [
        Fault::StoreAway,
        Fault::StoreStalls,
        Fault::StoreLosesAnswers,
        Fault::SinkUnreachable(0),
        Fault::SinkUnreachable(1),
        Fault::SinkSilent(0),
        Fault::SinkSilent(1),
        Fault::SinkLoses(0),
        Fault::SinkLoses(1),
        Fault::Destination(0),
        Fault::Destination(1),
        Fault::Join,
        Fault::Leave,
        Fault::Crash,
        Fault::Pause,
    ];
    let share = rng.random_range(0.1..0.8);
    let end = Instant::now() + Duration::from_millis(rng.random_range(2_000..40_000));
    let mut actors = Vec::new();
    for fault in all {
        if rng.random_bool(share) {
            let rng = StdRng::seed_from_u64(rng.random());
            actors.push(tokio::spawn(act(
                fault,
                store.clone(),
                brokers.clone(),
                fleet.clone(),
                end,
                rng,
            )));
        }
    }
    for actor in actors {
        actor.await.unwrap();
    }
    store.set_away(false);
    store.set_stalled(false);
    store.set_loss(0.0);
    brokers.iter().for_each(Broker::recover);
    fleet.supervise();
}

/// Repeats one kind of fault.
async fn act(
    fault: Fault,
    store: MemoryStore,
    brokers: [Broker; 2],
    fleet: Fleet,
    end: Instant,
    mut rng: StdRng,
) {
    loop {
        tokio::time::sleep(Duration::from_millis(rng.random_range(1..6_000))).await;
        if Instant::now() >= end {
            return;
        }
        let lasts = Duration::from_millis(rng.random_range(1..8_000));
        match fault {
            Fault::StoreAway => {
                store.set_away(true);
                tokio::time::sleep(lasts).await;
                store.set_away(false);
            }
            Fault::StoreStalls => {
                store.set_stalled(true);
                tokio::time::sleep(lasts).await;
                store.set_stalled(false);
            }
            Fault::StoreLosesAnswers => {
                store.set_loss(rng.random_range(0.0..0.5));
                tokio::time::sleep(lasts).await;
                store.set_loss(0.0);
            }
            Fault::SinkUnreachable(at) => {
                brokers[at].set_away(true);
                tokio::time::sleep(lasts).await;
                brokers[at].set_away(false);
            }
            Fault::SinkSilent(at) => {
                brokers[at].set_silent(true);
                tokio::time::sleep(lasts).await;
                brokers[at].set_silent(false);
            }
            Fault::SinkLoses(at) => {
                brokers[at].set_loss(rng.random_range(0.0..0.5));
                tokio::time::sleep(lasts).await;
                brokers[at].set_loss(0.0);
            }
            Fault::Destination(at) => {
                let topic = TOPICS[rng.random_range(0..TOPICS.len())];
                brokers[at].set_absent(topic, Some(Absence::any(&mut rng)));
                tokio::time::sleep(lasts).await;
                brokers[at].set_absent(topic, None);
            }
            Fault::Join => fleet.join(),
            Fault::Leave => fleet.stop_one(),
            Fault::Crash => fleet.crash_one(),
            Fault::Pause => fleet.pause_one(lasts).await,
        }
        fleet.supervise();
    }
}
