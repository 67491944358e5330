//! The flags that select dead letters.

use jiff::{SignedDuration, Timestamp};
use pillarbox_relay::{dead::DeadFilter, settlement::DeadReason};
use uuid::Uuid;

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
    Timestamp::now()
        .checked_sub(SignedDuration::from_secs(seconds(text)?))
        .map_err(|_| "that is too long ago".to_owned())
}

fn seconds(text: &str) -> Result<i64, String> {
    let wrong = || "write a number and m, h or d, such as 30m, 12h or 7d".to_owned();
    let (number, unit) = [('m', 60), ('h', 3_600), ('d', 86_400)]
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
        .ok_or_else(wrong)?;
    let number: u32 = number.parse().map_err(|_| wrong())?;
    Ok(i64::from(number) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_its_unit() {
        assert_eq!(
            ["30m", "12h", "7d"].map(|text| seconds(text).unwrap()),
            [1_800, 43_200, 604_800]
        );
        for bad in [
            "",
            "7",
            "d",
            "7w",
            "-1d",
            "9999999999999999d",
            "7ü",
            "4294967295d",
        ] {
            assert!(ago(bad).is_err(), "{bad}");
        }
    }
}
