//! A snapshot of PostgreSQL's transactions: which had ended when a statement ran.

use std::{num::ParseIntError, str::FromStr};

/// The value of `pg_current_snapshot()`, `xmin:xmax:xid,xid,…`. Transactions below `xmin`, and those below `xmax`
/// that are not listed, had ended. Those listed were in progress. Those from `xmax` on had not ended, and some of
/// them may have begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    pub(super) xmin: u64,
    pub(super) xmax: u64,
    pub(super) in_progress: Vec<u64>,
    pub(super) text: String,
}

#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a snapshot")]
pub(super) struct NotASnapshot {
    text: String,
    #[source]
    source: Option<ParseIntError>,
}

impl Snapshot {
    /// As text for statements: there is no type here for PostgreSQL's 64-bit xids.
    pub(super) fn in_progress_texts(&self) -> Vec<String> {
        self.in_progress.iter().map(u64::to_string).collect()
    }
}

impl FromStr for Snapshot {
    type Err = NotASnapshot;

    fn from_str(text: &str) -> Result<Self, NotASnapshot> {
        let wrong = |source| NotASnapshot {
            text: text.to_owned(),
            source,
        };
        let number = |digits: &str| digits.parse::<u64>().map_err(|e| wrong(Some(e)));
        let mut parts = text.split(':');
        let (Some(xmin), Some(xmax), Some(listed), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(wrong(None));
        };
        let in_progress = if listed.is_empty() {
            Vec::new()
        } else {
            listed.split(',').map(number).collect::<Result<_, _>>()?
        };
        Ok(Self {
            xmin: number(xmin)?,
            xmax: number(xmax)?,
            in_progress,
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_read_as_postgres_writes_it() {
        let quiet: Snapshot = "751:751:".parse().unwrap();
        assert_eq!((quiet.xmin, quiet.xmax), (751, 751));
        assert!(quiet.in_progress.is_empty());

        let busy: Snapshot = "751:4294967390:751,755,4294967299".parse().unwrap();
        assert_eq!((busy.xmin, busy.xmax), (751, 4_294_967_390));
        assert_eq!(busy.in_progress, [751, 755, 4_294_967_299]);
        assert_eq!(busy.in_progress_texts(), ["751", "755", "4294967299"]);
    }

    #[test]
    fn anything_else_is_an_error() {
        for text in ["", "1", "1:2", "1:2:3:4", "a:2:", "1:2:x", "1:2:3,,4", "-1:2:"] {
            assert!(text.parse::<Snapshot>().is_err(), "{text}");
        }
    }
}
