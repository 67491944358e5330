mod deaths;
mod unchecked;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use jiff::Timestamp;
use pillarbox::{Event, lane::lane_of};
use proptest::prelude::*;

use super::*;
use crate::{
    event::StoredEvent,
    route::AfterDeath,
    settlement::{DeadReason, FailedTry, Settlement},
};

fn stored(seq: Seq, key: &str) -> StoredEvent {
    let event = Event::to("t.x").event_type("X").aggregate("thing", key);
    StoredEvent {
        seq,
        lane: lane_of(key),
        attempts: 0,
        created_at: Timestamp::UNIX_EPOCH,
        event,
    }
}

fn to(sink: usize) -> Target {
    Target {
        sink,
        destination: sink,
        ..Target::default()
    }
}

fn window(ordered: bool) -> Window {
    Window::new(vec![ordered], [], 0)
}

/// Admits events 1, 2, … with these keys as one page.
fn admit(window: &mut Window, keys: &[&str]) {
    let count = keys.len() as Seq;
    let page = window.open_page(1..=count, count);
    for (seq, key) in (1..).zip(keys) {
        window.admit(Entry::new(stored(seq, key), to(0), Some(page)));
    }
}

fn seqs(batch: &[Entry]) -> Vec<Seq> {
    batch.iter().map(|entry| entry.event.seq).collect()
}

fn all(batch: Vec<Entry>, resolution: Resolution) -> Vec<(Entry, Resolution)> {
    batch
        .into_iter()
        .map(|entry| (entry, resolution.clone()))
        .collect()
}

fn failure(error: &str) -> FailedTry {
    FailedTry {
        error: error.into(),
        sink: Some("sink".into()),
        relay: "relay".into(),
    }
}

fn retry() -> Resolution {
    Resolution::Retry {
        failure: failure("no"),
        retry_in: Duration::from_secs(1),
    }
}

fn settle(window: &mut Window, free: &[(Lane, String)]) -> Settlement {
    let settling = window.take_settling().unwrap();
    window.settled(&settling, free);
    settling.settlement
}

#[test]
fn of_one_key_only_one_event_is_in_flight() {
    let mut window = window(false);
    admit(&mut window, &["a", "a", "b", "a"]);
    let first = window.take_batch([0], 10);
    assert_eq!(seqs(&first), [1, 3]);
    assert!(!window.has_ready(0));
    window.complete(all(first, Resolution::Delivered));
    assert_eq!(seqs(&window.take_batch([0], 10)), [2]);
}

#[test]
fn an_ordered_sink_gets_a_keys_events_in_one_batch_and_no_second_one() {
    let mut window = window(true);
    admit(&mut window, &["a", "a", "b", "a"]);
    let first = window.take_batch([0], 3);
    assert_eq!(seqs(&first), [1, 2, 4]);
    assert_eq!(seqs(&window.take_batch([0], 3)), [3]);
    window.complete(all(first, Resolution::Delivered));
    assert!(!window.has_ready(0));
}

#[test]
fn a_failing_event_holds_its_followers_and_nothing_else() {
    let mut window = window(false);
    admit(&mut window, &["a", "a", "b", "a"]);
    let batch = window.take_batch([0], 10);
    let resolved = batch.into_iter().zip([retry(), Resolution::Delivered]).collect();
    window.complete(resolved);
    let settlement = settle(&mut window, &[]);
    assert_eq!(settlement.published, [3]);
    assert_eq!(settlement.failed[0].parked.seq, 1);
    assert_eq!(
        settlement.held.iter().map(|held| held.seq).collect::<Vec<_>>(),
        [2, 4]
    );
    assert_eq!(window.load(), (0, 0));
    assert_eq!(window.low_mark(), 4);
}

#[test]
fn a_returned_event_goes_out_again_before_its_followers() {
    let mut window = window(true);
    admit(&mut window, &["a", "a", "a"]);
    let batch = window.take_batch([0], 2);
    window.complete(all(batch, Resolution::Returned));
    assert_eq!(seqs(&window.take_batch([0], 10)), [1, 2, 3]);
    assert_eq!(window.unsettled(), 0);
}

/// Otherwise it would be the last of each batch while other events arrive, and no later answer would show that it is at
/// fault.
#[test]
fn an_event_without_a_clear_answer_is_sent_first() {
    let mut window = window(true);
    admit(&mut window, &["a", "b", "c", "d"]);
    let mut batch = window.take_batch([0], 2);
    batch[0].suspect = true;
    window.complete(all(batch, Resolution::Returned));
    assert_eq!(seqs(&window.take_batch([0], 10)), [1, 3, 4, 2]);
}

