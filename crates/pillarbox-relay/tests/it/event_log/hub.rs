//! Many clients of one log.

use std::{collections::HashSet, sync::Arc, time::Duration};

use pillarbox::Event;
use pillarbox_relay::event_log::{
    EventLog, Hub, LogFilter, Position,
    hub::{End, Next, Subscription},
};
use pillarbox_testkit::{memory::MemoryLog, wait};
use tokio::{task::JoinSet, time::timeout};

use super::{event, log};

const PATIENCE: Duration = Duration::from_secs(60);
/// The places for pages of one large event.
const LARGE_PAGES: usize = 32;

fn large(n: usize) -> Event {
    event(n)
        .project_id("large")
        .payload(format!("\"{}\"", "x".repeat(300_000)))
}

/// More than the hub keeps, so that clients at the beginning read the log themselves.
fn large_log() -> Arc<MemoryLog> {
    let log = log(0);
    log.append((1..=100).map(large));
    log
}

async fn subscribe(hub: &Hub, after: impl Into<Option<Position>>) -> Subscription {
    hub.subscribe(after.into(), LogFilter::default()).await.unwrap()
}

async fn lines(client: &mut Subscription) -> Vec<Position> {
    match timeout(PATIENCE, client.next()).await.expect("lines") {
        Next::Lines(lines) => lines.iter().map(|line| line.position).collect(),
        Next::End(end) => panic!("{end:?} at {}", client.position()),
    }
}

async fn end(client: &mut Subscription) -> End {
    loop {
        if let Next::End(end) = timeout(PATIENCE, client.next()).await.expect("an end") {
            return end;
        }
    }
}

/// From then on, clients near the end of the log are served by the shared reader.
async fn until_the_hub_reads() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

/// Clients that have a large page and do not ask for the next one.
async fn keep_all_large_places(hub: &Hub) -> Vec<Subscription> {
    let mut holders = Vec::new();
    for _ in 0..LARGE_PAGES {
        let mut holder = subscribe(hub, 0).await;
        assert_eq!(lines(&mut holder).await, [1]);
        holders.push(holder);
    }
    holders
}

/// A heartbeat drops the call, and tells the position.
#[tokio::test(start_paused = true)]
async fn a_dropped_call_reports_no_position_beyond_what_was_returned() {
    let hub = Hub::start(large_log());
    let mut holders = keep_all_large_places(&hub).await;
    let mut waiting = subscribe(&hub, 0).await;
    for _ in 0..3 {
        let dropped = timeout(Duration::from_secs(15), waiting.next()).await;
        assert!(dropped.is_err(), "there is no place for its page");
        assert_eq!(waiting.position(), 0, "event 1 was not returned");
    }
    holders.pop();
    assert_eq!(lines(&mut waiting).await, [1]);
    assert_eq!(waiting.position(), 1);
}

