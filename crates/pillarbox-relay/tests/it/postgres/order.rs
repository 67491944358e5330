//! Order at the write, for keys whose writers change no common row.

use pillarbox::{EnqueueError, Event, Outbox};
use pillarbox_relay::check::versions::{AggregateVersions, VersionIndex};
use pillarbox_testkit::wait;

use super::{DEADLINE, Place, event, place};

/// Runs rounds with two writers of one key; the first to enqueue commits late. Returns in how many rounds the
/// later seq was committed first.
async fn rounds_out_of_order(place: &Place, outbox: &Outbox, rounds: usize) -> usize {
    let mut out_of_order = 0;
    for round in 0..rounds {
        let key = format!("key-{round}");
        let (slow, quick) = (event(&key), event(&key));
        let mut first = place.pool.begin().await.unwrap();
        outbox.enqueue(&mut first, &slow).await.unwrap();
        let second = async {
            let mut tx = place.pool.begin().await.unwrap();
            outbox.enqueue(&mut tx, &quick).await.unwrap();
            tx.commit().await.unwrap();
        };
        let first = async {
            let overtaken = overtaken(place, &quick).await;
            first.commit().await.unwrap();
            overtaken
        };
        let (overtaken, ()) = tokio::join!(first, second);
        let seq = async |event: &Event| {
            let sql = format!("select seq from outbox_events where id = '{}'", event.id);
            place.number(&sql).await
        };
        let later = seq(&slow).await < seq(&quick).await;
        out_of_order += usize::from(overtaken && later);
    }
    out_of_order
}

/// Waits until the event is committed, or its writer waits for a lock. Returns whether it is committed.
async fn overtaken(place: &Place, event: &Event) -> bool {
    let seen = format!("select count(*) from outbox_events where id = '{}'", event.id);
    let waits = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
                 where l.locktype = 'advisory' and not l.granted and d.datname = current_database()";
    wait::until_ok(async || {
        if place.number(waits).await > 0 {
            return Ok(false);
        }
        if place.number(&seen).await > 0 {
            return Ok(true);
        }
        Err("it is neither committed nor waiting for a lock")
    })
    .await
}

#[tokio::test]
async fn writers_of_one_key_are_serialised_where_that_is_asked_for() {
    let Some(place) = place().await else { return };
    let outbox = Outbox::default();
    let without = rounds_out_of_order(&place, &outbox, 3).await;
    assert_eq!(without, 3, "without the lock, every round is out of order");
    assert_eq!(rounds_out_of_order(&place, &outbox.serialise_keys(), 40).await, 0);
}

#[tokio::test]
async fn keys_are_locked_in_one_order_and_only_the_same_ones_wait() {
    let Some(place) = place().await else { return };
    let outbox = Outbox::default().serialise_keys();
    let write = |keys: [&'static str; 3]| {
        let (outbox, pool) = (outbox.clone(), place.pool.clone());
        async move {
            for _ in 0..100 {
                let events: Vec<Event> = keys.iter().map(|key| event(key)).collect();
                let mut tx = pool.begin().await?;
                outbox.enqueue_all(&mut tx, &events).await?;
                tx.commit().await?;
            }
            Ok::<_, EnqueueError>(())
        }
    };
    let mut other = place.pool.begin().await.unwrap();
    outbox.enqueue(&mut other, &event("another")).await.unwrap();
    let all = async {
        tokio::join!(
            write(["a", "b", "c"]),
            write(["c", "b", "a"]),
            write(["b", "c", "a"])
        )
    };
    let (one, two, three) = tokio::time::timeout(DEADLINE, all).await.unwrap();
    for written in [one, two, three] {
        written.expect("no deadlock");
    }
    other.commit().await.unwrap();
}

#[tokio::test]
async fn of_two_that_race_for_a_version_one_is_refused() {
    let Some(place) = place().await else { return };
    place.store.make_index(VersionIndex::Unique).await.unwrap();
    let outbox = Outbox::default();
    for version in 0..30 {
        let write = || async {
            let mut tx = place.pool.begin().await?;
            outbox
                .enqueue(&mut tx, &event("o-1").aggregate_version(version))
                .await?;
            tx.commit().await?;
            Ok::<_, EnqueueError>(())
        };
        let (one, two) = tokio::join!(write(), write());
        let won = [&one, &two].iter().filter(|written| written.is_ok()).count();
        assert_eq!(won, 1, "{one:?} {two:?}");
        let lost = one.and(two).unwrap_err();
        assert!(
            matches!(lost, EnqueueError::VersionTaken { version: v, .. } if v == version),
            "{lost:?}"
        );
    }
}

#[tokio::test]
async fn versions_that_are_there_twice_already_keep_the_index_from_being_made() {
    let Some(place) = place().await else { return };
    for _ in 0..2 {
        let mut tx = place.pool.begin().await.unwrap();
        Outbox::default()
            .enqueue(&mut tx, &event("o-1").aggregate_version(1))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }
    let error = place.store.make_index(VersionIndex::Unique).await.unwrap_err();
    assert!(error.to_string().contains("unique_versions"), "{}", error.chain());
    let left = "select count(*) from pg_class where relname = 'outbox_events_unique_versions'";
    assert_eq!(place.number(left).await, 0, "the failed index must be gone");
}
