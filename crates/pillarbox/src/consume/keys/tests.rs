use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn key(name: &str) -> Key {
    (0, Arc::from(name))
}

fn failure(attempts: u32) -> Failure {
    Failure {
        attempts,
        conflicts: 0,
        conflicts_handled: 0,
        since: Instant::now(),
        error: "as told".into(),
        doom: None,
    }
}

fn next(keys: &mut Keys<u32>) -> Option<u32> {
    keys.take().map(|turn| turn.message)
}

#[test]
fn a_key_has_one_message_at_work_and_others_go_on() {
    let mut keys = Keys::new();
    keys.push(key("a"), 1);
    keys.push(key("a"), 2);
    keys.push(key("b"), 3);
    assert_eq!(
        (next(&mut keys), next(&mut keys), next(&mut keys)),
        (Some(1), Some(3), None)
    );
    keys.done(&key("a"));
    assert_eq!(next(&mut keys), Some(2));
    assert_eq!(keys.held(), 2);
}

#[test]
fn a_failing_message_holds_back_only_its_key_until_it_is_due() {
    let mut keys = Keys::new();
    let now = Instant::now();
    for (name, n) in [("a", 1), ("a", 2), ("b", 3)] {
        keys.push(key(name), n);
    }
    keys.take();
    keys.failed(&key("a"), failure(1), now + Duration::from_secs(1));
    assert_eq!((next(&mut keys), next(&mut keys)), (Some(3), None));
    assert_eq!(
        (keys.failing(), keys.next_due()),
        (1, Some(now + Duration::from_secs(1)))
    );
    keys.wake(now + Duration::from_secs(1));
    let again = keys.take().unwrap();
    assert_eq!((again.message, again.failure.unwrap().attempts), (1, 1));
    keys.done(&key("a"));
    let follower = keys.take().unwrap();
    assert_eq!((follower.message, follower.failure), (2, None));
}

#[test]
fn an_untried_event_is_next() {
    let mut keys = Keys::new();
    keys.push(key("a"), 1);
    keys.push(key("b"), 2);
    keys.take();
    keys.again(&key("a"));
    assert_eq!(next(&mut keys), Some(1));
}

#[test]
fn a_leaving_lane_keeps_only_its_running_event() {
    let mut keys = Keys::new();
    for (lane, n) in [(1, 1), (1, 2), (2, 3)] {
        keys.push((lane, Arc::from("a")), n);
    }
    keys.push((1, Arc::from("b")), 4);
    assert_eq!(next(&mut keys), Some(1));
    keys.leave(1);
    assert!(keys.is_running(1));
    assert_eq!(keys.held(), 2);
    assert_eq!((next(&mut keys), next(&mut keys)), (Some(3), None));
    keys.failed(&(1, Arc::from("a")), failure(1), Instant::now());
    assert!(!keys.is_running(1) && keys.is_running(2));
    keys.wake(Instant::now() + Duration::from_secs(1));
    assert_eq!((next(&mut keys), keys.held()), (None, 1));
}

#[derive(Debug, Clone)]
enum Step {
    Push(u8),
    Take,
    Done(prop::sample::Index),
    Fail(prop::sample::Index),
    Again(prop::sample::Index),
    Wake,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..4).prop_map(Step::Push),
        Just(Step::Take),
        any::<prop::sample::Index>().prop_map(Step::Done),
        any::<prop::sample::Index>().prop_map(Step::Fail),
        any::<prop::sample::Index>().prop_map(Step::Again),
        Just(Step::Wake),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_each_key_is_done_in_order_and_never_twice_at_work(
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let mut keys = Keys::new();
        let mut now = Instant::now();
        let (mut pushed, mut done) = ([0_u32; 4], [0_u32; 4]);
        let mut at_work: Vec<Key> = Vec::new();
        let mut finish = |keys: &mut Keys<u32>, key: &Key| {
            let n: usize = key.1.parse().unwrap();
            done[n] += 1;
            keys.done(key);
        };
        for step in steps {
            match step {
                Step::Push(n) => {
                    let n = usize::from(n);
                    pushed[n] += 1;
                    keys.push(key(&n.to_string()), pushed[n]);
                }
                Step::Take => if let Some(turn) = keys.take() {
                    prop_assert!(!at_work.contains(&turn.key));
                    at_work.push(turn.key);
                },
                Step::Done(i) if !at_work.is_empty() => {
                    let key = at_work.swap_remove(i.index(at_work.len()));
                    finish(&mut keys, &key);
                }
                Step::Fail(i) if !at_work.is_empty() => {
                    let key = at_work.swap_remove(i.index(at_work.len()));
                    keys.failed(&key, failure(1), now + Duration::from_secs(1));
                }
                Step::Again(i) if !at_work.is_empty() => {
                    keys.again(&at_work.swap_remove(i.index(at_work.len())));
                }
                Step::Wake => {
                    now += Duration::from_secs(1);
                    keys.wake(now);
                }
                _ => {}
            }
        }
        for key in at_work {
            finish(&mut keys, &key);
        }
        keys.wake(now + Duration::from_secs(2));
        while let Some(turn) = keys.take() {
            let n: usize = turn.key.1.parse().unwrap();
            done[n] += 1;
            prop_assert_eq!(turn.message, done[n]);
            keys.done(&turn.key);
        }
        prop_assert_eq!(done, pushed);
        prop_assert_eq!(keys.held(), 0);
    }
}
