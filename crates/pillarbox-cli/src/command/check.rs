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

/// How often to retry what the registry has not answered yet.
const LOOKS_MAX: usize = 3;

/// Run the checks of `outbox.validation` without publishing or changing anything
///
/// Checks a file of events in the format of `enqueue`, one JSON object per line; - is stdin:
///   pillarbox check events.ndjson
///   generate-events | pillarbox check -
///
/// Or checks the committed events that were not tried yet:
///   pillarbox check --pending
///
/// Prints each event that fails, with the check, the place and the expected value. Values of the
/// payload are not shown. Exits 0 if all events pass (or only cause warnings), 1 if some fail, 2 if
/// the check could not run. Versions of aggregates are compared within the file; with --pending
/// also with what was delivered before.
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
                && !open
                    .require_versions()
                    .map_err(store_error)?
                    .has_index()
                    .await
                    .map_err(store_error)?
            {
                bail!(
                    "`aggregate_versions` needs an index that does not exist: run `pillarbox migrate` first"
                );
            }
            (Source::pending(&open, &settings).await?, open.versions.clone())
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
    // The registry is slow: its answers arrive meanwhile.
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
