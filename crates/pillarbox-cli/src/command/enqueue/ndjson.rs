//! Events as NDJSON: one object per line.

use std::io::{BufRead, Read};

use anyhow::{Context as _, Result, anyhow, bail};
use pillarbox::{Event, Limits};

use super::Given;

/// The room for everything except the payload: names, headers, and the JSON around them.
const LINE_OVERHEAD_BYTES_MAX: usize = 64 * 1024;
/// All of the input is one transaction, held in memory until it is written.
const INPUT_BYTES_MAX: usize = 256 * 1024 * 1024;

pub(super) fn read(input: impl BufRead, limits: &Limits) -> Result<Given> {
    let mut lines = Lines::new(input, limits);
    let mut given = Given {
        events: Vec::new(),
        lines: Vec::new(),
    };
    while let Some((line, event)) = lines.next().map_err(nothing_written)? {
        if lines.bytes > INPUT_BYTES_MAX {
            bail!(
                "line {line}: that is more than {INPUT_BYTES_MAX} bytes for one transaction. Nothing was written; split the input"
            );
        }
        given.events.push(event);
        given.lines.push(line);
    }
    Ok(given)
}

fn nothing_written(error: anyhow::Error) -> anyhow::Error {
    anyhow!("{error:#}. Nothing was written")
}

/// The events of an input, one at a time.
pub(in crate::command) struct Lines<R> {
    input: R,
    line_bytes_max: usize,
    line: Vec<u8>,
    number: usize,
    /// Bytes read so far.
    bytes: usize,
}

impl<R: BufRead> Lines<R> {
    pub(in crate::command) fn new(input: R, limits: &Limits) -> Self {
        Self {
            input,
            line_bytes_max: limits.payload_bytes_max + LINE_OVERHEAD_BYTES_MAX,
            line: Vec::new(),
            number: 0,
            bytes: 0,
        }
    }

    /// The next event and its line number, from 1. Empty lines are skipped.
    pub(in crate::command) fn next(&mut self) -> Result<Option<(usize, Event)>> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = self
                .input
                .by_ref()
                .take(self.line_bytes_max as u64 + 1)
                .read_until(b'\n', &mut self.line)
                .context("can't read the input")?;
            if read == 0 {
                return Ok(None);
            }
            let (number, max) = (self.number, self.line_bytes_max);
            if self.line.len() > max && self.line.last() != Some(&b'\n') {
                bail!("line {number} is longer than {max} bytes");
            }
            self.bytes += read;
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            return match serde_json::from_slice::<Event>(&self.line) {
                Ok(event) => Ok(Some((number, event))),
                Err(error) => bail!("line {number}: {}", without_position(&error)),
            };
        }
    }
}

/// serde_json counts lines within the one line it gets, so its line is always 1. Only the column is useful.
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
        let limits = Limits::default().payload_bytes_max(10);
        let text = error(&"x".repeat(LINE_OVERHEAD_BYTES_MAX + 12), &limits);
        assert!(text.contains("line 1 is longer"), "{text}");
    }
}
