//! The generated events, the same for every way of sending them.

use bytes::Bytes;
use pillarbox::Event;
use rand::{RngExt, SeedableRng, rngs::StdRng};

/// Generates events whose arrival can be checked: each payload says the event's place in its key.
pub(super) struct Maker {
    topic: String,
    /// `None`: twenty properties of a real event instead of filler text.
    payload_bytes: Option<usize>,
    rng: StdRng,
    /// How many events each key has so far.
    counts: Vec<u32>,
    made: u64,
    poison: Option<Poison>,
    /// The share of events whose producer sampled its trace. `None`: they have no traces.
    sampled: Option<f64>,
}

/// One key in `one_in`, and the topic of its events.
struct Poison {
    one_in: usize,
    topic: String,
}

impl Maker {
    pub(super) fn new(topic: &str, keys: usize, payload_bytes: usize) -> Self {
        Self::making(topic, keys, Some(payload_bytes))
    }

    /// Generates events with twenty properties, about 500 bytes each.
    pub(super) fn rich(topic: &str, keys: usize) -> Self {
        Self::making(topic, keys, None)
    }

    fn making(topic: &str, keys: usize, payload_bytes: Option<usize>) -> Self {
        // The same keys in the same order in every run, so that only the machine differs.
        Self {
            topic: topic.to_owned(),
            payload_bytes,
            rng: StdRng::seed_from_u64(7),
            counts: vec![0; keys.max(1)],
            made: 0,
            poison: None,
            sampled: None,
        }
    }

    /// Gives each event a trace, of which this share is sampled.
    pub(super) fn traced(mut self, share: f64) -> Self {
        self.sampled = Some(share);
        self
    }

    /// Sends all events of one key in `one_in` to another topic.
    pub(super) fn poisoned(mut self, one_in: usize, topic: &str) -> Self {
        self.poison = Some(Poison {
            one_in,
            topic: topic.to_owned(),
        });
        self
    }

    pub(super) fn is_poisonous(&self, key: usize) -> bool {
        let poison = self.poison.as_ref();
        poison.is_some_and(|poison| key % poison.one_in == poison.one_in / 2)
    }

    pub(super) fn next(&mut self) -> Event {
        let key = self.rng.random_range(0..self.counts.len());
        let nth = self.counts[key];
        self.counts[key] += 1;
        let number = self.made;
        self.made += 1;
        let start = format!(r#"{{"number":{number},"key":{key},"nth":{nth},"#);
        let payload = match self.payload_bytes {
            Some(bytes) => {
                let start = format!(r#"{start}"fill":""#);
                let fill = bytes.saturating_sub(start.len() + 2);
                format!("{start}{:x<fill$}\"}}", "")
            }
            None => format!("{start}{}", rich(number)),
        };
        let topic = match &self.poison {
            Some(poison) if self.is_poisonous(key) => &poison.topic,
            _ => &self.topic,
        };
        let event = Event::to(topic)
            .event_type("BenchEvent")
            .aggregate("bench", format!("key-{key}"))
            .payload(Bytes::from(payload));
        match self.sampled {
            Some(share) => event.header("traceparent", self.traceparent(share)),
            None => event,
        }
    }

    fn traceparent(&mut self, share: f64) -> String {
        let flags = u8::from(self.rng.random_bool(share));
        let (trace, span) = (
            self.rng.random_range(1..=u128::MAX),
            self.rng.random_range(1..=u64::MAX),
        );
        format!("00-{trace:032x}-{span:016x}-{flags:02x}")
    }

    pub(super) fn take(&mut self, count: usize) -> Vec<Event> {
        (0..count).map(|_| self.next()).collect()
    }

    /// How many events each key has so far.
    pub(super) fn counts(&self) -> &[u32] {
        &self.counts
    }
}

/// The other properties of an order, and the closing bracket.
fn rich(number: u64) -> String {
    let total = number % 10_000;
    format!(
        r#""order_id":"o-{number}","customer":"Ada Lovelace","street":"12 St James's Square","city":"London","country":"GB","email":"ada@example.org","currency":"EUR","total":{total}.5,"discount":0.25,"quantity":{},"status":"placed","gift":false,"express":true,"placed_at":"2026-01-02T03:04:05Z","note":null,"stores_involved":["north","south-{}"],"tags":{{"channel":"web","campaign":"spring"}}}}"#,
        number % 9 + 1,
        number % 50
    )
}

/// What a received payload says about its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub(super) struct Mark {
    pub(super) number: u64,
    pub(super) key: usize,
    pub(super) nth: u32,
}

/// Compares what arrived with what was generated: each event once, in order per key.
pub(super) struct Check {
    expected: Vec<u32>,
    seen: Vec<Vec<bool>>,
    last: Vec<Option<u32>>,
    pub(super) arrived: u64,
    pub(super) duplicated: u64,
    pub(super) order_violations: u64,
}

impl Check {
    pub(super) fn new(expected: &[u32]) -> Self {
        Self {
            expected: expected.to_vec(),
            seen: expected
                .iter()
                .map(|&count| vec![false; count as usize])
                .collect(),
            last: vec![None; expected.len()],
            arrived: 0,
            duplicated: 0,
            order_violations: 0,
        }
    }

    pub(super) fn saw(&mut self, mark: Mark) {
        let Some(seen) = self
            .seen
            .get_mut(mark.key)
            .and_then(|key| key.get_mut(mark.nth as usize))
        else {
            return;
        };
        if std::mem::replace(seen, true) {
            self.duplicated += 1;
            return;
        }
        self.arrived += 1;
        if self.last[mark.key].is_some_and(|last| mark.nth < last) {
            self.order_violations += 1;
        }
        self.last[mark.key] = self.last[mark.key].max(Some(mark.nth));
    }

    pub(super) fn lost(&self) -> u64 {
        self.expected.iter().map(|&count| u64::from(count)).sum::<u64>() - self.arrived
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_event_has_its_size_and_its_number() {
        let mut maker = Maker::new("t", 3, 300);
        let events = maker.take(50);
        assert!(events.iter().all(|event| event.payload.len() == 300));
        let mark: Mark = serde_json::from_slice(&events[49].payload).unwrap();
        assert_eq!(mark.number, 49);
        assert_eq!(events[49].aggregate_id, format!("key-{}", mark.key));
    }

    #[test]
    fn one_key_in_so_many_is_poisonous() {
        let mut maker = Maker::new("t", 40, 300).poisoned(20, "nowhere");
        assert_eq!((0..40).filter(|&key| maker.is_poisonous(key)).count(), 2);
        for event in maker.take(500) {
            let mark: Mark = serde_json::from_slice(&event.payload).unwrap();
            assert_eq!(event.topic == "nowhere", maker.is_poisonous(mark.key));
        }
        assert!(!Maker::new("t", 40, 300).is_poisonous(10));
    }

    #[test]
    fn loss_copies_and_disorder_are_counted_separately() {
        let mut check = Check::new(&[4, 1]);
        for nth in [0, 2, 1, 1] {
            check.saw(Mark {
                number: 0,
                key: 0,
                nth,
            });
        }
        check.saw(Mark {
            number: 9,
            key: 7,
            nth: 0,
        });
        assert_eq!(
            (check.lost(), check.duplicated, check.order_violations),
            (2, 1, 1)
        );
    }
}
