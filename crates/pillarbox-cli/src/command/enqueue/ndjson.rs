//! Events as NDJSON: an object a line.

use std::io::{BufRead, Read};

use anyhow::{Context as _, Result, bail};
use pillarbox::{Event, Limits};

use super::Given;

/// What a line may have beside its payload: names, headers, the JSON around them.
const LINE_OVERHEAD_BYTES_MAX: usize = 64 * 1024;
/// One transaction, held in memory until it is written.
const INPUT_BYTES_MAX: usize = 256 * 1024 * 1024;

pub(super) fn read(mut input: impl BufRead, limits: &Limits) -> Result<Given> {
    let line_bytes_max = limits.payload_bytes_max + LINE_OVERHEAD_BYTES_MAX;
    let mut given = Given {
        events: Vec::new(),
        lines: Vec::new(),
    };
    let (mut line, mut number, mut total) = (Vec::new(), 0, 0);
    loop {
        line.clear();
        number += 1;
        let read = input
            .by_ref()
            .take(line_bytes_max as u64 + 1)
            .read_until(b'\n', &mut line)
            .context("can't read stdin")?;
        if read == 0 {
            return Ok(given);
        }
        if line.len() > line_bytes_max && line.last() != Some(&b'\n') {
            bail!("line {number} is longer than {line_bytes_max} bytes. Nothing was written");
        }
        total += read;
        if total > INPUT_BYTES_MAX {
            bail!(
                "line {number}: that is more than {INPUT_BYTES_MAX} bytes for one transaction. Nothing was written; split the input"
            );
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<Event>(&line) {
            Ok(event) => {
                given.events.push(event);
                given.lines.push(number);
            }
            Err(error) => bail!("line {number}: {}. Nothing was written", without_position(&error)),
        }
    }
}

/// serde_json counts lines within the line it was given: always 1. The column is of use.
fn without_position(error: &serde_json::Error) -> String {
    error.to_string().replace("at line 1 column", "at column")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        r#"{"topic":"t","event_type":"X","aggregate_type":"a","aggregate_id":"1","payload":{"n":1}}"#;

    fn error(text: &str, limits: &Limits) -> String {
        read(text.as_bytes(), limits).err().unwrap().to_string()
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        let text = format!("{GOOD}\n\n{GOOD}\n{{\"topic\":1}}\n");
        assert!(error(&text, &Limits::default()).starts_with("line 4: "));
    }

    #[test]
    fn empty_lines_are_passed_over_and_the_last_needs_no_end() {
        let given = read(format!("\n{GOOD}\r\n\n{GOOD}").as_bytes(), &Limits::default()).unwrap();
        assert_eq!(given.lines, [2, 4]);
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_the_memory() {
        let limits = Limits {
            payload_bytes_max: 10,
            ..Limits::default()
        };
        let text = error(&"x".repeat(LINE_OVERHEAD_BYTES_MAX + 12), &limits);
        assert!(text.contains("line 1 is longer"), "{text}");
    }
}
