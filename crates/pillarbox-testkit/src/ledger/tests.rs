use proptest::prelude::*;

use super::*;

fn event(key: u8, nth: u64) -> EventId {
    format!("{key}-{nth}").into()
}

fn committed(counts: &[u64]) -> Ledger {
    let ledger = Ledger::new();
    for (key, count) in (0u8..).zip(counts) {
        for nth in 0..*count {
            ledger.committed(event(key, nth), &format!("key-{key}"), nth);
        }
    }
    ledger
}

/// An order in which every event is seen once, each key in its order, and the keys interleaved by `turns`.
fn interleaved(counts: &[u64], turns: &[u8]) -> Vec<EventId> {
    let mut next = vec![0; counts.len()];
    let mut order = Vec::new();
    let all_keys = 0..u8::try_from(counts.len()).unwrap();
    let rest = all_keys.flat_map(|key| std::iter::repeat_n(key, counts[usize::from(key)] as usize));
    for key in turns.iter().map(|turn| turn % counts.len() as u8).chain(rest) {
        let nth = &mut next[usize::from(key)];
        if *nth < counts[usize::from(key)] {
            order.push(event(key, *nth));
            *nth += 1;
        }
    }
    order
}

fn verdict_of(counts: &[u64], sightings: &[EventId]) -> Verdict {
    let ledger = committed(counts);
    sightings.iter().for_each(|id| ledger.seen(id.clone()));
    assert_eq!(
        ledger.verdict().is_whole(),
        std::panic::catch_unwind(|| ledger.assert_whole()).is_ok()
    );
    ledger.verdict()
}

fn histories() -> impl Strategy<Value = (Vec<u64>, Vec<EventId>)> {
    (
        prop::collection::vec(1u64..8, 1..6),
        prop::collection::vec(any::<u8>(), 0..40),
    )
        .prop_map(|(counts, turns)| {
            let sightings = interleaved(&counts, &turns);
            (counts, sightings)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn events_received_once_and_in_order_are_whole((counts, sightings) in histories()) {
        let verdict = verdict_of(&counts, &sightings);
        prop_assert!(verdict.is_whole(), "{}", verdict);
        prop_assert_eq!((verdict.seen, verdict.duplicated), (sightings.len(), 0));
    }

    #[test]
    fn a_copy_anywhere_later_is_a_duplicate_and_nothing_worse(
        (counts, mut sightings) in histories(), which in any::<prop::sample::Index>(), later in any::<prop::sample::Index>()
    ) {
        let which = which.index(sightings.len());
        let place = which + 1 + later.index(sightings.len() - which);
        sightings.insert(place, sightings[which].clone());
        let verdict = verdict_of(&counts, &sightings);
        prop_assert!(verdict.is_whole(), "{}", verdict);
        prop_assert_eq!(verdict.duplicated, 1);
    }

    #[test]
    fn a_missing_sighting_is_a_loss((counts, mut sightings) in histories(), which in any::<prop::sample::Index>()) {
        sightings.remove(which.index(sightings.len()));
        let verdict = verdict_of(&counts, &sightings);
        prop_assert_eq!((verdict.lost, verdict.order_violations), (1, 0));
        prop_assert!(!verdict.is_whole());
    }

    #[test]
    fn two_swapped_sightings_of_one_key_are_out_of_order(
        (counts, mut sightings) in histories(), which in any::<prop::sample::Index>()
    ) {
        let key = |id: &EventId| id.with_text(|id| id.split_once('-').map(|(key, _)| key.to_owned()));
        let which = which.index(sightings.len());
        let next = (which + 1..sightings.len()).find(|other| key(&sightings[*other]) == key(&sightings[which]));
        if let Some(next) = next {
            sightings.swap(which, next);
            let verdict = verdict_of(&counts, &sightings);
            prop_assert_eq!((verdict.order_violations, verdict.lost), (1, 0));
        }
    }

    #[test]
    fn the_last_that_came_first_puts_every_other_of_its_key_out_of_order(count in 2u64..20) {
        let sightings: Vec<_> = (0..count).rev().map(|nth| event(0, nth)).collect();
        prop_assert_eq!(verdict_of(&[count], &sightings).order_violations as u64, count - 1);
    }
}

#[test]
fn rolled_back_and_unknown_events_must_not_be_received() {
    let ledger = committed(&[1]);
    ledger.seen(event(0, 0));
    ledger.rolled_back(event(7, 0));
    assert!(ledger.verdict().is_whole());
    ledger.seen(event(7, 0));
    ledger.seen(event(8, 0));
    let verdict = ledger.verdict();
    assert_eq!(verdict.never_committed_but_seen, 2);
    assert!(
        verdict.to_string().contains("rolled back but seen")
            && verdict.to_string().contains("unknown but seen")
    );
}

#[test]
fn a_verdict_names_a_few_examples_and_no_more() {
    let verdict = verdict_of(&[100], &[]);
    assert_eq!((verdict.lost, verdict.examples.len()), (100, EXAMPLES_MAX));
    assert!(verdict.examples[0].starts_with("lost: 0 of key key-0"));
}

#[test]
fn the_database_decides_events_in_doubt() {
    let ledger = committed(&[1]);
    ledger.seen(event(0, 0));
    for nth in 1..4 {
        ledger.in_doubt(event(0, nth), "key-0", nth);
    }
    assert_eq!(ledger.undecided().len(), 3);
    ledger.decide(&HashSet::from([event(0, 1), event(0, 2)]));
    assert!(ledger.undecided().is_empty());
    ledger.seen(event(0, 1));
    ledger.seen(event(0, 3));
    let verdict = ledger.verdict();
    assert_eq!(
        (verdict.committed, verdict.rolled_back, verdict.in_doubt),
        (3, 1, 3)
    );
    assert_eq!(verdict.lost, 1, "the database has it, and nobody saw it");
    assert_eq!(
        verdict.never_committed_but_seen, 1,
        "the database does not have it"
    );
}
