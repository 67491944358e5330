//! What must hold at the end of every history.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use pillarbox::EventId;
use pillarbox_relay::dead::SUPERSEDED;
use pillarbox_testkit::memory::{Row, Status};

use super::{Trace, operator::Discarded};

pub(super) struct Oracle {
    pub(super) rows: Vec<Row>,
    /// What the broker stored, in order: (id, key).
    pub(super) seen: Vec<(EventId, String)>,
    pub(super) rolled_back: Vec<EventId>,
    pub(super) discarded: Vec<Discarded>,
    /// Dead events that still block their keys.
    pub(super) blocking: Vec<i64>,
}

impl Oracle {
    /// The trace to compare two runs of one history. Ids differ between runs; seqs don't.
    pub(super) fn trace(&self, took: Duration) -> Trace {
        let seqs: HashMap<EventId, i64> = self
            .rows
            .iter()
            .map(|row| (row.stored.event.id.clone(), row.stored.seq))
            .collect();
        let seen = self
            .seen
            .iter()
            .map(|(id, key)| (key.clone(), seqs[id]))
            .collect();
        let rows = self.rows.iter().map(|row| {
            let (status, attempts) = (row.status, row.stored.attempts);
            format!("{} {status:?} {attempts} {:?}", row.stored.seq, row.last_error)
        });
        (seen, rows.collect(), took)
    }

    pub(super) fn check(&self) {
        self.nothing_is_lost();
        self.nothing_uncommitted_is_seen();
        self.order_per_key_is_unbroken();
        self.only_bad_events_are_charged();
        self.a_blocked_key_waits();
        self.only_the_older_are_superseded();
    }

    fn nothing_is_lost(&self) {
        let seen: HashMap<EventId, usize> = self
            .seen
            .iter()
            .enumerate()
            .map(|(at, (id, _))| ((*id).clone(), at))
            .collect();
        for row in self.rows.iter().filter(|row| row.status == Status::Published) {
            assert!(
                seen.contains_key(&row.stored.event.id),
                "published, but not at the broker: seq {}",
                row.stored.seq
            );
        }
    }

    fn nothing_uncommitted_is_seen(&self) {
        for id in &self.rolled_back {
            assert!(
                !self.seen.iter().any(|(seen, _)| seen == id),
                "rolled back, but at the broker: {id}"
            );
        }
        let committed: HashMap<EventId, &Row> = self
            .rows
            .iter()
            .map(|row| (row.stored.event.id.clone(), row))
            .collect();
        for (id, _) in &self.seen {
            assert!(
                committed.contains_key(id),
                "never committed, but at the broker: {id}"
            );
        }
    }

    fn order_per_key_is_unbroken(&self) {
        let seqs: HashMap<EventId, i64> = self
            .rows
            .iter()
            .map(|row| (row.stored.event.id.clone(), row.stored.seq))
            .collect();
        let mut last: BTreeMap<&str, i64> = BTreeMap::new();
        // A delayed event waits for its time and does not delay its key.
        let seen = self.seen.iter().filter(|(id, _)| !self.is_delayed(id));
        for (id, key) in seen {
            let seq = seqs[id];
            let before = last.insert(key, seq).unwrap_or(0);
            assert!(
                before < seq,
                "out of order: {key} has {seq} after {before}; {}",
                self.story_of(key)
            );
        }
    }

    fn is_delayed(&self, id: &EventId) -> bool {
        let row = self.rows.iter().find(|row| row.stored.event.id == *id);
        row.is_some_and(|row| row.stored.event.available_at.is_some())
    }