/// One that fails for its own reasons must not be the only one that is tried.
#[test]
fn the_trials_of_a_paused_destination_take_turns() {
    let mut window = Window::new(vec![false], [], 0);
    for (seq, key) in (1..).zip(["a", "b", "c"]) {
        window.admit_parked(Entry::new(stored(seq, key), to(0), None), false);
    }
    let mut tried = Vec::new();
    for _ in 0..2 {
        let mut trial = window.take_trial(0).unwrap();
        tried.push(trial.event.seq);
        trial.suspect = true;
        window.complete(all(vec![trial], Resolution::Returned));
        if window.can_park(0) {
            window.park(0, &failure("no answer"), Duration::ZERO);
        }
    }
    assert_eq!(tried, [1, 2]);
    assert!(
        window.has_ready(0) && !window.has_good_trial(0),
        "another one is read"
    );
    assert!(
        !window.can_park(0),
        "both stay, so the store returns the next one"
    );
    window.admit_parked(Entry::new(stored(3, "c"), to(0), None), false);
    assert!(window.has_good_trial(0));
    for seq in [3, 1, 2, 3] {
        let mut trial = window.take_trial(0).unwrap();
        assert_eq!(trial.event.seq, seq);
        trial.suspect = true;
        window.complete(all(vec![trial], Resolution::Returned));
    }
}

#[test]
fn after_a_death_the_next_event_of_the_key_is_sent() {
    let mut window = window(false);
    admit(&mut window, &["a", "a"]);
    let batch = window.take_batch([0], 10);
    window.complete(all(
        batch,
        Resolution::Dead {
            reason: DeadReason::PoisonMessage,
            failure: failure("bad"),
        },
    ));
    assert_eq!(seqs(&window.take_batch([0], 10)), [2]);
}

#[test]
fn events_of_a_freed_key_are_sent_instead_of_parked() {
    let mut window = Window::new(vec![false], [(lane_of("a"), key_hash("a"))], 0);
    window.admit_parked(Entry::new(stored(1, "a"), to(0), None), false);
    let batch = window.take_batch([0], 10);
    window.complete(all(batch, Resolution::Delivered));
    let settling = window.take_settling().unwrap();
    let page = window.open_page([2].into_iter(), 2);
    window.admit(Entry::new(stored(2, "a"), to(0), Some(page)));
    assert!(
        !window.has_ready(0),
        "the key is blocked until the store says otherwise"
    );
    window.settled(&settling, &[(lane_of("a"), "a".into())]);
    assert_eq!(seqs(&window.take_batch([0], 10)), [2]);
}

#[test]
fn an_event_of_the_side_table_is_taken_in_once() {
    let mut window = Window::new(vec![false], [(lane_of("a"), key_hash("a"))], 0);
    for _ in 0..2 {
        window.admit_parked(Entry::new(stored(1, "a"), to(0), None), false);
        window.admit_parked(Entry::new(stored(2, "a"), to(0), None), false);
    }
    assert_eq!(window.load().0, 2);
    let batch = window.take_batch([0], 10);
    assert_eq!(seqs(&batch), [1]);
    window.complete(all(batch, retry()));
    let settlement = settle(&mut window, &[]);
    assert_eq!(
        (settlement.failed.len(), settlement.held.len()),
        (1, 0),
        "the second is in the side table already"
    );
    assert_eq!(window.load(), (0, 0));
}

#[test]
fn an_old_answer_about_the_side_table_overtakes_nothing() {
    let mut window = Window::new(vec![false], [(lane_of("a"), key_hash("a"))], 0);
    window.admit_parked(Entry::new(stored(1, "a"), to(0), None), false);
    window.admit_parked(Entry::new(stored(2, "a"), to(0), None), false);
    let batch = window.take_batch([0], 10);
    window.complete(all(batch, retry()));
    // Read before the failure was written.
    window.admit_parked(Entry::new(stored(1, "a"), to(0), None), false);
    window.admit_parked(Entry::new(stored(2, "a"), to(0), None), false);
    assert!(!window.has_ready(0));
    settle(&mut window, &[]);
    window.admit_parked(Entry::new(stored(1, "a"), to(0), None), false);
    assert!(window.has_ready(0));
}

/// Admits events 1, 2, … with these keys and sinks as one page.
fn admit_to(window: &mut Window, first: Seq, entries: &[(&str, usize)]) {
    let last = first + entries.len() as Seq - 1;
    let page = window.open_page(first..=last, last);
    for (seq, (key, sink)) in (first..).zip(entries) {
        window.admit(Entry::new(stored(seq, key), to(*sink), Some(page)));
    }
}

