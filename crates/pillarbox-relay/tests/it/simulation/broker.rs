//! A broker in memory that loses messages and answers, refuses some events, and goes away.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use pillarbox_relay::{
    Sink,
    sink::{Capabilities, Outcome, Outgoing, SinkError, SinkErrorKind},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use uuid::Uuid;

#[derive(Clone)]
pub(crate) struct Broker(Arc<Mutex<State>>);

struct State {
    rng: StdRng,
    ordered: bool,
    away: bool,
    /// While away it is reached and takes nothing, as a JetStream without a leader.
    leaderless: bool,
    /// How likely a message or its answer is lost.
    loss: f64,
    log: Arc<Mutex<Log>>,
    /// How often an event was refused so far.
    refusals: HashMap<Uuid, u32>,
    travelling: usize,
}

/// What arrived, in its order, each id once.
#[derive(Default)]
struct Log {
    stored: Vec<(Uuid, String)>,
    ids: HashSet<Uuid>,
}

/// What the event's payload asks the broker to do.
#[derive(Clone, Copy)]
enum Temper {
    Good,
    /// Refused for good.
    Poison,
    /// Refused this often, then taken.
    Moody(u32),
}

impl Broker {
    pub(crate) fn new(rng: &mut StdRng) -> Self {
        Self::with_log(rng, Arc::default())
    }

    /// Another one, whose arrivals stand in the same log: a key's order holds across brokers.
    pub(crate) fn beside(&self, rng: &mut StdRng) -> Self {
        Self::with_log(rng, self.0.lock().unwrap().log.clone())
    }

    fn with_log(rng: &mut StdRng, log: Arc<Mutex<Log>>) -> Self {
        Self(Arc::new(Mutex::new(State {
            ordered: rng.random(),
            leaderless: rng.random(),
            rng: StdRng::seed_from_u64(rng.random()),
            away: false,
            loss: 0.0,
            log,
            refusals: HashMap::new(),
            travelling: 0,
        })))
    }

    pub(crate) fn set_away(&self, away: bool) {
        self.0.lock().unwrap().away = away;
    }

    pub(crate) fn set_loss(&self, loss: f64) {
        self.0.lock().unwrap().loss = loss;
    }

    /// What is there, in its order, each id once.
    pub(crate) fn stored(&self) -> Vec<(Uuid, String)> {
        self.0.lock().unwrap().log.lock().unwrap().stored.clone()
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.0.lock().unwrap().travelling == 0
    }

    /// One event reaches the broker, or does not. `None`: the answer was lost.
    fn receive(&self, outgoing: &Outgoing) -> Option<Result<(), SinkError>> {
        let state = &mut *self.0.lock().unwrap();
        let event = &outgoing.event.event;
        let lose = state.rng.random_bool(state.loss);
        if state.away && state.leaderless {
            return Some(Err(SinkError::new(SinkErrorKind::Unavailable, "no leader")));
        }
        if state.away || (lose && state.rng.random()) {
            return Some(Err(SinkError::new(SinkErrorKind::Unreachable, "away").in_doubt()));
        }
        match temper(outgoing) {
            Temper::Poison => return Some(Err(SinkError::new(SinkErrorKind::Refused, "poison"))),
            Temper::Moody(times) => {
                let refusals = state.refusals.entry(event.id).or_default();
                if *refusals < times {
                    *refusals += 1;
                    return Some(Err(SinkError::new(SinkErrorKind::Busy, "moody")));
                }
            }
            Temper::Good => {}
        }
        let log = &mut *state.log.lock().unwrap();
        if log.ids.insert(event.id) {
            log.stored.push((event.id, event.key().to_owned()));
        }
        (!lose).then_some(Ok(()))
    }

    fn delay(&self, max_ms: u64) -> Duration {
        Duration::from_millis(self.0.lock().unwrap().rng.random_range(0..=max_ms))
    }
}

fn temper(outgoing: &Outgoing) -> Temper {
    match &outgoing.event.event.payload[..] {
        b"\"poison\"" => Temper::Poison,
        [b'0'..=b'9', ..] => {
            let text = std::str::from_utf8(&outgoing.event.event.payload).unwrap();
            Temper::Moody(text.parse().unwrap())
        }
        _ => Temper::Good,
    }
}

#[async_trait]
impl Sink for Broker {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: self.0.lock().unwrap().ordered,
            deduplicates: true,
            payload_bytes_max: None,
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        tokio::time::sleep(self.delay(20)).await;
        match self.0.lock().unwrap().away {
            true => Err(SinkError::new(SinkErrorKind::Unreachable, "away")),
            false => Ok(()),
        }
    }

    /// What was sent goes on travelling when the sender is gone: a crash takes nothing back.
    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let ordered = self.capabilities().ordered;
        let keys: HashSet<&str> = batch.iter().map(|outgoing| outgoing.event.event.key()).collect();
        assert!(
            ordered || keys.len() == batch.len(),
            "two events of one key in flight at a sink that may lose one"
        );
        self.0.lock().unwrap().travelling += 1;
        let broker = self.clone();
        let travel = self.delay(300);
        let batch = batch.to_vec();
        tokio::spawn(async move {
            tokio::time::sleep(travel).await;
            let outcomes = broker.receive_all(&batch, ordered);
            broker.0.lock().unwrap().travelling -= 1;
            outcomes
        })
        .await
        .unwrap()
    }
}

impl Broker {
    fn receive_all(&self, batch: &[Outgoing], ordered: bool) -> Vec<Outcome> {
        let mut failed: HashSet<String> = HashSet::new();
        let mut outcomes = Vec::new();
        for outgoing in batch {
            let key = outgoing.event.event.key();
            if ordered && failed.contains(key) {
                outcomes.push(Outcome::Held);
                continue;
            }
            let outcome = match self.receive(outgoing) {
                Some(Ok(())) => Outcome::Delivered,
                Some(Err(error)) => Outcome::Failed(error),
                None => Outcome::Failed(SinkError::new(SinkErrorKind::Unreachable, "answer lost").in_doubt()),
            };
            if outcome != Outcome::Delivered {
                failed.insert(key.to_owned());
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}
