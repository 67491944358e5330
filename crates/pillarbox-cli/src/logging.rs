//! The log: on stderr, as text or JSON.

use std::io::IsTerminal;

use anyhow::{Context as _, Result};
use tracing_subscriber::EnvFilter;

use crate::cli::{Global, LogFormat};

/// `level` is the default. Libraries log only warnings and errors.
pub(crate) fn start(global: &Global, level: &str) -> Result<()> {
    let asked = global.log.as_deref().filter(|filter| !filter.is_empty());
    let filter = match asked {
        Some(filter) => {
            EnvFilter::try_new(filter).with_context(|| format!("`{filter}` is not a log filter"))?
        }
        None => EnvFilter::new(format!(
            "warn,pillarbox={level},pillarbox_relay={level},sqlx=error,async_nats=error"
        )),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(
            std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        );
    let started = match global.log_format {
        LogFormat::Text => builder.with_target(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("can't start logging: {error}"))
}
