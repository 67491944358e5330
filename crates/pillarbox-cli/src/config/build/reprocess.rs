//! Builds the schedules on which dead letters are sent again.

use std::{collections::HashSet, time::Duration};

use pillarbox_relay::{
    dead::DeadFilter,
    reprocess::{Schedule, When},
    settlement::DeadReason,
};

use super::{Problems, nearest, word};
use crate::config::schema::{Outbox, Reprocess};

const SCHEDULES_MAX: usize = 50;
const LETTERS_MAX: u32 = 100_000;
const TIMES_MAX: u32 = 100;
const NINETY_DAYS: u64 = 90 * 86_400;

pub(super) fn schedules(outbox: &Outbox, problems: &mut Problems) -> Vec<Schedule> {
    let given = &outbox.dlq.reprocess;
    if given.len() > SCHEDULES_MAX {
        let text = format!("the maximum is {SCHEDULES_MAX} schedules");
        problems.push(("outbox.dlq.reprocess".into(), text));
    }
    let mut names = HashSet::new();
    let mut schedules = Vec::new();
    for (index, entry) in given.iter().enumerate() {
        let mut wrong = |name: &str, text: String| {
            problems.push((format!("outbox.dlq.reprocess.{index}.{name}"), text));
        };
        if entry.name.trim().is_empty() || entry.name.chars().count() > 100 {
            wrong("name", "a name has 1 to 100 characters".into());
        } else if !names.insert(&entry.name) {
            wrong("name", format!("there are two schedules `{}`", word(&entry.name)));
        }
        if entry.limit == 0 || entry.limit > LETTERS_MAX {
            wrong("limit", format!("it must be 1 to {LETTERS_MAX}"));
        }
        if entry.times_max == 0 || entry.times_max > TIMES_MAX {
            wrong("times_max", format!("it must be 1 to {TIMES_MAX}"));
        }
        if entry.min_age_seconds > NINETY_DAYS {
            wrong("min_age_seconds", "the maximum is 90 days".into());
        }
        let when = when(entry, &mut wrong);
        let reason = reason(entry, &mut wrong);
        schedules.extend(when.map(|when| Schedule {
            name: entry.name.clone(),
            when,
            filter: DeadFilter {
                topic: entry.topic.clone(),
                event_type: entry.event_type.clone(),
                fingerprint: entry.fingerprint.clone(),
                reason,
                ..DeadFilter::default()
            },
            limit: entry.limit as usize,
            times_max: entry.times_max,
            min_age: Duration::from_secs(entry.min_age_seconds),
        }));
    }
    schedules
}

fn when(entry: &Reprocess, wrong: &mut impl FnMut(&str, String)) -> Option<When> {
    match (entry.every_seconds, entry.at.as_deref()) {
        (Some(seconds @ 1..=NINETY_DAYS), None) => Some(When::Every(Duration::from_secs(seconds))),
        (Some(_), None) => {
            wrong("every_seconds", "it must be 1 second to 90 days".into());
            None
        }
        (None, Some(at)) => {
            let second = second_of_day(at);
            if second.is_none() {
                wrong(
                    "at",
                    "write a time of day in UTC as HH:MM, such as \"03:30\"".into(),
                );
            }
            second.map(|second| When::DailyAt { second })
        }
        _ => {
            wrong("name", "give a time: either `every_seconds` or `at`".into());
            None
        }
    }
}

fn reason(entry: &Reprocess, wrong: &mut impl FnMut(&str, String)) -> Option<DeadReason> {
    let text = entry.reason.as_deref()?;
    let known = DeadReason::ALL;
    let found = known.into_iter().find(|reason| reason.as_str() == text);
    if found.is_none() {
        let names = known.map(DeadReason::as_str);
        let hint = nearest(text, names.iter().copied()).map(|near| format!(". Did you mean `{near}`?"));
        let text = format!("the reasons are {}{}", names.join(", "), hint.unwrap_or_default());
        wrong("reason", text);
    }
    found
}

fn second_of_day(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(hour) || !digits(minute) {
        return None;
    }
    let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
    (hour < 24 && minute < 60).then_some((hour * 60 + minute) * 60)
}
