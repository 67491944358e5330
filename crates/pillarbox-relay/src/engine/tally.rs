//! The low mark: how far everything is settled. It is computed from pages, so it needs no work for each event.

use std::collections::{HashSet, VecDeque};

use crate::event::Seq;

pub(super) struct Tally {
    /// Pages with unsettled events, oldest first.
    pages: VecDeque<Page>,
    next: u64,
    /// How far the store was decided at the latest page.
    decided: Seq,
    /// Events were dropped unsettled. The low mark stays here, and pages no longer matter.
    frozen: Option<Seq>,
}

struct Page {
    number: u64,
    seqs: Vec<Seq>,
    /// The smallest seq of the page. After a late commit it can be below the seqs of an earlier page.
    first: Seq,
    unsettled: usize,
}

impl Tally {
    pub(super) fn new(low_mark: Seq) -> Self {
        Self {
            pages: VecDeque::new(),
            next: 0,
            decided: low_mark,
            frozen: None,
        }
    }

    /// From now on the low mark does not move, because not every event that is read is kept.
    pub(super) fn freeze(&mut self) {
        self.frozen = Some(self.low_mark());
        self.pages.clear();
    }

    pub(super) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    pub(super) fn open(&mut self, seqs: impl Iterator<Item = Seq>, decided: Seq) -> u64 {
        let seqs: Vec<Seq> = seqs.collect();
        let number = self.next;
        self.next += 1;
        self.decided = self.decided.max(decided);
        if self.is_frozen() {
            return number;
        }
        if let Some(&first) = seqs.iter().min() {
            let unsettled = seqs.len();
            self.pages.push_back(Page {
                number,
                seqs,
                first,
                unsettled,
            });
        }
        number
    }

    /// One event of the page is settled.
    pub(super) fn settled(&mut self, page: u64) {
        if self.is_frozen() {
            return;
        }
        let at = self.pages.partition_point(|p| p.number < page);
        let Some(found) = self.pages.get_mut(at).filter(|p| p.number == page) else {
            debug_assert!(false, "the last event of a page closes it");
            return;
        };
        found.unsettled -= 1;
        if found.unsettled == 0 {
            self.pages.remove(at);
        }
    }

    pub(super) fn decided(&self) -> (Seq, HashSet<Seq>) {
        (
            self.decided,
            self.pages.iter().flat_map(|page| &page.seqs).copied().collect(),
        )
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        self.pages.iter().any(|page| page.seqs.contains(&seq))
    }

    pub(super) fn low_mark(&self) -> Seq {
        if let Some(frozen) = self.frozen {
            return frozen;
        }
        let open = self.pages.iter().map(|page| page.first - 1).min();
        open.map_or(self.decided, |open| open.min(self.decided))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_mark_waits_for_the_smallest_open_seq() {
        let mut tally = Tally::new(10);
        let first = tally.open([15, 17].into_iter(), 10);
        assert_eq!(tally.low_mark(), 10);
        let late = tally.open([12, 20].into_iter(), 18);
        tally.settled(first);
        tally.settled(first);
        assert_eq!(tally.low_mark(), 11, "the seq of a late commit is open");
        tally.settled(late);
        assert_eq!(
            tally.low_mark(),
            11,
            "the tally does not know which event of a page is settled"
        );
        assert!(tally.contains(20) && !tally.contains(15));
        tally.settled(late);
        assert_eq!(tally.low_mark(), 18);
    }

    #[test]
    fn a_frozen_mark_stays() {
        let mut tally = Tally::new(0);
        let first = tally.open([5, 6].into_iter(), 10);
        tally.freeze();
        let second = tally.open([11].into_iter(), 20);
        for page in [first, first, second] {
            tally.settled(page);
        }
        assert_eq!(tally.low_mark(), 4);
    }

    #[test]
    fn an_empty_page_moves_the_mark_and_nothing_moves_it_back() {
        let mut tally = Tally::new(0);
        tally.open([].into_iter(), 30);
        tally.open([].into_iter(), 20);
        assert_eq!(tally.low_mark(), 30);
    }
}
