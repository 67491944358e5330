//! Compares any history of deaths, replays and checks with the notices it should cause.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use proptest::prelude::*;

use super::*;

const QUIET: Duration = Duration::from_secs(900);
const WAIT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
enum Step {
    Die(u8, u8),
    /// All letters of a cause are replayed and delivered, or discarded.
    Mend(u8),
    Look,
    Pass(u16),
}

/// The open causes, the last notices, and all notices.
struct World {
    now: Timestamp,
    open: BTreeMap<String, Vec<Timestamp>>,
    told: Vec<Told>,
    gone: Gone,
    /// For each cause: the check since which it has been gone at every check.
    seen_gone: BTreeMap<String, Timestamp>,
    heard: Vec<(Timestamp, News, u64)>,
}

impl World {
    fn new() -> Self {
        Self {
            now: Timestamp::UNIX_EPOCH,
            open: BTreeMap::new(),
            told: Vec::new(),
            gone: Gone::default(),
            seen_gone: BTreeMap::new(),
            heard: Vec::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Die(cause, count) => {
                self.now += SignedDuration::from_millis(1);
                let died = std::iter::repeat_n(self.now, usize::from(*count));
                self.open.entry(cause.to_string()).or_default().extend(died);
            }
            Step::Mend(cause) => {
                self.open.remove(&cause.to_string());
            }
            Step::Look => self.look(),
            Step::Pass(seconds) => self.now += SignedDuration::from_secs((*seconds).into()),
        }
    }

    fn causes(&self) -> Vec<OpenCause> {
        let cause = |(fingerprint, died): (&String, &Vec<Timestamp>)| OpenCause {
            fingerprint: fingerprint.clone(),
            count: died.len() as u64,
            last_died_at: died[died.len() - 1],
        };
        self.open.iter().map(cause).collect()
    }

    /// Does what the watch does, with a store that accepts every write.
    fn look(&mut self) {
        let causes = self.causes();
        let told = self.told.clone();
        for cause in ["0", "1", "2", "3"] {
            match self.open.contains_key(cause) {
                true => drop(self.seen_gone.remove(cause)),
                false => drop(self.seen_gone.entry(cause.into()).or_insert(self.now)),
            }
        }
        let over: Vec<&str> = gone(&causes, true, &told)
            .into_iter()
            .map(|told| &*told.fingerprint)
            .collect();
        for news in decide(self.now, &causes, &told, &over, &mut self.gone, QUIET, WAIT) {
            let cause = causes.iter().find(|cause| cause.fingerprint == news.fingerprint);
            let before = self
                .told
                .iter()
                .position(|told| told.fingerprint == news.fingerprint);
            let before = before.map(|at| self.told.remove(at));
            let count = cause.map_or(0, |cause| cause.count);
            self.told.push(Told {
                fingerprint: news.fingerprint.clone(),
                n: before.as_ref().map_or(0, |told| told.n) + 1,
                state: match news.kind {
                    Kind::Recovered => ToldState::Recovered,
                    _ => ToldState::Open,
                },
                count,
                last_died_at: cause.map_or(self.now, |cause| cause.last_died_at),
                told_at: self.now,
                about: serde_json::Value::Null,
            });
            self.heard.push((self.now, news, count));
        }
    }

    fn heard_of(&self, cause: &str) -> Vec<(Timestamp, Kind, u64)> {
        let of = self.heard.iter().filter(|(_, news, _)| news.fingerprint == cause);
        of.map(|(at, news, count)| (*at, news.kind, *count)).collect()
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0_u8..4, 1_u8..5).prop_map(|(cause, count)| Step::Die(cause, count)),
        1 => (0_u8..4).prop_map(Step::Mend),
        4 => Just(Step::Look),
        3 => prop_oneof![1_u16..15, 1_u16..2_000].prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn each_cause_has_a_notice_at_once_few_repeats_and_one_at_its_end(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            let heard = world.heard.len();
            world.step(step);
            for (at, news, _) in &world.heard[heard..] {
                let open = world.open.contains_key(&news.fingerprint);
                prop_assert_eq!(open, news.kind != Kind::Recovered);
                if news.kind == Kind::Recovered {
                    prop_assert!(passed(world.seen_gone[&news.fingerprint], *at, WAIT));
                }
            }
            if matches!(step, Step::Look) {
                // Every open cause was announced.
                for cause in world.open.keys() {
                    let last = world.heard_of(cause).last().copied();
                    prop_assert!(last.is_some_and(|(_, kind, _)| kind != Kind::Recovered));
                }
            }
        }
        for cause in ["0", "1", "2", "3"] {
            for pair in world.heard_of(cause).windows(2) {
                let ((before, first, _), (at, second, _)) = (pair[0], pair[1]);
                prop_assert_eq!(second == Kind::Opened, first == Kind::Recovered, "{:?}", pair);
                if second == Kind::More {
                    prop_assert!(passed(before, at, QUIET), "{:?}", pair);
                }
            }
        }
        // After some quiet time, everything was announced.
        for _ in 0..2 {
            world.step(&Step::Pass(1_000));
            world.step(&Step::Look);
        }
        for cause in ["0", "1", "2", "3"] {
            let heard = world.heard_of(cause);
            match world.open.get(cause) {
                Some(open) => prop_assert_eq!(heard.last().map(|last| last.2), Some(open.len() as u64)),
                None => prop_assert!(heard.last().is_none_or(|(_, kind, _)| *kind == Kind::Recovered)),
            }
        }
        let before = world.heard.len();
        world.step(&Step::Pass(50_000));
        world.step(&Step::Look);
        prop_assert_eq!(world.heard.len(), before, "nothing new is no news");
    }
}

#[test]
fn an_incomplete_list_ends_no_notice() {
    let mut world = World::new();
    for step in [Step::Die(0, 1), Step::Look, Step::Mend(0)] {
        world.step(&step);
    }
    assert_eq!(gone(&[], true, &world.told).len(), 1);
    assert!(gone(&[], false, &world.told).is_empty());
}

#[test]
fn a_letter_that_is_committed_late_is_news_too() {
    let mut world = World::new();
    world.step(&Step::Pass(100));
    for step in [Step::Die(0, 1), Step::Look, Step::Pass(1_000)] {
        world.step(&step);
    }
    let late = world.now - SignedDuration::from_secs(1_050);
    world.open.get_mut("0").unwrap().insert(0, late);
    world.look();
    assert_eq!(
        world.heard.last().map(|heard| (heard.1.kind, heard.2)),
        Some((Kind::More, 2))
    );
}
