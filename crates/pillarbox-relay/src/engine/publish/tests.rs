use jiff::Timestamp;
use pillarbox::Event;
use rand::SeedableRng;

use super::*;
use crate::{engine::window::Way, event::StoredEvent, sink::null::Null};

fn timeout() -> Outcome {
    Outcome::Failed(SinkError::new(SinkErrorKind::Timeout, "no acknowledgement").in_doubt())
}

/// What a desk makes of these answers.
fn resolve(desk: &mut Desk, outcomes: Vec<Outcome>) -> Vec<Resolution> {
    let batch = (1..).take(outcomes.len()).map(|seq| {
        let event = StoredEvent {
            seq,
            lane: 0,
            attempts: 0,
            created_at: Timestamp::UNIX_EPOCH,
            event: Event::new("t.x", "X", "thing", format!("key-{seq}")),
        };
        Entry::new(event, Way::default(), Some(0))
    });
    let (policy, mut rng) = (RetryPolicy::default(), StdRng::seed_from_u64(1));
    let resolved = desk.resolve(batch.collect(), outcomes, &policy, &mut rng, &Progress::default());
    resolved.unwrap().into_iter().map(|(_, what)| what).collect()
}

fn desk() -> Desk {
    Desk::new("sink".into(), Arc::new(Null), "relay".into())
}

#[test]
fn a_sink_that_falls_silent_in_the_middle_of_a_batch_charges_nobody() {
    let mut desk = desk();
    let resolved = resolve(&mut desk, vec![Outcome::Delivered, timeout(), timeout()]);
    assert_eq!(
        resolved,
        [Resolution::Delivered, Resolution::Returned, Resolution::Returned]
    );
    assert!(desk.is_down());
}

#[test]
fn what_was_held_behind_it_is_no_answer() {
    let mut desk = desk();
    let resolved = resolve(&mut desk, vec![Outcome::Delivered, timeout(), Outcome::Held]);
    assert_eq!(resolved[1..], [Resolution::Returned, Resolution::Returned]);
    assert!(desk.is_down());
}

#[test]
fn who_alone_gets_no_answer_is_charged() {
    let mut desk = desk();
    let resolved = resolve(&mut desk, vec![timeout(), Outcome::Delivered]);
    assert!(matches!(resolved[0], Resolution::Retry { .. }));
    assert!(!desk.is_down());
}

#[test]
fn what_nobody_takes_is_charged_after_some_trials() {
    let mut desk = desk();
    for _ in 0..=TRIALS {
        assert_eq!(resolve(&mut desk, vec![timeout()]), [Resolution::Returned]);
        desk.checked(Ok(()), &Progress::default()).unwrap();
    }
    assert!(matches!(
        resolve(&mut desk, vec![timeout()])[0],
        Resolution::Retry { .. }
    ));
    // And the next of them without more.
    assert!(matches!(
        resolve(&mut desk, vec![timeout()])[0],
        Resolution::Retry { .. }
    ));
}

fn nobody() -> Outcome {
    Outcome::Failed(SinkError::new(SinkErrorKind::Unavailable, "no stream takes it"))
}

/// What a desk makes of one event that nobody takes, when this was made of it before.
fn again(desk: &mut Desk, entry: Entry, outcome: Outcome) -> (Entry, Resolution) {
    let (policy, mut rng) = (RetryPolicy::default(), StdRng::seed_from_u64(1));
    let resolved = desk.resolve(
        vec![entry],
        vec![outcome],
        &policy,
        &mut rng,
        &Progress::default(),
    );
    resolved.unwrap().remove(0)
}

fn entry() -> Entry {
    let event = StoredEvent {
        seq: 99,
        lane: 0,
        attempts: 0,
        created_at: Timestamp::UNIX_EPOCH,
        event: Event::new("t.x", "X", "thing", "key"),
    };
    Entry::new(event, Way::default(), Some(0))
}

#[test]
fn what_nobody_takes_is_charged_when_others_are_taken_after_it_and_nobody_waits() {
    let mut desk = desk();
    let (entry, first) = again(&mut desk, entry(), nobody());
    assert_eq!(first, Resolution::Returned);
    resolve(&mut desk, vec![Outcome::Delivered]);
    let (_, second) = again(&mut desk, entry, nobody());
    assert!(matches!(second, Resolution::Retry { .. }));
    assert!(!desk.is_down());
}

#[test]
fn a_sink_that_stops_taking_in_the_middle_of_a_batch_charges_nobody() {
    let mut desk = desk();
    let resolved = resolve(&mut desk, vec![Outcome::Delivered, nobody(), nobody()]);
    assert_eq!(resolved[1..], [Resolution::Returned, Resolution::Returned]);
    assert!(!desk.is_down(), "it is asked once more");
    assert_eq!(resolve(&mut desk, vec![nobody()]), [Resolution::Returned]);
    assert_eq!(resolve(&mut desk, vec![nobody()]), [Resolution::Returned]);
    assert!(desk.is_down());
}

fn broken() -> Outcome {
    Outcome::Failed(SinkError::new(SinkErrorKind::Unreachable, "connection reset").in_doubt())
}

/// Pauses the desk by these answers and lets it be asked again, as often as it takes to believe that the sink is up.
fn trials(desk: &mut Desk, outcomes: &[Outcome]) {
    for _ in 0..=TRIALS {
        resolve(desk, outcomes.to_vec());
        desk.checked(Ok(()), &Progress::default()).unwrap();
    }
}

#[test]
fn a_connection_that_breaks_again_and_again_is_no_proof_that_the_sink_is_up() {
    let mut desk = desk();
    trials(&mut desk, &[broken()]);
    assert_eq!(resolve(&mut desk, vec![nobody()]), [Resolution::Returned]);
}

#[test]
fn trials_of_which_something_was_taken_are_not_in_vain() {
    let mut desk = desk();
    trials(&mut desk, &[Outcome::Delivered, timeout()]);
    assert_eq!(resolve(&mut desk, vec![nobody()]), [Resolution::Returned]);
}

#[test]
fn what_it_took_of_the_batch_by_which_it_was_found_up_counts_too() {
    let mut desk = desk();
    trials(&mut desk, &[timeout()]);
    let resolved = resolve(&mut desk, vec![Outcome::Delivered, nobody()]);
    assert_eq!(resolved[1], Resolution::Returned);
}

#[test]
fn a_sink_that_took_something_since_it_was_found_up_may_stop_taking() {
    let mut desk = desk();
    trials(&mut desk, &[timeout()]);
    assert!(matches!(
        resolve(&mut desk, vec![nobody()])[0],
        Resolution::Retry { .. }
    ));
    resolve(&mut desk, vec![Outcome::Delivered]);
    assert_eq!(resolve(&mut desk, vec![nobody()]), [Resolution::Returned]);
}
