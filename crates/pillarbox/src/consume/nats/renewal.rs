//! A stream that is no longer the one that was read: it was deleted and recreated, or lost its last messages.
//!
//! Its sequences then start again, and the positions read before mean nothing. The new stream is read from
//! its beginning, as soon as everything read from the old one is done. The inbox skips copies of known
//! events.

use async_nats::{datetime::DateTime, jetstream::stream::Info};

/// Which stream it is, and the first sequence that is not read yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Beginning {
    pub(super) created: DateTime,
    pub(super) next: u64,
}

impl Beginning {
    /// Where to continue, if not at the known position.
    pub(super) fn renewed(self, info: &Info) -> Option<Self> {
        renewed(self, info.created, info.state.last_sequence)
    }
}

fn renewed(known: Beginning, created: DateTime, last: u64) -> Option<Beginning> {
    if known.created != created {
        return Some(Beginning { created, next: 1 });
    }
    // The lost messages had been read; the messages that get their sequences have not.
    (last + 1 < known.next).then_some(Beginning {
        created,
        next: last + 1,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn another_stream_is_read_from_its_beginning_and_one_that_lost_its_end_from_there() {
        let created = DateTime::from(SystemTime::UNIX_EPOCH);
        let later = DateTime::from(SystemTime::UNIX_EPOCH + Duration::from_secs(1));
        let known = Beginning { created, next: 11 };
        assert_eq!(renewed(known, created, 10), None);
        assert_eq!(renewed(known, created, 500), None);
        assert_eq!(renewed(known, created, 7), Some(Beginning { created, next: 8 }));
        for last in [0, 10, 500] {
            let new = Beginning {
                created: later,
                next: 1,
            };
            assert_eq!(renewed(known, later, last), Some(new));
        }
    }
}
