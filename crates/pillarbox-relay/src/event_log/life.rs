//! The whole life of one event, from the outbox, the log and its dead letter, in the order in which it happened.

use jiff::Timestamp;
use pillarbox::{Event, EventId};
use serde::Serialize;

use super::{EventLog, Life, LogOutcome, Position};
use crate::{
    dead::{DeadDetails, DeadLetters, Failure, Recovery, RecoveryAction},
    store::StoreError,
};

/// Everything that is known about one event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WholeLife {
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub id: EventId,
    /// `pending`, `published`, `failed`, `held`, `delayed` or `dead`. If the outbox no longer has the event, what the log
    /// knows last.
    pub status: String,
    pub attempts: u32,
    /// When it is tried next, if it waits for a time.
    pub due_at: Option<Timestamp>,
    /// Whether the outbox still has its row.
    pub in_outbox: bool,
    /// What happened, in order.
    pub steps: Vec<Step>,
    /// `None`: it can't be read.
    #[serde(skip)]
    pub event: Option<Event>,
}

/// Something that happened to an event.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Step {
    pub at: Timestamp,
    /// `committed`, `failed`, `published`, `dead`, `replayed` or `discarded`.
    pub what: String,
    /// Its place in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<i64>))]
    pub position: Option<Position>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sink: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Who did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The id of the copy, if it was replayed as a new event.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub new_id: Option<EventId>,
}

/// `None`: neither the outbox nor the log has an event with this id.
pub async fn whole_life(
    log: &dyn EventLog,
    letters: &dyn DeadLetters,
    id: &EventId,
) -> Result<Option<WholeLife>, StoreError> {
    let Some(life) = log.life(id).await? else {
        return Ok(None);
    };
    let letter = letters.show(id).await?;
    Ok(Some(told(id, life, letter)))
}

fn told(id: &EventId, life: Life, letter: Option<DeadDetails>) -> WholeLife {
    let last = life.entries.last();
    let status = match (&life.row, last) {
        (Some(row), _) => row.status.clone(),
        (None, Some(entry)) => entry.outcome.status().to_owned(),
        (None, None) => String::new(),
    };
    let steps = steps(&life, letter.as_ref());
    let attempts = life.row.as_ref().map(|row| row.attempts);
    WholeLife {
        id: id.clone(),
        status,
        attempts: attempts.or(last.map(|entry| entry.attempts)).unwrap_or_default(),
        due_at: life.row.as_ref().and_then(|row| row.due_at),
        in_outbox: life.row.is_some(),
        steps,
        event: match life.row {
            Some(row) => row.event,
            None => life
                .entries
                .into_iter()
                .find(|entry| entry.outcome == LogOutcome::Published)
                .map(|entry| entry.event),
        },
    }
}

fn steps(life: &Life, letter: Option<&DeadDetails>) -> Vec<Step> {
    let step = |at, what: &str| Step {
        at,
        what: what.to_owned(),
        ..Step::default()
    };
    let mut steps = Vec::new();
    let created = life.row.as_ref().map(|row| row.created_at);
    let created = created.or(life.entries.first().map(|entry| entry.created_at));
    steps.extend(created.map(|at| step(at, "committed")));

    let waiting = life.row.iter().flat_map(|row| &row.failures);
    let died = letter.iter().flat_map(|letter| &letter.failures);
    let mut failures: Vec<&Failure> = waiting.chain(died).collect();
    // The log has them too, also those of earlier deaths. Each has its own time.
    failures.extend(life.entries.iter().flat_map(|entry| &entry.failures));
    failures.sort_by(|a, b| (a.at, &a.error, &a.relay).cmp(&(b.at, &b.error, &b.relay)));
    failures.dedup();
    steps.extend(failures.into_iter().map(failed));

    for entry in &life.entries {
        let mut step = step(entry.at, entry.outcome.status());
        step.position = Some(entry.position);
        step.sink.clone_from(&entry.sink);
        step.relay.clone_from(&entry.relay);
        if let LogOutcome::Dead { reason, error } = &entry.outcome {
            step.reason = Some(reason.as_str().to_owned());
            step.error = Some(error.clone());
        }
        steps.push(step);
    }
    // What the log does not have: the event's route had no log then, or the entries have expired.
    let logged = |status: &str| life.entries.iter().any(|entry| entry.outcome.status() == status);
    let published = life.row.as_ref().and_then(|row| row.published_at);
    if let Some(at) = published.filter(|_| !logged("published")) {
        steps.push(step(at, "published"));
    }
    if let Some(details) = letter {
        if !logged("dead") {
            steps.push(Step {
                sink: details.letter.sink.clone(),
                relay: Some(details.letter.relay.clone()),
                reason: Some(details.letter.reason.as_str().to_owned()),
                error: Some(details.letter.error.clone()),
                ..step(details.letter.died_at, "dead")
            });
        }
        steps.extend(details.recoveries.iter().map(recovered));
    }
    steps.sort_by_key(|step| step.at);
    steps
}

