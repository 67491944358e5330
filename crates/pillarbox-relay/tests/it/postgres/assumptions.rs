//! The assumptions of discovery are checked. If one does not hold, no event is lost.

use pillarbox_relay::{
    Settlement, Store,
    store::{Admin, HeldLane, Reader, StoreErrorKind},
};
use pillarbox_testkit::wait;

use super::{LEASE, Place, drain, ids, page, place, written};

/// Delivers all events and records the low marks, as a relay does.
async fn deliver(place: &Place, reader: &mut Box<dyn Reader>, held: &[HeldLane]) -> Vec<HeldLane> {
    let mut last = 0;
    let decided = wait::until_ok(async || {
        let found = reader.next(page(100)).await.unwrap();
        let published: Vec<i64> = found.events.iter().map(|event| event.seq).collect();
        last = published.iter().copied().max().unwrap_or(last);
        let settlement = Settlement {
            published,
            ..Settlement::default()
        };
        place.store.settle(held, &settlement).await.unwrap();
        match last > 0 && found.decided >= last {
            true => Ok(found.decided),
            false => Err(format!("{} is decided, expected {last}", found.decided)),
        }
    })
    .await;
    let marked: Vec<HeldLane> = held
        .iter()
        .map(|held| HeldLane {
            low_mark: decided,
            ..*held
        })
        .collect();
    let census = place
        .store
        .heartbeat(place.relay, "relay", LEASE, &marked)
        .await
        .unwrap();
    assert_eq!(census.held.len(), 256);
    marked
}

/// A place with ten delivered events, and low marks above them.
async fn delivered() -> Option<(Place, Box<dyn Reader>, Vec<HeldLane>)> {
    let place = place().await?;
    place.store.check().await.unwrap();
    place.commit(&["a"; 10]).await;
    let mut reader = place.reader();
    let marked = deliver(&place, &mut reader, &place.held).await;
    Some((place, reader, marked))
}

/// The events that the next relay finds.
async fn found_anew(place: &Place) -> Vec<pillarbox::EventId> {
    place.store.check().await.unwrap();
    let mut reader = place.store.reader(&place.take_again().await);
    ids(&drain(&mut reader, page(100)).await)
}

/// Once with the sequence still below the low mark, and once with it already above.
#[tokio::test]
async fn events_after_a_truncate_are_found_and_counted() {
    for keys in [&["b"; 3][..], &["b"; 20][..]] {
        let Some((place, reader, _)) = delivered().await else {
            return;
        };
        drop(reader);
        place.run("truncate outbox_events restart identity").await;
        let events = place.commit(keys).await;
        let pending = place.store.status().await.unwrap().pending;
        assert_eq!(
            pending,
            keys.len() as u64,
            "`status` must count them before a relay starts"
        );
        assert_eq!(found_anew(&place).await, written(&events));
    }
}

#[tokio::test]
async fn events_after_a_sequence_was_set_back_are_found_and_counted() {
    let Some((place, reader, _)) = delivered().await else {
        return;
    };
    drop(reader);
    place
        .run("delete from outbox_events; select setval('outbox_events_seq', 1)")
        .await;
    let events = place.commit(&["b"; 3]).await;
    assert_eq!(place.store.status().await.unwrap().pending, 3);
    assert_eq!(place.store.low_mark().await.unwrap(), 0);
    assert_eq!(found_anew(&place).await, written(&events));
}

#[tokio::test]
async fn a_running_relay_loses_its_lanes_when_the_sequence_goes_back() {
    let Some((place, _reader, marked)) = delivered().await else {
        return;
    };
    place
        .run("delete from outbox_events; select setval('outbox_events_seq', 1)")
        .await;
    let beat = async || {
        let beat = place.store.heartbeat(place.relay, "relay", LEASE, &marked);
        beat.await.unwrap().held.len()
    };
    wait::until("the heartbeat returns no lanes", async || beat().await == 0).await;
    assert_eq!(
        place
            .number("select max(low_mark) from outbox_events_leases")
            .await,
        0
    );
}

/// Otherwise the settlement of an old event could settle a new event with the same seq.
#[tokio::test]
async fn nothing_from_before_a_truncate_is_settled_after_it() {
    let Some(place) = place().await else { return };
    place.commit(&["a"; 3]).await;
    let old = drain(&mut place.reader(), page(10)).await;
    place.run("truncate outbox_events restart identity").await;
    place.commit(&["b"; 3]).await;
    let settlement = Settlement {
        published: old.iter().map(|event| event.seq).collect(),
        ..Settlement::default()
    };
    let error = place.store.settle(&place.held, &settlement).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Fenced, "{error}");
    let pending = "select count(*) from outbox_events where status = 'pending'";
    assert_eq!(place.number(pending).await, 3);
}

#[tokio::test]
async fn two_relays_that_notice_at_once_start_over_once() {
    let Some((place, reader, _)) = delivered().await else {
        return;
    };
    drop(reader);
    place.run("alter sequence outbox_events_seq restart").await;
    let epoch = "select max(epoch) from outbox_events_lanes";
    let before = place.number(epoch).await;
    let (one, two) = tokio::join!(place.store.check(), place.store.check());
    one.unwrap();
    two.unwrap();
    place.store.check().await.unwrap();
    assert_eq!(place.number(epoch).await, before + 1);
}

