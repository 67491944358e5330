//! Patterns and topics nobody meant to write.

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

/// The definition, as slowly as it reads.
fn matches(pattern: &[&str], topic: &[&str]) -> bool {
    match (pattern, topic) {
        ([], []) => true,
        ([">"], [_, ..]) => true,
        (["*", pattern @ ..], [_, topic @ ..]) => matches(pattern, topic),
        ([token, pattern @ ..], [other, topic @ ..]) => token == other && matches(pattern, topic),
        _ => false,
    }
}

/// Topic patterns and the topics of a filter, mangled: refused in words, or matching as they are defined.
#[test]
fn torture_fuzz_topic_patterns() {
    let campaign = Campaign::begin("fuzz_topic_patterns");
    fuzz::each(&campaign, input, |(text, topic)| {
        match Pattern::new(&text) {
            Err(error) => assert_says_something(&error.to_string()),
            Ok(pattern) => {
                assert_eq!(pattern.as_str(), text);
                // Deep enough for every topic that `enqueue` takes, and for no stack to overflow.
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
