//! The engine over a broker and a database in memory, in paused time that advances only when every task
//! waits.

mod conflicts;
mod deaths;
mod stage;

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::{Instant, sleep};

use self::stage::{Stage, event, not_an_event};
use crate::consume::{ConsumeError, HandlerError};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn keys_go_side_by_side_and_each_keys_events_one_after_the_other() {
    let mut stage = Stage::open(
        |options| options.concurrency = 2,
        |_| async {
            sleep(SECOND).await;
            Ok(())
        },
    );
    let start = Instant::now();
    for (n, key) in ["a", "a", "b"].into_iter().enumerate() {
        stage.send(event(n as u64 + 1, key));
    }
    stage.done(3).await;
    assert_eq!(start.elapsed().as_secs(), 2);
    assert_eq!(stage.effects(), ["a1", "b3", "a2"]);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ends_receives_acknowledgements_and_its_reason_is_reported() {
    let mut stage = Stage::open(
        |_| {},
        |_| async {
            sleep(SECOND).await;
            Ok(())
        },
    );
    stage.send(event(1, "a"));
    sleep(SECOND / 2).await;
    let ended = ConsumeError::Broker {
        what: "fenced".to_owned(),
        source: "by another".into(),
    };
    let ended = stage.end(ended).await;
    assert_eq!(ended.to_string(), "fenced: by another");
    assert_eq!(stage.acknowledged(), [1]);
    assert!(stage.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_failing_event_holds_back_only_its_key_and_is_tried_again() {
    let mut stage = Stage::open(
        |_| {},
        |call| async move {
            match (call.position, call.attempt) {
                (1, ..=2) => Err("not yet".into()),
                _ => Ok(()),
            }
        },
    );
    for (n, key) in [(1, "a"), (2, "a"), (3, "b")] {
        stage.send(event(n, key));
    }
    stage.done(3).await;
    assert_eq!(stage.effects(), ["b3", "a1", "a2"]);
    assert_eq!(stage.acknowledged(), [3, 1, 2]);
    assert!(stage.letters().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_rolled_back_and_tried_again() {
    let mut stage = Stage::open(
        |_| {},
        |call| async move {
            assert!(call.attempt > 1, "as told");
            Ok(())
        },
    );
    stage.send(event(1, "a"));
    stage.done(1).await;
    assert_eq!(stage.effects(), ["a1"]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_outlives_its_time_is_rolled_back_and_tried_again() {
    let mut stage = Stage::open(
        |options| options.handler_timeout = SECOND,
        |call| async move {
            if call.attempt == 1 {
                sleep(60 * SECOND).await;
            }
            Ok(())
        },
    );
    stage.send(event(1, "a"));
    let start = Instant::now();
    stage.done(1).await;
    assert!(start.elapsed() < 4 * SECOND);
    assert_eq!(stage.effects(), ["a1"]);
}

#[tokio::test(start_paused = true)]
async fn after_the_last_attempt_an_event_is_a_dead_letter_and_its_key_goes_on() {
    let mut stage = Stage::open(
        |options| options.attempts_max = 3,
        |call| async move {
            match call.position {
                1 => Err("never".into()),
                _ => Ok(()),
            }
        },
    );
    stage.send(event(1, "a"));
    stage.send(event(2, "a"));
    stage.done(2).await;
    assert_eq!(stage.effects(), ["a2"]);
    assert_eq!(
        stage.calls.load(Ordering::SeqCst),
        4,
        "three attempts and the next one"
    );
    let letters = stage.letters();
    let header = |name: &str| {
        let mut headers = letters[0].headers.iter();
        let (_, text) = headers.find(|(known, _)| known == name).unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    };
    assert_eq!(letters[0].topic, "things.dead");
    assert_eq!(header("Pillarbox-Dead-Reason"), "max_retries_exceeded");
    assert_eq!(header("Pillarbox-Dead-Error"), "never");
    assert_eq!(header("Pillarbox-Dead-Attempts"), "3");
    assert_eq!(header("Pillarbox-Dead-Group"), "group");
    assert_eq!(header("Pillarbox-Key"), "a", "the original ones are there");
    assert!(stage.processed(1), "it is never applied after all");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_event_is_a_dead_letter_at_once() {
    let mut stage = Stage::open(|_| {}, |_| async { Err(HandlerError::reject("nonsense")) });
    stage.send(event(1, "a"));
    stage.done(1).await;
    assert_eq!(
        (stage.calls.load(Ordering::SeqCst), stage.letters().len()),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_not_an_event_is_a_dead_letter_without_a_handler() {
    let mut stage = Stage::open(|_| {}, |_| async { Ok(()) });
    stage.send(not_an_event(1));
    stage.send(event(2, "a"));
    stage.done(2).await;
    assert_eq!(
        (stage.effects(), stage.letters().len()),
        (vec!["a2".to_owned()], 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_can_not_be_published_holds_its_key_and_is_not_acknowledged() {
    let mut stage = Stage::open(
        |_| {},
        |call| async move {
            match call.position {
                1 => Err(HandlerError::reject("nonsense")),
                _ => Ok(()),
            }
        },
    );
    stage.letters_away(true);
    for (n, key) in [(1, "a"), (2, "a"), (3, "b")] {
        stage.send(event(n, key));
    }
    stage.done(1).await;
    sleep(30 * SECOND).await;
    assert_eq!(
        (stage.effects(), stage.acknowledged()),
        (vec!["b3".to_owned()], vec![3])
    );
    stage.letters_away(false);
    stage.done(2).await;
    assert_eq!(
        (stage.effects(), stage.letters().len()),
        (vec!["b3".to_owned(), "a2".to_owned()], 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_costs_no_attempt() {
    let mut stage = Stage::open(|options| options.attempts_max = 1, |_| async { Ok(()) });
    stage.database_away(true);
    for n in 1..=50 {
        stage.send(event(n, &format!("k{n}")));
    }
    sleep(60 * SECOND).await;
    assert!(stage.lag().database_away && stage.effects().is_empty());
    let tries = stage.begins();
    assert!(
        tries < 100,
        "{tries} tries in a minute: it is asked now and then, not by each event"
    );
    stage.database_away(false);
    stage.done(50).await;
    assert_eq!((stage.effects().len(), stage.letters().len()), (50, 0));
    sleep(SECOND).await;
    assert!(!stage.lag().database_away);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_makes_no_second_dead_letter() {
    let mut stage = Stage::open(|_| {}, |_| async { Err(HandlerError::reject("nonsense")) });
    stage.letters_away(true);
    stage.send(event(1, "a"));
    sleep(SECOND).await;
    stage.database_away(true);
    stage.letters_away(false);
    sleep(60 * SECOND).await;
    assert_eq!((stage.letters().len(), stage.acknowledged().len()), (1, 0));
    stage.database_away(false);
    stage.done(1).await;
    assert_eq!(stage.letters().len(), 1);
    assert!(stage.processed(1));
}

/// For example a statement that takes too long, or another database that the handler uses.
#[tokio::test(start_paused = true)]
async fn an_error_of_a_handler_that_looks_like_the_databases_delays_only_its_key() {
    let mut stage = Stage::open(
        |options| options.attempts_max = 3,
        |call| async move {
            match call.position {
                1 => Err("it sounds as if the database were away".into()),
                _ => Ok(()),
            }
        },
    );
    for (n, key) in [(1, "a"), (2, "a"), (3, "b")] {
        stage.send(event(n, key));
    }
    stage.done(3).await;
    assert_eq!(stage.effects(), ["b3", "a2"]);
    assert_eq!(stage.letters().len(), 1);
    assert_eq!(
        stage.calls.load(Ordering::SeqCst),
        3 + 1 + 2,
        "the first time it is excused"
    );
    assert!(!stage.lag().database_away);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_was_away_for_a_moment_costs_no_attempt() {
    let mut stage = Stage::open(
        |options| options.attempts_max = 1,
        |call| async move {
            match call.earlier {
                0 => Err("the database was away".into()),
                _ => Ok(()),
            }
        },
    );
    stage.send(event(1, "a"));
    stage.done(1).await;
    assert_eq!(
        (stage.effects(), stage.letters().len()),
        (vec!["a1".to_owned()], 0)
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_is_acknowledged_after_its_commit_and_not_before() {
    let mut stage = Stage::open(|_| {}, |_| async { Ok(()) });
    stage.commits_take(5 * SECOND);
    stage.send(event(1, "a"));
    sleep(4 * SECOND).await;
    assert!(stage.acknowledged().is_empty());
    stage.done(1).await;
    assert_eq!(stage.effects(), ["a1"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_processed_before_is_acknowledged_and_not_applied() {
    let mut stage = Stage::open(|_| {}, |_| async { Ok(()) });
    stage.send(event(1, "a"));
    stage.done(1).await;
    stage.send(event(1, "a"));
    stage.done(1).await;
    assert_eq!((stage.effects().len(), stage.acknowledged()), (1, vec![1, 1]));
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_leaves_is_quiet_when_its_handlers_are_through_and_nothing_new_begins() {
    let mut stage = Stage::open(
        |_| {},
        |_| async {
            sleep(SECOND).await;
            Ok(())
        },
    );
    stage.send(event(1, "a"));
    stage.send(event(2, "a"));
    sleep(SECOND / 2).await;
    let quiet = stage.revoke(0);
    sleep(SECOND / 4).await;
    assert_eq!(quiet.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
    stage.done(1).await;
    sleep(10 * SECOND).await;
    assert_eq!(quiet.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));
    assert_eq!(
        (stage.effects(), stage.acknowledged()),
        (vec!["a1".to_owned()], vec![1])
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_handlers_finish_and_begins_nothing() {
    let mut stage = Stage::open(
        |options| options.concurrency = 1,
        |_| async {
            sleep(SECOND).await;
            Ok(())
        },
    );
    for n in 1..=3 {
        stage.send(event(n, &format!("k{n}")));
    }
    sleep(SECOND / 2).await;
    stage.stop().await;
    assert_eq!(
        (stage.effects(), stage.acknowledged()),
        (vec!["k11".to_owned()], vec![1])
    );
    assert!(stage.is_closed(), "the rest was given back");
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_finish_in_time_is_rolled_back_by_a_stop() {
    let mut stage = Stage::open(
        |options| options.shutdown_timeout = 2 * SECOND,
        |_| async {
            sleep(20 * SECOND).await;
            Ok(())
        },
    );
    stage.send(event(1, "a"));
    sleep(SECOND).await;
    let start = Instant::now();
    stage.stop().await;
    assert!(start.elapsed() < 3 * SECOND);
    assert!(stage.effects().is_empty() && stage.acknowledged().is_empty() && stage.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_does_not_answer_holds_up_a_stop_no_longer_than_handlers_may() {
    let mut stage = Stage::open(
        |options| options.shutdown_timeout = 3 * SECOND,
        |_| async {
            sleep(20 * SECOND).await;
            Ok(())
        },
    );
    stage.broker_away = true;
    stage.send(event(1, "a"));
    sleep(SECOND).await;
    let start = Instant::now();
    stage.stop().await;
    assert!(start.elapsed() <= 5 * SECOND, "{:?}", start.elapsed());
    assert!(stage.is_closed());
}

#[tokio::test(start_paused = true)]
async fn the_lag_shows_failing_events_and_their_age() {
    let stage = Stage::open(
        |options| options.attempts_max = 100,
        |_| async { Err("not today".into()) },
    );
    stage.send(event(1, "a"));
    stage.send(event(2, "a"));
    sleep(10 * SECOND).await;
    let lag = stage.lag();
    let failing = lag.oldest_failing.unwrap();
    assert_eq!((lag.held, lag.failing, failing.key.as_str()), (2, 1, "a"));
    assert!(failing.attempts > 2 && failing.since >= 9 * SECOND && failing.error == "not today");
}