#[test]
fn a_closed_sink_leaves_its_keys_to_the_store_and_the_others_go_on() {
    let mut window = Window::new(vec![false, false], [], 0);
    admit_to(
        &mut window,
        1,
        &[("a", 0), ("b", 1), ("b", 0), ("c", 0), ("c", 1), ("c", 0)],
    );
    let in_flight = window.take_batch([0], 1);
    assert_eq!(seqs(&in_flight), [1]);
    window.close(1);
    // All of b is dropped, because its first event is for the closed sink. a is in flight. The first event of c may be
    // sent.
    assert_eq!(window.load().0, 4);
    assert!(!window.has_ready(1));
    let next = window.take_batch([0], 10);
    assert_eq!(seqs(&next), [4]);
    window.complete(all(in_flight, Resolution::Delivered));
    window.complete(all(next, Resolution::Delivered));
    // The next event of c is for the closed sink. It and the rest of c are dropped as well.
    assert!(!window.has_ready(0));
    settle(&mut window, &[]);
    assert_eq!(window.load(), (0, 0));

    admit_to(
        &mut window,
        7,
        &[("b", 0), ("c", 0), ("d", 1), ("d", 0), ("e", 0)],
    );
    assert_eq!(
        seqs(&window.take_batch([0], 10)),
        [11],
        "only keys without dropped events"
    );
    assert_eq!(
        window.low_mark(),
        0,
        "the next tenure reads the dropped events again from here"
    );
    assert!(!window.is_whole());
}

#[test]
fn parked_events_of_a_closed_sink_are_not_overtaken() {
    let mut window = Window::new(vec![false, false], [], 0);
    window.close(1);
    let parked = |seq, sink| Entry::new(stored(seq, "a"), to(sink), None);
    window.admit_parked(parked(1, 1), false);
    window.admit_parked(parked(2, 0), false);
    assert!(!window.has_ready(0) && window.load().0 == 0);
}

proptest! {
    /// Whatever the outcomes, the deliveries of each key are in order, at most one is in flight, every event ends in
    /// exactly one place, and an empty window is really empty.
    #[test]
    fn order_per_key_holds_whatever_the_answers(
        keys in proptest::collection::vec(0u8..5, 1..60),
        answers in proptest::collection::vec(0u8..8, 1..400),
        ordered in any::<bool>(),
        batch_max in 1usize..8,
    ) {
        let names: Vec<String> = keys.iter().map(|key| format!("k{key}")).collect();
        let mut window = window(ordered);
        admit(&mut window, &names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut answers = answers.into_iter().cycle();
        let mut delivered: BTreeMap<String, Vec<Seq>> = BTreeMap::new();
        let mut ended: HashMap<Seq, u32> = HashMap::new();
        let mut rounds = 0;
        while window.load().0 > 0 {
            rounds += 1;
            prop_assume!(rounds < 10_000);
            let batch = window.take_batch([0], batch_max);
            let mut failed: HashSet<KeyId> = HashSet::new();
            let mut resolved = Vec::new();
            for entry in batch {
                let resolution = match answers.next().unwrap_or(0) {
                    _ if failed.contains(&entry.key) => Resolution::Returned,
                    0 => retry(),
                    1 if rounds < 1_000 => Resolution::Returned,
                    2 => Resolution::Dead { reason: DeadReason::PoisonMessage, failure: failure("bad") },
                    _ => Resolution::Delivered,
                };
                match resolution {
                    Resolution::Delivered => {
                        delivered.entry(entry.event.event.key().to_owned()).or_default().push(entry.event.seq);
                    }
                    Resolution::Dead { .. } => {}
                    _ => { failed.insert(entry.key); }
                }
                resolved.push((entry, resolution));
            }
            window.complete(resolved);
            if let Some(settling) = window.take_settling() {
                let s = &settling.settlement;
                let all = s.published.iter().copied()
                    .chain(s.failed.iter().map(|f| f.parked.seq))
                    .chain(s.held.iter().map(|h| h.seq))
                    .chain(s.dead.iter().map(|d| d.seq));
                for seq in all {
                    *ended.entry(seq).or_default() += 1;
                }
                window.settled(&settling, &[]);
            }
        }
        for (key, seqs) in delivered {
            prop_assert!(seqs.is_sorted(), "{} {:?}", key, seqs);
        }
        prop_assert_eq!(ended.len(), names.len());
        prop_assert!(ended.values().all(|times| *times == 1));
        prop_assert_eq!(window.low_mark(), names.len() as Seq);
        prop_assert!(window.keys.is_empty() && window.load() == (0, 0));
    }
}
