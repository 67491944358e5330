//! Random patterns and topics.

use pillarbox_testkit::{
    fuzz::{self, Fuzz, assert_says_something},
    torture::Campaign,
};

use super::*;
use crate::dead::DeadFilter;

const EXAMPLES: &[&str] = &["rwa.>", "payout.*", "*.b.*.d", ">", "shop.order.placed", "a.b.>"];

fn input(fuzz: &mut Fuzz) -> (String, String) {
    let (pattern, topic) = (fuzz.pick(EXAMPLES), fuzz.pick(EXAMPLES));
    (fuzz.mutated_text(pattern), fuzz.mutated_text(topic))
}

/// The definition of a match, written in the simplest way.
fn matches(pattern: &[&str], topic: &[&str]) -> bool {
    match (pattern, topic) {
        ([], []) => true,
        ([">"], [_, ..]) => true,
        (["*", pattern @ ..], [_, topic @ ..]) => matches(pattern, topic),
        ([token, pattern @ ..], [other, topic @ ..]) => token == other && matches(pattern, topic),
        _ => false,
    }
}

/// Mutated patterns and topics: a pattern is refused with a reason, or it matches as defined.
#[test]
fn torture_fuzz_topic_patterns() {
    let campaign = Campaign::begin("fuzz_topic_patterns");
    fuzz::each(&campaign, input, |(text, topic)| {
        match Pattern::new(&text) {
            Err(error) => assert_says_something(&error.to_string()),
            Ok(pattern) => {
                assert_eq!(pattern.as_str(), text);
                // Enough for every topic that `enqueue` accepts, without a stack overflow.
                let (tokens, topic_tokens): (Vec<_>, Vec<_>) =
                    (text.split('.').collect(), topic.split('.').collect());
                if tokens.len() < 300 && topic_tokens.len() < 300 {
                    assert_eq!(pattern.matches(&topic), matches(&tokens, &topic_tokens));
                }
            }
        }
        let filter = DeadFilter {
            topic: Some(text.clone()),
            ..DeadFilter::default()
        };
        match filter.topic_and_prefix() {
            (Some(topic), None) => assert_eq!(topic, text),
            (None, Some(prefix)) => assert_eq!(format!("{prefix}>"), text),
            (None, None) => assert_eq!(text, ">"),
            both => panic!("{both:?}"),
        }
    });
}
