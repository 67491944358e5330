//! `pillarbox bench`: how fast, in comparison with yardsticks of the same run.

mod arena;
mod broker;
mod checks;
mod database;
mod drain;
mod enqueue;
mod events;
mod idle;
mod latency;
mod poison;
mod receive;
mod relays;
mod report;
mod yardstick;

use anyhow::Result;
use clap::Subcommand;

use self::{arena::Arena, events::Maker};
use crate::{
    config::Settings,
    output::{Answer, Context},
};

/// Measure how fast events are delivered, beside yardsticks of the same run
///
///   pillarbox --config pillarbox.yaml bench drain
///   pillarbox --config pillarbox.yaml bench latency --hold-snapshot
///   pillarbox --config pillarbox.yaml bench poison
///
/// It works in tables and a stream of its own, which it drops at the end; without a database it
/// uses a SQLite file of its own. Relays are started as processes of their own. Machines differ
/// and are noisy: compare ratios of one run, not rates of two.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Drain(drain::Args),
    Latency(latency::Args),
    Idle(idle::Args),
    Poison(poison::Args),
    Checks(checks::Args),
    Enqueue(enqueue::Args),
}

/// What the events are like.
#[derive(clap::Args, Clone)]
struct Shape {
    /// How many keys the events are spread over
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// The size of each payload
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    payload_bytes: u32,
    /// How many relays share the work
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    relays: u8,
    /// Keep an idle transaction with an old snapshot open meanwhile, as a long report would
    #[arg(long)]
    hold_snapshot: bool,
}

impl Shape {
    fn maker(&self, arena: &Arena) -> Maker {
        Maker::new(&arena.topic, self.keys as usize, self.payload_bytes as usize)
    }
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let settings = context.settings()?;
    match args.what {
        What::Drain(args) => in_arena(&settings, async |arena| drain::run(&args, arena, context).await).await,
        What::Latency(args) => {
            in_arena(&settings, async |arena| latency::run(&args, arena, context).await).await
        }
        What::Idle(args) => in_arena(&settings, async |arena| idle::run(&args, arena, context).await).await,
        What::Poison(args) => poison::run(&args, &settings, context).await,
        What::Checks(args) => {
            in_arena(&settings, async |arena| checks::run(&args, arena, context).await).await
        }
        What::Enqueue(args) => {
            in_arena(&settings, async |arena| enqueue::run(&args, arena, context).await).await
        }
    }
}

/// Measures in an arena, which is closed whatever came of it.
async fn in_arena<T>(settings: &Settings, measure: impl AsyncFnOnce(&Arena) -> Result<T>) -> Result<T> {
    let arena = Arena::open(settings).await?;
    let measured = measure(&arena).await;
    let closed = arena.close().await;
    let measured = measured?;
    closed?;
    Ok(measured)
}
