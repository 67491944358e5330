//! The lines of the stream. Pure.

use serde::Deserialize;

use super::Followed;
use crate::event::whole::Whole;

/// One line of the stream.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    Event(Box<Followed>),
    /// Everything up to this position was looked at.
    Heartbeat {
        position: i64,
    },
    /// The last line.
    End {
        why: String,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum LinesError {
    Lost(String),
    TooLarge,
    Unreadable(String),
}

/// Cuts bytes into lines.
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// There is no line break before this place.
    searched: usize,
    line_bytes_max: usize,
}

/// A line that is no event.
#[derive(Deserialize)]
struct Note {
    #[serde(default)]
    heartbeat: bool,
    #[serde(default)]
    end: Option<String>,
    position: i64,
}

impl Lines {
    pub(super) fn new(line_bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            searched: 0,
            line_bytes_max,
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<(), LinesError> {
        self.bytes.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
        // What is here is the beginning of one line.
        let rest = chunk
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(chunk.len());
        if self.bytes.len() + rest > self.line_bytes_max {
            return Err(LinesError::TooLarge);
        }
        self.bytes.extend_from_slice(chunk);
        Ok(())
    }

    /// The next whole line, if there is one.
    pub(super) fn take(&mut self) -> Result<Option<Line>, LinesError> {
        loop {
            let rest = &self.bytes[self.searched..];
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else {
                self.searched = self.bytes.len();
                return Ok(None);
            };
            let end = self.searched + length;
            let line = &self.bytes[self.start..end];
            (self.start, self.searched) = (end + 1, end + 1);
            if line.len() > self.line_bytes_max {
                return Err(LinesError::TooLarge);
            }
            if !line.trim_ascii().is_empty() {
                return read(line).map(Some);
            }
        }
    }
}

fn read(line: &[u8]) -> Result<Line, LinesError> {
    let unreadable = |error: serde_json::Error| LinesError::Unreadable(error.to_string());
    if let Ok(note) = serde_json::from_slice::<Note>(line) {
        if let Some(why) = note.end {
            return Ok(Line::End { why });
        }
        if note.heartbeat {
            return Ok(Line::Heartbeat {
                position: note.position,
            });
        }
    }
    let whole = Whole::read(line).map_err(unreadable)?;
    Ok(Line::Event(Box::new(Followed {
        position: whole
            .position
            .ok_or_else(|| LinesError::Unreadable("it has no position".into()))?,
        event: whole.event,
        created_at: whole.created_at,
        published_at: whole.published_at,
    })))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENT: &str = r#"{"position":7,"published_at":"2026-01-02T03:04:06Z","seq":9,"created_at":"2026-01-02T03:04:05Z","id":"018f0000-0000-7000-8000-000000000001","topic":"chat.message","event_type":"Sent","schema_version":1,"aggregate_type":"chat","aggregate_id":"s-1","payload":{"n": 1.50},"project_id":"p"}"#;

    fn all(lines: &mut Lines) -> Vec<Line> {
        std::iter::from_fn(|| lines.take().unwrap()).collect()
    }

    #[test]
    fn an_event_keeps_its_payload_and_has_its_position() {
        let mut lines = Lines::new(1_000);
        lines.push(format!("{EVENT}\n").as_bytes()).unwrap();
        let [Line::Event(followed)] = &all(&mut lines)[..] else {
            panic!("one event");
        };
        assert_eq!(
            (followed.position, &followed.payload[..]),
            (7, &br#"{"n": 1.50}"#[..])
        );
        assert_eq!(followed.project_id.as_deref(), Some("p"));
        let times = [followed.created_at, followed.published_at].map(|at| at.unwrap().to_string());
        assert_eq!(times, ["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"]);
    }

    #[test]
    fn a_line_that_is_too_large_is_refused_before_it_is_whole() {
        let mut lines = Lines::new(100);
        lines.push(&[b'x'; 60]).unwrap();
        assert_eq!(lines.push(&[b'x'; 60]), Err(LinesError::TooLarge));
    }

    #[test]
    fn what_is_not_a_line_of_a_relay_is_an_error() {
        for text in ["<html>", "{}", "{\"position\":1}", "[1]"] {
            let mut lines = Lines::new(100);
            lines.push(format!("{text}\n").as_bytes()).unwrap();
            assert!(matches!(lines.take(), Err(LinesError::Unreadable(_))), "{text}");
        }
    }

    proptest! {
        /// However the network cuts the bytes, the lines are the same. A last line that was cut off does not count.
        #[test]
        fn lines_do_not_depend_on_how_they_were_cut(cuts in proptest::collection::vec(1_usize..200, 0..20), lost in 0_usize..30) {
            let text = format!("{EVENT}\n\n{{\"heartbeat\":true,\"position\":8}}\n{EVENT}\n{{\"end\":\"closed\",\"position\":8}}\n");
            let bytes = &text.as_bytes()[..text.len() - lost];
            let mut lines = Lines::new(1_000);
            let (mut found, mut at) = (Vec::new(), 0_usize);
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let end = at.max(bytes.len().min(at.saturating_add(cut)));
                lines.push(&bytes[at..end]).unwrap();
                found.extend(all(&mut lines));
                at = end;
            }
            prop_assert_eq!(found.len(), if lost == 0 { 4 } else { 3 });
            prop_assert_eq!(&found[1], &Line::Heartbeat { position: 8 });
            prop_assert_eq!(&found[0], &found[2]);
        }
    }
}
