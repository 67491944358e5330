//! Output for people: data on stdout, the rest on stderr, colours and progress only on a terminal.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use owo_colors::OwoColorize;
use pillarbox_relay::{
    connect::{self, OpenStore},
    store::{StoreError, StoreErrorKind},
};
use serde::Serialize;

use crate::{
    cli::Global,
    config::{self, Settings, Sources},
    logging,
};

/// The answer of a command: exit 0 or 1. An error is exit 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
}

/// What every command gets.
pub(crate) struct Context {
    pub global: Global,
    pub json: bool,
    /// stdout is a terminal, so progress bars and redrawing make sense.
    pub terminal: bool,
    /// stdout may have colours.
    pub colour: bool,
}

impl Context {
    pub(crate) fn new(global: Global) -> Self {
        let terminal = io::stdout().is_terminal();
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            json: global.json,
            terminal,
            colour: terminal && wanted && !global.json,
            global,
        }
    }

    pub(crate) fn sources(&self) -> Sources {
        self.global.sources()
    }

    pub(crate) fn settings(&self) -> Result<Settings> {
        config::settings(&self.sources())
    }

    /// Starts logging at `level`, unless the user asked for another level.
    pub(crate) fn log(&self, level: &str) -> Result<()> {
        logging::start(&self.global, level)
    }

    /// One JSON value on a line of stdout.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Result<()> {
        self.print(&serde_json::to_string(value)?)
    }

    /// A line of data.
    pub(crate) fn print(&self, line: &str) -> Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        Ok(out.flush()?)
    }

    /// A line for people. With `--json` nothing is printed.
    pub(crate) fn say(&self, line: &str) {
        if !self.json {
            tell(line);
        }
    }

    pub(crate) fn good(&self, text: &str) -> String {
        if self.colour {
            text.green().to_string()
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn bad(&self, text: &str) -> String {
        if self.colour {
            text.red().to_string()
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn quiet(&self, text: &str) -> String {
        if self.colour {
            text.dimmed().to_string()
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn strong(&self, text: &str) -> String {
        if self.colour {
            text.bold().to_string()
        } else {
            text.to_owned()
        }
    }
}

/// The store of the settings.
pub(crate) fn open_store(settings: &Settings) -> Result<OpenStore> {
    connect::store(&settings.database).map_err(store_error)
}

/// A store's error. Its causes are added, unless the error itself says what to do.
pub(crate) fn store_error(error: StoreError) -> anyhow::Error {
    match error.kind {
        StoreErrorKind::NotMigrated => anyhow::anyhow!("{error}"),
        _ => anyhow::anyhow!(error.chain()),
    }
}

/// A table without borders, as wide as its contents.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    if !header.is_empty() {
        table.set_header(header.iter().copied());
    }
    table
}

/// A bar on stderr, on a terminal only.
pub(crate) fn progress(context: &Context, what: &str, total: u64) -> ProgressBar {
    if context.json || !context.terminal {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:>12} {bar:40} {human_pos} of {human_len}, {per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total)
        .with_style(style)
        .with_message(what.to_owned())
}

/// A counter on stderr for an unknown total, on a terminal only.
pub(crate) fn counter(context: &Context, what: &str) -> ProgressBar {
    if context.json || !context.terminal {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:>12} {human_pos}, {per_sec}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::new_spinner()
        .with_style(style)
        .with_message(what.to_owned())
}

/// `0.4 s`, `12 s`, `3 min`, `5 h`, `4 d`: for people the first digits are enough.
pub(crate) fn span(age: Duration) -> String {
    match age.as_secs() {
        0..10 => format!("{:.1} s", age.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// A line on stderr. A closed stderr is not an error.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints an error. A closed pipe is a normal end.
pub(crate) fn failed(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe);
    if broken_pipe {
        return ExitCode::SUCCESS;
    }
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        // Some errors already contain the text of their source.
        if !text.ends_with(&cause) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.push_str(separator);
            text.push_str(&cause);
        }
    }
    tell(&format!("error: {text}"));
    ExitCode::from(2)
}
