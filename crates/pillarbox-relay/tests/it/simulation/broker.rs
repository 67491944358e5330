//! A broker in memory that loses messages and answers, refuses some events, and goes away.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use pillarbox::{Event, EventId};
use pillarbox_relay::{
    Sink,
    sink::{Capabilities, DestinationName, Outcome, Outgoing, SinkError, SinkErrorKind},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

#[derive(Clone)]
pub(crate) struct Broker(Arc<Mutex<State>>);

struct State {
    rng: StdRng,
    ordered: bool,
    away: bool,
    /// It is connected but answers nothing.
    silent: bool,
    /// Topics that accept nothing, and the error of each.
    absent: BTreeMap<&'static str, Absence>,
    /// The probability that a message or its answer is lost.
    loss: f64,
    log: Arc<Mutex<Log>>,
    /// How often each event was refused so far.
    refusals: HashMap<EventId, u32>,
    travelling: usize,
}

/// The topics of the workload. Each one is a destination.
pub(crate) const TOPICS: [&str; 6] = [
    "near.x",
    "near.strict",
    "near.state",
    "far.x",
    "far.state",
    "far.y",
];
/// How long a client waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Why a destination accepts nothing.
#[derive(Clone, Copy)]
pub(crate) enum Absence {
    Missing,
    Full,
    NotGranted,
    /// No leader, and the broker reports it.
    Leaderless,
    /// No leader, and no answer.
    Silent,
}

impl Absence {
    pub(crate) fn any(rng: &mut StdRng) -> Self {
        let all = [
            Self::Missing,
            Self::Full,
            Self::NotGranted,
            Self::Leaderless,
            Self::Silent,
        ];
        all[rng.random_range(0..all.len())]
    }

    fn error(self) -> SinkError {
        let (kind, message) = match self {
            Self::Missing => (SinkErrorKind::MissingStream, "no such topic"),
            Self::Full => (SinkErrorKind::Full, "no room"),
            Self::NotGranted => (SinkErrorKind::NotGranted, "no right"),
            Self::Leaderless => (SinkErrorKind::Unavailable, "no leader"),
            Self::Silent => (SinkErrorKind::Timeout, "no answer"),
        };
        SinkError::new(kind, message)
    }
}

/// Arrivals in order, each id once.
#[derive(Default)]
struct Log {
    stored: Vec<(EventId, String)>,
    ids: HashSet<EventId>,
}

/// What the event's payload asks the broker to do.
#[derive(Clone, Copy)]
enum Temper {
    Good,
    /// Always refused.
    Poison,
    /// Refused this often, then accepted.
    Moody(u32),
}

impl Broker {
    pub(crate) fn new(rng: &mut StdRng) -> Self {
        Self::with_log(rng, Arc::default())
    }

    /// Another broker that writes to the same log, because the order of a key holds across brokers.
    pub(crate) fn beside(&self, rng: &mut StdRng) -> Self {
        Self::with_log(rng, self.0.lock().unwrap().log.clone())
    }

    fn with_log(rng: &mut StdRng, log: Arc<Mutex<Log>>) -> Self {
        Self(Arc::new(Mutex::new(State {
            ordered: rng.random(),
            rng: StdRng::seed_from_u64(rng.random()),
            away: false,
            silent: false,
            absent: BTreeMap::new(),
            loss: 0.0,
            log,
            refusals: HashMap::new(),
            travelling: 0,
        })))
    }

    pub(crate) fn set_away(&self, away: bool) {
        self.0.lock().unwrap().away = away;
    }

    pub(crate) fn set_silent(&self, silent: bool) {
        self.0.lock().unwrap().silent = silent;
    }

    pub(crate) fn set_absent(&self, topic: &'static str, absence: Option<Absence>) {
        let absent = &mut self.0.lock().unwrap().absent;
        match absence {
            Some(how) => absent.insert(topic, how),
            None => absent.remove(topic),
        };
    }

    pub(crate) fn is_absent(&self, topic: &str) -> bool {
        self.0.lock().unwrap().absent.contains_key(topic)
    }

    /// Ends all faults of this broker.
    pub(crate) fn recover(&self) {
        let state = &mut *self.0.lock().unwrap();
        (state.away, state.silent, state.loss) = (false, false, 0.0);
        state.absent.clear();
    }

    pub(crate) fn set_loss(&self, loss: f64) {
        self.0.lock().unwrap().loss = loss;
    }

    /// The stored events in order, each id once.
    pub(crate) fn stored(&self) -> Vec<(EventId, String)> {
        self.0.lock().unwrap().log.lock().unwrap().stored.clone()
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.0.lock().unwrap().travelling == 0
    }

    /// One event reaches the broker, or is lost. `None`: the answer was lost.
    fn receive(&self, outgoing: &Outgoing) -> Option<Result<(), SinkError>> {
        let state = &mut *self.0.lock().unwrap();
        let event = &outgoing.event.event;
        let lose = state.rng.random_bool(state.loss);
        if state.away || (lose && state.rng.random()) {
            return Some(Err(SinkError::new(SinkErrorKind::Unreachable, "away").in_doubt()));
        }
        if let Some(absence) = state.absent.get(event.topic.as_str()) {
            return Some(Err(absence.error()));
        }
        match temper(outgoing) {
            Temper::Poison => return Some(Err(SinkError::new(SinkErrorKind::Refused, "poison"))),
            Temper::Moody(times) => {
                let refusals = state.refusals.entry(event.id.clone()).or_default();
                if *refusals < times {
                    *refusals += 1;
                    return Some(Err(SinkError::new(SinkErrorKind::Busy, "moody")));
                }
            }
            Temper::Good => {}
        }
        let log = &mut *state.log.lock().unwrap();
        if log.ids.insert(event.id.clone()) {
            log.stored.push((event.id.clone(), event.key().to_owned()));
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
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        tokio::time::sleep(self.delay(20)).await;
        if self.0.lock().unwrap().silent {
            tokio::time::sleep(TIMEOUT).await;
            return Err(SinkError::new(SinkErrorKind::Timeout, "no answer"));
        }
        match self.0.lock().unwrap().away {
            true => Err(SinkError::new(SinkErrorKind::Unreachable, "away")),
            false => Ok(()),
        }
    }

    fn destination<'a>(&self, event: &'a Event, _stream: Option<&'a str>) -> DestinationName<'a> {
        DestinationName {
            topic: Some(&event.topic),
            ..DestinationName::default()
        }
    }

    /// A batch that was sent travels on after its sender is gone: a crash does not cancel it.
    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let ordered = self.capabilities().ordered;
        let keys: HashSet<&str> = batch.iter().map(|outgoing| outgoing.event.event.key()).collect();
        assert!(
            ordered || keys.len() == batch.len(),
            "two events of one key are in flight at a sink that can lose one"
        );
        self.0.lock().unwrap().travelling += 1;
        let broker = self.clone();
        let travel = self.delay(300);
        let batch = batch.to_vec();
        tokio::spawn(async move {
            tokio::time::sleep(travel).await;
            let outcomes = broker.receive_all(&batch, ordered);
            broker.0.lock().unwrap().travelling -= 1;
            let no_answer = |outcome: &Outcome| {
                matches!(outcome, Outcome::Failed(error) if error.kind == SinkErrorKind::Timeout)
            };
            if outcomes.iter().any(no_answer) {
                tokio::time::sleep(TIMEOUT).await;
            }
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
        // The broker can become silent in the middle of a batch. It may have stored the events before or not.
        let silent_from = {
            let state = &mut *self.0.lock().unwrap();
            let from = state.rng.random_range(0..=batch.len());
            state.silent.then_some(from)
        };
        for (index, outgoing) in batch.iter().enumerate() {
            if silent_from.is_some_and(|from| index >= from) {
                outcomes.push(Outcome::Failed(
                    SinkError::new(SinkErrorKind::Timeout, "no answer").in_doubt(),
                ));
                continue;
            }
            let key = outgoing.event.event.key();
            if ordered && failed.contains(key) {
                outcomes.push(Outcome::NotTried);
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
