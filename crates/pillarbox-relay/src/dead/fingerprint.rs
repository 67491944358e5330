//! Decides which failures are the same.

use pillarbox::lane::key_hash;

use crate::settlement::DeadReason;

/// The error of an event that a newer one has superseded; the newer event's id follows.
pub const SUPERSEDED: &str =
    "an earlier event of its key and topic died, and a newer one tells the latest state: superseded by";

/// The fingerprint of superseded events.
pub fn superseded_fingerprint() -> String {
    fingerprint(DeadReason::PermanentFailure, None, SUPERSEDED)
}

/// Twelve hexadecimal digits made from the reason, the sink, and the error without the parts that differ between
/// events: numbers, ids, and text in double quotes.
pub fn fingerprint(reason: DeadReason, sink: Option<&str>, error: &str) -> String {
    let text = format!(
        "{}\0{}\0{}",
        reason.as_str(),
        sink.unwrap_or_default(),
        shape(error)
    );
    format!("{:012x}", key_hash(&text) & 0xffff_ffff_ffff)
}

/// The error with a `#` for each word that contains a digit, and for each quoted text.
fn shape(error: &str) -> String {
    let mut shape = String::with_capacity(error.len());
    // Every second part is between quotes. A quote without a closing one does not count.
    let mut parts: Vec<&str> = error.split('"').collect();
    let unclosed = if parts.len().is_multiple_of(2) {
        parts.pop()
    } else {
        None
    };
    for (index, part) in parts.iter().enumerate() {
        if index % 2 == 1 {
            shape.push('#');
        } else {
            push_words(&mut shape, part);
        }
    }
    push_words(&mut shape, unclosed.unwrap_or_default());
    shape
}

fn push_words(shape: &mut String, text: &str) {
    let in_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|c: char| in_word(c) != in_word(first))
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if word.bytes().any(|b| b.is_ascii_digit()) {
            shape.push('#');
        } else {
            shape.push_str(word);
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(error: &str) -> String {
        fingerprint(DeadReason::PermanentFailure, Some("events"), error)
    }

    #[test]
    fn the_same_failure_of_other_events_is_the_same() {
        assert_eq!(
            of("the payload has 1048999 bytes; the server takes 1048576 bytes"),
            of("the payload has 2000000 bytes; the server takes 1048576 bytes")
        );
        assert_eq!(
            of("order 0197a1b2-11aa-7000-8000-0123456789ab is unknown"),
            of("order 0197a1b2-ffff-7abc-8000-aaaaaaaaaaa1 is unknown")
        );
        assert_eq!(
            of(r#"/name: "Zoë" is too short"#),
            of(r#"/name: "Bo" is too short"#)
        );
    }

    #[test]
    fn another_cause_is_another() {
        let all = [
            of("no route takes the topic `shop.a`"),
            of("no route takes the topic `shop.b`"),
            of("this NATS user may not publish to shop.a"),
            fingerprint(DeadReason::PoisonMessage, Some("events"), "x"),
            fingerprint(DeadReason::PermanentFailure, Some("events"), "x"),
            fingerprint(DeadReason::PermanentFailure, Some("other"), "x"),
            fingerprint(DeadReason::PermanentFailure, None, "x"),
        ];
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert!(all.iter().all(|print| print.len() == 12));
    }

    proptest! {
        #[test]
        fn any_text_has_one(error in "(?s).*") {
            prop_assert_eq!(of(&error).len(), 12);
            prop_assert_eq!(of(&error), of(&error));
        }
    }
}