    /// Everything about a key, for failure messages.
    fn story_of(&self, key: &str) -> String {
        let rows = self.rows.iter().filter(|row| row.stored.event.key() == key);
        let rows: Vec<String> = rows
            .map(|row| {
                let payload = String::from_utf8_lossy(&row.stored.event.payload).into_owned();
                let delayed = if row.stored.event.available_at.is_some() {
                    " delayed"
                } else {
                    ""
                };
                let (seq, topic) = (row.stored.seq, &row.stored.event.topic);
                format!(
                    "{seq} {:?} {} {topic} {payload}{delayed}",
                    row.status, row.stored.attempts
                )
            })
            .collect();
        let seqs: HashMap<EventId, i64> = self
            .rows
            .iter()
            .map(|row| (row.stored.event.id.clone(), row.stored.seq))
            .collect();
        let seen: Vec<i64> = self
            .seen
            .iter()
            .filter(|(_, k)| k == key)
            .map(|(id, _)| seqs[id])
            .collect();
        format!("stored: {rows:?}; seen: {seen:?}")
    }

    /// An outage charges no event and makes no dead letter. A bad event is charged.
    fn only_bad_events_are_charged(&self) {
        for row in self.rows.iter().filter(|row| !is_superseded(row)) {
            let payload = &row.stored.event.payload[..];
            let (status, attempts) = (row.status, row.stored.attempts);
            let expected = match payload {
                b"\"poison\"" => (Status::Dead, 1),
                b"\"unfit\"" => (Status::Dead, 0),
                b"99" => (Status::Dead, 5),
                b"{}" => (Status::Published, 0),
                moody => (Status::Published, u32::from(moody[0] - b'0')),
            };
            let name = String::from_utf8_lossy(payload);
            // If a relay died before it settled a refusal, that refusal was not counted.
            let forgotten = expected.0 == Status::Published && attempts < expected.1;
            assert!(
                status == expected.0 && (attempts == expected.1 || forgotten),
                "{name}: {status:?} after {attempts} attempts"
            );
        }
    }

    /// Nothing behind a dead event arrives until a person has discarded it.
    fn a_blocked_key_waits(&self) {
        let by_seq: HashMap<i64, &Row> = self.rows.iter().map(|row| (row.stored.seq, row)).collect();
        let by_id: HashMap<EventId, i64> = self
            .rows
            .iter()
            .map(|row| (row.stored.event.id.clone(), row.stored.seq))
            .collect();
        let discarded: HashMap<i64, usize> = self.discarded.iter().map(|d| (d.seq, d.arrived)).collect();
        for row in &self.rows {
            let strict = row.stored.event.topic == "near.strict" && row.status == Status::Dead;
            assert!(
                !strict || discarded.contains_key(&row.stored.seq) || self.blocking.contains(&row.stored.seq),
                "a dead event does not block its key: {}",
                row.stored.seq
            );
        }
        // A delayed event can fail after later events of its key were sent.
        let punctual = |seq: &i64| by_seq[seq].stored.event.available_at.is_none();
        for (seq, arrived) in discarded.into_iter().filter(|(seq, _)| punctual(seq)) {
            let key = by_seq[&seq].stored.event.key();
            let mut before = self.seen[..arrived].iter().filter(|(id, _)| !self.is_delayed(id));
            let early = before.find(|(id, k)| k == key && by_id[id] > seq);
            assert!(
                early.is_none(),
                "arrived although {seq} blocks the key: {early:?}; {}",
                self.story_of(key)
            );
        }
    }

    /// For each superseded event, a newer one of its key and topic was stored.
    fn only_the_older_are_superseded(&self) {
        for old in self.rows.iter().filter(|row| is_superseded(row)) {
            let (event, seq) = (&old.stored.event, old.stored.seq);
            assert!(event.topic.ends_with(".state"), "{}", event.topic);
            let newer = self.rows.iter().any(|row| {
                let same = row.stored.event.key() == event.key() && row.stored.event.topic == event.topic;
                same && row.stored.seq > seq && !is_superseded(row)
            });
            assert!(
                newer,
                "superseded, but no newer event arrived: {seq}; {}",
                self.story_of(event.key())
            );
        }
    }
}

fn is_superseded(row: &Row) -> bool {
    row.last_error.as_deref() == Some(SUPERSEDED)
}
