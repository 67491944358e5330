//! What keys that fail cost the others.

use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use serde::Serialize;

use super::{
    Shape,
    arena::Arena,
    drain::load,
    events::Maker,
    in_arena,
    receive::{self, Receiver},
    relays::Relays,
};
use crate::{
    config::Settings,
    output::{Answer, Context, table},
};

/// What keys whose events fail cost all the others
///
/// Delivers a backlog again and again, in turn as it is (clean) and with one key in so many whose
/// events no stream takes (poisoned): these wait, are tried now and then and hold their keys back. What
/// is compared is how fast the events of all other keys arrive, from the relays' start until the
/// last of them is in the stream. Every other pair begins with the poisoned one, because machines
/// drift. Each time what arrived is read back and checked. Needs a nats:// sink.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How many events each time
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    events: u32,
    /// How many pairs of a clean and a poisoned backlog
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// One key in so many is poisonous
    #[arg(long, default_value_t = 1_000, value_name = "KEYS", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    one_in: u32,
    #[command(flatten)]
    shape: Shape,
}

/// One backlog, delivered.
struct Drained {
    /// Of keys that don't fail.
    events: u64,
    /// Of keys that do.
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
    /// Of all pairs together.
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

pub(super) async fn run(args: &Args, settings: &Settings, context: &Context) -> Result<Answer> {
    let mut pairs = Vec::new();
    for pair in 0..args.pairs {
        context.say(&format!("Pair {} of {}…", pair + 1, args.pairs));
        let poisoned_first = pair % 2 == 1;
        // Each time in tables and a stream of its own, so that none starts with what another left.
        let drained = async |poisoned| {
            in_arena(settings, async |arena| {
                drain(args, arena, context, poisoned).await
            })
            .await
        };
        let (first, second) = (drained(poisoned_first).await?, drained(!poisoned_first).await?);
        pairs.push(if poisoned_first {
            (second, first)
        } else {
            (first, second)
        });
    }
    let report = Report::of(&pairs);
    print(&report, args, context)?;
    Ok(match report.lost == 0 && report.order_violations == 0 {
        true => Answer::Yes,
        false => Answer::No,
    })
}

async fn drain(args: &Args, arena: &Arena, context: &Context, poisoned: bool) -> Result<Drained> {
    if !arena.has_streams() {
        bail!("the events of a poisonous key are those that no stream takes: this needs a nats:// sink");
    }
    let mut maker = args.shape.maker(arena);
    if poisoned {
        maker = maker.poisoned(args.one_in as usize, &arena.topic_without_stream());
    }
    load(arena, &mut maker, args.events as usize, context).await?;
    let (wanted, poisonous) = wanted(&maker);
    let events: u64 = wanted.iter().map(|&count| u64::from(count)).sum();

    let (mut receiver, lines) = Receiver::open(arena);
    let began = Instant::now();
    let mut relays = Relays::start(arena, usize::from(args.shape.relays), lines)?;
    receiver.wait_for(arena, events, &mut relays, |_| ()).await?;
    let seconds = began.elapsed().as_secs_f64();
    relays.stop().await?;

    let status = arena
        .store
        .admin
        .status()
        .await
        .map_err(|error| anyhow!(error.chain()))?;
    let unsettled = status.pending + status.failed + status.held + status.dead;
    if unsettled != poisonous {
        bail!("{poisonous} events are poisonous and {unsettled} are not delivered");
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

/// How many events of each key are to arrive, and how many never will.
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
}

fn print(report: &Report, args: &Args, context: &Context) -> Result<()> {
    if context.json {
        return context.print_json(report);
    }
    let mut rows = table(&[]);
    rows.add_row([
        "clean".into(),
        format!("{:.0} events/s", report.clean_events_per_second),
    ]);
    rows.add_row([
        format!("one key in {} poisonous", args.one_in),
        format!(
            "{:.0} events/s of the others: {:.2} of clean",
            report.poisoned_events_per_second, report.ratio
        ),
    ]);
    let each: Vec<String> = report
        .pairs
        .iter()
        .map(|pair| format!("{:.2}", pair.ratio))
        .collect();
    rows.add_row(["each pair".into(), each.join(", ")]);
    rows.add_row(["poisonous events".into(), report.poisonous_events.to_string()]);
    rows.add_row(["lost".into(), report.lost.to_string()]);
    rows.add_row(["duplicated".into(), report.duplicated.to_string()]);
    rows.add_row(["out of order".into(), report.order_violations.to_string()]);
    context.print(&rows.to_string())
}
