//! The cost of failing keys for all other keys.

use std::time::Instant;

use anyhow::{Result, bail};
use serde::Serialize;

use super::{
    Findings, Host, Shape, Target,
    arena::Arena,
    drain::load,
    events::Maker,
    findings::Rows,
    in_arena,
    receive::{self, Receiver},
    relays::Relays,
    store_error,
};

/// Measure the cost of failing keys for all other keys
///
/// Delivers pairs of backlogs: one clean, and one in which no stream accepts the events of some
/// keys (poisoned). These events wait, are retried now and then, and hold back their keys. The
/// measurement compares how fast the events of all other keys arrive, from the start of the relays
/// until the last of them is in the stream. Every second pair starts with the poisoned backlog,
/// because machines drift. Each time the events are read back and checked. Needs a nats:// sink.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How many events in each backlog
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    events: u32,
    /// How many pairs of a clean and a poisoned backlog
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// One key in this many is poisonous
    #[arg(long, default_value_t = 1_000, value_name = "KEYS", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    one_in: u32,
    #[command(flatten)]
    shape: Shape,
}

/// The result of one delivered backlog.
struct Drained {
    /// Events of keys that don't fail.
    events: u64,
    /// Events of keys that fail.
    poisonous: u64,
    seconds: f64,
    lost: u64,
    duplicated: u64,
    order_violations: u64,
}

#[derive(Serialize)]
struct Report {
    events: u64,
    poisonous_events: u64,
    clean_events_per_second: f64,
    poisoned_events_per_second: f64,
    /// The ratio of all pairs together.
    ratio: f64,
    pairs: Vec<Pair>,
    lost: u64,
    duplicated: u64,
    order_violations: u64,
}

#[derive(Serialize)]
struct Pair {
    clean_events_per_second: f64,
    poisoned_events_per_second: f64,
    ratio: f64,
}

pub(super) async fn run(args: &Args, target: &Target, host: &dyn Host) -> Result<Findings> {
    let mut pairs = Vec::new();
    for pair in 0..args.pairs {
        host.say(&format!("Pair {} of {}…", pair + 1, args.pairs));
        let poisoned_first = pair % 2 == 1;
        // Each backlog has its own tables and stream, so that none starts with leftovers of another.
        let drained =
            async |poisoned| in_arena(target, async |arena| drain(args, arena, host, poisoned).await).await;
        let (first, second) = (drained(poisoned_first).await?, drained(!poisoned_first).await?);
        pairs.push(if poisoned_first {
            (second, first)
        } else {
            (first, second)
        });
    }
    Report::of(&pairs).findings(args)
}

async fn drain(args: &Args, arena: &Arena, host: &dyn Host, poisoned: bool) -> Result<Drained> {
    if !arena.has_streams() {
        bail!("no stream accepts the events of a poisonous key, so this needs a nats:// sink");
    }
    let mut maker = args.shape.maker(arena);
    if poisoned {
        maker = maker.poisoned(args.one_in as usize, &arena.topic_without_stream());
    }
    load(arena, &mut maker, args.events as usize, host).await?;
    let (wanted, poisonous) = wanted(&maker);
    let events: u64 = wanted.iter().map(|&count| u64::from(count)).sum();

    let (mut receiver, lines) = Receiver::open(arena);
    let began = Instant::now();
    let mut relays = Relays::start(arena, usize::from(args.shape.relays), lines)?;
    receiver.wait_for(arena, events, &mut relays, |_| ()).await?;
    let seconds = began.elapsed().as_secs_f64();
    relays.stop().await?;

    let status = arena.store.admin.status().await.map_err(store_error)?;
    let unsettled = status.pending + status.failed + status.held + status.dead;
    if unsettled != poisonous {
        bail!("{poisonous} events are poisonous, but {unsettled} are not delivered");
    }
    let Some(check) = receive::check(receiver, &wanted).await? else {
        bail!("the stream can't be read back");
    };
    Ok(Drained {
        events,
        poisonous,
        seconds,
        lost: check.lost(),
        duplicated: check.duplicated,
        order_violations: check.order_violations,
    })
}

/// How many events of each key must arrive, and how many never will.
fn wanted(maker: &Maker) -> (Vec<u32>, u64) {
    let mut poisonous = 0;
    let counts = maker.counts().iter().enumerate().map(|(key, &count)| {
        if maker.is_poisonous(key) {
            poisonous += u64::from(count);
            return 0;
        }
        count
    });
    (counts.collect(), poisonous)
}

impl Report {
    fn of(pairs: &[(Drained, Drained)]) -> Self {
        let rate = |drained: &[&Drained]| {
            let events: u64 = drained.iter().map(|one| one.events).sum();
            let seconds: f64 = drained.iter().map(|one| one.seconds).sum();
            events as f64 / seconds
        };
        let (clean, poisoned): (Vec<_>, Vec<_>) =
            pairs.iter().map(|(clean, poisoned)| (clean, poisoned)).unzip();
        let all = || clean.iter().chain(&poisoned);
        let (clean_rate, poisoned_rate) = (rate(&clean), rate(&poisoned));
        Self {
            events: all().map(|one| one.events).sum(),
            poisonous_events: all().map(|one| one.poisonous).sum(),
            clean_events_per_second: clean_rate,
            poisoned_events_per_second: poisoned_rate,
            ratio: poisoned_rate / clean_rate,
            pairs: pairs
                .iter()
                .map(|(clean, poisoned)| Pair {
                    clean_events_per_second: rate(&[clean]),
                    poisoned_events_per_second: rate(&[poisoned]),
                    ratio: rate(&[poisoned]) / rate(&[clean]),
                })
                .collect(),
            lost: all().map(|one| one.lost).sum(),
            duplicated: all().map(|one| one.duplicated).sum(),
            order_violations: all().map(|one| one.order_violations).sum(),
        }
    }

    fn findings(&self, args: &Args) -> Result<Findings> {
        let mut rows = Rows::default();
        rows.add("clean", format!("{:.0} events/s", self.clean_events_per_second));
        rows.add(
            format!("one key in {} poisonous", args.one_in),
            format!(
                "{:.0} events/s of the others: {:.2} of clean",
                self.poisoned_events_per_second, self.ratio
            ),
        );
        let each: Vec<String> = self
            .pairs
            .iter()
            .map(|pair| format!("{:.2}", pair.ratio))
            .collect();
        rows.add("each pair", each.join(", "));
        rows.add("poisonous events", self.poisonous_events.to_string());
        rows.add("lost", self.lost.to_string());
        rows.add("duplicated", self.duplicated.to_string());
        rows.add("out of order", self.order_violations.to_string());
        Findings::new(self, rows, self.lost == 0 && self.order_violations == 0)
    }
}
