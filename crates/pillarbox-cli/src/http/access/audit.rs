//! What operators do: each action runs to its end and has a line in the log.

use pillarbox_relay::dead::{Actor, DeadFilter};
use tokio_util::task::TaskTracker;

/// A filter may contain a text of any length.
const TEXT_CHARS_MAX: usize = 200;

/// Something an operator does to dead letters.
#[derive(Debug, Clone)]
pub(in crate::http) struct Action {
    pub(in crate::http) name: &'static str,
    pub(in crate::http) actor: Actor,
    pub(in crate::http) filter: DeadFilter,
    pub(in crate::http) dry_run: bool,
}

/// What became of it.
#[derive(Debug, Default)]
pub(in crate::http) struct Outcome {
    /// How many letters matched. `None`: it is not known.
    pub(in crate::http) touched: Option<u64>,
    pub(in crate::http) done: usize,
    pub(in crate::http) error: Option<String>,
}

/// Runs actions to their end and logs them, also if the client goes away: axum drops the handler of such a request, and
/// with it what the handler awaits.
#[derive(Default)]
pub(in crate::http) struct Operations(TaskTracker);

impl Operations {
    /// `None`: it panicked.
    pub(in crate::http) async fn run<T: Send + 'static>(
        &self,
        action: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        self.0.spawn(action).await.ok()
    }

    /// Waits for those that run. New ones must not begin any more.
    pub(in crate::http) async fn finished(&self) {
        self.0.close();
        self.0.wait().await;
    }
}

/// Writes one line for each action, also for one that failed, was refused or was only tried. It has no payload.
pub(in crate::http) fn acted(action: &Action, outcome: &Outcome) {
    let Action {
        name,
        actor,
        filter,
        dry_run,
    } = action;
    tracing::info!(
        action = name,
        by = actor.by,
        why = actor.why,
        filter = described(filter),
        dry_run,
        touched = outcome.touched,
        done = outcome.done,
        error = outcome.error,
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
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use tokio::sync::Notify;

    use super::*;

    #[test]
    fn a_filter_is_described_by_its_parts_and_never_at_length() {
        assert_eq!(described(&DeadFilter::default()), "all");
        let filter = DeadFilter {
            ids: vec!["x".into(); 3],
            topic: Some("shop.>".into()),
            key: Some("x".repeat(1_000)),
            ..DeadFilter::default()
        };
        let text = described(&filter);
        assert!(text.starts_with("ids=3 topic=shop.> key=xxx"), "{text}");
        assert!(text.len() < 300, "{text}");
    }

    #[tokio::test]
    async fn an_action_goes_on_after_its_client_has_gone() {
        let operations = Operations::default();
        let (go, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let done = Arc::new(AtomicBool::new(false));
        let action = {
            let (go, gone, done) = (go.clone(), gone.clone(), done.clone());
            async move {
                gone.notify_one();
                go.notified().await;
                done.store(true, Ordering::SeqCst);
            }
        };
        let mut handler = Box::pin(operations.run(action));
        tokio::select! {
            _ = &mut handler => panic!("it waits"),
            () = gone.notified() => {}
        }
        drop(handler);
        go.notify_one();
        operations.finished().await;
        assert!(done.load(Ordering::SeqCst));
    }
}