fn failed(failure: &Failure) -> Step {
    Step {
        at: failure.at,
        what: "failed".into(),
        sink: failure.sink.clone(),
        relay: Some(failure.relay.clone()),
        error: Some(failure.error.clone()),
        ..Step::default()
    }
}

fn recovered(recovery: &Recovery) -> Step {
    let what = match recovery.action {
        RecoveryAction::Replayed => "replayed",
        RecoveryAction::Discarded => "discarded",
    };
    Step {
        at: recovery.at,
        what: what.into(),
        by: Some(recovery.by.clone()),
        why: recovery.why.clone(),
        new_id: recovery.new_id.clone(),
        ..Step::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dead::{DeadLetter, DeadState},
        event_log::{LifeRow, LogEntry},
        settlement::DeadReason,
    };

    fn second(n: i64) -> Timestamp {
        Timestamp::from_second(n).unwrap()
    }

    fn failure(n: i64) -> Failure {
        Failure {
            at: second(n),
            error: "no".into(),
            sink: Some("events".into()),
            relay: "r".into(),
        }
    }

    #[test]
    fn the_steps_come_in_their_order_and_each_failure_once() {
        let event = Event::to("t").event_type("T").aggregate("a", "1");
        let entry = |position, at, outcome| LogEntry {
            position,
            at: second(at),
            outcome,
            seq: 1,
            created_at: second(1),
            attempts: 2,
            failures: Vec::new(),
            sink: None,
            relay: None,
            event: event.clone(),
        };
        let dead = LogOutcome::Dead {
            reason: DeadReason::MaxRetriesExceeded,
            error: "no".into(),
        };
        let published = LogEntry {
            failures: vec![failure(2), failure(8)],
            sink: Some("events".into()),
            ..entry(6, 9, LogOutcome::Published)
        };
        let life = Life {
            row: Some(LifeRow {
                seq: 1,
                status: "published".into(),
                created_at: second(1),
                attempts: 2,
                first_attempt_at: None,
                last_attempt_at: None,
                published_at: Some(second(9)),
                last_error: None,
                due_at: None,
                failures: vec![failure(3)],
                event: Some(event.clone()),
            }),
            entries: vec![entry(4, 5, dead), published],
        };
        let letter = DeadDetails {
            letter: DeadLetter {
                id: event.id.clone(),
                seq: 1,
                topic: "t".into(),
                key: "1".into(),
                event_type: "T".into(),
                reason: DeadReason::MaxRetriesExceeded,
                error: "no".into(),
                attempts: 2,
                sink: None,
                relay: "r".into(),
                fingerprint: String::new(),
                died_at: second(5),
                state: DeadState::Replayed,
                blocks_key: false,
            },
            failures: vec![failure(2), failure(3)],
            recoveries: vec![Recovery {
                action: RecoveryAction::Replayed,
                at: second(7),
                by: "zoe".into(),
                why: None,
                new_id: None,
            }],
            event: None,
        };
        let whole = told(&event.id, life, Some(letter));
        let steps: Vec<_> = whole.steps.iter().map(|step| step.what.as_str()).collect();
        assert_eq!(
            steps,
            [
                "committed",
                "failed",
                "failed",
                "dead",
                "replayed",
                "failed",
                "published"
            ]
        );
        assert_eq!((whole.status.as_str(), whole.in_outbox), ("published", true));
        let last = &whole.steps[6];
        assert_eq!((last.position, last.sink.as_deref()), (Some(6), Some("events")));
    }
}
