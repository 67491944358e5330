//! The function in the database refuses an event with the same message as the library's check.

use std::time::Duration;

use jiff::Timestamp;
use pillarbox::{CheckError, Event, Limits, RetryOverrides};
use pillarbox_relay::store::Admin;
use pillarbox_testkit::{
    fuzz::{self, Fuzz},
    torture::Campaign,
};
use sqlx::PgPool;

use super::place;

const CALL: &str = "select pillarbox.enqueue(topic => $1, key => $2, event_type => $3, payload => $4,
    aggregate_type => $5, aggregate_id => $6, aggregate_version => $7, headers => $8::jsonb, id => $9, stream => $10,
    schema_version => $11, project_id => $12, user_id => $13,
    available_at => timestamptz 'epoch' + $14 * interval '1 microsecond', max_attempts => $15, base_delay_ms => $16,
    max_delay_ms => $17, backoff_multiplier => $18)";

/// The start of year 1. Earlier times are raised to it, so that both sides print them the same way.
const YEAR_1: i64 = -62_135_596_800_000_000;

/// Every part can be odd; about half of the events have no odd part.
fn event(fuzz: &mut Fuzz) -> Event {
    let odd_names = fuzz.one_in(3);
    let mut name = |usual: &str| match odd_names && fuzz.one_in(5) {
        true => odd_name(fuzz),
        false => usual.to_owned(),
    };
    let mut event = Event::to(name("shop.x"))
        .event_type(name("X"))
        .aggregate(name("order"), name("o-1"))
        .partition_key(name("key"))
        .project_id(name("project"))
        .user_id(name("user"))
        .stream(name("SHOP"))
        .header(name("header"), name("value"))
        .header("other", name("Ω"));
    if fuzz.one_in(3) {
        (event.partition_key, event.stream) = (None, None);
    }
    if fuzz.one_in(30) {
        let many = 60 + fuzz.below(8);
        event.headers = (0..many)
            .map(|n| (format!("h{n}"), "x".repeat(fuzz.below(500))))
            .collect();
    }
    if fuzz.one_in(8) {
        event.aggregate_version = Some(fuzz.integer());
        event.schema_version = small(fuzz, 3);
    }
    if fuzz.one_in(8) {
        // Half a day away from a whole number of days, so that the passing of time can't change that number.
        let days = i64::from(small(fuzz, 800));
        event.available_at =
            Timestamp::from_second(Timestamp::now().as_second() + days * 86_400 + 43_200).ok();
    }
    if fuzz.one_in(8) {
        let mut odd = |usual: i64| {
            fuzz.one_in(2)
                .then(|| if fuzz.one_in(4) { fuzz.integer() } else { usual })
        };
        event.retry.base_delay_ms = odd(50);
        event.retry.max_delay_ms = odd(60);
        event.retry.max_attempts = odd(5).and_then(|n| i32::try_from(n).ok());
        event.retry.backoff_multiplier = odd(2).map(|n| n.clamp(-1_000, 1_000) as f64 / 4.0);
    }
    event.payload(payload(fuzz))
}

fn small(fuzz: &mut Fuzz, end: usize) -> i32 {
    fuzz.below(end) as i32 - 1
}

fn odd_name(fuzz: &mut Fuzz) -> String {
    let odd = [
        "",
        " ",
        "a b",
        "a\tb",
        "\u{85}",
        "x\u{a0}",
        "\u{2003}y",
        "\u{3000}",
        "\u{7f}",
        "\u{9f}",
        "a:b",
        "é",
        "'",
        "\\",
        "\r\n",
    ];
    match fuzz.below(4) {
        0 => fuzz.text(),
        1 => "é".repeat(fuzz.below(140)),
        _ => fuzz.pick(&odd).to_owned(),
    }
}

