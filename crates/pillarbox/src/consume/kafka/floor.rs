//! How far a partition is done without a gap. Offsets grow, and there may be gaps between them.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(super) struct Floor {
    /// Starts at the first offset that is not done.
    read: VecDeque<(u64, bool)>,
    /// The last offset read, plus one.
    end: Option<u64>,
}

impl Floor {
    pub(super) fn opened(&mut self, offset: u64) {
        debug_assert!(self.end.is_none_or(|end| offset >= end), "offsets grow");
        self.read.push_back((offset, false));
        self.end = Some(offset + 1);
    }

    pub(super) fn done(&mut self, offset: u64) {
        if let Ok(at) = self.read.binary_search_by_key(&offset, |(offset, _)| *offset) {
            self.read[at].1 = true;
        }
        while self.read.front().is_some_and(|(_, done)| *done) {
            self.read.pop_front();
        }
    }

    /// The first offset that is not done. `None`: nothing was read yet.
    pub(super) fn get(&self) -> Option<u64> {
        self.read.front().map(|(offset, _)| *offset).or(self.end)
    }

    /// Whether everything that was read is done.
    pub(super) fn is_reached(&self) -> bool {
        self.read.is_empty()
    }

    /// The last offset read, plus one.
    pub(super) fn end(&self) -> Option<u64> {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn everything_below_the_floor_is_done_and_the_floor_is_not(
            steps in proptest::collection::vec(1_u64..4, 1..60),
            order in proptest::collection::vec(any::<prop::sample::Index>(), 0..60),
        ) {
            let mut floor = Floor::default();
            prop_assert_eq!(floor.get(), None);
            let offsets: Vec<u64> = steps.iter().scan(0, |at, step| { *at += step; Some(*at) }).collect();
            for offset in &offsets {
                floor.opened(*offset);
            }
            let mut done = BTreeSet::new();
            for index in order {
                let offset = offsets[index.index(offsets.len())];
                floor.done(offset);
                done.insert(offset);
                let expected = offsets.iter().find(|offset| !done.contains(offset));
                let expected = expected.copied().unwrap_or(offsets[offsets.len() - 1] + 1);
                prop_assert_eq!(floor.get(), Some(expected));
            }
        }
    }
}
