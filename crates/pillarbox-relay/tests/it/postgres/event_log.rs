//! The event log on PostgreSQL: positions after losses, open transactions, and who waits for whom.

use std::time::Duration;

use pillarbox_relay::{
    Settlement, Store,
    dead::{DeadFilter, DeadLetters},
    event_log::{EventLog, FollowError, Follower, Position},
    store::{HeldLane, StoreError, StoreErrorKind},
};
use pillarbox_testkit::wait;

use super::{Place, page, place};

/// Positions after a loss are far above this.
const FAR: Position = 100_000_000_000_000;

/// Delivers new events with an event log, as a relay does that starts now.
async fn deliver_logged(place: &Place, keys: &[&str]) -> Result<(), StoreError> {
    place.store.check().await?;
    place.commit(keys).await;
    let held = place.take_again().await;
    let found = place.store.reader(&held).next(page(100)).await?;
    let seqs: Vec<i64> = found.events.iter().map(|event| event.seq).collect();
    let settlement = Settlement {
        published: seqs.clone(),
        logged: seqs,
        ..Settlement::default()
    };
    place.store.settle(&held, &settlement).await.map(drop)
}

async fn begin(place: &Place, after: Option<Position>) -> Result<Follower, FollowError> {
    Follower::begin(place.store.clone(), after).await
}

/// Reads the positions of all entries after this one.
async fn read(place: &Place, after: Position) -> Vec<Position> {
    let mut follower = begin(place, Some(after)).await.unwrap();
    let end = place.store.bounds().await.unwrap().last;
    let mut positions = Vec::new();
    wait::until("the reader reaches the end", async || {
        let entries = follower.next(page(100)).await.unwrap().entries;
        positions.extend(entries.iter().map(|entry| entry.position));
        follower.position() >= end
    })
    .await;
    positions
}

/// A dump in another cluster, a promoted standby, a counter that starts again.
#[tokio::test]
async fn a_log_that_may_have_lost_entries_goes_on_above_all_that_were_handed_out() {
    for (loss, left) in [
        (
            "delete from outbox_events_log where position > 5;
             select setval('outbox_events_log_position', 5);
             update outbox_events_meta set system_identifier = 1",
            5,
        ),
        (
            "delete from outbox_events_log where position > 5;
             select setval('outbox_events_log_position', 5);
             update outbox_events_meta set timeline = '00000000'",
            5,
        ),
        ("truncate outbox_events_log restart identity", 0),
    ] {
        let Some(place) = place().await else { return };
        deliver_logged(&place, &["a"; 10]).await.unwrap();
        place.run(loss).await;
        deliver_logged(&place, &["b"; 20]).await.unwrap();
        let new = read(&place, left).await;
        assert_eq!(new.len(), 20, "{loss}");
        assert!(new[0] > FAR, "{loss}: {new:?}");
        assert_eq!(
            read(&place, 0).await.len(),
            20 + usize::try_from(left).unwrap(),
            "{loss}"
        );
        // A client that has seen lost entries is told, however far the new log has grown.
        let begun = begin(&place, Some(10)).await.err();
        assert!(
            matches!(begun, Some(FollowError::Beyond { .. })),
            "{loss}: {begun:?}"
        );
        // Once is enough.
        deliver_logged(&place, &["c"; 1]).await.unwrap();
        assert_eq!(read(&place, new[19]).await, [new[19] + 1], "{loss}");
    }
}

/// Nothing but this relay's memory shows it.
#[tokio::test]
async fn a_running_relay_notices_that_the_log_ends_before_what_its_readers_have_seen() {
    let Some(place) = place().await else { return };
    deliver_logged(&place, &["a"; 10]).await.unwrap();
    assert_eq!(read(&place, 0).await.len(), 10);
    place
        .run(
            "delete from outbox_events_log where position > 5;
             select setval('outbox_events_log_position', 5)",
        )
        .await;
    deliver_logged(&place, &["b"; 20]).await.unwrap();
    assert!(read(&place, 5).await[0] > FAR);
    assert!(begin(&place, Some(10)).await.is_err());
}

/// Positions 1 and 2 are taken by transactions that commit in the other order.
#[tokio::test]
async fn a_reader_without_a_position_waits_for_entries_that_are_not_committed_yet() {
    let Some(place) = place().await else { return };
    deliver_logged(&place, &["a"]).await.unwrap();
    let mut tx = place.pool.begin().await.unwrap();
    sqlx::query(
        "insert into outbox_events_log
             (status, at, seq, id, topic, event_type, aggregate_type, aggregate_id, created_at, attempts, payload)
         values ('published', now(), 0, gen_random_uuid(), 't', 'T', 'a', 'late', now(), 0, '{}')",
    )
    .execute(&mut *tx)
    .await
    .unwrap();
    deliver_logged(&place, &["b"]).await.unwrap();
    let mut follower = begin(&place, None).await.unwrap();
    assert_eq!(follower.position(), 1);
    tx.commit().await.unwrap();
    let entries = follower.next(page(10)).await.unwrap().entries;
    let keys: Vec<_> = entries.iter().map(|entry| &*entry.event.aggregate_id).collect();
    assert_eq!(keys, ["late", "b"]);
}

