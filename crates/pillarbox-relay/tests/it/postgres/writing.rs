//! Writing events in the application's transaction.

use pillarbox::{EnqueueError, Event, Outbox};
use pillarbox_relay::{Store, store::Admin};

use super::{drain, event, page, place};

#[tokio::test]
async fn a_transaction_is_usable_after_each_refusal() {
    let Some(place) = place().await else { return };
    let outbox = Outbox::default();
    let mut tx = place.pool.begin().await.unwrap();
    sqlx::query("create temp table state (n int) on commit drop")
        .execute(&mut *tx)
        .await
        .unwrap();
    let bad = [
        event("a").payload("{"),
        event("a").payload("[".repeat(200_000) + &"]".repeat(200_000)),
        event("a").payload("\"\u{1}\""),
        event(""),
        event("a").header("x", "a\0b"),
        Event::to("").event_type("T").aggregate("a", "1"),
    ];
    for (n, bad) in bad.iter().enumerate() {
        let refused = outbox.enqueue(&mut tx, bad).await;
        assert!(
            matches!(refused, Err(EnqueueError::Refused { .. })),
            "{n}: {refused:?}"
        );
        sqlx::query("insert into state values (1)")
            .execute(&mut *tx)
            .await
            .unwrap();
    }
    let far_past = event("a").available_at(jiff::Timestamp::MIN);
    outbox.enqueue(&mut tx, &far_past).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(drain(&mut place.reader(), page(10)).await.len(), 1);
}

#[tokio::test]
async fn producers_notify_only_while_a_relay_sleeps() {
    let Some(place) = place().await else { return };
    let mut listener = sqlx::postgres::PgListener::connect(&place.url).await.unwrap();
    listener.listen("pillarbox:outbox_events").await.unwrap();
    place.commit(&["awake"]).await;
    place.store.waker().unwrap().set_asleep(true).await.unwrap();
    place.commit(&["asleep"]).await;
    place.commit(&["asleep", "asleep"]).await;
    place.store.waker().unwrap().set_asleep(false).await.unwrap();
    place.commit(&["awake", "awake"]).await;
    // Earlier notifications arrive before this one.
    sqlx::query("select pg_notify('pillarbox:outbox_events', 'end')")
        .execute(&place.pool)
        .await
        .unwrap();
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last| last != "end") {
        let next = tokio::time::timeout(super::DEADLINE, listener.recv())
            .await
            .unwrap()
            .unwrap();
        heard.push(next.payload().to_owned());
    }
    assert_eq!(heard, ["", "", "end"]);
}

#[tokio::test]
async fn the_status_ignores_a_time_that_another_program_wrote() {
    let Some(place) = place().await else { return };
    place.commit(&["a", "b", "c"]).await;
    for (time, key) in [("-infinity", "a"), ("infinity", "b")] {
        place
            .run(&format!(
                "update outbox_events set created_at = '{time}' where aggregate_id = '{key}'"
            ))
            .await;
    }
    let status = place.store.status().await.unwrap();
    assert_eq!(status.pending, 3);
    assert!(status.oldest_age.unwrap() < super::LEASE, "{status:?}");
}
