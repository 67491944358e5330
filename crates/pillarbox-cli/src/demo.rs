//! `pillarbox demo`: the complete path of an event in one process, without any installation.

mod listener;
mod shop;
mod story;
mod verdict;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use pillarbox_relay::{
    Handle, Options, Relay,
    connect::{self, DatabaseOptions, SinkOptions},
    route::Routes,
};
use tokio::net::TcpListener;

use self::{listener::Listener, shop::Shop, story::Story, verdict::Verdict};
use crate::{
    http,
    output::{Answer, Context},
};

/// Show the outbox at work: orders, rollbacks and delivery in one process, without any installation
///
/// A small shop places orders. Each order and its event are written in one SQLite transaction.
/// About a third of the transactions are rolled back because a card is declined. A relay delivers
/// the committed events to an HTTP stream, and a listener follows that stream. At the end the
/// received events are compared with the shop's orders.
///
///   pillarbox demo
///   pillarbox demo --orders 200 --pace-ms 10 --exit
///
/// Then open the page, or follow the stream:
///   curl -N 'http://127.0.0.1:7420/v1/stream?after=0'
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// How many orders to place
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    orders: u32,
    /// The time between two orders [default: 400 on a terminal, otherwise 10]
    #[arg(long, value_name = "MS")]
    pace_ms: Option<u64>,
    /// End after the orders instead of serving the page until Ctrl-C (the default on a terminal)
    #[arg(long)]
    exit: bool,
    /// Keep the database in this folder [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// The address of the page; if it is in use, a free port is used
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7420")]
    listen: SocketAddr,
}

/// How long the listener waits for the last events.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("warn")?;
    let temporary = tempfile::Builder::new()
        .prefix("pillarbox-demo-")
        .tempdir()
        .context("can't create a temporary folder")?;
    let folder = args
        .directory
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("can't create the folder {}", folder.display()))?;
    let stage = Stage::set(&folder.join("pillarbox-demo.db"), args.listen).await?;
    let story = Story::new(context, stage.address);
    story.opening()?;
    let pace = Duration::from_millis(args.pace_ms.unwrap_or(if context.terminal { 400 } else { 10 }));
    let verdict = tokio::select! {
        verdict = play(&stage, args.orders, pace, &story) => verdict?,
        _ = tokio::signal::ctrl_c() => {
            stage.strike().await?;
            return Ok(Answer::Yes);
        }
    };
    story.verdict(&verdict)?;
    if context.terminal && !args.exit && !context.json {
        story.closing()?;
        tokio::signal::ctrl_c().await?;
    }
    stage.strike().await?;
    Ok(if verdict.kept() { Answer::Yes } else { Answer::No })
}

/// Places the orders, prints the result of each, and compares the orders with what the listener
/// received.
async fn play(stage: &Stage, orders: u32, pace: Duration, story: &Story<'_>) -> Result<Verdict> {
    let shop = Shop::open(&stage.database).await?;
    let listener = Listener::connect(stage.address).await?;
    let mut books = Vec::new();
    for number in 1..=orders {
        let began = tokio::time::Instant::now();
        let order = shop.place(number).await?;
        let arrived = if order.committed {
            listener.wait_for(order.event_id.clone(), PATIENCE).await
        } else {
            None
        };
        story.order(&order, arrived)?;
        books.push(order);
        tokio::time::sleep_until(began + pace).await;
    }
    // By now, events of rolled-back transactions would have shown up, if there were any.
    let seen = listener.finish(&books, PATIENCE).await;
    shop.close().await;
    Ok(Verdict::of(&books, &seen))
}

/// Everything except the shop: the outbox, the relay, the stream, the page.
struct Stage {
    database: PathBuf,
    address: SocketAddr,
    relay: Handle,
    server: http::Server,
    api: Arc<http::Api>,
}

impl Stage {
    async fn set(database: &std::path::Path, listen: SocketAddr) -> Result<Self> {
        if !listen.ip().is_loopback() {
            return Err(anyhow!(
                "{listen} can be reached from other machines; use 127.0.0.1 or [::1]"
            ));
        }
        let options = DatabaseOptions::new(format!("sqlite:{}", database.display()));
        let open = connect::store(&options).map_err(|error| anyhow!(error.chain()))?;
        open.admin
            .migrate()
            .await
            .map_err(|error| anyhow!(error.chain()))?;
        let sink = connect::sink(&SinkOptions::new("http-stream:"))?;
        let listener = match TcpListener::bind(listen).await {
            Ok(listener) => listener,
            Err(_) => http::bind(SocketAddr::new(listen.ip(), 0)).await?,
        };
        let address = listener.local_addr()?;
        let routes = Routes::to_one("stream").event_log(true);
        let api = http::Api::new(&open)
            .event_log(true)
            .delivering(routes.clone(), None);
        let api = Arc::new(api);
        let server = http::serve(listener, None, api.clone());
        let mut options = Options::default();
        options.engine.name = "demo".into();
        let relay = Relay {
            store: open,
            sinks: [("stream".into(), sink.sink)].into(),
            routes,
            options,
        }
        .start();
        api.relay_started(&relay);
        Ok(Self {
            database: database.to_owned(),
            address,
            relay,
            server,
            api,
        })
    }

    async fn strike(self) -> Result<()> {
        self.api.close();
        self.relay.stop().await?;
        self.server.stop().await;
        Ok(())
    }
}