/// A delivered event, and its settlement.
async fn ready(place: &Place) -> (Vec<HeldLane>, Settlement) {
    place.commit(&["b"]).await;
    let held = place.take_again().await;
    let found = place.store.reader(&held).next(page(100)).await.unwrap();
    let seqs: Vec<i64> = found.events.iter().map(|event| event.seq).collect();
    let settlement = Settlement {
        published: seqs.clone(),
        logged: seqs,
        ..Settlement::default()
    };
    (held, settlement)
}

/// The relay's connections break, and it finds a promoted standby without the latest entries. It must notice before it
/// writes the next one.
#[tokio::test]
async fn a_relay_that_loses_the_server_checks_the_log_before_its_next_entry() {
    let Some(place) = place().await else { return };
    deliver_logged(&place, &["a"; 10]).await.unwrap();
    let (held, settlement) = ready(&place).await;
    place
        .run(
            "delete from outbox_events_log where position > 5;
             select setval('outbox_events_log_position', 5);
             update outbox_events_meta set timeline = '00000000';
             select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and application_name = 'pillarbox'",
        )
        .await;
    wait::until_ok(async || place.store.settle(&held, &settlement).await).await;
    assert!(read(&place, 5).await[0] > FAR);
}

#[tokio::test]
async fn a_settlement_whose_position_was_made_void_is_repeated() {
    let Some(place) = place().await else { return };
    deliver_logged(&place, &["a"]).await.unwrap();
    let (held, settlement) = ready(&place).await;
    // The position that the settlement takes.
    place.store.fill(2, 2).await.unwrap();
    let error = place.store.settle(&held, &settlement).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Away, "{}", error.chain());
    assert!(error.to_string().contains("can be retried"), "{error}");
    place.store.settle(&held, &settlement).await.unwrap();
    assert_eq!(read(&place, 0).await, [1, 3]);
}

/// Queries of people can take long. Here they wait for a lock.
#[tokio::test]
async fn slow_queries_of_people_delay_neither_settling_nor_the_lease() {
    let Some(place) = place().await else { return };
    deliver_logged(&place, &["a"]).await.unwrap();
    place.commit(&["b"]).await;
    let mut lock = place.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table outbox_events_log, outbox_events_dead in access exclusive mode")
        .execute(&mut *lock)
        .await
        .unwrap();
    let mut people = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let store = place.store.clone();
        people.spawn(async move { store.life(&pillarbox::EventId::new()).await.map(drop) });
        let store = place.store.clone();
        people.spawn(async move { store.groups(&DeadFilter::default()).await.map(drop) });
    }
    let waiting = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    wait::until("people wait", async || place.number(waiting).await == 2).await;
    let held = place.take_again().await;
    let found = place.store.reader(&held).next(page(10)).await.unwrap();
    let settlement = Settlement {
        published: found.events.iter().map(|event| event.seq).collect(),
        ..Settlement::default()
    };
    place.store.settle(&held, &settlement).await.unwrap();
    assert!(
        place.number(waiting).await <= 2,
        "some connections are left for readers of the log"
    );
    lock.rollback().await.unwrap();
    while let Some(asked) = people.join_next().await {
        asked.unwrap().unwrap();
    }
}

/// After a copy without its sequence, and after a restart of a log of which everything has expired.
#[tokio::test]
async fn positions_of_the_event_log_never_come_a_second_time() {
    let Some(place) = place().await else { return };
    deliver_logged(&place, &["a"; 10]).await.unwrap();
    place.run("select setval('outbox_events_log_position', 3)").await;
    deliver_logged(&place, &["b"; 2]).await.unwrap();
    let latest = "select max(position) from outbox_events_log";
    assert_eq!(place.number(latest).await, 12);

    place
        .run("update outbox_events_log set at = at - interval '1 day'")
        .await;
    EventLog::expire(&*place.store, Duration::from_secs(60), 100)
        .await
        .unwrap();
    place.run("truncate outbox_events_log restart identity").await;
    deliver_logged(&place, &["c"; 2]).await.unwrap();
    assert!(place.number(latest).await > FAR);
    // A reader of what had expired before has missed nothing.
    let mut follower = begin(&place, Some(12)).await.unwrap();
    assert_eq!(follower.next(page(10)).await.unwrap().entries.len(), 2);
}

/// Otherwise an old position that is read late would seem to be younger than all entries behind it.
#[tokio::test]
async fn a_position_that_nobody_used_has_the_time_of_the_next_one() {
    let Some(place) = place().await else { return };
    place.run("select nextval('outbox_events_log_position')").await;
    deliver_logged(&place, &["a"]).await.unwrap();
    place
        .run("update outbox_events_log set at = at - interval '1 day'")
        .await;
    place.store.fill(1, 1).await.unwrap();
    let times = "select count(distinct at) from outbox_events_log";
    assert_eq!(
        (
            place.store.read(0, page(10)).await.unwrap().len(),
            place.number(times).await
        ),
        (2, 1)
    );
}

/// A reader must not keep a connection of the relay while a transaction does not end.
#[tokio::test]
async fn a_position_of_an_open_transaction_is_not_waited_for_long() {
    let Some(place) = place().await else { return };
    let mut tx = place.pool.begin().await.unwrap();
    sqlx::query("insert into outbox_events_log (status, at, seq) values ('void', now(), 0)")
        .execute(&mut *tx)
        .await
        .unwrap();
    let error = place.store.fill(1, 1).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Away, "{}", error.chain());
    tx.rollback().await.unwrap();
    place.store.fill(1, 1).await.unwrap();
}
