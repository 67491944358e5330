//! What it costs to have nothing to do.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::{Shape, arena::Arena, relays::Relays};
use crate::output::{Answer, Context, table};

/// What relays and the database use while there is nothing to deliver
#[derive(clap::Args)]
pub(super) struct Args {
    /// For how long, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Serialize)]
struct Idle {
    seconds: u32,
    /// Of one core.
    relay_cpu_percent: Option<f64>,
    /// `null` when the database's processes are not on this machine.
    database_cpu_percent: Option<f64>,
}

/// Long enough for a relay to have started and to know that nothing comes.
const SETTLE_DOWN: Duration = Duration::from_secs(3);

pub(super) async fn run(args: &Args, arena: &Arena, context: &Context) -> Result<Answer> {
    let mut relays = Relays::start(arena, usize::from(args.shape.relays), None)?;
    tokio::time::sleep(SETTLE_DOWN).await;
    relays.check().await?;
    context.say(&format!("Watching for {} s…", args.seconds));
    let (relay_before, database_before) = (relays.cpu_seconds(), arena.database.cpu_seconds().await?);
    tokio::time::sleep(Duration::from_secs(args.seconds.into())).await;
    let (relay_after, database_after) = (relays.cpu_seconds(), arena.database.cpu_seconds().await?);
    relays.stop().await?;
    let percent =
        |before: Option<f64>, after: Option<f64>| Some((after? - before?) / f64::from(args.seconds) * 100.0);
    let idle = Idle {
        seconds: args.seconds,
        relay_cpu_percent: percent(relay_before, relay_after),
        database_cpu_percent: percent(database_before, database_after),
    };
    if context.json {
        context.print_json(&idle)?;
        return Ok(Answer::Yes);
    }
    let show = |percent: Option<f64>| {
        percent.map_or("unknown".into(), |percent| format!("{percent:.2} % of a core"))
    };
    let mut rows = table(&[]);
    rows.add_row(["relays", &show(idle.relay_cpu_percent)]);
    rows.add_row(["database", &show(idle.database_cpu_percent)]);
    context.print(&rows.to_string())?;
    Ok(Answer::Yes)
}
