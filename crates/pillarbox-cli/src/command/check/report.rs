//! The output about checked events.

use anyhow::Result;
use indicatif::ProgressBar;
use pillarbox::Event;
use pillarbox_relay::check::{Failure, OnFailure};
use serde_json::json;

use crate::output::{Answer, Context, counter};

pub(super) struct Report<'a> {
    context: &'a Context,
    /// What the number next to an event means: `line` or `seq`.
    place: &'static str,
    bar: ProgressBar,
    checked: u64,
    failed: u64,
    warned: u64,
}

impl<'a> Report<'a> {
    pub(super) fn new(place: &'static str, context: &'a Context) -> Self {
        Self {
            context,
            place,
            bar: counter(context, "checked"),
            checked: 0,
            failed: 0,
            warned: 0,
        }
    }

    pub(super) fn checked(&self) -> u64 {
        self.checked
    }

    pub(super) fn passed(&mut self) {
        self.checked += 1;
        self.bar.inc(1);
    }

    /// `rejected`: at least one failure is more than a warning.
    pub(super) fn failed(
        &mut self,
        place: i64,
        event: &Event,
        failures: &[Failure],
        rejected: bool,
    ) -> Result<()> {
        self.passed();
        match rejected {
            true => self.failed += 1,
            false => self.warned += 1,
        }
        if self.context.json {
            return self.context.print_json(&json!({
                self.place: place, "id": event.id, "event_type": event.event_type, "failures": failures,
            }));
        }
        for failure in failures {
            let mark = match failure.on_failure {
                OnFailure::Reject => self.context.bad("fails"),
                OnFailure::Warn => "warns".to_owned(),
            };
            let (id, event_type) = (event.id.clone(), &event.event_type);
            let word = self.place;
            self.print(&format!("{word} {place} {id} {event_type} {mark}: {failure}"))?;
        }
        Ok(())
    }

    /// An input that is not an event: a line that `enqueue` would refuse, or a stored row that can't be read.
    pub(super) fn unreadable(&mut self, place: i64, problem: &str) -> Result<()> {
        self.passed();
        self.failed += 1;
        if self.context.json {
            return self
                .context
                .print_json(&json!({ self.place: place, "unreadable": problem }));
        }
        self.print(&format!(
            "{} {place} {}: {problem}",
            self.place,
            self.context.bad("is not an event")
        ))
    }

    /// The summary line, and whether everything passed.
    pub(super) fn finish(self) -> Result<Answer> {
        self.bar.finish_and_clear();
        let (checked, failed, warned) = (self.checked, self.failed, self.warned);
        if self.context.json {
            self.context
                .print_json(&json!({ "checked": checked, "failed": failed, "warned": warned }))?;
        }
        self.context.say(&format!(
            "{checked} checked, {failed} failed, {warned} with warnings only."
        ));
        Ok(match failed {
            0 => Answer::Yes,
            _ => Answer::No,
        })
    }

    fn print(&self, line: &str) -> Result<()> {
        self.bar.suspend(|| self.context.print(line))
    }
}
