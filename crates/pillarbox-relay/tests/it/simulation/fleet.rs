//! Relays that join, leave, crash and pause. A relay that ends with an error is restarted, as a supervisor
//! would do.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use pillarbox_relay::{
    Sink,
    check::{CheckOptions, Checks, OnFailure, rules::RuleOptions},
    engine::{Engine, EngineHandle, Options},
    retry::RetryPolicy,
    route::{AfterDeath, Pattern, Route, Routes},
    store::Store,
};
use pillarbox_testkit::{gate::Gate, memory::MemoryStore};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{broker::Broker, clock, gate::Gated};

const RELAYS_MAX: usize = 4;

#[derive(Clone)]
pub(super) struct Fleet {
    store: MemoryStore,
    brokers: [Broker; 2],
    checks: Arc<Checks>,
    state: Arc<Mutex<State>>,
}

struct State {
    rng: StdRng,
    relays: Vec<Member>,
}

struct Member {
    handle: EngineHandle,
    gate: Gate,
}

impl Fleet {
    /// Starts with one relay.
    pub(super) fn new(store: &MemoryStore, brokers: &[Broker; 2], rng: &mut StdRng) -> Self {
        let fleet = Self {
            store: store.clone(),
            brokers: brokers.clone(),
            checks: Arc::new(checks()),
            state: Arc::new(Mutex::new(State {
                rng: StdRng::seed_from_u64(rng.random()),
                relays: Vec::new(),
            })),
        };
        fleet.join();
        fleet
    }

    pub(super) fn join(&self) {
        let state = &mut *self.state.lock().unwrap();
        if state.relays.len() < RELAYS_MAX {
            let member = self.start(&mut state.rng);
            state.relays.push(member);
        }
    }

    fn take_one(&self) -> Option<Member> {
        let state = &mut *self.state.lock().unwrap();
        let at = (!state.relays.is_empty()).then(|| state.rng.random_range(0..state.relays.len()))?;
        Some(state.relays.swap_remove(at))
    }

    pub(super) fn crash_one(&self) {
        if let Some(member) = self.take_one() {
            member.handle.abort();
        }
    }

    /// Does not wait for the relay: the store may be away, and the relay waits for it.
    pub(super) fn stop_one(&self) {
        if let Some(member) = self.take_one() {
            tokio::spawn(async move {
                member.gate.set(true);
                let _ = member.handle.stop().await;
            });
        }
    }

    /// Stops the process of one relay for this long.
    pub(super) async fn pause_one(&self, time: Duration) {
        let gate = {
            let state = &mut *self.state.lock().unwrap();
            if state.relays.is_empty() {
                return;
            }
            let at = state.rng.random_range(0..state.relays.len());
            state.relays[at].gate.clone()
        };
        gate.set(false);
        tokio::time::sleep(time).await;
        gate.set(true);
    }

    /// Replaces relays that ended by themselves. At least one is always running.
    pub(super) fn supervise(&self) {
        let state = &mut *self.state.lock().unwrap();
        state.relays.retain(|member| !member.handle.is_finished());
        if state.relays.is_empty() {
            let member = self.start(&mut state.rng);
            state.relays.push(member);
        }
    }

    pub(super) async fn stop(&self) {
        let relays = std::mem::take(&mut self.state.lock().unwrap().relays);
        for member in relays {
            member.handle.stop().await.unwrap();
        }
    }

    fn start(&self, rng: &mut StdRng) -> Member {
        let gate = Gate::open();
        let gated = |broker: &Broker| {
            Arc::new(Gated::<dyn Sink> {
                gate: gate.clone(),
                inner: Arc::new(broker.clone()),
            }) as Arc<dyn Sink>
        };
        let [near, far] = &self.brokers;
        let relay = Engine {
            store: Arc::new(Gated::<dyn Store> {
                gate: gate.clone(),
                inner: Arc::new(self.store.clone()),
            }),
            sinks: BTreeMap::from([("near".into(), gated(near)), ("far".into(), gated(far))]),
            routes: routes(),
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
                checks: Some(self.checks.clone()),
                clock: clock::now,
                ..Options::default()
            },
        };
        Member {
            handle: relay.start(),
            gate,
        }
    }
}

fn routes() -> Routes {
    let route = |topic: &str, sink: &str, after_death: AfterDeath| Route {
        topic: Pattern::new(topic).unwrap(),
        sink: sink.into(),
        stream: None,
        envelope: Default::default(),
        after_death,
        event_log: false,
    };
    Routes::new(vec![
        route("near.strict", "near", AfterDeath::Block),
        route("near.state", "near", AfterDeath::Latest),
        route("far.state", "far", AfterDeath::Latest),
        route("near.>", "near", AfterDeath::Skip),
        route("far.>", "far", AfterDeath::Skip),
    ])
}

/// A check that an event fails if its payload says that it is unfit.
fn checks() -> Checks {
    let fit = RuleOptions {
        name: "fit".into(),
        event_type: "*".into(),
        rule: "payload != \"unfit\"".into(),
        message: None,
        on_failure: OnFailure::Reject,
    };
    let options = CheckOptions {
        rules: vec![fit],
        ..CheckOptions::default()
    };
    Checks::new(&options, None).unwrap()
}
