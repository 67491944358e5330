//! Transactions that the database aborted in favour of others.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_conflict_costs_no_attempt_and_delays_no_other_key() {
    let mut stage = Stage::open(
        |options| options.attempts_max = 2,
        |call| async move {
            match call.position {
                1 if call.earlier < 10 => Err("a conflict".into()),
                _ => Ok(()),
            }
        },
    );
    stage.send(event(1, "a"));
    stage.send(event(2, "b"));
    stage.done(2).await;
    assert_eq!(stage.effects(), ["b2", "a1"]);
    assert!(stage.letters().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_conflicts_for_ever_ends_with_the_dead_letters() {
    let mut stage = Stage::open(
        |options| options.attempts_max = 2,
        |call| async move {
            match call.position {
                1 => Err("a conflict".into()),
                _ => Ok(()),
            }
        },
    );
    stage.send(event(1, "a"));
    stage.send(event(2, "a"));
    stage.done(2).await;
    assert_eq!(stage.effects(), ["a2"]);
    assert_eq!(stage.letters().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn conflicts_before_the_handler_are_not_charged() {
    let mut stage = Stage::open(|options| options.attempts_max = 2, |_| async { Ok(()) });
    stage.conflicts_before_the_handler(1_000);
    stage.send(event(1, "a"));
    stage.done(1).await;
    assert_eq!((stage.effects().len(), stage.letters().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_handlers_first_conflict_is_excused_however_many_there_were_before_it_began() {
    let mut stage = Stage::open(
        |options| options.attempts_max = 1,
        |call| async move {
            match call.earlier {
                ..5 => Err("a conflict".into()),
                _ => Ok(()),
            }
        },
    );
    stage.conflicts_before_the_handler(1_000);
    stage.send(event(1, "a"));
    stage.done(1).await;
    assert_eq!((stage.effects().len(), stage.letters().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn conflicts_do_not_revoke_a_rejection() {
    let mut stage = Stage::open(|_| {}, |_| async { Err(HandlerError::reject("nonsense")) });
    stage.letters_away(true);
    stage.send(event(1, "a"));
    sleep(SECOND).await;
    stage.conflicts_before_the_handler(1_000);
    stage.letters_away(false);
    stage.done(1).await;
    assert_eq!(stage.calls.load(Ordering::SeqCst), 1, "it is not handled again");
    assert_eq!(stage.letters().len(), 1, "nor published again");
    assert!(stage.processed(1));
}
