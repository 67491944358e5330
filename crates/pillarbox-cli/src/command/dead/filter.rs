//! The flags that select dead letters.

use jiff::Timestamp;
use pillarbox::EventId;
use pillarbox_relay::{dead::DeadFilter, settlement::DeadReason};

use crate::command::time::ago;

#[derive(clap::Args)]
#[command(next_help_heading = "Which")]
pub(super) struct Filter {
    /// The fingerprint of a group, from `dead list`
    #[arg(long, value_name = "PRINT")]
    fingerprint: Option<String>,
    /// A topic, or a topic with `.>` at the end for all below it
    #[arg(long)]
    topic: Option<String>,
    /// An event type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// A key: the partition key, or else the aggregate's id
    #[arg(long)]
    key: Option<String>,
    /// Why they died
    #[arg(long, value_parser = reason)]
    reason: Option<DeadReason>,
    /// Died within this time: 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = ago)]
    since: Option<Timestamp>,
}

impl Filter {
    pub(super) fn with_ids(self, ids: Vec<EventId>) -> DeadFilter {
        DeadFilter {
            ids,
            fingerprint: self.fingerprint,
            topic: self.topic,
            event_type: self.event_type,
            key: self.key,
            reason: self.reason,
            since: self.since,
        }
    }
}

fn reason(text: &str) -> Result<DeadReason, String> {
    let known = DeadReason::ALL;
    known
        .into_iter()
        .find(|reason| reason.as_str() == text)
        .ok_or_else(|| format!("the reasons are {}", known.map(DeadReason::as_str).join(", ")))
}
