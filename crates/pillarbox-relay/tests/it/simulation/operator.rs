//! A person who discards dead events that block their keys, sooner or later.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pillarbox_relay::Seq;
use pillarbox_testkit::memory::MemoryStore;
use rand::{RngExt, rngs::StdRng};
use tokio::task::JoinHandle;

use super::broker::Broker;

pub(super) struct Operator {
    discarded: Arc<Mutex<Vec<Discarded>>>,
    task: JoinHandle<()>,
}

/// A dead event that the person discarded.
#[derive(Clone, Copy)]
pub(super) struct Discarded {
    pub(super) seq: Seq,
    /// How many events had arrived before that.
    pub(super) arrived: usize,
}

impl Operator {
    /// The log of one broker contains the arrivals of both.
    pub(super) fn start(store: &MemoryStore, broker: &Broker, mut rng: StdRng) -> Self {
        let discarded: Arc<Mutex<Vec<Discarded>>> = Arc::default();
        let (store, broker, done) = (store.clone(), broker.clone(), discarded.clone());
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(rng.random_range(1..20_000))).await;
                for seq in store.blocking() {
                    if rng.random() {
                        let arrived = broker.stored().len();
                        done.lock().unwrap().push(Discarded { seq, arrived });
                        store.discard(seq);
                    }
                }
            }
        });
        Self { discarded, task }
    }

    pub(super) fn stop(self) -> Vec<Discarded> {
        self.task.abort();
        self.discarded.lock().unwrap().clone()
    }
}
