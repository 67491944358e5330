//! Events that may be refused: what a broker says of a request with several in it says nothing of each.

use std::collections::HashSet;

use tokio::time::Instant;

use super::{
    super::{KafkaSink, seen::Seen},
    Batch, bytes,
};
use crate::sink::{Outcome, SinkErrorKind};

impl Batch<'_> {
    /// Of those without an outcome: what may go with others, and what is as large as something its topic refused. What
    /// follows one of those is held.
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
                self.outcomes[index] = Some(Outcome::Held);
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

    /// Tries each by itself, so that a refusal is its own. Whether all arrived: then it was the request that was too large.
    pub(super) async fn alone(&mut self, sink: &KafkaSink, suspects: Vec<usize>) -> bool {
        let mut all_arrived = true;
        // It takes a moment to start: meanwhile is better than afterwards.
        let _successor = sink.producer();
        for index in suspects {
            if self.held_back(index) || Instant::now() >= self.deadline {
                self.outcomes[index] = Some(Outcome::Held);
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
    pub(in super::super) fn held_back(&self, index: usize) -> bool {
        let key = self.key(index);
        (0..index).any(|earlier| {
            self.key(earlier) == key && self.outcomes[earlier].as_ref() != Some(&Outcome::Delivered)
        })
    }
}
