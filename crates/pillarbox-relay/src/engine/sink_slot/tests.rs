use jiff::Timestamp;
use pillarbox::Event;
use rand::SeedableRng;

use super::*;
use crate::{
    engine::window::Target,
    event::StoredEvent,
    sink::{Capabilities, DestinationName, null::Null},
};

/// A sink that can fail for one event and accept the next.
struct Unordered;

#[async_trait::async_trait]
impl Sink for Unordered {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        vec![Outcome::Delivered; batch.len()]
    }
}

struct Scene {
    slot: SinkSlot,
    destinations: Destinations,
    outage_max: Option<Duration>,
    progress: Progress,
}

impl Scene {
    fn new() -> Self {
        Self::with(Arc::new(Unordered))
    }

    fn with(sink: Arc<dyn Sink>) -> Self {
        Self {
            slot: SinkSlot::new("sink".into(), sink, "relay".into()),
            destinations: Destinations::default(),
            outage_max: None,
            progress: Progress::default(),
        }
    }

    fn number(&mut self, topic: &str) -> DestinationId {
        let name = DestinationName {
            topic: Some(topic),
            ..DestinationName::default()
        };
        self.destinations.number(0, "sink", name)
    }

    /// Resolves these outcomes, each of an event for that topic.
    fn resolve(&mut self, trial: bool, outcomes: Vec<(&str, Outcome)>) -> Vec<Resolution> {
        let mut batch = Vec::new();
        let mut answers = Vec::new();
        for (seq, (topic, outcome)) in (1..).zip(outcomes) {
            let event = StoredEvent {
                seq,
                lane: 0,
                attempts: 0,
                created_at: Timestamp::UNIX_EPOCH,
                event: Event::to(topic)
                    .event_type("X")
                    .aggregate("thing", format!("key-{seq}")),
            };
            let way = Target {
                destination: self.number(topic),
                ..Target::default()
            };
            batch.push(Entry::new(event, way, Some(0)));
            answers.push(outcome);
        }
        let mut judging = Judging {
            destinations: &mut self.destinations,
            policy: &RetryPolicy::default(),
            destination_outage_max: self.outage_max,
            now: jiff::Timestamp::UNIX_EPOCH,
            rng: &mut StdRng::seed_from_u64(1),
            progress: &self.progress,
        };
        let resolved = self.slot.resolve(batch, answers, trial, &mut judging);
        resolved.unwrap().into_iter().map(|(_, what)| what).collect()
    }

    fn is_paused(&mut self, topic: &str) -> bool {
        let number = self.number(topic);
        self.destinations.get(number).health.is_paused()
    }
}

fn failed(kind: SinkErrorKind) -> Outcome {
    Outcome::Failed(SinkError::new(kind, "no"))
}

use Outcome::{Delivered, NotTried};
use Resolution::Returned;
use SinkErrorKind::{Full, MissingStream, NotGranted, Refused, Timeout, Unavailable, Unreachable};

#[test]
fn a_fault_of_a_destination_pauses_only_it_and_charges_no_event() {
    for kind in [MissingStream, Full, NotGranted, Unavailable, Timeout] {
        let mut scene = Scene::new();
        let resolved = scene.resolve(
            false,
            vec![("a", Delivered), ("b", failed(kind)), ("a", Delivered)],
        );
        assert_eq!(resolved[1], Returned, "{kind:?}");
        assert!(scene.is_paused("b") && !scene.is_paused("a"), "{kind:?}");
        assert_eq!(scene.slot.health, SinkHealth::Up);
        assert!(scene.progress.report().paused.contains_key("sink/b"));
        scene.resolve(true, vec![("b", Delivered)]);
        assert!(!scene.is_paused("b"));
        assert!(scene.progress.report().paused.is_empty());
    }
}

#[test]
fn a_broken_connection_pauses_the_sink() {
    let mut scene = Scene::new();
    let resolved = scene.resolve(false, vec![("a", Delivered), ("a", failed(Unreachable))]);
    assert_eq!(resolved[1], Returned);
    assert!(scene.slot.health.is_down() && !scene.is_paused("a"));
}

#[test]
fn a_destination_that_stops_answering_within_a_batch_charges_no_event() {
    let mut scene = Scene::new();
    let silent = || ("a", failed(Timeout));
    let resolved = scene.resolve(false, vec![("a", Delivered), silent(), silent(), ("a", NotTried)]);
    assert_eq!(resolved[1..], [Returned, Returned, Returned]);
    assert!(scene.is_paused("a"));
}

#[test]
fn a_timeout_is_the_events_own_only_if_its_destination_took_a_later_one() {
    let mut scene = Scene::new();
    let resolved = scene.resolve(
        false,
        vec![("a", failed(Timeout)), ("b", failed(Timeout)), ("a", Delivered)],
    );
    assert!(matches!(resolved[0], Resolution::Retry { .. }));
    assert_eq!(resolved[1], Returned, "another destination's answer says nothing");
    assert!(!scene.is_paused("a") && scene.is_paused("b"));
}

#[test]
fn an_ordered_sinks_timeout_is_never_the_events_own() {
    let mut scene = Scene::with(Arc::new(Null));
    assert!(scene.slot.sink.capabilities().ordered);
    let resolved = scene.resolve(false, vec![("a", failed(Timeout)), ("a", Delivered)]);
    assert_eq!(resolved[0], Returned);
}

#[test]
fn a_refusal_of_one_event_shows_that_the_destination_works() {
    let mut scene = Scene::new();
    scene.resolve(false, vec![("a", failed(Full))]);
    let resolved = scene.resolve(true, vec![("a", failed(Refused))]);
    assert!(matches!(resolved[0], Resolution::Dead { .. }));
    assert!(!scene.is_paused("a"));
}

#[tokio::test(start_paused = true)]
async fn events_die_of_an_outage_only_where_that_is_configured() {
    let mut scene = Scene::new();
    scene.resolve(false, vec![("a", failed(Full))]);
    tokio::time::advance(Duration::from_secs(1_000_000)).await;
    assert_eq!(scene.resolve(true, vec![("a", failed(Full))]), [Returned]);
    scene.outage_max = Some(Duration::from_secs(60));
    let resolved = scene.resolve(true, vec![("a", failed(Full))]);
    let Resolution::Dead { failure, .. } = &resolved[0] else {
        panic!("{resolved:?}");
    };
    assert!(failure.error.contains("60 s"), "{}", failure.error);
}
