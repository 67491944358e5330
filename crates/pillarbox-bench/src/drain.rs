//! Measures how fast a backlog is delivered.

use std::time::Instant;

use anyhow::{Context as _, Result};
use pillarbox::Limits;

use super::{
    Findings, Host, Shape,
    arena::Arena,
    events::Maker,
    receive::{self, Receiver},
    relays::Relays,
    report::Report,
    store_error, yardstick,
};

/// How many events are written in one transaction when the backlog is created.
const LOAD_BATCH: usize = 1_000;

/// Measure how fast a backlog is delivered
///
/// Writes a backlog, starts the relays, and waits until every event is at the sink and the relays
/// have settled and ended. The events are read back and checked: each once, in order per key. The
/// relays use the `publisher` settings of the configuration. Two yardsticks:
///
/// `pure` is the bare client. It publishes such events from memory, with as many in flight as the
/// relay. Half of them are measured before the relay and half after, because machines drift.
///
/// `naive` is a hand-written loop: fetch 200, publish one, mark one.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How many events
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    events: u32,
    #[command(flatten)]
    shape: Shape,
    /// How many events the bare client publishes; by default as many as the relay, 0 skips it
    #[arg(long)]
    pure_events: Option<u32>,
    /// How many events the hand-written loop delivers; 0 skips it
    #[arg(long, default_value_t = 2_000)]
    naive_events: u32,
}

pub(super) async fn run(args: &Args, arena: &Arena, host: &dyn Host) -> Result<Findings> {
    let total = u64::from(args.events);
    let tables = &arena.database_options.tables;
    let mut yardsticks = args.shape.maker(arena);
    let before = pure_half(args, arena, &mut yardsticks, host).await?;
    let mut maker = args.shape.maker(arena);
    load(arena, &mut maker, args.events as usize, host).await?;
    let counts = maker.counts().to_vec();

    let held = match args.shape.hold_snapshot {
        true => Some(arena.database.hold_snapshot(&arena.database_options).await?),
        false => None,
    };
    let bytes_before = arena.database.bytes(tables).await?;
    let bar = host.progress("delivering", total);
    let (mut receiver, lines) = Receiver::open(arena);
    let began = Instant::now();
    let mut relays = Relays::start(arena, usize::from(args.shape.relays), lines)?;
    receiver
        .wait_for(arena, total, &mut relays, |arrived| bar.set_position(arrived))
        .await?;
    let used = relays.stop().await?;
    let seconds = began.elapsed().as_secs_f64();
    bar.finish_and_clear();
    drop(held);

    let hot_share = arena.database.hot_share(tables, total).await?;
    let growth = arena.database.bytes(tables).await? - bytes_before;
    let unsettled = arena.store.admin.status().await.map_err(store_error)?;
    host.say("Checking what arrived…");
    let check = receive::check(receiver, &counts).await?;

    let after = pure_half(args, arena, &mut yardsticks, host).await?;
    // Both halves have the same number of events, so this is the mean of their times.
    let pure = before
        .zip(after)
        .map(|(before, after)| 2.0 / (1.0 / before + 1.0 / after));
    let naive = match args.naive_events {
        0 => None,
        count => {
            host.say("Measuring the hand-written loop…");
            Some(
                yardstick::naive(arena, &mut yardsticks, count as usize)
                    .await
                    .context("the hand-written loop")?,
            )
        }
    };
    let lost = match &check {
        Some(check) => check.lost(),
        None => unsettled.pending + unsettled.failed + unsettled.held + unsettled.dead,
    };
    let report = Report {
        events: total,
        seconds,
        events_per_second: total as f64 / seconds,
        pure_events_per_second: pure,
        naive_events_per_second: naive,
        ratio_to_pure: pure.map(|pure| total as f64 / seconds / pure),
        ratio_to_naive: naive.map(|naive| total as f64 / seconds / naive),
        statements_per_event: used.statements as f64 / total as f64,
        hot_share,
        relay_cpu_seconds: used.cpu_seconds,
        relay_peak_bytes: used.peak_bytes,
        database_growth_bytes: growth,
        lost,
        duplicated: check.as_ref().map(|check| check.duplicated),
        order_violations: check.as_ref().map(|check| check.order_violations),
        latency: None,
    };
    report.findings()
}

/// Publishes half of the bare client's events. Returns events per second.
async fn pure_half(args: &Args, arena: &Arena, maker: &mut Maker, host: &dyn Host) -> Result<Option<f64>> {
    let count = args.pure_events.unwrap_or(args.events).div_ceil(2) as usize;
    if count == 0 {
        return Ok(None);
    }
    host.say("Measuring the bare client…");
    let rate = yardstick::pure(arena, maker, count)
        .await
        .context("the bare client")?;
    Ok(Some(rate))
}

/// Writes the backlog.
pub(super) async fn load(arena: &Arena, maker: &mut Maker, events: usize, host: &dyn Host) -> Result<()> {
    let bar = host.progress("writing", events as u64);
    let limits = Limits::default();
    let mut written = 0;
    while written < events {
        let batch = maker.take(LOAD_BATCH.min(events - written));
        arena.store.admin.enqueue(&limits, &batch).await?;
        written += batch.len();
        bar.set_position(written as u64);
    }
    bar.finish_and_clear();
    Ok(())
}