fn payload(fuzz: &mut Fuzz) -> String {
    let depth = 500 + fuzz.below(24);
    match fuzz.below(24) {
        0 => "[".repeat(depth) + &"]".repeat(depth),
        1 => format!(
            "{}\"{}\"{}",
            "{\"[\\\"[\":[".repeat(depth / 2),
            "[".repeat(600),
            "]}".repeat(depth / 2)
        ),
        2 => format!("[{}[]]", "[],".repeat(depth)),
        3 => "[".repeat(100_000) + &"]".repeat(100_000),
        4 => fuzz.mutated_text(r#"{"a": [1, 2.5e3, "x\u0000\ud800", null, true], "b": {"c": "é"}}"#),
        5 => format!("\"{}\"", "é".repeat(524_285 + fuzz.below(4))),
        6 => fuzz.text(),
        _ => fuzz.json(),
    }
}

/// Whether PostgreSQL can receive the event at all: its texts can't contain NUL.
fn can_be_sent(event: &Event) -> bool {
    let texts = [
        &event.topic,
        &event.event_type,
        &event.aggregate_type,
        &event.aggregate_id,
    ];
    let more = [
        &event.partition_key,
        &event.stream,
        &event.project_id,
        &event.user_id,
    ];
    let headers = event.headers.iter().flat_map(|(name, value)| [name, value]);
    !event.payload.contains(&0)
        && texts
            .into_iter()
            .chain(more.into_iter().flatten())
            .chain(headers)
            .all(|text| !text.contains('\0'))
}

/// Returns the refusal, if the function refuses the event.
async fn call(pool: &PgPool, event: &Event) -> Result<(), String> {
    let called = sqlx::query(CALL)
        .bind(&event.topic)
        .bind(&event.partition_key)
        .bind(&event.event_type)
        .bind(std::str::from_utf8(&event.payload).unwrap())
        .bind(&event.aggregate_type)
        .bind(&event.aggregate_id)
        .bind(event.aggregate_version)
        .bind(serde_json::to_string(&event.headers).unwrap())
        .bind(event.id.clone())
        .bind(&event.stream)
        .bind(event.schema_version)
        .bind(&event.project_id)
        .bind(&event.user_id)
        .bind(event.available_at.map(|at| at.as_microsecond().max(YEAR_1)))
        .bind(event.retry.max_attempts)
        .bind(event.retry.base_delay_ms)
        .bind(event.retry.max_delay_ms)
        .bind(event.retry.backoff_multiplier)
        .execute(pool)
        .await;
    match called {
        Ok(_) => Ok(()),
        Err(sqlx::Error::Database(error)) if error.code().is_some_and(|code| code == "PB400") => {
            Err(error.message().to_owned())
        }
        Err(error) => panic!("neither stored nor refused: {error}: {event:?}"),
    }
}

fn assert_same_words(library: &CheckError, function: &str, event: &Event) {
    match library {
        // Each JSON parser has its own message.
        CheckError::PayloadNotJson { .. } => assert!(
            // If PostgreSQL's parser finds the nesting too deep, it does not look at the rest.
            function.starts_with("the payload is not JSON: ")
                || function.starts_with("the payload is nested"),
            "{function}: {event:?}"
        ),
        // Whether a character is printable is in a table of Unicode that the database does not have.
        CheckError::Character { field, character }
            if !(character.is_ascii() || character.is_control() || character.is_whitespace()) =>
        {
            assert!(
                function.starts_with(&format!("{field} contains '")),
                "{function}: {event:?}"
            );
        }
        library => assert_eq!(library.to_string(), function, "{event:?}"),
    }
}

/// Events through the function: refused with the library's message, or stored and read back the same.
#[tokio::test(flavor = "multi_thread")]
async fn torture_fuzz_enqueue_function_postgres() {
    let campaign = Campaign::begin("fuzz_enqueue_function_postgres");
    let Some(place) = place().await else { return };
    let limits = Limits::default();
    let (mut tried, mut stored, mut refused) = (0, 0, 0);
    while campaign.goes_on(tried, 500) {
        let event = event(&mut Fuzz::new(&campaign, tried));
        tried += 1;
        if !can_be_sent(&event) {
            continue;
        }
        let check = limits.check(&event, Timestamp::now());
        match (check, call(&place.pool, &event).await) {
            (Ok(()), Ok(())) => {
                stored += 1;
                if event.payload.len() < 60_000 {
                    let read = place.store.recent(1).await.unwrap().remove(0).event.event;
                    assert_eq!(read, event);
                }
            }
            (Err(library), Err(function)) => {
                refused += 1;
                assert_same_words(&library, &function, &event);
            }
            (library, function) => panic!("{library:?} against {function:?}: {event:?}"),
        }
    }
    assert!(stored > 20 && refused > 20, "{stored} stored, {refused} refused");
    println!("{stored} stored, {refused} refused");
    fuzz::said(&campaign, tried);
}

/// Every limit, with its last good and its first bad value.
#[tokio::test]
async fn the_function_draws_each_limit_where_the_library_does() {
    let Some(place) = place().await else { return };
    let good = || Event::to("t").event_type("T").aggregate("a", "1").payload("{}");
    let retry = |retry| good().retry(retry);
    let at = |seconds| Timestamp::now() + Duration::from_secs(seconds);
    let nested = |levels: usize| format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
    // Brackets inside strings, after characters that only look like the end of the string.
    let disguised = |levels: usize| {
        let strings = format!(
            r#""\\", "\"{}", {{"]\\\"}}": -1.5e+3, "a": [true, false, null]}}"#,
            "[{".repeat(300)
        );
        format!("[{strings},\n\t{}]", nested(levels - 1))
    };
    let events = [
        good().payload(nested(512)),
        good().payload(nested(513)),
        good().payload(disguised(512)),
        good().payload(disguised(513)),
        good().payload(format!("[{}1]", "{},[],".repeat(1_000))),
        Event::to("x".repeat(255)).event_type("T").aggregate("a", "1"),
        Event::to("x".repeat(256)).event_type("T").aggregate("a", "1"),
        good().aggregate_version(0),
        good().aggregate_version(-1),
        good().schema_version(1),
        good().schema_version(0),
        good().available_at(at(365 * 86_400 - 60)),
        good().available_at(at(366 * 86_400 + 60)),
        good().available_at(Timestamp::MIN),
        retry(RetryOverrides::default().max_attempts(1000)),
        retry(RetryOverrides::default().max_attempts(1001)),
        retry(RetryOverrides::default().base_delay_ms(5).max_delay_ms(5)),
        retry(RetryOverrides::default().base_delay_ms(6).max_delay_ms(5)),
        retry(RetryOverrides::default().backoff_multiplier(10.0)),
        retry(RetryOverrides::default().backoff_multiplier(10.5)),
        retry(RetryOverrides::default().backoff_multiplier(f64::NAN)),
        retry(RetryOverrides::default().backoff_multiplier(f64::INFINITY)),
        (0..64).fold(good(), |event, n| event.header(format!("h{n}"), "x")),
        (0..65).fold(good(), |event, n| event.header(format!("h{n}"), "x")),
        good().header("h", "x".repeat(16_383)),
        good().header("h", "x".repeat(16_384)),
        good().header("a:b", ""),
        good().payload(format!("\"{}\"", "x".repeat(1024 * 1024 - 2))),
        good().payload(format!("\"{}\"", "x".repeat(1024 * 1024 - 1))),
        good().payload("[".repeat(512) + &"]".repeat(512)),
        good().payload("[".repeat(513) + &"]".repeat(513)),
        good().payload(""),
    ];
    for event in events {
        match (
            Limits::default().check(&event, Timestamp::now()),
            call(&place.pool, &event).await,
        ) {
            (Ok(()), Ok(())) => {}
            (Err(library), Err(function)) => assert_same_words(&library, &function, &event),
            (library, function) => panic!("{library:?} against {function:?}: {event:?}"),
        }
    }
}
