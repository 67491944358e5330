//! The sources of the events to check.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use pillarbox::{Event, Limits, lane::LANES};
use pillarbox_relay::{
    connect::OpenStore,
    store::{HeldLane, PageLimit, Reader},
};

use super::super::enqueue::ndjson::Lines;
use crate::{config::Settings, output::store_error};

const EVENTS_AT_ONCE: usize = 1_000;
const BYTES_AT_ONCE: usize = 16 * 1024 * 1024;

/// Some events, each with its line or its seq.
#[derive(Default)]
pub(super) struct Batch {
    pub events: Vec<(i64, Event)>,
    pub unreadable: Vec<(i64, String)>,
}

pub(super) enum Source {
    File {
        lines: Lines<Box<dyn BufRead + Send>>,
        limits: Limits,
    },
    Pending {
        reader: Box<dyn Reader>,
        limit: PageLimit,
        ended: bool,
    },
}

impl Source {
    pub(super) fn file(path: &Path, settings: &Settings) -> Result<Self> {
        let input: Box<dyn BufRead + Send> = if path == Path::new("-") {
            Box::new(BufReader::new(std::io::stdin()))
        } else {
            let file = File::open(path).with_context(|| format!("can't open {}", path.display()))?;
            Box::new(BufReader::new(file))
        };
        Ok(Self::File {
            lines: Lines::new(input, &settings.limits),
            limits: settings.limits.clone(),
        })
    }

    /// Committed events that were not tried yet. It acquires no lane, so relays continue meanwhile.
    pub(super) async fn pending(open: &OpenStore, settings: &Settings) -> Result<Self> {
        open.store.check().await.map_err(store_error)?;
        let low_mark = open.admin.low_mark().await.map_err(store_error)?;
        let lanes: Vec<HeldLane> = (0..LANES)
            .filter_map(|lane| u8::try_from(lane).ok())
            .map(|lane| HeldLane {
                lane,
                epoch: 0,
                low_mark,
            })
            .collect();
        let Limits {
            payload_bytes_max, ..
        } = settings.limits;
        Ok(Self::Pending {
            reader: open.store.reader(&lanes),
            limit: PageLimit {
                events: EVENTS_AT_ONCE,
                bytes: BYTES_AT_ONCE,
                payload_bytes_max,
            },
            ended: false,
        })
    }

    /// What the number next to an event means.
    pub(super) fn place(&self) -> &'static str {
        match self {
            Self::File { .. } => "line",
            Self::Pending { .. } => "seq",
        }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Batch>> {
        match self {
            Self::File { lines, limits } => from_file(lines, limits),
            Self::Pending { ended: true, .. } => Ok(None),
            Self::Pending { reader, limit, ended } => {
                let page = reader.next(*limit).await.map_err(store_error)?;
                *ended = !page.more;
                Ok(Some(Batch {
                    events: page
                        .events
                        .into_iter()
                        .map(|event| (event.seq, event.event))
                        .collect(),
                    unreadable: page
                        .unreadable
                        .into_iter()
                        .map(|row| (row.seq, row.problem))
                        .collect(),
                }))
            }
        }
    }
}

fn from_file(lines: &mut Lines<Box<dyn BufRead + Send>>, limits: &Limits) -> Result<Option<Batch>> {
    let mut batch = Batch::default();
    let mut bytes = 0;
    while batch.events.len() + batch.unreadable.len() < EVENTS_AT_ONCE && bytes < BYTES_AT_ONCE {
        let Some((line, event)) = lines.next()? else {
            break;
        };
        bytes += event.payload.len();
        let line = i64::try_from(line).unwrap_or(i64::MAX);
        match limits.check_new(&event, Timestamp::now()) {
            Ok(()) => batch.events.push((line, event)),
            Err(problem) => batch
                .unreadable
                .push((line, format!("`enqueue` would refuse it: {problem}"))),
        }
    }
    Ok((!batch.events.is_empty() || !batch.unreadable.is_empty()).then_some(batch))
}
