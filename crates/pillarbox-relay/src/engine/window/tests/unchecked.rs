//! Events that can't be checked yet.

use super::*;

/// An event of discovery that can't be checked yet.
fn wait(window: &mut Window, seq: Seq, key: &str, page: Option<u64>) {
    let entry = Entry::new(stored(seq, key), to(0), page);
    window.admit_unchecked(entry, false, failure("away"), Duration::from_secs(1));
}

#[test]
fn an_unchecked_event_waits_uncharged_and_holds_only_its_key() {
    let mut window = window(false);
    let page = window.open_page(1..=4, 4);
    wait(&mut window, 1, "a", Some(page));
    for (seq, key) in [(2, "b"), (3, "a"), (4, "b")] {
        window.admit(Entry::new(stored(seq, key), to(0), Some(page)));
    }
    assert_eq!(seqs(&window.take_batch([0], 10)), [2]);
    let settling = window.take_settling().unwrap();
    let failed: Vec<_> = settling
        .settlement
        .failed
        .iter()
        .map(|f| (f.parked.seq, f.attempts))
        .collect();
    assert_eq!(failed, [(1, 0)]);
    assert_eq!(
        settling.settlement.held.iter().map(|h| h.seq).collect::<Vec<_>>(),
        [3]
    );
    window.settled(&settling, &[]);
    // The store returns it, with the events behind it, until it is settled.
    wait(&mut window, 1, "a", None);
    wait(&mut window, 1, "a", None);
    let again = window.take_settling().unwrap();
    assert_eq!(again.settlement.failed.len(), 1);
    window.settled(&again, &[]);
    assert_eq!(window.load().0, 2, "the two of b are left");
}

#[test]
fn an_unchecked_event_behind_one_in_flight_is_not_overtaken() {
    let mut window = window(false);
    let page = window.open_page(1..=3, 3);
    window.admit(Entry::new(stored(1, "a"), to(0), Some(page)));
    let batch = window.take_batch([0], 10);
    wait(&mut window, 2, "a", Some(page));
    window.admit(Entry::new(stored(3, "a"), to(0), Some(page)));
    window.complete(all(batch, Resolution::Delivered));
    assert!(!window.has_ready(0));
    let settling = window.take_settling().unwrap();
    assert_eq!(settling.settlement.published, [1]);
    assert_eq!(settling.settlement.failed[0].parked.seq, 2);
    assert_eq!(settling.settlement.held[0].seq, 3);
}

#[test]
fn a_freed_key_does_not_release_unchecked_events() {
    let mut window = window(false);
    window.admit_parked(Entry::new(stored(1, "a"), to(0), None), false);
    window.blocked.insert((lane_of("a"), key_hash("a")));
    let batch = window.take_batch([0], 10);
    window.complete(all(batch, Resolution::Delivered));
    let on_its_way = window.take_settling().unwrap();
    let page = window.open_page(2..=3, 3);
    wait(&mut window, 2, "a", Some(page));
    window.admit(Entry::new(stored(3, "a"), to(0), Some(page)));
    window.settled(&on_its_way, &[(lane_of("a"), "a".into())]);
    assert!(!window.has_ready(0), "2 was not checked, and 3 comes after it");
    let settling = window.take_settling().unwrap();
    assert_eq!(settling.settlement.failed[0].parked.seq, 2);
    assert_eq!(settling.settlement.held[0].seq, 3);
}
