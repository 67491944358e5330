//! Compares the shop's orders with the received events.

use std::collections::{HashMap, HashSet};

use pillarbox::EventId;
use serde::Serialize;

use super::{listener::Seen, shop::Order};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Verdict {
    pub(super) orders: usize,
    pub(super) committed: usize,
    pub(super) rolled_back: usize,
    /// Committed events that arrived.
    pub(super) delivered: usize,
    pub(super) lost: usize,
    pub(super) duplicated: usize,
    /// Events that were not committed.
    pub(super) ghosts: usize,
    /// Events that arrived after a later one of the same customer.
    pub(super) out_of_order: usize,
}

impl Verdict {
    pub(super) fn of(books: &[Order], seen: &[Seen]) -> Self {
        let place: HashMap<EventId, usize> = books
            .iter()
            .enumerate()
            .filter(|(_, order)| order.committed)
            .map(|(place, order)| (order.event_id.clone(), place))
            .collect();
        let mut met = HashSet::new();
        let mut latest: HashMap<&str, usize> = HashMap::new();
        let mut verdict = Self {
            orders: books.len(),
            committed: place.len(),
            rolled_back: books.len() - place.len(),
            ..Self::default()
        };
        for event in seen {
            let Some(&place) = place.get(&event.id) else {
                verdict.ghosts += 1;
                continue;
            };
            if !met.insert(event.id.clone()) {
                verdict.duplicated += 1;
                continue;
            }
            let before = latest.insert(event.partition_key.as_deref().unwrap_or_default(), place);
            verdict.out_of_order += usize::from(before.is_some_and(|before| before > place));
        }
        verdict.delivered = met.len();
        verdict.lost = verdict.committed - verdict.delivered;
        verdict
    }

    /// Whether every promise was kept.
    pub(super) fn kept(&self) -> bool {
        self.lost + self.duplicated + self.ghosts + self.out_of_order == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: u32, committed: bool) -> Order {
        Order {
            number,
            customer: "Ada",
            item: "a kite",
            cents: 1,
            event_id: EventId::from(number.to_string()),
            committed,
        }
    }

    fn seen(number: u128) -> Seen {
        Seen {
            id: EventId::from(number.to_string()),
            partition_key: Some("Ada".into()),
        }
    }

    #[test]
    fn a_broken_promise_is_noticed() {
        let books = [order(1, true), order(2, false), order(3, true)];
        assert!(Verdict::of(&books, &[seen(1), seen(3)]).kept());
        for (notes, broken) in [
            (vec![seen(1)], "lost"),
            (vec![seen(1), seen(3), seen(1)], "duplicated"),
            (vec![seen(1), seen(2), seen(3)], "ghosts"),
            (vec![seen(3), seen(1)], "out_of_order"),
        ] {
            let verdict = Verdict::of(&books, &notes);
            assert!(!verdict.kept(), "{broken}");
            assert_eq!(serde_json::to_value(verdict).unwrap()[broken], 1, "{broken}");
        }
    }
}
