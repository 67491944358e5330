//! The cost of an idle relay.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::{Findings, Host, Shape, arena::Arena, findings::Rows, relays::Relays};

/// Measure what relays and the database use while there is nothing to deliver
#[derive(clap::Args)]
pub(super) struct Args {
    /// How long to measure, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Serialize)]
struct Idle {
    seconds: u32,
    /// Per cent of one core.
    relay_cpu_percent: Option<f64>,
    /// `null` if the database's processes are not on this machine.
    database_cpu_percent: Option<f64>,
}

/// Long enough for a relay to start and to become idle.
const SETTLE_DOWN: Duration = Duration::from_secs(3);

pub(super) async fn run(args: &Args, arena: &Arena, host: &dyn Host) -> Result<Findings> {
    let mut relays = Relays::start(arena, usize::from(args.shape.relays), None)?;
    tokio::time::sleep(SETTLE_DOWN).await;
    relays.check().await?;
    host.say(&format!("Watching for {} s…", args.seconds));
    let (relay_before, database_before) = (relays.cpu_seconds(host), arena.database.cpu_seconds(host).await?);
    tokio::time::sleep(Duration::from_secs(args.seconds.into())).await;
    let (relay_after, database_after) = (relays.cpu_seconds(host), arena.database.cpu_seconds(host).await?);
    relays.stop().await?;
    let percent =
        |before: Option<f64>, after: Option<f64>| Some((after? - before?) / f64::from(args.seconds) * 100.0);
    let idle = Idle {
        seconds: args.seconds,
        relay_cpu_percent: percent(relay_before, relay_after),
        database_cpu_percent: percent(database_before, database_after),
    };
    let show = |percent: Option<f64>| {
        percent.map_or("unknown".into(), |percent| format!("{percent:.2} % of a core"))
    };
    let mut rows = Rows::default();
    rows.add("relays", show(idle.relay_cpu_percent));
    rows.add("database", show(idle.database_cpu_percent));
    Findings::new(&idle, rows, true)
}
