//! The cost of an idle relay, and of scraping it.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, json};

use super::{
    Findings, Host, Shape,
    arena::Arena,
    drain::load,
    findings::Rows,
    observer::{Scraper, free_address},
    relays::{Relays, Setup},
    store_error,
};

/// Measure what relays and the database use while there is nothing to deliver
///
///   pillarbox bench idle
///   pillarbox --sink null: bench idle --events 5000000 --scrape
///
/// With --scrape, one relay is measured twice: without scrapes, and with a scrape of its metrics
/// every second.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How long to measure, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Deliver this many events first; they stay in the table
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100_000_000))]
    events: u32,
    /// Then measure again while the relay's metrics are scraped every second
    #[arg(long, conflicts_with = "relays")]
    scrape: bool,
    #[command(flatten)]
    shape: Shape,
}

#[derive(Serialize)]
struct Idle {
    seconds: u32,
    events: u32,
    #[serde(flatten)]
    alone: Used,
    scraped: Option<Used>,
    scrapes: Option<u64>,
}

/// Per cent of one core.
#[derive(Serialize)]
struct Used {
    relay_cpu_percent: Option<f64>,
    /// `null` if the database's processes are not on this machine.
    database_cpu_percent: Option<f64>,
}

/// Long enough for a relay to start and to become idle.
const SETTLE_DOWN: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &Args, arena: &Arena, host: &dyn Host) -> Result<Findings> {
    load(arena, &mut args.shape.maker(arena), args.events as usize, host).await?;
    let address = free_address()?;
    let setup = match args.scrape {
        false => Setup::default(),
        true => Setup {
            groups: Map::from_iter([("monitoring".to_owned(), json!({ "listen": address }))]),
            run: &["run", "--listen", "127.0.0.1:0"],
            ..Setup::default()
        },
    };
    let mut relays = Relays::start_with(arena, usize::from(args.shape.relays), None, &setup)?;
    delivered(args, arena, &mut relays, host).await?;
    relays.check().await?;
    let alone = watch(args.seconds, "without scrapes", arena, &relays, host).await?;
    let (mut scraped, mut scrapes) = (None, None);
    if args.scrape {
        let scraper = Scraper::start(address);
        scraped = Some(watch(args.seconds, "with scrapes", arena, &relays, host).await?);
        scrapes = Some(scraper.stop().0);
    }
    relays.stop().await?;
    let idle = Idle {
        seconds: args.seconds,
        events: args.events,
        alone,
        scraped,
        scrapes,
    };
    idle.findings()
}

/// Waits until the events are delivered and the database has tidied up after them.
async fn delivered(args: &Args, arena: &Arena, relays: &mut Relays, host: &dyn Host) -> Result<()> {
    if args.events > 0 {
        let bar = host.progress("delivering", args.events.into());
        loop {
            relays.check().await?;
            let pending = arena.store.admin.sample().await.map_err(store_error)?.pending;
            bar.set_position(u64::from(args.events).saturating_sub(pending));
            if pending == 0 {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        bar.finish_and_clear();
        arena.database.tidy(&arena.database_options.tables).await?;
    }
    tokio::time::sleep(SETTLE_DOWN).await;
    Ok(())
}

async fn watch(seconds: u32, how: &str, arena: &Arena, relays: &Relays, host: &dyn Host) -> Result<Used> {
    host.say(&format!("Watching for {seconds} s, {how}…"));
    let (relay_before, database_before) = (relays.cpu_seconds(host), arena.database.cpu_seconds(host).await?);
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let (relay_after, database_after) = (relays.cpu_seconds(host), arena.database.cpu_seconds(host).await?);
    let percent =
        |before: Option<f64>, after: Option<f64>| Some((after? - before?) / f64::from(seconds) * 100.0);
    Ok(Used {
        relay_cpu_percent: percent(relay_before, relay_after),
        database_cpu_percent: percent(database_before, database_after),
    })
}

impl Idle {
    fn findings(&self) -> Result<Findings> {
        let show = |percent: Option<f64>| {
            percent.map_or("unknown".into(), |percent| format!("{percent:.2} % of a core"))
        };
        let mut rows = Rows::default();
        rows.add("delivered events", self.events.to_string());
        rows.add("relays", show(self.alone.relay_cpu_percent));
        rows.add("database", show(self.alone.database_cpu_percent));
        if let (Some(scraped), Some(scrapes)) = (&self.scraped, self.scrapes) {
            rows.add("scrapes", scrapes.to_string());
            rows.add("relay, scraped", show(scraped.relay_cpu_percent));
            rows.add("database, scraped", show(scraped.database_cpu_percent));
        }
        Findings::new(self, rows, true)
    }
}