#[tokio::test(start_paused = true)]
async fn clients_that_wait_for_large_events_block_no_others() {
    let log = large_log();
    let hub = Arc::new(Hub::start(log.clone()));
    let _holders = keep_all_large_places(&hub).await;
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let mut client = subscribe(&hub, 0).await;
        waiting.spawn(async move { lines(&mut client).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    log.append([event(101).project_id("small")]);
    let filter = LogFilter {
        project_id: Some("small".into()),
        ..LogFilter::default()
    };
    let mut small = hub.subscribe(Some(0), filter).await.unwrap();
    assert_eq!(lines(&mut small).await, [101]);
    assert!(waiting.try_join_next().is_none());
}

/// A page that is being read when the call is dropped is read again.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_while_it_reads_loses_nothing() {
    let log = large_log();
    let hub = Hub::start(log.clone());
    let mut client = subscribe(&hub, 0).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    log.reading.set(false);
    assert!(timeout(Duration::from_secs(15), client.next()).await.is_err());
    assert_eq!(client.position(), 0);
    log.reading.set(true);
    let mut all = Vec::new();
    while all.len() < 100 {
        all.extend(lines(&mut client).await);
        assert_eq!(client.position(), *all.last().unwrap());
    }
    assert_eq!(all, (1..=100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_falls_behind_is_cut_off_and_resumes_where_it_was() {
    const EVENTS: usize = 25_000;
    let log = log(1);
    let hub = Hub::start(log.clone());
    let mut slow = subscribe(&hub, 0).await;
    let mut quick = subscribe(&hub, 0).await;
    until_the_hub_reads().await;
    assert_eq!(
        (lines(&mut slow).await, lines(&mut quick).await),
        (vec![1], vec![1])
    );
    log.append((2..=EVENTS).map(event));
    let mut seen = 1;
    while seen < EVENTS {
        seen += lines(&mut quick).await.len();
    }
    assert_eq!(end(&mut slow).await, End::TooSlow);
    assert_eq!(slow.position(), 1);
    let mut resumed = subscribe(&hub, slow.position()).await;
    let mut all = Vec::new();
    while all.len() < EVENTS - 1 {
        all.extend(lines(&mut resumed).await);
    }
    assert_eq!(all, (2..=EVENTS as Position).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_client_whose_next_entries_expired_is_told() {
    let log = large_log();
    let hub = Hub::start(log.clone());
    let mut client = subscribe(&hub, 0).await;
    assert_eq!(lines(&mut client).await, [1]);
    log.expire_to(20);
    assert_eq!(end(&mut client).await, End::Expired);
    assert_eq!(client.position(), 1);
}

/// The client looks only when the hub follows the new log already, and has its old position there.
#[tokio::test(start_paused = true)]
async fn a_busy_client_of_a_replaced_log_is_told_however_late_it_looks() {
    let log = log(10);
    let hub = Hub::start(log.clone());
    let mut busy = subscribe(&hub, 0).await;
    until_the_hub_reads().await;
    assert_eq!(lines(&mut busy).await.len(), 10);
    log.empty();
    log.append((1..=3).map(event));
    let mut watcher = subscribe(&hub, 0).await;
    assert_eq!(end(&mut watcher).await, End::Replaced);
    log.append((4..=20).map(event));
    let mut new = subscribe(&hub, 0).await;
    wait::until("the hub follows the new log", async || {
        lines(&mut new).await.contains(&20)
    })
    .await;
    assert_eq!(end(&mut busy).await, End::Replaced);
    assert_eq!(busy.position(), 10);
}

#[tokio::test(start_paused = true)]
async fn each_client_gets_what_it_wants_once_while_the_log_grows() {
    let log = log(0);
    let hub = Hub::start(log.clone());
    let mut clients = JoinSet::new();
    for n in 0..3_usize {
        let filter = LogFilter {
            project_id: Some(format!("p{n}")),
            ..LogFilter::default()
        };
        let mut client = hub.subscribe(Some(0), filter).await.unwrap();
        clients.spawn(async move {
            let mut all = Vec::new();
            while all.len() < 1_000 {
                // Sometimes the call is dropped.
                if let Ok(Next::Lines(lines)) = timeout(Duration::from_millis(7), client.next()).await {
                    all.extend(lines.iter().map(|line| line.position));
                }
                assert!(client.position() >= all.last().copied().unwrap_or(0));
            }
            all
        });
    }
    for round in 0..100 {
        let events = (0..30).map(|n| event(round * 30 + n).project_id(format!("p{}", n % 3)));
        log.append(events);
        tokio::time::sleep(Duration::from_millis(13)).await;
    }
    let mut seen = HashSet::new();
    while let Some(all) = clients.join_next().await {
        let all = all.unwrap();
        assert!(all.is_sorted(), "in order");
        seen.extend(all);
    }
    assert_eq!(seen.len(), 3_000, "each once");
    assert_eq!(log.bounds().await.unwrap().last, 3_000);
}
