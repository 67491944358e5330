//! Into the window: pages of discovery, due events of the side table, rows that can't be read.

use jiff::Timestamp;
use tokio::time::Instant;

use super::{super::window::Entry, DUE_INTERVAL, Tenure};
use crate::{
    event::{StoredEvent, Unreadable},
    route::AfterDeath,
    settlement::{Dead, DeadReason, FailedTry},
    store::{Due, Page},
};

impl Tenure<'_> {
    pub(super) fn admit_page(&mut self, page: Page) {
        let seqs = page
            .events
            .iter()
            .map(|event| event.seq)
            .chain(page.unreadable.iter().map(|row| row.seq));
        let number = self.window.open_page(seqs, page.decided);
        self.context
            .progress
            .read(page.events.len() + page.unreadable.len());
        let now = Timestamp::now();
        for event in page.events {
            self.admit(event, number, now);
        }
        self.admit_unreadable(page.unreadable, Some(number));
    }

    fn admit(&mut self, event: StoredEvent, page: u64, now: Timestamp) {
        let Some(way) = self.context.way(&event) else {
            let dead = self.no_route(&event, None);
            self.window.admit_dead(dead, Some(page));
            return;
        };
        let later = event.event.available_at.filter(|&at| at > now);
        let entry = Entry::new(event, way, Some(page));
        match later {
            Some(available_at) => self.window.admit_delayed(entry, available_at),
            None => self.window.admit(entry),
        }
    }

    pub(super) fn admit_due(&mut self, due: Due) {
        let brought = !due.events.is_empty();
        for due in due.events {
            match self.context.way(&due.event) {
                Some(way) => {
                    self.window
                        .admit_parked(Entry::new(due.event, way, None), due.delayed);
                }
                None => {
                    let key = due.event.event.key().to_owned();
                    let dead = self.no_route(&due.event, Some(key));
                    self.window.admit_dead(dead, None);
                }
            }
        }
        self.admit_unreadable(due.unreadable, None);
        // What was brought is returned until it is settled, and settling asks again.
        let wait = due
            .next
            .filter(|_| !brought)
            .map_or(DUE_INTERVAL, |next| next.min(DUE_INTERVAL));
        self.due_at = Instant::now() + wait;
    }

    fn admit_unreadable(&mut self, rows: Vec<Unreadable>, page: Option<u64>) {
        for row in rows {
            tracing::warn!(
                seq = row.seq,
                problem = row.problem,
                "a stored event can't be read: dead letter"
            );
            // Only a route that holds the key needs to know it: the side table does as well.
            let after = row
                .topic
                .as_ref()
                .map_or(AfterDeath::Skip, |topic| self.context.routes.after_death(topic));
            let key = row.key.filter(|_| after != AfterDeath::Skip);
            let dead = Dead {
                seq: row.seq,
                lane: row.lane,
                after: if key.is_some() { after } else { AfterDeath::Skip },
                key,
                attempts: 0,
                reason: DeadReason::PoisonMessage,
                failure: self.untried(row.problem),
                tried: false,
            };
            self.window.admit_dead(dead, page);
        }
    }

    /// Events that discovery should have brought: delivered all the same, and told, as it should never happen.
    pub(super) fn admit_missed(&mut self, missed: Vec<StoredEvent>) {
        let missed: Vec<StoredEvent> = missed
            .into_iter()
            .filter(|event| !self.window.may_hold(event.seq))
            .collect();
        if missed.is_empty() || self.ending.is_some() || !self.window.is_whole() {
            return;
        }
        tracing::error!(
            count = missed.len(),
            "the sweep found events that discovery had missed: delivering them"
        );
        self.context.progress.swept(missed.len());
        let decided = self.window.decided().0;
        self.admit_page(Page {
            events: missed,
            decided,
            ..Page::default()
        });
    }

    fn no_route(&self, event: &StoredEvent, key: Option<String>) -> Dead {
        let error = format!(
            "no route takes the topic `{}`: add one to `routes`, then replay the event",
            event.event.topic
        );
        Dead {
            seq: event.seq,
            lane: event.lane,
            key,
            after: AfterDeath::Skip,
            attempts: event.attempts,
            reason: DeadReason::PermanentFailure,
            failure: self.untried(error),
            tried: false,
        }
    }

    fn untried(&self, error: String) -> FailedTry {
        FailedTry {
            error,
            sink: None,
            relay: self.context.options.name.as_str().into(),
        }
    }
}
