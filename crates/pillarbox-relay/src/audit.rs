//! The live audit: while a relay works, it now and then looks up a sample of delivered events at their sinks.
//!
//! The events that are looked up are chosen when a sink acknowledges them ([`crate::sink::audit`]). So the audit needs
//! no query of the database, and no event waits for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use pillarbox::EventId;

use crate::{
    engine::Progress,
    sink::{Sink, audit::Audited},
};

/// A sink ends its audit by itself before this.
const TIME_MAX: Duration = Duration::from_secs(60);
/// So many ids of lost events are shown.
pub const LOST_IDS_MAX: usize = 5;

/// In an endless loop. Sinks that can't look up events are left out.
pub(crate) async fn keep_auditing(
    sinks: BTreeMap<Arc<str>, Arc<dyn Sink>>,
    every: Duration,
    progress: Arc<Progress>,
) {
    let names = sinks.iter().filter(|(_, sink)| sink.audit().is_some());
    names.for_each(|(name, _)| progress.audits.begin(name));
    loop {
        for (name, sink) in &sinks {
            let Some(audit) = sink.audit() else { continue };
            let audited = tokio::time::timeout(TIME_MAX, audit.audit()).await;
            let too_slow = || Audited::nothing("the audit took too long");
            record(name, &audited.unwrap_or_else(|_| too_slow()), &progress);
        }
        tokio::time::sleep(every).await;
    }
}

fn record(sink: &str, audited: &Audited, progress: &Progress) {
    if !audited.lost.is_empty() {
        tracing::error!(
            sink,
            lost = audited.lost.len(),
            checked = audited.checked,
            event_ids = shown(&audited.lost),
            "outbox_audit_lost"
        );
    }
    for problem in progress.audited(sink, audited) {
        let (place, why) = (problem.place.as_deref(), &*problem.why);
        tracing::warn!(sink, place, why, "delivered events can't be looked up");
    }
}

/// The first ids, for people.
pub(crate) fn shown(ids: &[EventId]) -> String {
    let shown: Vec<String> = ids.iter().take(LOST_IDS_MAX).map(EventId::to_string).collect();
    shown.join(", ")
}
