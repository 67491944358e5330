//! What callers with a scope see: what became of their events, and nothing about operators, relays and sinks. An error
//! of a sink can name its hosts, and quote other events.

use pillarbox_relay::event_log::{
    LogEntry, LogOutcome,
    life::{Step, WholeLife},
};

pub(super) fn life(life: &mut WholeLife) {
    for step in &mut life.steps {
        *step = Step {
            at: step.at,
            what: std::mem::take(&mut step.what),
            position: step.position,
            sink: step.sink.take(),
            reason: step.reason.take(),
            new_id: step.new_id.clone(),
            relay: None,
            error: None,
            by: None,
            why: None,
        };
    }
}

pub(super) fn entry(entry: &mut LogEntry) {
    entry.failures.clear();
    entry.relay = None;
    if let LogOutcome::Dead { error, .. } = &mut entry.outcome {
        "the event could not be delivered".clone_into(error);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use pillarbox::Event;
    use pillarbox_relay::{dead::Failure, settlement::DeadReason};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_step_keeps_what_happened_and_nothing_about_operators_and_machines() {
        let text = |text: &str| Some(text.to_owned());
        let mut whole = WholeLife {
            id: "x".into(),
            status: "dead".into(),
            attempts: 1,
            due_at: None,
            in_outbox: true,
            steps: vec![Step {
                at: Timestamp::UNIX_EPOCH,
                what: "dead".into(),
                position: Some(7),
                sink: text("events"),
                relay: text("geheim-relay"),
                reason: text("permanent_failure"),
                error: text("geheim: no such stream"),
                by: text("geheim-operator"),
                why: text("geheim reason"),
                new_id: Some("y".into()),
            }],
            event: None,
        };
        life(&mut whole);
        let shown = serde_json::to_value(&whole).unwrap();
        assert!(!shown.to_string().contains("geheim"), "{shown}");
        let step: Value = shown["steps"][0].clone();
        assert_eq!(
            step,
            json!({
                "at": "1970-01-01T00:00:00Z", "what": "dead", "position": 7, "sink": "events",
                "reason": "permanent_failure", "new_id": "y",
            })
        );
    }

    #[test]
    fn an_entry_keeps_its_reason_and_not_the_words_of_the_sink() {
        let mut dead = LogEntry {
            position: 1,
            at: Timestamp::UNIX_EPOCH,
            outcome: LogOutcome::Dead {
                reason: DeadReason::PermanentFailure,
                error: "geheim: no such stream".into(),
            },
            seq: 1,
            created_at: Timestamp::UNIX_EPOCH,
            attempts: 1,
            failures: vec![Failure {
                at: Timestamp::UNIX_EPOCH,
                error: "geheim: timed out".into(),
                sink: None,
                relay: "geheim-relay".into(),
            }],
            sink: Some("events".into()),
            relay: Some("geheim-relay".into()),
            event: Event::to("t.x").event_type("X").aggregate("a", "1"),
        };
        entry(&mut dead);
        let shown = serde_json::to_value(&dead).unwrap();
        assert_eq!(shown["reason"], "permanent_failure");
        assert!(!shown.to_string().contains("geheim"), "{shown}");
    }
}
