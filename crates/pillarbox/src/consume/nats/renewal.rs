//! A stream that is not the one that was read: deleted and made anew, or one that lost its last messages.
//!
//! Sequences begin again then, and what was read says nothing about what is there. The new stream is read from its beginning,
//! when everything that was read from the old one is done; what is a copy of that the inbox knows.

use async_nats::{datetime::DateTime, jetstream::stream::Info};

/// Which stream it is, and from where on it has not been read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Beginning {
    pub(super) created: DateTime,
    pub(super) next: u64,
}

impl Beginning {
    /// Where to go on, when not where we were.
    pub(super) fn renewed(self, info: &Info) -> Option<Self> {
        renewed(self, info.created, info.state.last_sequence)
    }
}

fn renewed(known: Beginning, created: DateTime, last: u64) -> Option<Beginning> {
    if known.created != created {
        return Some(Beginning { created, next: 1 });
    }
    // What it lost had been read; what takes its place has not.
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
