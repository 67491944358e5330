//! What writing an event costs the transaction that causes it.

#[cfg(feature = "mongodb")]
mod mongo;
mod postgres;
mod sqlite;

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use pillarbox::{Event, Limits, Outbox, pressure::Limit, table::Tables};
use pillarbox_relay::{
    connect::{self, OpenStore},
    pressure::Class,
    route::Pattern,
};
use serde::Serialize;

use super::{arena::Arena, database::Database, events::Maker};
use crate::output::{Answer, Context, progress, store_error, table};

/// Rows of the business table. Each transaction changes one.
const ACCOUNTS: i64 = 1_000;
/// Transactions of one way before the next one's turn.
const TURN: u32 = 25;

/// What writing an event costs the transaction that causes it
///
/// The same business transaction, which changes one row, in turn: without an event, with a plain
/// insert of the event's row, with the library's `enqueue`, with `enqueue` while three classes of
/// topics have limits that are far away, and on PostgreSQL with the function `enqueue`. Durable
/// commits, one writer, no relay. Says the ratios to the plain insert.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How many transactions each way
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(TURN as i64..=10_000_000))]
    transactions: u32,
    /// The size of each payload
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    payload_bytes: u32,
}

/// How a business transaction says what happened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    NotAtAll,
    PlainInsert,
    Enqueue,
    EnqueueLimited,
    Function,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::NotAtAll => "without an event",
            Self::PlainInsert => "with a plain insert",
            Self::Enqueue => "with enqueue",
            Self::EnqueueLimited => "with enqueue and three classes",
            Self::Function => "with the SQL function",
        }
    }
}

/// The business, on one connection.
enum Shop {
    Postgres(postgres::Shop),
    Sqlite(sqlite::Shop),
    #[cfg(feature = "mongodb")]
    Mongo(Box<mongo::Shop>),
}

#[derive(Serialize)]
struct Report {
    transactions: usize,
    ways: Vec<Cost>,
}

#[derive(Serialize)]
struct Cost {
    way: &'static str,
    mean_microseconds: f64,
    p50_microseconds: f64,
    /// To the plain insert's mean and median.
    ratio: f64,
    ratio_p50: f64,
}

pub(super) async fn run(args: &Args, arena: &Arena, context: &Context) -> Result<Answer> {
    let mut shop = Shop::open(arena).await?;
    let outbox = Outbox::new(arena.database_options.tables.clone(), Limits::default());
    let limited = Limited::open(arena).await?;
    let ways = shop.ways();
    let mut maker = Maker::new(&arena.topic, 5_000, args.payload_bytes as usize);
    let turns = args.transactions.div_ceil(TURN);
    let mut times = vec![Vec::new(); ways.len()];
    let bar = progress(context, "writing", u64::from(turns));
    // The first turn prepares statements and fills caches.
    for turn in 0..=turns {
        for (way, times) in ways.iter().zip(&mut times) {
            let outbox = match way {
                Way::EnqueueLimited => &limited.outbox,
                _ => &outbox,
            };
            for _ in 0..TURN {
                let event = maker.next();
                let account = i64::try_from(event.id.as_u128() % ACCOUNTS.unsigned_abs() as u128)?;
                let began = Instant::now();
                shop.transact(*way, outbox, account, &event).await?;
                if turn > 0 {
                    times.push(began.elapsed());
                }
            }
        }
        bar.set_position(u64::from(turn));
    }
    bar.finish_and_clear();
    shop.close().await?;
    let written = u64::from((turns + 1) * TURN) * (ways.len() as u64 - 1);
    let mut pending = 0;
    for store in [&arena.store, &limited.store] {
        pending += store.admin.status().await.map_err(store_error)?.pending;
    }
    ensure!(
        pending == written,
        "{written} events were written and {pending} are there"
    );
    print(&ways, times, context)?;
    Ok(Answer::Yes)
}

