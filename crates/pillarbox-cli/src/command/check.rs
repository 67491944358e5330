//! `pillarbox check`

mod report;
mod source;

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use pillarbox_relay::check::{Checks, Finding, versions::Memory};

use self::{
    report::Report,
    source::{Batch, Source},
};
use crate::output::{Answer, Context, open_store, store_error};

/// Times to look again at what a registry has not answered for.
const LOOKS_MAX: usize = 3;

/// Run the checks of `outbox.validation` without publishing or changing anything
///
/// Over a file of events, as `enqueue` takes them, a JSON object a line; - is stdin:
///   pillarbox check events.ndjson
///   generate-events | pillarbox check -
///
/// Over what is committed and was not tried yet:
///   pillarbox check --pending
///
/// Prints each event that fails, with the check, the place and what was expected. Values of the
/// payload are not shown. Exits 0 when all pass (or are only warned of), 1 when some fail, 2 when
/// it could not be checked. Versions of aggregates are compared within the file, or with
/// --pending also with what was delivered before.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// A file of events as NDJSON, or - for stdin
    #[arg(
        value_name = "FILE",
        required_unless_present = "pending",
        conflicts_with = "pending"
    )]
    file: Option<PathBuf>,
    /// Check the pending events of the database
    #[arg(long)]
    pending: bool,
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("error")?;
    let settings = context.settings()?;
    let options = &settings.checks.options;
    if options.is_empty() {
        bail!("no checks are configured: see `outbox.validation` (schemas, rules, aggregate_versions)");
    }
    let (mut source, versions) = match args.file {
        Some(file) => (Source::file(&file, &settings)?, None),
        None => {
            let open = open_store(&settings)?;
            if options.aggregate_versions.is_some()
                && !open.versions.has_index().await.map_err(store_error)?
            {
                bail!("`aggregate_versions` needs an index that is not there: run `pillarbox migrate` first");
            }
            (
                Source::pending(&open, &settings).await?,
                Some(open.versions.clone()),
            )
        }
    };
    let checks = Checks::new(options, versions)?;
    let mut memory = Memory::default();
    let mut report = Report::new(source.place(), context);
    while let Some(batch) = source.next().await? {
        look(&checks, &batch, &mut memory, &mut report).await?;
    }
    report.finish()
}

async fn look(checks: &Checks, batch: &Batch, memory: &mut Memory, report: &mut Report<'_>) -> Result<()> {
    for (place, problem) in &batch.unreadable {
        report.unreadable(*place, problem)?;
    }
    let events: Vec<_> = batch
        .events
        .iter()
        .map(|(place, event)| (*place, event))
        .collect();
    let mut findings = checks.look(&events, Some(memory)).await.map_err(store_error)?;
    // A slow registry: what it was asked for comes meanwhile.
    for _ in 0..LOOKS_MAX {
        let Some(wait) = findings.iter().find_map(Finding::wait) else {
            break;
        };
        tokio::time::sleep(wait).await;
        findings = checks.look(&events, Some(memory)).await.map_err(store_error)?;
    }
    for ((place, event), finding) in batch.events.iter().zip(&findings) {
        match finding {
            Finding::Pass => report.passed(),
            Finding::Failed(failures) => {
                report.failed(*place, event, failures, finding.rejection().is_some())?;
            }
            Finding::Wait { error, .. } => {
                return Err(anyhow!(
                    "{error}. {} events were checked before",
                    report.checked()
                ));
            }
        }
    }
    Ok(())
}
