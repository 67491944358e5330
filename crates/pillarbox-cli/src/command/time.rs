//! Times as people write them on the command line.

use jiff::{SignedDuration, Timestamp};

/// The time that is `30m`, `12h` or `7d` ago.
pub(super) fn ago(text: &str) -> Result<Timestamp, String> {
    Timestamp::now()
        .checked_sub(SignedDuration::from_secs(seconds(text)?))
        .map_err(|_| "that is too long ago".to_owned())
}

/// A time like `2026-01-31T12:00:00Z`, or one that is `30m`, `12h` or `7d` ago.
pub(super) fn time_or_ago(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .or_else(|_| ago(text))
        .map_err(|_| "write a time like 2026-01-31T12:00:00Z, or 30m, 12h or 7d for that long ago".to_owned())
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

    #[test]
    fn a_time_can_be_given_exactly() {
        assert!(time_or_ago("2026-01-31T12:00:00Z").is_ok());
        assert!(time_or_ago("7d").is_ok());
        assert!(time_or_ago("yesterday").is_err());
    }
}
