//! Events that were being handled when a process died.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::{Instant, sleep};

use super::stage::{Stage, event};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn an_event_that_ran_at_a_crash_is_tried_alone_and_passes() {
    let mut stage = Stage::open_after_a_death(
        &[(1, 1), (3, 1)],
        |_| {},
        |_| async {
            sleep(SECOND).await;
            Ok(())
        },
    );
    let start = Instant::now();
    for (n, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")] {
        stage.send(event(n, key));
    }
    sleep(SECOND / 2).await;
    assert_eq!(
        (stage.begun(1), stage.begun(2)),
        (2, 0),
        "the first is at work, alone"
    );
    sleep(SECOND).await;
    assert_eq!(
        (stage.begun(1), stage.begun(2)),
        (0, 1),
        "the others come after it"
    );
    stage.done(5).await;
    assert_eq!(start.elapsed().as_secs(), 4);
    assert_eq!(stage.effects().len(), 5);
    assert!(stage.letters().is_empty() && (1..=5).all(|n| stage.begun(n) == 0));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_took_the_process_with_it_too_often_is_a_dead_letter_and_no_handler_sees_it() {
    let mut stage = Stage::open_after_a_death(
        &[(1, 3), (2, 2)],
        |options| options.deaths_max = 3,
        |_| async { Ok(()) },
    );
    stage.letters_away(true);
    for (n, key) in [(1, "a"), (2, "b"), (3, "a")] {
        stage.send(event(n, key));
    }
    stage.done(1).await;
    assert_eq!(
        stage.begun(1),
        3,
        "it is not forgotten while the letter is not there"
    );
    stage.letters_away(false);
    stage.done(2).await;
    assert_eq!(
        (stage.effects(), stage.calls.load(Ordering::SeqCst)),
        (vec!["b2".to_owned(), "a3".to_owned()], 2)
    );
    let letters = stage.letters();
    let headers: Vec<&str> = letters[0]
        .headers
        .iter()
        .filter_map(|(_, text)| std::str::from_utf8(text).ok())
        .collect();
    assert!(
        letters.len() == 1 && headers.contains(&"process_died"),
        "{letters:?}"
    );
    assert!(stage.processed(1) && stage.begun(1) == 0);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_fails_or_panics_did_not_take_the_process_with_it() {
    let mut stage = Stage::open_after_a_death(
        &[(1, 2)],
        |options| options.backoff_base = 10 * SECOND,
        |call| async move {
            match (call.position, call.attempt) {
                (1, 1) => panic!("as told"),
                (2, 1) => Err("as told".into()),
                _ => Ok(()),
            }
        },
    );
    stage.send(event(1, "a"));
    stage.send(event(2, "b"));
    sleep(SECOND).await;
    assert_eq!(
        (stage.calls.load(Ordering::SeqCst), stage.begun(1), stage.begun(2)),
        (2, 2, 0)
    );
    stage.done(2).await;
    assert_eq!((stage.begun(1), stage.begun(2)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_leaves_no_counts_behind() {
    let mut stage = Stage::open_after_a_death(
        &[],
        |options| options.shutdown_timeout = 2 * SECOND,
        |_| async {
            sleep(20 * SECOND).await;
            Ok(())
        },
    );
    stage.send(event(1, "a"));
    sleep(SECOND).await;
    assert_eq!(stage.begun(1), 1);
    stage.stop().await;
    assert_eq!(stage.begun(1), 0);
}

#[tokio::test(start_paused = true)]
async fn without_crashes_nothing_is_written() {
    let mut stage = Stage::open(
        |_| {},
        |_| async {
            sleep(SECOND).await;
            Ok(())
        },
    );
    stage.send(event(1, "a"));
    sleep(SECOND / 2).await;
    assert_eq!(stage.begun(1), 0);
    stage.done(1).await;
}
