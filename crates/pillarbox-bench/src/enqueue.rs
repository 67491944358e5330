//! The cost of writing an event in the transaction that causes it.

#[cfg(feature = "mongodb")]
mod mongo;
mod postgres;
mod sqlite;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use pillarbox::{Event, Limits, Outbox, pressure::Limit, table::Tables};
use pillarbox_relay::{
    connect::{self, OpenStore},
    pressure::Class,
    route::Pattern,
};
use serde::Serialize;
use serde_json::value::to_raw_value;

use super::{Findings, Host, arena::Arena, database::Database, events::Maker, store_error};

/// Rows of the business table. Each transaction changes one.
const ACCOUNTS: i64 = 1_000;
/// How many transactions of one way run before the next way's turn.
const TURN: u32 = 25;

/// Measure the cost of writing an event in the transaction that causes it
///
/// Runs the same business transaction, which changes one row, in turn: without an event, with a
/// plain insert of the event's row, with the library's `enqueue`, with `enqueue` while three
/// classes of topics have limits far above the load, and on PostgreSQL with the SQL function.
/// Commits are durable; there is one writer and no relay. Reports the ratios to the plain insert.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// How many transactions of each kind
    #[arg(long, default_value_t = 4_000, value_parser = clap::value_parser!(u32).range(TURN as i64..=10_000_000))]
    transactions: u32,
    /// The size of each payload, in bytes
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    payload_bytes: u32,
}

/// How a business transaction writes its event.
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

/// The business on one connection.
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
    /// The ratios to the mean and the median of the plain insert.
    ratio: f64,
    ratio_p50: f64,
}

pub(super) async fn run(args: &Args, arena: &Arena, host: &dyn Host) -> Result<Findings> {
    let mut shop = Shop::open(arena).await?;
    let outbox = Outbox::new(arena.database_options.tables.clone(), Limits::default());
    let limited = Limited::open(arena).await?;
    let ways = shop.ways();
    let mut maker = Maker::new(&arena.topic, 5_000, args.payload_bytes as usize);
    let turns = args.transactions.div_ceil(TURN);
    let mut times = vec![Vec::new(); ways.len()];
    let bar = host.progress("writing", u64::from(turns));
    // The first turn prepares statements and fills caches.
    for turn in 0..=turns {
        for (way, times) in ways.iter().zip(&mut times) {
            let outbox = match way {
                Way::EnqueueLimited => &limited.outbox,
                _ => &outbox,
            };
            for _ in 0..TURN {
                let event = maker.next();
                let account = i64::try_from(
                    event.id.as_uuid().unwrap_or_default().as_u128() % ACCOUNTS.unsigned_abs() as u128,
                )?;
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
        "{written} events were written, but {pending} are stored"
    );
    Report::of(&ways, times).findings()
}

/// The last class matches the topic of the events.
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

/// A second outbox whose classes have limits.
struct Limited {
    store: OpenStore,
    outbox: Outbox,
}

impl Limited {
    async fn open(arena: &Arena) -> Result<Self> {
        let mut options = arena.database_options.clone();
        options.tables = Tables::new(&format!("{}_limited", options.tables.name()), None)?;
        let store = connect::store(&options).map_err(store_error)?;
        store.admin.migrate().await.map_err(store_error)?;
        let gauge = store
            .gauge
            .clone()
            .context("this database can't limit producers")?;
        gauge.set_classes(&classes()?).await.map_err(store_error)?;
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

    /// Closes the connection before the tables are dropped.
    async fn close(self) -> Result<()> {
        match self {
            Self::Postgres(shop) => shop.close().await,
            Self::Sqlite(shop) => shop.close().await,
            #[cfg(feature = "mongodb")]
            Self::Mongo(_) => Ok(()),
        }
    }
}

impl Report {
    fn of(ways: &[Way], times: Vec<Vec<Duration>>) -> Self {
        let transactions = times.first().map_or(0, Vec::len);
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
        Self {
            transactions,
            ways: costs.collect(),
        }
    }

    fn findings(&self) -> Result<Findings> {
        let row = |cost: &Cost| {
            vec![
                cost.way.to_owned(),
                format!("{:.0} µs", cost.mean_microseconds),
                format!("{:.0} µs", cost.p50_microseconds),
                format!("{:.2}", cost.ratio),
                format!("{:.2}", cost.ratio_p50),
            ]
        };
        Ok(Findings {
            json: to_raw_value(self)?,
            header: &["A TRANSACTION", "MEAN", "P50", "TO A PLAIN INSERT", "P50"],
            rows: self.ways.iter().map(row).collect(),
            promises_kept: true,
        })
    }
}

/// Mean and median in microseconds.
fn mean_and_median(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let total: Duration = times.iter().sum();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    (
        total.as_secs_f64() * 1e6 / times.len().max(1) as f64,
        median.as_secs_f64() * 1e6,
    )
}