/// A session with cached seqs inserts like this.
const BELOW: &str = "insert into outbox_events (seq, topic, event_type, aggregate_type, aggregate_id, payload) overriding system value
                     values (0, 't', 'T', 'order', 'late', '{}')";

#[tokio::test]
async fn an_event_below_the_low_mark_is_found_by_a_running_relay() {
    let Some((place, mut reader, _)) = delivered().await else {
        return;
    };
    place.run(BELOW).await;
    let error = wait::until_ok(async || match reader.next(page(10)).await {
        Ok(found) => {
            assert!(found.events.is_empty());
            Err("the event is not found yet")
        }
        Err(error) => Ok(error),
    })
    .await;
    assert_eq!(error.kind, StoreErrorKind::Fenced, "{error}");
    let held = place.store.take_lanes(place.relay, 256, LEASE).await.unwrap();
    assert_eq!(held.len(), 256, "the lanes must be free at once");
    let mut reader = place.store.reader(&held);
    let found = drain(&mut reader, page(10)).await;
    assert_eq!(found.iter().map(|event| event.seq).collect::<Vec<_>>(), [0]);
}

#[tokio::test]
async fn an_event_below_the_low_mark_is_found_by_the_next_relay() {
    let Some((place, reader, _)) = delivered().await else {
        return;
    };
    drop(reader);
    place.run(BELOW).await;
    let held = place.take_again().await;
    let error = place.store.reader(&held).next(page(10)).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Fenced, "{error}");
    let held = place.store.take_lanes(place.relay, 256, LEASE).await.unwrap();
    let found = drain(&mut place.store.reader(&held), page(10)).await;
    assert_eq!(found.iter().map(|event| event.seq).collect::<Vec<_>>(), [0]);
}

/// `insert … select` from another cluster copies such txids: ahead of this cluster's transactions, or behind
/// them.
#[tokio::test]
async fn a_foreign_txid_makes_no_difference() {
    for txid in ["900000000000", "4"] {
        let Some(place) = place().await else { return };
        let mut reader = place.reader();
        assert!(drain(&mut reader, page(10)).await.is_empty());
        let insert = format!(
            "insert into outbox_events (txid, topic, event_type, aggregate_type, aggregate_id, payload)
             values ('{txid}', 't', 'T', 'order', 'a', '{{}}')"
        );
        place.run(&insert).await;
        let later = place.commit(&["a"]).await;
        let found = drain(&mut reader, page(10)).await;
        assert_eq!(found.len(), 2, "txid {txid}");
        assert_eq!(found[1].event.id, later[0].id);
        assert!(drain(&mut reader, page(10)).await.is_empty(), "each once");
        place.run("set session_replication_role = replica").await;
        let anew = drain(&mut place.reader(), page(10)).await;
        assert_eq!(ids(&anew), ids(&found));
    }
}

#[tokio::test]
async fn a_sequence_with_a_cache_is_refused_with_the_way_out() {
    let Some(place) = place().await else { return };
    place.run("alter sequence outbox_events_seq cache 20").await;
    let error = place.store.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Misconfigured, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("alter sequence outbox_events_seq cache 1;") && text.contains("reconnect"),
        "{text}"
    );
    place.store.migrate().await.unwrap();
    place.store.check().await.unwrap();
}

/// A table that is read again from its first event has many settled rows.
#[tokio::test]
async fn a_long_gap_between_pending_events_is_stepped_over() {
    let Some(place) = place().await else { return };
    let first = place.commit(&["a"]).await;
    place.run("select setval('outbox_events_seq', 40000000)").await;
    let last = place.commit(&["b"]).await;
    let mut reader = place.reader();
    let found = drain(&mut reader, page(10)).await;
    assert_eq!(ids(&found), [first[0].id.clone(), last[0].id.clone()]);
    let more = place.commit(&["c"]).await;
    assert_eq!(ids(&drain(&mut reader, page(10)).await), written(&more));
}

#[tokio::test]
async fn large_headers_and_texts_are_not_fetched() {
    let Some(place) = place().await else { return };
    place
        .run(
            "insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload, headers)
             select 't', 'T', 'order', 'k', '{}', jsonb_build_object('h', repeat(x, 3000000))
             from unnest(array['x', md5('1')]) x;
             insert into outbox_events (topic, event_type, aggregate_type, aggregate_id, payload)
             values (repeat('t', 3000000), 'T', 'order', 'k', '{}'), ('t', 'T', 'order', repeat('k', 300), '{}')",
        )
        .await;
    let events = place.commit(&["k"]).await;
    let mut reader = place.reader();
    let (mut read, mut all) = (Vec::new(), Vec::new());
    loop {
        let found = reader.next(page(10)).await.unwrap();
        read.extend(ids(&found.events));
        all.extend(found.unreadable.into_iter().map(|row| row.problem));
        if !found.more {
            break;
        }
    }
    assert_eq!(read, written(&events));
    assert_eq!(all.len(), 4, "{all:?}");
    let headers = all
        .iter()
        .filter(|problem| problem.starts_with("the headers have about"));
    assert_eq!(headers.count(), 2, "{all:?}");
    assert!(all[2].contains("bytes together"), "{all:?}");
    assert!(all[3].contains("300 bytes"), "{all:?}");
}
