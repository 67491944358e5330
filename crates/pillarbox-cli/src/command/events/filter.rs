//! The flags that select entries of the event log.

use anyhow::{Result, bail};
use jiff::Timestamp;
use pillarbox_relay::event_log::LogFilter;

use crate::command::time::time_or_ago;

#[derive(clap::Args)]
#[command(next_help_heading = "Which")]
pub(super) struct Filter {
    /// A topic, or a pattern: `*` is one token, `>` at the end is all the rest
    #[arg(long)]
    topic: Option<String>,
    /// An event type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// The type of an aggregate
    #[arg(long, value_name = "TYPE")]
    aggregate_type: Option<String>,
    /// The id of an aggregate
    #[arg(long, value_name = "ID")]
    aggregate_id: Option<String>,
    /// Events of a project
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Events of a user
    #[arg(long, value_name = "ID")]
    user: Option<String>,
    /// Events with this correlation id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// What became of them
    #[arg(long, value_parser = ["published", "dead"])]
    status: Option<String>,
    /// At this time or later: 30m, 12h, 7d ago, or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time_or_ago)]
    since: Option<Timestamp>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = time_or_ago)]
    until: Option<Timestamp>,
}

impl Filter {
    pub(super) fn read(self) -> Result<LogFilter> {
        let filter = LogFilter {
            topic: self.topic,
            event_type: self.event_type,
            aggregate_type: self.aggregate_type,
            aggregate_id: self.aggregate_id,
            project_id: self.project,
            user_id: self.user,
            correlation_id: self.correlation_id,
            status: self.status,
            since: self.since,
            until: self.until,
        };
        match filter.problem() {
            Some(problem) => bail!("{problem}"),
            None => Ok(filter),
        }
    }
}
