//! Writes events with any content to PostgreSQL. An event within the limits is stored and reads back the
//! same.

use jiff::Timestamp;
use pillarbox::{EnqueueError, Event, Limits};
use pillarbox_relay::store::{Admin, admin::AdminEnqueueError};
use pillarbox_testkit::{
    fuzz::{self, Fuzz, assert_says_something},
    torture::Campaign,
};

use super::place;

/// Every part can be odd; most parts are not.
fn event(fuzz: &mut Fuzz) -> Event {
    let payload = fuzz.json();
    let (version, schema, attempts) = (fuzz.integer(), fuzz.integer(), fuzz.integer());
    let rare = fuzz.one_in(6);
    let mut name = |usual: &str| match fuzz.one_in(12) {
        true => fuzz.text(),
        false => usual.to_owned(),
    };
    let mut event = Event::to(name("shop.x"))
        .event_type(name("X"))
        .aggregate(name("order"), name("o-1"))
        .payload(payload)
        .partition_key(name("key"))
        .project_id(name("project"))
        .user_id(name("user"))
        .stream(name("SHOP"))
        .header(name("header"), name("value"))
        .header("other", name("Ω"));
    if rare {
        event.aggregate_version = Some(version);
        event.schema_version = i32::try_from(schema).unwrap_or(i32::MAX);
        event.retry.max_attempts = i32::try_from(attempts).ok();
    }
    event
}

/// Events into PostgreSQL: refused with a message, or stored and read back the same.
#[tokio::test(flavor = "multi_thread")]
async fn torture_fuzz_enqueue_postgres() {
    let campaign = Campaign::begin("fuzz_enqueue_postgres");
    let Some(place) = place().await else {
        return;
    };
    let limits = Limits::default();
    let (mut tried, mut stored) = (0, 0);
    while campaign.goes_on(tried, fuzz::INPUTS) {
        let event = event(&mut Fuzz::new(&campaign, tried));
        let good = limits.check(&event, Timestamp::now()).is_ok();
        match place.store.enqueue(&limits, std::slice::from_ref(&event)).await {
            Ok(_) => {
                assert!(good, "input {tried}: {event:?}");
                let read = place.store.recent(1).await.unwrap().remove(0).event.event;
                assert_eq!(read, event, "input {tried}");
                stored += 1;
            }
            Err(AdminEnqueueError::Refused(EnqueueError::Refused { problem, .. })) => {
                assert!(!good);
                assert_says_something(&problem.to_string());
            }
            Err(error) => panic!("input {tried}: within the limits, but not stored: {error:?}: {event:?}"),
        }
        tried += 1;
    }
    assert!(stored > 0);
    println!("{stored} of them were stored");
    fuzz::said(&campaign, tried);
}
