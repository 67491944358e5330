//! The subjects that the dead letters of the consumed subjects can have. No I/O.

use crate::consume::DeadLetters;

/// Patterns that a stream has to accept. A pattern that ends with `>` also accepts the dead letters of its
/// subjects.
pub(super) fn beside(consumed: &[String], stream: &[String]) -> Vec<String> {
    let mut topics: Vec<String> = Vec::new();
    for consumed in or_everything(consumed) {
        for taken in or_everything(stream) {
            if let Some(both) = both(consumed, taken).filter(|both| !both.ends_with('>')) {
                topics.push(DeadLetters::Beside.topic(&both));
            }
        }
    }
    topics
}

fn or_everything(patterns: &[String]) -> Vec<&str> {
    match patterns {
        [] => vec![">"],
        patterns => patterns.iter().map(String::as_str).collect(),
    }
}

/// The pattern that matches what both match.
fn both(one: &str, other: &str) -> Option<String> {
    let (one, other): (Vec<&str>, Vec<&str>) = (one.split('.').collect(), other.split('.').collect());
    let mut tokens = Vec::new();
    for at in 0.. {
        match (one.get(at), other.get(at)) {
            (None, None) => break,
            (Some(&">"), Some(_)) => {
                tokens.extend(&other[at..]);
                break;
            }
            (Some(_), Some(&">")) => {
                tokens.extend(&one[at..]);
                break;
            }
            (Some(&"*"), Some(token)) | (Some(token), Some(&"*")) => tokens.push(*token),
            (Some(token), Some(same)) if token == same => tokens.push(*token),
            _ => return None,
        }
    }
    Some(tokens.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_intersection_of_two_patterns_is_a_pattern() {
        for (one, other, expected) in [
            ("a.b", "a.b", Some("a.b")),
            ("a.b", "a.c", None),
            ("a.b", "a", None),
            ("a.>", "a", None),
            ("*.placed", "shop.*", Some("shop.placed")),
            ("shop.>", "shop.*.dead", Some("shop.*.dead")),
            (">", "shop.>", Some("shop.>")),
            ("shop.*", "*.*", Some("shop.*")),
        ] {
            assert_eq!(both(one, other).as_deref(), expected, "{one} and {other}");
            assert_eq!(both(other, one).as_deref(), expected, "{other} and {one}");
        }
    }

    #[test]
    fn consumed_subjects_need_a_stream_for_their_dead_letters() {
        let patterns = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        for (consumed, stream, expected) in [
            (&["shop.order"][..], &["shop.>"][..], &["shop.order.dead"][..]),
            (&["shop.>"], &["shop.>"], &[]),
            (&[], &["shop.>"], &[]),
            (&["shop.>"], &["shop.order", "other"], &["shop.order.dead"]),
            (&[], &["shop.*"], &["shop.*.dead"]),
            (&[], &[], &[]),
        ] {
            let found = beside(&patterns(consumed), &patterns(stream));
            assert_eq!(found, patterns(expected), "{consumed:?} of {stream:?}");
        }
    }
}
