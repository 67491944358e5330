//! The work of `pillarbox bench`: measures speed and compares it with yardsticks of the same run.
//!
//! It is a separate crate, so that a program can be built without it. It measures and returns [`Findings`];
//! the program shows them. The program is also the measured relay: [`run`] starts it again as `run --no-http`
//! with `--config`.

mod arena;
mod broker;
mod checks;
mod course;
mod database;
mod drain;
mod enqueue;
mod event_log;
mod events;
mod findings;
mod idle;
mod latency;
mod observability;
mod observer;
mod poison;
mod receive;
mod relays;
mod report;
mod yardstick;

use anyhow::{Result, anyhow};
use clap::Subcommand;
use indicatif::ProgressBar;
use pillarbox_relay::{
    connect::{DatabaseOptions, SinkOptions},
    engine,
    store::StoreError,
};

pub use self::findings::Findings;
use self::{arena::Arena, events::Maker};

/// Measure how fast events are delivered, compared with yardsticks of the same run
///
///   pillarbox --config pillarbox.yaml bench drain
///   pillarbox --config pillarbox.yaml bench latency --hold-snapshot
///   pillarbox --config pillarbox.yaml bench poison
///
/// It creates its own tables and stream and drops them at the end. Without a database it uses a
/// temporary SQLite file. Relays run as separate processes. Machines differ and are noisy: compare
/// the ratios within one run, not the rates of two runs.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
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
    Observability(observability::Args),
    EventLog(event_log::Args),
    Enqueue(enqueue::Args),
}

/// The properties of the events and the relays.
#[derive(clap::Args, Clone)]
struct Shape {
    /// The number of keys
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// The size of each payload, in bytes
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    payload_bytes: u32,
    /// How many relays share the work
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    relays: u8,
    /// Meanwhile keep an idle transaction with an old snapshot open, like a long report
    #[arg(long)]
    hold_snapshot: bool,
}

impl Shape {
    fn maker(&self, arena: &Arena) -> Maker {
        Maker::new(&arena.topic, self.keys as usize, self.payload_bytes as usize)
    }
}

/// What is measured.
pub struct Target {
    pub database: DatabaseOptions,
    /// No database was given: a SQLite file is created for the measurement, with the other options of
    /// `database`.
    pub default_database: bool,
    pub sink: SinkOptions,
    pub relay: engine::Options,
}

/// What the program does for a measurement.
pub trait Host {
    /// Shows a line to the waiting person.
    fn say(&self, line: &str);
    /// A progress bar, hidden if there is no terminal.
    fn progress(&self, what: &str, total: u64) -> ProgressBar;
    /// The processor time of a process so far. `None` if the system does not provide it.
    fn cpu_seconds_of(&self, pid: u32) -> Option<f64>;
}

pub async fn run(args: Args, target: &Target, host: &dyn Host) -> Result<Findings> {
    match args.what {
        What::Drain(args) => in_arena(target, async |arena| drain::run(&args, arena, host).await).await,
        What::Latency(args) => in_arena(target, async |arena| latency::run(&args, arena, host).await).await,
        What::Idle(args) => in_arena(target, async |arena| idle::run(&args, arena, host).await).await,
        What::Poison(args) => poison::run(&args, target, host).await,
        What::Checks(args) => in_arena(target, async |arena| checks::run(&args, arena, host).await).await,
        What::Observability(args) => {
            in_arena(target, async |arena| observability::run(&args, arena, host).await).await
        }
        What::EventLog(args) => {
            in_arena(target, async |arena| event_log::run(&args, arena, host).await).await
        }
        What::Enqueue(args) => in_arena(target, async |arena| enqueue::run(&args, arena, host).await).await,
    }
}

/// Measures in an arena and closes it, whatever the result.
async fn in_arena<T>(target: &Target, measure: impl AsyncFnOnce(&Arena) -> Result<T>) -> Result<T> {
    let arena = Arena::open(target).await?;
    let measured = measure(&arena).await;
    let closed = arena.close().await;
    let measured = measured?;
    closed?;
    Ok(measured)
}

/// The error with its causes.
fn store_error(error: StoreError) -> anyhow::Error {
    anyhow!(error.chain())
}
