//! Dead events that hold their keys.

use super::*;

/// A dead event on a route that blocks.
fn dead() -> Resolution {
    Resolution::Dead {
        reason: DeadReason::PermanentFailure,
        failure: failure("no"),
    }
}

fn strict() -> Target {
    Target {
        after_death: AfterDeath::Block,
        ..Target::default()
    }
}

#[test]
fn a_death_that_blocks_holds_its_followers() {
    let mut window = window(false);
    let page = window.open_page(1..=3, 3);
    for seq in 1..=3 {
        window.admit(Entry::new(stored(seq, "a"), strict(), Some(page)));
    }
    let batch = window.take_batch([0], 10);
    window.complete(all(batch, dead()));
    let settlement = settle(&mut window, &[]);
    assert_eq!(
        settlement.dead[0].key.as_deref(),
        Some("a"),
        "the settlement contains its key"
    );
    assert_eq!(settlement.dead[0].after, AfterDeath::Block);
    let held: Vec<Seq> = settlement.held.iter().map(|held| held.seq).collect();
    assert_eq!(held, [2, 3]);
}

/// The settlement of a delayed event says that the key is free, but it was taken before the death.
#[test]
fn an_unwritten_death_keeps_a_freed_key_blocked() {
    let mut window = window(false);
    window.admit_parked(Entry::new(stored(1, "a"), strict(), None), true);
    let delayed = window.take_batch([0], 10);
    window.complete(all(delayed, Resolution::Delivered));
    let on_its_way = window.take_settling().unwrap();
    let page = window.open_page(2..=3, 3);
    window.admit(Entry::new(stored(2, "a"), strict(), Some(page)));
    let batch = window.take_batch([0], 10);
    window.complete(all(batch, dead()));
    window.settled(&on_its_way, &[(lane_of("a"), "a".to_owned())]);
    window.admit(Entry::new(stored(3, "a"), strict(), Some(page)));
    assert!(!window.has_ready(0), "the third waits");
}