/// The events' topic is of the last.
fn classes() -> Result<Vec<Class>> {
    let far = Limit {
        soft: Some(1 << 40),
        hard: Some(1 << 41),
        ..Limit::default()
    };
    let class = |name: &str, topics: &[&str]| -> Result<Class> {
        let topics = topics
            .iter()
            .map(|topic| Pattern::new(topic))
            .collect::<Result<_, _>>()?;
        Ok(Class {
            name: name.to_owned(),
            topics,
            limit: far,
        })
    };
    Ok(vec![
        class("money", &["money.>"])?,
        class("reports", &["report.*", "export.>"])?,
        class("rest", &[])?,
    ])
}

/// An outbox beside the other, whose classes of topics have limits.
struct Limited {
    store: OpenStore,
    outbox: Outbox,
}

impl Limited {
    async fn open(arena: &Arena) -> Result<Self> {
        let mut options = arena.database_options.clone();
        options.tables = Tables::new(&format!("{}_limited", options.tables.name()), None)?;
        let store = connect::store(&options).map_err(|error| anyhow!(error.chain()))?;
        store.admin.migrate().await.map_err(store_error)?;
        store.gauge.set_classes(&classes()?).await.map_err(store_error)?;
        Ok(Self {
            store,
            outbox: Outbox::new(options.tables, Limits::default()),
        })
    }
}

impl Shop {
    async fn open(arena: &Arena) -> Result<Self> {
        let options = &arena.database_options;
        Ok(match &arena.database {
            Database::Postgres(_) => Self::Postgres(postgres::Shop::open(options).await?),
            Database::Sqlite(_) => Self::Sqlite(sqlite::Shop::open(options).await?),
            #[cfg(feature = "mongodb")]
            Database::Mongo(_) => Self::Mongo(Box::new(mongo::Shop::open(options).await?)),
        })
    }

    fn ways(&self) -> Vec<Way> {
        let mut ways = vec![Way::NotAtAll, Way::PlainInsert, Way::Enqueue, Way::EnqueueLimited];
        if matches!(self, Self::Postgres(_)) {
            ways.push(Way::Function);
        }
        ways
    }

    async fn transact(&mut self, way: Way, outbox: &Outbox, account: i64, event: &Event) -> Result<()> {
        match self {
            Self::Postgres(shop) => shop.transact(way, outbox, account, event).await,
            Self::Sqlite(shop) => shop.transact(way, outbox, account, event).await,
            #[cfg(feature = "mongodb")]
            Self::Mongo(shop) => shop.transact(way, outbox, account, event).await,
        }
    }

    /// Its connection goes before the tables are dropped.
    async fn close(self) -> Result<()> {
        match self {
            Self::Postgres(shop) => shop.close().await,
            Self::Sqlite(shop) => shop.close().await,
            #[cfg(feature = "mongodb")]
            Self::Mongo(_) => Ok(()),
        }
    }
}

fn print(ways: &[Way], times: Vec<Vec<Duration>>, context: &Context) -> Result<()> {
    let count = times.first().map_or(0, Vec::len);
    let measured: Vec<(f64, f64)> = times.into_iter().map(mean_and_median).collect();
    let yardstick = ways.iter().position(|way| *way == Way::PlainInsert);
    let (mean, median) = yardstick.map_or((1.0, 1.0), |place| measured[place]);
    let costs = ways.iter().zip(&measured).map(|(way, own)| Cost {
        way: way.name(),
        mean_microseconds: own.0,
        p50_microseconds: own.1,
        ratio: own.0 / mean,
        ratio_p50: own.1 / median,
    });
    let report = Report {
        transactions: count,
        ways: costs.collect(),
    };
    if context.json {
        return context.print_json(&report);
    }
    let mut rows = table(&["A TRANSACTION", "MEAN", "P50", "TO A PLAIN INSERT", "P50"]);
    for cost in &report.ways {
        rows.add_row([
            cost.way.to_owned(),
            format!("{:.0} µs", cost.mean_microseconds),
            format!("{:.0} µs", cost.p50_microseconds),
            format!("{:.2}", cost.ratio),
            format!("{:.2}", cost.ratio_p50),
        ]);
    }
    context.print(&rows.to_string())
}

/// In microseconds.
fn mean_and_median(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let total: Duration = times.iter().sum();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    (
        total.as_secs_f64() * 1e6 / times.len().max(1) as f64,
        median.as_secs_f64() * 1e6,
    )
}
