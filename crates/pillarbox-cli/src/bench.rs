//! Measuring: to be filled.

use anyhow::{Result, bail};

use crate::output::{Answer, Context};

/// Measure this machine, database and sink
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) async fn run(_args: Args, _context: &Context) -> Result<Answer> {
    bail!("`bench` is not built yet")
}
