//! `pillarbox bench`: the measuring is done by `pillarbox-bench`.

use anyhow::{Context as _, Result};
use indicatif::ProgressBar;
pub(crate) use pillarbox_bench::Args;
use pillarbox_bench::{Host, Target};

use crate::{
    output::{Answer, Context, progress, table},
    usage::cpu_seconds_of,
};

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let settings = context.settings()?;
    let sink = settings.sinks.into_iter().next();
    let target = Target {
        database: settings.database,
        default_database: settings.default_database,
        sink: sink.context("the configuration names no sink")?.options,
        relay: settings.engine,
    };
    let findings = pillarbox_bench::run(args, &target, context).await?;
    if context.json {
        context.print_json(&findings.json)?;
    } else {
        let mut rows = table(findings.header);
        rows.add_rows(findings.rows);
        context.print(&rows.to_string())?;
    }
    Ok(match findings.promises_kept {
        true => Answer::Yes,
        false => Answer::No,
    })
}

impl Host for Context {
    fn say(&self, line: &str) {
        Self::say(self, line);
    }

    fn progress(&self, what: &str, total: u64) -> ProgressBar {
        progress(self, what, total)
    }

    fn cpu_seconds_of(&self, pid: u32) -> Option<f64> {
        cpu_seconds_of(pid)
    }
}
