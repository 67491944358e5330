//! When to count, and when what is written down is good enough. Pure.

use std::time::Duration;

use super::Glance;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// What producers make of the figures is near enough.
    Nothing,
    /// So little waits that what is known without counting will do, for every class.
    NoteBound,
    Count,
}

/// `lowest` is the lowest limit of all classes; figures younger than `pace` were just written, perhaps by another relay.
pub fn decide(glance: &Glance, lowest: u64, pace: Duration, reliable_for: Option<Duration>) -> Step {
    if glance.age.is_some_and(|age| age < pace) {
        return Step::Nothing;
    }
    if glance.waiting >= lowest {
        return Step::Count;
    }
    // To a producer everything written since the figures is pending still: he must not take what was delivered for a backlog.
    let near = lowest / 8;
    let since = u64::try_from(glance.at.saturating_sub(glance.noted_at)).unwrap_or(u64::MAX);
    let believed = glance.noted_pending.saturating_add(since);
    let old = match (glance.age, reliable_for) {
        (None, _) => true,
        (Some(age), Some(reliable)) => age >= reliable / 3,
        (Some(_), None) => false,
    };
    if old || believed > glance.waiting.saturating_add(near) {
        return Step::NoteBound;
    }
    Step::Nothing
}
