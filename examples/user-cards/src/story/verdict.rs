//! Compares the service's answers with what Kafka and the cards contain.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use super::kafka::Found;
use crate::cards::Card;

/// What the service reported as committed and rolled back.
#[derive(Default)]
pub(super) struct Books {
    /// The users by id, in their latest state.
    pub(super) users: BTreeMap<String, Known>,
    pub(super) written: BTreeSet<String>,
    pub(super) rolled_back: BTreeSet<String>,
}

pub(super) struct Known {
    pub(super) name: &'static str,
    pub(super) email: String,
    pub(super) version: i64,
}

impl Books {
    pub(super) fn written(&mut self, id: &str, name: &'static str, email: &str, version: i64, event: String) {
        let email = email.to_owned();
        self.users.insert(id.to_owned(), Known { name, email, version });
        self.written.insert(event);
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    committed: usize,
    /// Committed events that Kafka does not have.
    lost: usize,
    /// Events in Kafka that were not committed.
    ghosts: usize,
    /// Copies in Kafka: allowed, because delivery is at least once.
    copies: usize,
    /// Events in Kafka that came after a later event of the same user.
    out_of_order: usize,
    /// Cards that do not match their user, or changed more often than the user did.
    wrong_cards: usize,
    cards: usize,
}

impl Verdict {
    pub(super) fn of(books: &Books, events: &[Found], cards: &[Card]) -> Self {
        let mut verdict = Self {
            committed: books.written.len(),
            cards: cards.len(),
            ..Self::default()
        };
        let mut seen = BTreeSet::new();
        let mut last: BTreeMap<&str, i64> = BTreeMap::new();
        for event in events {
            verdict.ghosts += usize::from(!books.written.contains(&event.id));
            if !seen.insert(&event.id) {
                verdict.copies += 1;
                continue;
            }
            let last = last.entry(&event.key).or_default();
            verdict.out_of_order += usize::from(event.version <= *last);
            *last = event.version.max(*last);
        }
        verdict.lost = books.written.iter().filter(|id| !seen.contains(id)).count();
        let right = |card: &&Card| {
            books.users.get(&card.id).is_some_and(|user| {
                let shown = (card.name.as_str(), &card.email, card.version, card.events);
                shown == (user.name, &user.email, user.version, user.version)
            })
        };
        let right = cards.iter().filter(right).count();
        verdict.wrong_cards = books.users.len().max(cards.len()) - right;
        verdict
    }

    pub(super) fn kept(&self) -> bool {
        self.lost == 0
            && self.ghosts == 0
            && self.out_of_order == 0
            && self.wrong_cards == 0
            && self.cards > 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            committed,
            lost,
            ghosts,
            copies,
            out_of_order,
            wrong_cards,
            cards,
        } = self;
        if self.kept() {
            write!(
                f,
                "{committed} events were committed and all of them are in Kafka, in order ({copies} copies); the one that was \
                 rolled back is not.\n{cards} cards show their users, and each event changed its card once."
            )
        } else {
            write!(
                f,
                "A promise was broken: of {committed} committed events {lost} are lost, {ghosts} were seen without a commit, \
                 {out_of_order} came out of order, {wrong_cards} of {cards} cards are wrong."
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(key: &str, id: &str, version: i64) -> Found {
        Found {
            partition: 0,
            offset: 0,
            key: key.into(),
            id: id.into(),
            event_type: "user.updated".into(),
            version,
        }
    }

    fn books() -> Books {
        let mut books = Books::default();
        books.written("u", "Ada", "a", 1, "1".into());
        books.written("u", "Ada", "b", 2, "2".into());
        books.rolled_back.insert("x".into());
        books
    }

    fn card(version: i64, events: i64) -> Card {
        Card {
            id: "u".into(),
            name: "Ada".into(),
            email: "b".into(),
            version,
            events,
        }
    }

    #[test]
    fn a_good_run_passes_and_a_copy_is_no_fault() {
        let events = [found("u", "1", 1), found("u", "2", 2), found("u", "2", 2)];
        let verdict = Verdict::of(&books(), &events, &[card(2, 2)]);
        assert!(verdict.kept(), "{verdict:?}");
        assert_eq!(verdict.copies, 1);
    }

    #[test]
    fn every_broken_promise_is_reported() {
        let good = [found("u", "1", 1), found("u", "2", 2)];
        let broken: [(&[Found], Card); 5] = [
            (&good[..1], card(2, 2)),
            (
                &[good[0].clone(), good[1].clone(), found("y", "x", 1)],
                card(2, 2),
            ),
            (&[good[1].clone(), good[0].clone()], card(2, 2)),
            (&good, card(1, 1)),
            (&good, card(2, 3)),
        ];
        for (events, card) in broken {
            let verdict = Verdict::of(&books(), events, &[card]);
            assert!(!verdict.kept(), "{verdict:?}");
        }
        assert!(!Verdict::of(&books(), &good, &[]).kept());
    }
}
