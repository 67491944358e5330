//! Which trace an event belongs to: the producer's, as W3C Trace Context says it in the event's headers.

use pillarbox::{
    Event, EventId,
    wire::{TRACEPARENT, TRACESTATE},
};

const SAMPLED: u8 = 0b01;
/// Sampled, and a random trace id. We write version 0, in which all other flags are 0.
const KNOWN_FLAGS: u8 = 0b11;
/// `00-<32 hex digits>-<16>-<2>`
const LENGTH: usize = 55;

/// The trace of a sampled event, and the ids that each relay computes alike. So nothing must be kept between two
/// attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventTrace<'a> {
    pub(super) trace: u128,
    /// The span that caused the event. 0: the trace begins here.
    pub(super) cause: u64,
    /// The producer's header. `None`: the trace begins here.
    pub(super) traceparent: Option<&'a str>,
    pub(super) flags: u8,
    pub(super) state: &'a str,
    /// The span of the event's way through the relay, and the parent of its attempts.
    pub(super) delivery: u64,
}

impl<'a> EventTrace<'a> {
    /// `None`: the event is not traced. Its own `traceparent` decides. If it has none that is valid, `ratio` decides
    /// how many such events begin a trace of their own.
    pub(super) fn of(event: &'a Event, ratio: f64) -> Option<Self> {
        let traceparent = header(event, TRACEPARENT);
        match traceparent.and_then(parse) {
            Some((trace, cause, flags)) => (flags & SAMPLED != 0).then(|| Self {
                trace,
                cause,
                traceparent,
                flags: flags & KNOWN_FLAGS,
                state: header(event, TRACESTATE).unwrap_or_default(),
                delivery: delivery_id(&event.id, cause),
            }),
            // A trace can't have the id 0.
            None => (chosen(&event.id, ratio) && !event.id.is_nil()).then(|| Self {
                trace: number(&event.id),
                cause: 0,
                traceparent: None,
                flags: SAMPLED,
                state: "",
                delivery: delivery_id(&event.id, 0),
            }),
        }
    }

    /// A copy of the event whose `traceparent` names this span of its trace.
    pub(super) fn with_parent(&self, event: &Event, span: u64) -> Event {
        let mut event = event.clone();
        let text = format!("00-{:032x}-{span:016x}-{:02x}", self.trace, self.flags);
        match self.cause {
            0 => {
                // They do not belong to the trace that begins here.
                event.headers.retain(|name, _| {
                    !name.eq_ignore_ascii_case(TRACEPARENT) && !name.eq_ignore_ascii_case(TRACESTATE)
                });
                event.headers.insert(TRACEPARENT.into(), text);
            }
            _ => {
                let parents = event.headers.iter_mut();
                for (_, value) in parents.filter(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT)) {
                    value.clone_from(&text);
                }
            }
        }
        event
    }
}

/// Names of headers are case-insensitive.
fn header<'a>(event: &'a Event, name: &str) -> Option<&'a str> {
    let exact = event.headers.get(name);
    let found = exact.or_else(|| {
        let mut headers = event.headers.iter();
        headers.find_map(|(known, text)| known.eq_ignore_ascii_case(name).then_some(text))
    });
    found.map(String::as_str)
}

/// Trace id, span id and flags. `None`: invalid. A later version may have more behind them.
fn parse(text: &str) -> Option<(u128, u64, u8)> {
    let bytes = text.as_bytes();
    let dashes = bytes.len() >= LENGTH && [2, 35, 52].iter().all(|&place| bytes[place] == b'-');
    let lower_hex = |range: std::ops::Range<usize>| {
        let part = bytes.get(range)?;
        let valid = part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        valid.then(|| std::str::from_utf8(part).ok()).flatten()
    };
    if !dashes {
        return None;
    }
    let version = u8::from_str_radix(lower_hex(0..2)?, 16).ok()?;
    let ends = match version {
        0 => bytes.len() == LENGTH,
        0xff => false,
        _ => bytes.len() == LENGTH || bytes[LENGTH] == b'-',
    };
    let trace = u128::from_str_radix(lower_hex(3..35)?, 16).ok()?;
    let span = u64::from_str_radix(lower_hex(36..52)?, 16).ok()?;
    let flags = u8::from_str_radix(lower_hex(53..55)?, 16).ok()?;
    (ends && trace != 0 && span != 0).then_some((trace, span, flags))
}

/// The same id in every relay and at every attempt.
fn delivery_id(event: &EventId, cause: u64) -> u64 {
    let (high, low) = pair(event);
    span_id(high ^ cause, low)
}

/// The `n`th span id from a seed. Never 0, which would be invalid.
pub(super) fn span_id(seed: u64, n: u64) -> u64 {
    mix(mix(seed).wrapping_add(n)).max(1)
}

/// Whether the event is among this share of all events. The answer is the same in every relay.
fn chosen(event: &EventId, ratio: f64) -> bool {
    if ratio <= 0.0 {
        return false;
    }
    let (high, low) = pair(event);
    // Shifted to 53 bits, which an f64 represents exactly.
    let place = (mix(mix(high) ^ low) >> 11) as f64 / (1_u64 << 53) as f64;
    place < ratio
}

