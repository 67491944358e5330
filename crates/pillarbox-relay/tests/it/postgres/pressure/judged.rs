//! SQL and Rust decide the same about backpressure.

use std::time::{Duration, Instant};

use pillarbox::{EnqueueError, Event, Outbox, pressure::Limit};
use pillarbox_relay::{
    pressure::{Class, Gauge},
    route::Pattern,
};
use sqlx::{Connection, Postgres, Transaction};

use super::{class, place};

#[tokio::test]
async fn sql_judges_as_rust_does() {
    let Some(place) = place().await else { return };
    let mut tx = place.pool.begin().await.unwrap();
    let mut refusals = 0;
    for (soft, hard) in [
        (Some(100), Some(200)),
        (Some(7), None),
        (None, Some(150)),
        (None, None),
    ] {
        for max_delay in [0, 1, 80, 5_000] {
            for pending in [0, 7, 8, 100, 101, 149, 150, 199, 200, 201, 1_000_000_000] {
                for drained in [0.0, 0.001, 33.3, 1e9] {
                    sqlx::query(
                        "with gone as (delete from outbox_events_pressure)
                         insert into outbox_events_pressure (place, class, topics, soft, hard, max_delay_ms, pending, at_seq, drained,
                                                             measured_at)
                         select 0, 'c', '', $1, $2, $3, $4, last_value, $5, now() from outbox_events_seq
                         on conflict (place) do update set soft = excluded.soft, hard = excluded.hard, pending = excluded.pending,
                             max_delay_ms = excluded.max_delay_ms, drained = excluded.drained",
                    )
                    .bind(soft)
                    .bind(hard)
                    .bind(max_delay)
                    .bind(pending)
                    .bind(drained)
                    .execute(&mut *tx)
                    .await
                    .unwrap();
                    let limit = Limit {
                        soft: soft.map(|n: i64| n as u64),
                        hard: hard.map(|n: i64| n as u64),
                        max_delay: Duration::from_millis(max_delay as u64),
                    };
                    let mut expected = limit.judge("c", pending as u64, None, Some(drained));
                    // SQL has whole milliseconds.
                    expected.retry_after = Duration::from_millis(expected.retry_after.as_millis() as u64);
                    let found = Outbox::default().pressure(&mut tx, "any").await.unwrap().unwrap();
                    assert_eq!(found, expected);
                    refusals += usize::from(found.refused);
                }
            }
        }
    }
    assert!(refusals > 0);
}

#[tokio::test]
async fn topics_belong_to_the_first_class_that_takes_them_in_sql_as_in_rust() {
    let Some(place) = place().await else { return };
    let patterns = [
        vec!["report.>"],
        vec!["a.*.c", "x+y.(z)"],
        vec!["report.day", "*.b_c", "ü.$"],
        vec!["*"],
        vec![],
    ];
    let classes: Vec<Class> = (0..)
        .zip(&patterns)
        .map(|(n, topics)| class(&format!("c{n}"), topics, None, Some(10)))
        .collect();
    place.store.set_classes(&classes).await.unwrap();
    let mut tx = place.pool.begin().await.unwrap();
    for topic in [
        "report",
        "report.",
        "report.day",
        "report.x.y",
        "reports.day",
        "a.b.c",
        "a..c",
        "a.b.c.d",
        "a.b",
        "x+y.(z)",
        "xxy.z",
        "q.b_c",
        "q.bxc",
        "ü.$",
        "ü.",
        "one",
        "one.two",
        "A.B.C",
        "a.b\\c",
        "*",
        ">",
    ] {
        let takes = |patterns: &&Vec<&str>| {
            patterns.is_empty()
                || patterns
                    .iter()
                    .any(|pattern| Pattern::new(pattern).unwrap().matches(topic))
        };
        let expected = patterns.iter().position(|patterns| takes(&patterns)).unwrap();
        let found = Outbox::default().pressure(&mut tx, topic).await.unwrap().unwrap();
        assert_eq!(found.class, format!("c{expected}"), "{topic}");
    }
}

