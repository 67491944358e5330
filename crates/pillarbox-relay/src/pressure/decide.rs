//! Decides when to count, and when the stored figures are good enough. Pure.

use std::time::Duration;

use super::Glance;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The figures are accurate enough for producers.
    Nothing,
    /// So few events are pending that the upper bound, known without counting, is good enough for every class.
    NoteBound,
    Count,
}

/// `lowest` is the lowest limit of all classes. Figures younger than `pace` were just written, perhaps by another
/// relay.
pub fn decide(glance: &Glance, lowest: u64, pace: Duration, reliable_for: Option<Duration>) -> Step {
    if glance.age.is_some_and(|age| age < pace) {
        return Step::Nothing;
    }
    if glance.waiting >= lowest {
        return Step::Count;
    }
    // A producer counts every event written since the figures as pending. Update them before delivered events look
    // like a backlog.
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
