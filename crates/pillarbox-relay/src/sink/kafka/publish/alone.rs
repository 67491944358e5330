//! Events that may be refused. A broker's refusal of a request with several events does not say which one is at fault.

use std::collections::HashSet;

use tokio::time::Instant;

use super::{
    super::{KafkaSink, seen::Seen},
    Batch, bytes,
};
use crate::sink::{Outcome, SinkErrorKind};

impl Batch<'_> {
    /// Splits the events without an outcome into those that may be sent with others, and those that are as large as an
    /// event that their topic refused. Events behind one of the latter are not tried.
    pub(super) fn suspected(&mut self, seen: &Seen) -> (Vec<usize>, Vec<usize>) {
        let mut waiting = self.open();
        if !seen.is_careful() {
            return (waiting, Vec::new());
        }
        let mut suspects: Vec<usize> = Vec::new();
        let mut behind: HashSet<&str> = HashSet::new();
        waiting.retain(|&index| {
            let key = self.key(index);
            if behind.contains(key) {
                self.outcomes[index] = Some(Outcome::NotTried);
                return false;
            }
            let limit = seen.careful_from(self.topic(index));
            let suspect = limit.is_some_and(|limit| bytes(&self.events[index]) >= limit);
            if suspect {
                behind.insert(key);
                suspects.push(index);
            }
            !suspect
        });
        (waiting, suspects)
    }

    /// Tries each event alone, so that a refusal is about that event. Returns whether all arrived; then the request was
    /// too large.
    pub(super) async fn alone(&mut self, sink: &KafkaSink, suspects: Vec<usize>) -> bool {
        let mut all_arrived = true;
        // A producer needs some time to start, so start the next one now.
        let _successor = sink.producer();
        for index in suspects {
            if self.follows_failed(index) || Instant::now() >= self.deadline {
                self.outcomes[index] = Some(Outcome::NotTried);
                all_arrived = false;
                continue;
            }
            let producer = match sink.one_by_one() {
                Ok(producer) => producer,
                Err(error) => {
                    self.fail(index, error);
                    continue;
                }
            };
            let sent = self.send(&producer, &sink.seen, &[index]).await;
            all_arrived &= !sent.trouble;
            let bytes = bytes(&self.events[index]);
            if !sent.trouble {
                sink.seen.took(self.topic(index), bytes);
            }
            for (index, error) in sent.suspects {
                if error.kind == SinkErrorKind::TooLarge {
                    sink.seen.refused_size(self.topic(index), bytes);
                }
                self.fail(index, error);
            }
        }
        all_arrived
    }

    /// Whether an earlier event of its key did not arrive.
    pub(in super::super) fn follows_failed(&self, index: usize) -> bool {
        let key = self.key(index);
        (0..index).any(|earlier| {
            self.key(earlier) == key && self.outcomes[earlier].as_ref() != Some(&Outcome::Delivered)
        })
    }
}
