//! The log lines about what operators did.

use pillarbox_relay::dead::{Actor, BulkError, DeadFilter};

/// A filter may contain a text of any length.
const TEXT_CHARS_MAX: usize = 200;

/// Something an operator did to dead letters.
pub(in crate::http) struct Action<'a> {
    pub(in crate::http) name: &'static str,
    pub(in crate::http) actor: &'a Actor,
    pub(in crate::http) filter: &'a DeadFilter,
    pub(in crate::http) dry_run: bool,
    /// How many letters matched.
    pub(in crate::http) touched: u64,
}

/// Writes one line for each action, also for one that failed or was only tried. It has no payload.
pub(in crate::http) fn acted(action: &Action, done: &Result<usize, BulkError>) {
    let Action {
        name: action,
        actor,
        filter,
        dry_run,
        touched,
    } = *action;
    let (done, error) = match done {
        Ok(done) => (*done, None),
        Err(error @ BulkError::Store { done, .. }) => (*done, Some(error.to_string())),
        Err(error) => (0, Some(error.to_string())),
    };
    tracing::info!(
        action,
        by = actor.by,
        why = actor.why,
        filter = described(filter),
        dry_run,
        touched,
        done,
        error,
        "outbox_operator_action"
    );
}

fn described(filter: &DeadFilter) -> String {
    let short = |text: &String| text.chars().take(TEXT_CHARS_MAX).collect();
    let ids = (!filter.ids.is_empty()).then(|| filter.ids.len().to_string());
    let parts: [(&str, Option<String>); 7] = [
        ("ids", ids),
        ("fingerprint", filter.fingerprint.as_ref().map(short)),
        ("topic", filter.topic.as_ref().map(short)),
        ("event_type", filter.event_type.as_ref().map(short)),
        ("key", filter.key.as_ref().map(short)),
        ("reason", filter.reason.map(|reason| reason.as_str().to_owned())),
        ("since", filter.since.map(|since| since.to_string())),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
        .collect();
    match parts.is_empty() {
        true => "all".into(),
        false => parts.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_described_by_its_parts_and_never_at_length() {
        assert_eq!(described(&DeadFilter::default()), "all");
        let filter = DeadFilter {
            ids: vec![uuid::Uuid::nil(); 3],
            topic: Some("shop.>".into()),
            key: Some("x".repeat(1_000)),
            ..DeadFilter::default()
        };
        let text = described(&filter);
        assert!(text.starts_with("ids=3 topic=shop.> key=xxx"), "{text}");
        assert!(text.len() < 300, "{text}");
    }
}
