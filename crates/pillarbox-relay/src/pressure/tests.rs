use super::*;

const PACE: Duration = Duration::from_millis(250);

fn glance(waiting: u64, at: Seq, noted_at: Seq, noted_pending: u64) -> Glance {
    Glance {
        waiting,
        at,
        noted_at,
        noted_pending,
        age: Some(Duration::from_secs(1)),
    }
}

#[test]
fn nothing_is_counted_while_little_waits() {
    // Nothing new; a few new events; many new events that were delivered; old figures that show a backlog.
    assert_eq!(decide(&glance(0, 500, 500, 0), 1_000, PACE, None), Step::Nothing);
    assert_eq!(decide(&glance(10, 600, 500, 0), 1_000, PACE, None), Step::Nothing);
    assert_eq!(
        decide(&glance(10, 700, 500, 0), 1_000, PACE, None),
        Step::NoteBound
    );
    assert_eq!(
        decide(&glance(10, 500, 500, 900), 1_000, PACE, None),
        Step::NoteBound
    );
    assert_eq!(
        decide(&glance(1_000, 500, 500, 0), 1_000, PACE, None),
        Step::Count
    );
}

#[test]
fn figures_that_were_just_written_are_left_alone() {
    let mut now = glance(5_000, 500, 0, 0);
    now.age = Some(Duration::from_millis(100));
    assert_eq!(decide(&now, 1_000, PACE, None), Step::Nothing);
    now.age = None;
    assert_eq!(decide(&now, 1_000, PACE, None), Step::Count);
}

#[test]
fn figures_are_kept_young_where_producers_want_them_so() {
    let calm = glance(0, 0, 0, 0);
    assert_eq!(
        decide(&calm, 1_000, PACE, Some(Duration::from_secs(3))),
        Step::NoteBound
    );
    assert_eq!(
        decide(&calm, 1_000, PACE, Some(Duration::from_secs(30))),
        Step::Nothing
    );
}

struct Nowhere;

#[async_trait]
impl Gauge for Nowhere {
    async fn set_classes(&self, _: &[Class]) -> Result<(), StoreError> {
        Ok(())
    }
    async fn glance(&self, _: u64) -> Result<Glance, StoreError> {
        Ok(Glance::default())
    }
    async fn count(&self, _: Seq, _: u64) -> Result<Waiting, StoreError> {
        Ok(Waiting::default())
    }
    async fn note(&self, _: &Figures) -> Result<(), StoreError> {
        Ok(())
    }
}

#[test]
fn a_topic_counts_for_the_first_class_that_takes_it() {
    let class = |name: &str, topics: &[&str]| Class {
        name: name.into(),
        topics: topics.iter().map(|topic| Pattern::new(topic).unwrap()).collect(),
        limit: Limit::default(),
    };
    let keeper = Keeper {
        gauge: Arc::new(Nowhere),
        classes: vec![
            class("bulk", &["report.>"]),
            class("both", &["report.day", "order.*"]),
        ],
    };
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let topic = |topic: &str, count, oldest| TopicWaiting {
        topic: topic.into(),
        count,
        oldest,
    };
    let waiting = Waiting {
        topics: vec![
            topic("report.day", 5, at(9)),
            topic("report.week.x", 2, at(7)),
            topic("order.a", 3, None),
            topic("other", 100, at(1)),
        ],
        not_counted: 10,
    };
    assert_eq!(keeper.sum(waiting), [(17, at(7)), (13, None)]);
}

#[tokio::test(start_paused = true)]
async fn how_fast_the_backlog_shrinks_is_known_from_two_looks() {
    let before = Before {
        when: Instant::now(),
        at: 1_000,
        waiting: 500,
        drained: 0.0,
    };
    tokio::time::advance(Duration::from_secs(2)).await;
    // 500 were pending, 300 were added, 400 are pending: 400 were delivered in two seconds.
    assert_eq!(drained(Some(&before), 1_300, 400), 100.0);
    assert_eq!(drained(None, 1_300, 400), 0.0);
}
