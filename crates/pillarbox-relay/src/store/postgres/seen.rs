//! How far the readers of this process have read, in xids. Written together with the low marks.

use std::sync::{Mutex, PoisonError};

use crate::store::HeldLane;

/// For each lane: the epoch under which it was read, and the xid below which every transaction was read.
pub(super) struct Seen(Mutex<[(i64, u64); 256]>);

impl Default for Seen {
    fn default() -> Self {
        Self(Mutex::new([(-1, 0); 256]))
    }
}

impl Seen {
    /// Records that everything that transactions below `xid` wrote to these lanes was returned, or found settled.
    pub(super) fn read(&self, lanes: &[HeldLane], xid: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for held in lanes {
            let lane = &mut seen[usize::from(held.lane)];
            *lane = match *lane {
                // Another reader of the same lanes, that of the sweep, may be ahead.
                (epoch, before) if epoch == held.epoch => (epoch, before.max(xid)),
                _ => (held.epoch, xid),
            };
        }
    }

    /// As a parameter of the statements; 0 if unknown.
    pub(super) fn of(&self, lanes: &[HeldLane]) -> Vec<i64> {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lanes
            .iter()
            .map(|held| match seen[usize::from(held.lane)] {
                (epoch, xid) if epoch == held.epoch => i64::try_from(xid).unwrap_or(0),
                _ => 0,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_only_for_the_epoch_it_was_read_under() {
        let held = |lane, epoch| HeldLane {
            lane,
            epoch,
            low_mark: 0,
        };
        let seen = Seen::default();
        assert_eq!(seen.of(&[held(1, 1)]), [0]);
        seen.read(&[held(1, 1), held(2, 5)], 100);
        seen.read(&[held(1, 1)], 90);
        assert_eq!(seen.of(&[held(1, 1), held(2, 5), held(2, 6)]), [100, 100, 0]);
        seen.read(&[held(1, 2)], 40);
        assert_eq!(seen.of(&[held(1, 1), held(1, 2)]), [0, 40]);
    }
}
