//! One reader: where it starts, and what it does about missing positions.

use std::{sync::Arc, time::Duration};

use pillarbox_relay::{
    event_log::{EventLog, FollowError, Follower, Position, Start},
    store::PageLimit,
};
use pillarbox_testkit::memory::MemoryLog;

use super::{event, log};

const PAGE: PageLimit = PageLimit {
    events: 100,
    bytes: usize::MAX,
    payload_bytes_max: usize::MAX,
};

/// Follows until it has returned this many entries.
async fn read(follower: &mut Follower, count: usize) -> Vec<Position> {
    let mut positions = Vec::new();
    while positions.len() < count {
        let followed = follower.next(PAGE).await.unwrap();
        positions.extend(followed.entries.iter().map(|entry| entry.position));
        if !followed.more {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    positions
}

async fn begin(log: &Arc<MemoryLog>, start: impl Into<Start>) -> Result<Follower, FollowError> {
    Follower::begin(log.clone(), start).await
}

/// Its transaction may be open.
#[tokio::test(start_paused = true)]
async fn a_reader_without_a_position_begins_before_a_missing_one() {
    let log = log(2);
    log.insert(4, event(4));
    let mut follower = begin(&log, None).await.unwrap();
    assert_eq!(follower.position(), 2);
    log.insert(3, event(3));
    assert_eq!(read(&mut follower, 2).await, [3, 4]);
}

/// 0 means the beginning of the log, wherever that is when the reader comes back.
#[tokio::test(start_paused = true)]
async fn a_reader_of_an_empty_log_has_a_position_of_its_own() {
    let log = log(0);
    let first = begin(&log, None).await.unwrap().position();
    assert!(first > 0, "{first}");
    log.append([event(1), event(2)]);
    let mut follower = begin(&log, first).await.unwrap();
    assert_eq!(read(&mut follower, 2).await.len(), 2);
    log.expire_to(first + 1);
    let expired = begin(&log, first).await.err();
    assert!(
        matches!(expired, Some(FollowError::Expired { .. })),
        "{expired:?}"
    );
}

/// After `truncate`, the counter goes on.
#[tokio::test(start_paused = true)]
async fn a_reader_from_the_beginning_passes_millions_of_missing_positions_at_once() {
    let log = log(0);
    log.insert(5_000_001, event(1));
    let mut follower = begin(&log, Some(0)).await.unwrap();
    let start = tokio::time::Instant::now();
    assert_eq!(read(&mut follower, 1).await, [5_000_001]);
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "after {:?}",
        start.elapsed()
    );
    assert!(log.rows() < 20_000, "{} rows", log.rows());
    // The next one needs no time at all.
    let mut another = begin(&log, Some(0)).await.unwrap();
    assert_eq!(read(&mut another, 1).await, [5_000_001]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_whose_entries_are_gone_is_told() {
    let log = log(0);
    log.insert(5_000_001, event(1));
    let mut lost = begin(&log, Some(12)).await.unwrap();
    let error = loop {
        match lost.next(PAGE).await {
            Ok(followed) => assert!(followed.entries.is_empty()),
            Err(error) => break error,
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(matches!(error, FollowError::Beyond { .. }), "{error}");
    // Once the positions are passed over, at once.
    read(&mut begin(&log, Some(0)).await.unwrap(), 1).await;
    let error = begin(&log, Some(12)).await.err();
    assert!(matches!(error, Some(FollowError::Beyond { .. })), "{error:?}");
}

/// A backup was restored: entries 4 and 5 are lost, and the log goes on far above them.
#[tokio::test(start_paused = true)]
async fn readers_of_a_restored_log_go_on_if_they_have_missed_nothing() {
    const FAR: Position = 170_000_000_000_000;
    let log = log(3);
    let mut at_the_end = begin(&log, Some(3)).await.unwrap();
    log.pass_over(4, FAR);
    log.append([event(4), event(5)]);
    assert_eq!(read(&mut at_the_end, 2).await, [FAR + 1, FAR + 2]);
    let mut earlier = begin(&log, Some(1)).await.unwrap();
    assert_eq!(read(&mut earlier, 4).await, [2, 3, FAR + 1, FAR + 2]);
    let mut latest = begin(&log, Start::Last(10)).await.unwrap();
    assert_eq!(read(&mut latest, 2).await, [FAR + 1, FAR + 2]);
    for lost in [4, 5, FAR - 1] {
        let error = begin(&log, Some(lost)).await.err();
        assert!(
            matches!(error, Some(FollowError::Beyond { .. })),
            "{lost}: {error:?}"
        );
    }
    assert_eq!(
        begin(&log, None).await.unwrap().position(),
        log.bounds().await.unwrap().last
    );
}
