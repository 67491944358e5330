//! Measures the time from an event's commit to its arrival at the sink, at a steady rate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use anyhow::{Result, anyhow, bail};
use hdrhistogram::Histogram;
use pillarbox::{Event, Limits};
use pillarbox_relay::store::Admin;
use tokio::{sync::mpsc, task::JoinSet, time::Instant};

use super::{
    Findings, Host, Shape,
    arena::Arena,
    events::Check,
    receive::Receiver,
    relays::Relays,
    report::{Latency, Report},
};

/// The first events warm up connections and caches. They are checked but not timed.
const WARM_UP: Duration = Duration::from_secs(2);

/// Measure the time from an event's commit to its arrival at the sink, at a steady rate
///
/// Writers commit one event per transaction. The time of an event starts when its commit returns
/// and ends when the sink has it (JetStream: when the server stored it; stdout: when the line was
/// read). The first two seconds are a warm-up and are not timed.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Events per second
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// How long to measure, in seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// How many writers commit in parallel
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    writers: u8,
    #[command(flatten)]
    shape: Shape,
}

pub(super) async fn run(args: &Args, arena: &Arena, host: &dyn Host) -> Result<Findings> {
    let tables = &arena.database_options.tables;
    let warm_up = args.rate as usize * WARM_UP.as_secs() as usize;
    let total = warm_up + args.rate as usize * args.seconds as usize;
    let mut maker = args.shape.maker(arena);
    let events = maker.take(total);
    let held = match args.shape.hold_snapshot {
        true => Some(arena.database.hold_snapshot(&arena.database_options).await?),
        false => None,
    };
    let bytes_before = arena.database.bytes(tables).await?;
    let (mut receiver, lines) = Receiver::open(arena);
    if matches!(receiver, Receiver::Store) {
        bail!("latency can't be measured at this sink: it can't be read back. Use nats: or stdout:");
    }
    let mut relays = Relays::start(arena, usize::from(args.shape.relays), lines)?;
    let bar = host.progress("writing", total as u64);
    let committed = write(args, arena.store.admin.clone(), events, &bar).await?;
    receiver
        .wait_for(arena, total as u64, &mut relays, |_| {})
        .await?;
    let used = relays.stop().await?;
    bar.finish_and_clear();
    drop(held);

    let mut times: Histogram<u64> = Histogram::new_with_max(3_600_000_000, 3)?;
    let mut check = Check::new(maker.counts());
    receiver
        .read_back(|arrival| {
            check.saw(arrival.mark);
            let number = arrival.mark.number as usize;
            if number >= warm_up
                && let Some(commit) = committed.get(number)
            {
                // An event can reach the sink before its own writer knows that the commit succeeded.
                let at = arrival
                    .at
                    .duration_since(SystemTime::UNIX_EPOCH)
                    .unwrap_or_default()
                    .as_micros() as u64;
                times.saturating_record(at.saturating_sub(commit.load(Ordering::Relaxed)).max(1));
            }
        })
        .await?;
    let milliseconds = |microseconds: u64| microseconds as f64 / 1_000.0;
    let report = Report {
        events: total as u64,
        seconds: f64::from(args.seconds) + WARM_UP.as_secs_f64(),
        events_per_second: f64::from(args.rate),
        pure_events_per_second: None,
        naive_events_per_second: None,
        ratio_to_pure: None,
        ratio_to_naive: None,
        statements_per_event: used.statements as f64 / total as f64,
        hot_share: arena.database.hot_share(tables, total as u64).await?,
        relay_cpu_seconds: used.cpu_seconds,
        relay_peak_bytes: used.peak_bytes,
        database_growth_bytes: arena.database.bytes(tables).await? - bytes_before,
        lost: check.lost(),
        duplicated: Some(check.duplicated),
        order_violations: Some(check.order_violations),
        latency: Some(Latency {
            p50_ms: milliseconds(times.value_at_quantile(0.5)),
            p99_ms: milliseconds(times.value_at_quantile(0.99)),
            max_ms: milliseconds(times.max()),
        }),
    };
    report.findings()
}

/// Commits the events at their times. Returns when each commit returned, in microseconds since 1970.
///
/// A key belongs to one writer, so its events are written one after the other, as if they changed the same
/// row.
async fn write(
    args: &Args,
    admin: Arc<dyn Admin>,
    events: Vec<Event>,
    bar: &indicatif::ProgressBar,
) -> Result<Arc<Vec<AtomicU64>>> {
    let committed: Arc<Vec<AtomicU64>> = Arc::new(events.iter().map(|_| AtomicU64::new(u64::MAX)).collect());
    let mut writers = JoinSet::new();
    let queues: Vec<_> = (0..args.writers)
        .map(|_| {
            let (sender, mut queue) = mpsc::unbounded_channel::<(usize, Event)>();
            let (admin, committed, bar) = (admin.clone(), committed.clone(), bar.clone());
            writers.spawn(async move {
                let limits = Limits::default();
                while let Some((number, event)) = queue.recv().await {
                    admin.enqueue(&limits, &[event]).await?;
                    let now = SystemTime::now()
                        .duration_since(SystemTime::UNIX_EPOCH)
                        .unwrap_or_default();
                    committed[number].store(now.as_micros() as u64, Ordering::Relaxed);
                    bar.inc(1);
                }
                Ok::<(), anyhow::Error>(())
            });
            sender
        })
        .collect();
    let began = Instant::now();
    for (number, event) in events.into_iter().enumerate() {
        let at = began + Duration::from_secs_f64(number as f64 / f64::from(args.rate));
        // Timers are accurate to a millisecond, so events that are due within one are sent together.
        if at > Instant::now() + Duration::from_millis(1) {
            tokio::time::sleep_until(at).await;
        }
        let writer = pillarbox::lane::key_hash(event.key()) as usize % queues.len();
        queues[writer]
            .send((number, event))
            .map_err(|_| anyhow!("a writer ended early"))?;
    }
    drop(queues);
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    Ok(committed)
}