/// The event's id as a number: a UUID itself, of other texts a hash. Never 0.
fn number(event: &EventId) -> u128 {
    event.as_uuid().map_or_else(
        || event.with_text(|text| hash(text, 1) << 64 | hash(text, 2)),
        |uuid| uuid.as_u128(),
    )
}

fn pair(event: &EventId) -> (u64, u64) {
    let number = number(event);
    ((number >> 64) as u64, number as u64)
}

/// The same in every relay. Not 0.
fn hash(text: &str, seed: u64) -> u128 {
    let add = |hash: u64, byte: u8| mix(hash ^ u64::from(byte));
    text.bytes().fold(mix(seed), add).max(1).into()
}

/// The finalizer of SplitMix64: every bit of the input changes half of the output.
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn event() -> Event {
        Event::to("t.x").event_type("X").aggregate("thing", "1")
    }

    #[test]
    fn a_sampled_event_belongs_to_the_trace_of_its_producer() {
        let event = event().header("traceparent", PARENT).header("tracestate", "a=b");
        let trace = EventTrace::of(&event, 0.0).unwrap();
        assert_eq!(trace.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!(trace.cause, 0xb7ad_6b71_6920_3331);
        assert_eq!((trace.flags, trace.state), (1, "a=b"));
        assert_eq!(
            EventTrace::of(&event, 1.0),
            Some(trace),
            "the same at each attempt"
        );
    }

    #[test]
    fn the_next_parent_replaces_the_producers_and_nothing_else() {
        for name in ["traceparent", "TraceParent"] {
            let event = event()
                .header(name, PARENT)
                .header("tracestate", "a=b")
                .header("x", "1");
            let sent = EventTrace::of(&event, 0.0).unwrap().with_parent(&event, 0xab);
            assert_eq!(
                sent.headers[name],
                "00-0af7651916cd43dd8448eb211c80319c-00000000000000ab-01"
            );
            let mut back = sent;
            back.headers.insert(name.into(), PARENT.into());
            assert_eq!(back, event);
        }
    }

    #[test]
    fn a_producer_that_did_not_sample_decides_for_the_relay_too() {
        let event = event().header("traceparent", PARENT.replace("-01", "-00"));
        assert_eq!(EventTrace::of(&event, 1.0), None);
    }

    #[test]
    fn an_event_without_a_valid_parent_begins_a_trace_if_it_is_chosen() {
        for invalid in [
            "",
            "00-x-y-z",
            &PARENT[1..],
            &PARENT.to_uppercase(),
            &PARENT.replace("00-", "ff-"),
            &format!("{PARENT}-00"),
            &PARENT.replace('b', "é"),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        ] {
            let event = event().header("traceparent", invalid).header("tracestate", "a=b");
            assert_eq!(EventTrace::of(&event, 0.0), None, "{invalid}");
            let trace = EventTrace::of(&event, 1.0).unwrap();
            assert_eq!((trace.trace, trace.cause), (number(&event.id), 0));
            let sent = trace.with_parent(&event, 0xab);
            let simple = event.id.as_uuid().unwrap().simple();
            assert_eq!(
                sent.headers["traceparent"],
                format!("00-{simple}-00000000000000ab-01")
            );
            assert!(!sent.headers.contains_key("tracestate"));
        }
        let later = event().header("traceparent", format!("cc-{}-what-comes", &PARENT[3..]));
        assert!(EventTrace::of(&later, 0.0).is_some(), "a later version");
        let later = event().header(
            "traceparent",
            format!("{}-x", PARENT.replace("00-", "cc-").replace("-01", "-ff")),
        );
        let sent = EventTrace::of(&later, 0.0).unwrap().with_parent(&later, 0xab);
        assert_eq!(
            sent.headers["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-00000000000000ab-03",
            "its flags have no meaning in version 0"
        );
    }

    #[test]
    fn about_the_configured_share_is_chosen() {
        let events: Vec<Event> = (0..4_000).map(|_| event()).collect();
        let chosen = |ratio| events.iter().filter(|event| chosen(&event.id, ratio)).count();
        assert_eq!((chosen(0.0), chosen(1.0)), (0, events.len()));
        assert!((800..1200).contains(&chosen(0.25)), "{}", chosen(0.25));
    }

    #[test]
    fn span_ids_differ() {
        let ids: HashSet<u64> = (0..10_000).map(|n| span_id(7, n)).collect();
        assert_eq!(ids.len(), 10_000);
        assert_ne!(delivery_id(&event().id, 1), delivery_id(&event().id, 1));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(?s).{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn what_was_written_reads_back(trace in 1_u128.., span in 1_u64.., flags: u8) {
            let text = format!("00-{trace:032x}-{span:016x}-{flags:02x}");
            prop_assert_eq!(parse(&text), Some((trace, span, flags)));
        }
    }
}