/// The statement for one event and the function only ask whether a class may be at a limit. The outcome must
/// be the same as with the full question.
#[tokio::test]
async fn the_short_query_misses_nothing_that_the_long_one_finds() {
    let Some(place) = place().await else { return };
    let mut tx = place.pool.begin().await.unwrap();
    let arrangements: [&[(&str, bool)]; 4] = [
        &[("", true)],
        &[("^other$", true)],
        &[("^t[.]", false), ("", true)],
        &[("^other$", true), ("^t[.]", true), ("", false)],
    ];
    let (mut refused, mut slowed, mut free) = (0, 0, 0);
    for classes in arrangements {
        for (soft, hard) in [
            (Some(10), Some(20)),
            (Some(20), Some(20)),
            (Some(10), None),
            (None, Some(20)),
            (Some(0), Some(1)),
        ] {
            for pending in [0, 1, 9, 10, 11, 15, 19, 20, 21, 1_000_000_000_000_i64] {
                for by_function in [false, true] {
                    limit(&mut tx, classes, soft, hard, pending).await;
                    let expected = Outbox::default().pressure(&mut tx, "t.x").await.unwrap();
                    let (busy, waits) =
                        expected.map_or((false, Duration::ZERO), |found| (found.refused, found.delay));
                    let began = Instant::now();
                    let was_refused = write(&mut tx, by_function).await;
                    let case = format!("{classes:?} {soft:?} {hard:?} {pending} {by_function}");
                    assert_eq!(was_refused, busy, "{case}");
                    if !busy {
                        assert!(began.elapsed() >= waits, "{case}: {waits:?}");
                    }
                    refused += usize::from(busy);
                    slowed += usize::from(!busy && !waits.is_zero());
                    free += usize::from(!busy && waits.is_zero());
                }
            }
        }
    }
    assert!(
        refused > 20 && slowed > 20 && free > 20,
        "{refused} {slowed} {free}"
    );
}

/// Writes classes with these expressions. The flag says whether a class has the limits.
async fn limit(
    tx: &mut Transaction<'_, Postgres>,
    classes: &[(&str, bool)],
    soft: Option<i64>,
    hard: Option<i64>,
    pending: i64,
) {
    sqlx::query("delete from outbox_events_pressure")
        .execute(&mut **tx)
        .await
        .unwrap();
    for (place, (topics, limited)) in (0_i16..).zip(classes) {
        sqlx::query(
            "insert into outbox_events_pressure (place, class, topics, soft, hard, max_delay_ms, pending, at_seq)
             select $1, 'c', $2, $3, $4, 30, $5, last_value from outbox_events_seq",
        )
        .bind(place)
        .bind(topics)
        .bind(soft.filter(|_| *limited))
        .bind(hard.filter(|_| *limited))
        .bind(pending)
        .execute(&mut **tx)
        .await
        .unwrap();
    }
}

/// Writes an event and rolls it back. Returns whether it was refused.
async fn write(tx: &mut Transaction<'_, Postgres>, by_function: bool) -> bool {
    let mut attempt = tx.begin().await.unwrap();
    let refused = if by_function {
        let call =
            "select pillarbox.enqueue(topic => 't.x', key => 'k', event_type => 'X', payload => '1'::text)";
        let answer = sqlx::query(call).execute(&mut *attempt).await;
        answer.is_err_and(|error| {
            assert_eq!(error.as_database_error().unwrap().code().unwrap(), "PB429");
            true
        })
    } else {
        let event = Event::to("t.x").event_type("X").aggregate("thing", "k");
        match Outbox::default().enqueue(&mut attempt, &event).await {
            Ok(_) => false,
            Err(EnqueueError::Busy { .. }) => true,
            Err(other) => panic!("{other}"),
        }
    };
    attempt.rollback().await.unwrap();
    refused
}
