//! What must hold at the end of every history.

use std::collections::{BTreeMap, HashMap};

use pillarbox_relay::store::memory::{Row, Status};
use uuid::Uuid;

pub(super) struct Oracle {
    pub(super) rows: Vec<Row>,
    /// What the broker has, in its order: (id, key).
    pub(super) seen: Vec<(Uuid, String)>,
    pub(super) rolled_back: Vec<Uuid>,
}

impl Oracle {
    pub(super) fn check(&self) {
        self.nothing_is_lost();
        self.nothing_uncommitted_is_seen();
        self.order_per_key_is_unbroken();
        self.only_bad_events_are_charged();
    }

    fn nothing_is_lost(&self) {
        let seen: HashMap<Uuid, usize> = self
            .seen
            .iter()
            .enumerate()
            .map(|(at, (id, _))| (*id, at))
            .collect();
        for row in self.rows.iter().filter(|row| row.status == Status::Published) {
            assert!(
                seen.contains_key(&row.stored.event.id),
                "published and not there: seq {}",
                row.stored.seq
            );
        }
    }

    fn nothing_uncommitted_is_seen(&self) {
        for id in &self.rolled_back {
            assert!(
                !self.seen.iter().any(|(seen, _)| seen == id),
                "rolled back and seen: {id}"
            );
        }
        let committed: HashMap<Uuid, &Row> = self.rows.iter().map(|row| (row.stored.event.id, row)).collect();
        for (id, _) in &self.seen {
            assert!(committed.contains_key(id), "never committed and seen: {id}");
        }
    }

    fn order_per_key_is_unbroken(&self) {
        let seqs: HashMap<Uuid, i64> = self
            .rows
            .iter()
            .map(|row| (row.stored.event.id, row.stored.seq))
            .collect();
        let mut last: BTreeMap<&str, i64> = BTreeMap::new();
        for (id, key) in &self.seen {
            let seq = seqs[id];
            let before = last.insert(key, seq).unwrap_or(0);
            assert!(
                before < seq,
                "out of order: {key} has {seq} after {before}; {}",
                self.story_of(key)
            );
        }
    }

    /// Everything about a key, for the message of a failure.
    fn story_of(&self, key: &str) -> String {
        let rows = self.rows.iter().filter(|row| row.stored.event.key() == key);
        let rows: Vec<String> = rows
            .map(|row| {
                let payload = String::from_utf8_lossy(&row.stored.event.payload).into_owned();
                format!(
                    "{} {:?} {} {payload}",
                    row.stored.seq, row.status, row.stored.attempts
                )
            })
            .collect();
        let seqs: HashMap<Uuid, i64> = self
            .rows
            .iter()
            .map(|row| (row.stored.event.id, row.stored.seq))
            .collect();
        let seen: Vec<i64> = self
            .seen
            .iter()
            .filter(|(_, k)| k == key)
            .map(|(id, _)| seqs[id])
            .collect();
        format!("stored: {rows:?}; seen: {seen:?}")
    }

    /// An outage costs no event an attempt and makes no dead letter; a bad event does.
    fn only_bad_events_are_charged(&self) {
        for row in &self.rows {
            let payload = &row.stored.event.payload[..];
            let (status, attempts) = (row.status, row.stored.attempts);
            let expected = match payload {
                b"\"poison\"" => (Status::Dead, 1),
                b"9" => (Status::Dead, 5),
                b"{}" => (Status::Published, 0),
                moody => (Status::Published, u32::from(moody[0] - b'0')),
            };
            let name = String::from_utf8_lossy(payload);
            // A refusal whose settlement died with its relay was not counted.
            let forgotten = expected.0 == Status::Published && attempts < expected.1;
            assert!(
                (status, attempts) == expected || forgotten,
                "{name}: {status:?} after {attempts} attempts"
            );
        }
    }
}
