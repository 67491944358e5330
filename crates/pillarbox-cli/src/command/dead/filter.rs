//! Which dead letters, as flags.

use jiff::{SignedDuration, Timestamp};
use pillarbox_relay::{dead::DeadFilter, settlement::DeadReason};
use uuid::Uuid;

#[derive(clap::Args)]
#[command(next_help_heading = "Which")]
pub(super) struct Filter {
    /// The fingerprint of a group, from `dead list`
    #[arg(long, value_name = "PRINT")]
    fingerprint: Option<String>,
    /// A topic, or with `.>` at its end all below it
    #[arg(long)]
    topic: Option<String>,
    /// An event type
    #[arg(long, value_name = "TYPE")]
    event_type: Option<String>,
    /// A key: the partition key, or the aggregate's id where there is none
    #[arg(long)]
    key: Option<String>,
    /// Why they died
    #[arg(long, value_parser = reason)]
    reason: Option<DeadReason>,
    /// Died in the last so many minutes, hours or days: 30m, 12h, 7d
    #[arg(long, value_name = "TIME", value_parser = ago)]
    since: Option<Timestamp>,
}

impl Filter {
    pub(super) fn with_ids(self, ids: Vec<Uuid>) -> DeadFilter {
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

fn ago(text: &str) -> Result<Timestamp, String> {
    let wrong = || "write a number and m, h or d, such as 30m, 12h or 7d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: i64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let age = number
        .checked_mul(seconds)
        .filter(|&age| age >= 0)
        .ok_or_else(wrong)?;
    Timestamp::now()
        .checked_sub(SignedDuration::from_secs(age))
        .map_err(|_| "that is too long ago".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_its_unit() {
        let seconds = |text| {
            let then = ago(text).unwrap();
            Timestamp::now().duration_since(then).as_secs()
        };
        assert_eq!(
            (seconds("30m"), seconds("12h"), seconds("7d")),
            (1_800, 43_200, 604_800)
        );
        for bad in [
            "",
            "7",
            "d",
            "7w",
            "-1d",
            "9999999999999999d",
            "7ü",
            "99999999999999d",
        ] {
            assert!(ago(bad).is_err(), "{bad}");
        }
    }
}
