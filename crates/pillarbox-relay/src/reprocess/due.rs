//! Decides when a schedule is due. No I/O; time is a parameter.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

const DAY: i64 = 86_400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Every(Duration),
    /// Once a day, this many seconds after midnight UTC.
    DailyAt {
        second: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It never ran, or the clock was set back to before its last run: the interval starts now.
    First,
    Now,
    In(Duration),
}

/// If a run was missed because no relay was running, one run makes up for it.
pub fn due(now: Timestamp, last: Option<Timestamp>, when: When) -> Due {
    let Some(last) = last.filter(|last| *last <= now) else {
        return Due::First;
    };
    let next = match when {
        When::Every(every) => {
            last.saturating_add(SignedDuration::try_from(every).unwrap_or(SignedDuration::MAX))
        }
        When::DailyAt { second } => Ok(daily_after(last, second)),
    };
    let next = next.unwrap_or(Timestamp::MAX);
    match Duration::try_from(next.duration_since(now)) {
        Ok(wait) if !wait.is_zero() => Due::In(wait),
        _ => Due::Now,
    }
}

/// The first time of day after `last`.
fn daily_after(last: Timestamp, second: u32) -> Timestamp {
    let at = last.as_second().div_euclid(DAY) * DAY + i64::from(second);
    let at = if at > last.as_second() { at } else { at + DAY };
    Timestamp::from_second(at).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_schedule_that_never_ran_starts_now() {
        let midnight = When::DailyAt { second: 0 };
        assert_eq!(due(at(5), None, midnight), Due::First);
        assert_eq!(
            due(at(5), Some(at(6)), midnight),
            Due::First,
            "the clock was set back"
        );
    }

    #[test]
    fn once_a_day_means_at_its_time() {
        let three = When::DailyAt { second: 3 * 3_600 };
        let (noon, next_three) = (at(DAY / 2), at(DAY + 3 * 3_600));
        assert_eq!(
            due(noon, Some(noon), three),
            Due::In(Duration::from_secs(15 * 3_600))
        );
        assert_eq!(due(next_three, Some(noon), three), Due::Now);
        assert_eq!(
            due(next_three, Some(next_three), three),
            Due::In(Duration::from_secs(86_400))
        );
        assert_eq!(
            due(at(40 * DAY), Some(noon), three),
            Due::Now,
            "missed, made up for"
        );
    }

    proptest! {
        /// However often it is checked, it runs once in each interval and skips none.
        #[test]
        fn looking_often_or_seldom_makes_no_run_too_many(
            looks in prop::collection::vec(1_i64..3_000, 1..200),
            every in 60_i64..5_000,
            daily in any::<bool>(),
            second in 0_u32..86_400,
        ) {
            let when = match daily {
                true => When::DailyAt { second },
                false => When::Every(Duration::from_secs(every.unsigned_abs())),
            };
            let turn = if daily { DAY } else { every };
            let (mut now, mut last, mut runs) = (1_000_000, 1_000_000, 0);
            for step in looks {
                now += step;
                match due(at(now), Some(at(last)), when) {
                    Due::Now => {
                        prop_assert!(daily || now - last >= every);
                        (last, runs) = (now, runs + 1);
                    }
                    Due::In(wait) => prop_assert!(i64::try_from(wait.as_secs()).unwrap() <= turn),
                    Due::First => prop_assert!(false),
                }
            }
            let turns = (now - 1_000_000) / turn + 1;
            prop_assert!(runs <= turns, "{runs} runs in {turns} turns");
            // A check comes within 3,000 s of the end of each interval.
            prop_assert!(runs >= (now - 1_000_000) / (turn + 3_000));
        }
    }
}
