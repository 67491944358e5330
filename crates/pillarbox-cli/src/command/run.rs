//! `pillarbox run`

pub(super) mod checks;
mod sinks;
mod summary;
mod wait;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result, anyhow};
use pillarbox_relay::{
    Options, Relay,
    check::Checks,
    connect::{OpenSink, OpenStore},
    engine::{self, RelayError},
    notice::{self, Channel},
    store::sqlite,
    trace::Traces,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::{
    config::{self, Settings},
    http::{self, tls::Tls},
    output::{Answer, Context, open_store, tell},
};

/// Deliver committed events to their sinks, until stopped
///
///   pillarbox --config pillarbox.yaml run
///   pillarbox --database postgres://app@127.0.0.1/shop --sink nats://127.0.0.1:4222 run --migrate
///
/// Without any configuration it keeps its outbox in ./pillarbox.db (SQLite) and serves what it
/// delivers at http://127.0.0.1:7420/v1/stream.
///
/// If a database or a sink is away, it waits and says so. Several relays on one database share the
/// work. On SIGTERM or Ctrl-C it finishes what is in flight, hands its lanes over and exits 0. A
/// second signal ends it at once.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Create the outbox's tables if they are missing
    #[arg(long)]
    migrate: bool,
    /// Create or change the streams and topics of the configuration, as `streams apply` does
    #[arg(long)]
    apply_streams: bool,
    /// The address for HTTP [default: 127.0.0.1:7420]
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "no_http")]
    listen: Option<SocketAddr>,
    /// Do not serve HTTP
    #[arg(long)]
    no_http: bool,
}

pub(crate) async fn run(args: Args, context: &Context) -> Result<Answer> {
    context.log("info")?;
    let mut sources = context.sources();
    sources.listen = args.listen.map(|listen| listen.to_string());
    let settings = config::settings(&sources)?;
    let signals = Signals::start()?;
    let open = open_store(&settings)?;
    let checks = checks::open(&settings, &open)?;
    let sinks = sinks::open(&settings)?;
    let channels = settings.notices.channels.iter().map(notice::open);
    let channels = channels
        .collect::<Result<Vec<_>, _>>()
        .context("a notification channel can't be used")?;
    let traces = settings.tracing.clone().map(Traces::new).transpose();
    let traces = traces.context("traces can't be exported")?.map(Arc::new);
    let servers = if args.no_http {
        None
    } else {
        let tls = settings.http.tls.as_ref().map(Tls::open).transpose()?;
        let listener = http::bind(settings.http.listen).await?;
        let api = Arc::new(
            http::Api::new(&open)
                .event_log(settings.event_log.is_some())
                .monitoring(&settings.monitoring)
                .access(settings.http.clone())
                .limits(settings.limits.clone())
                .replay_allowed(settings.dead_letters.replay_allowed)
                .delivering(settings.routes.clone(), checks.clone()),
        );
        for warning in settings.http.warnings() {
            tracing::warn!("{warning}");
        }
        let scheme = if tls.is_some() { "https" } else { "http" };
        context.say(&format!("Serving {scheme}://{}/", listener.local_addr()?));
        let mut servers = vec![http::serve(listener, tls, api.clone())];
        if let Some(listen) = settings.monitoring.listen {
            let listener = http::bind(listen).await?;
            context.say(&format!(
                "Serving metrics and health checks at http://{}/",
                listener.local_addr()?
            ));
            servers.push(http::serve_monitoring(listener, api.clone()));
        }
        Some((servers, api))
    };

    let migrate = args.migrate || settings.default_database;
    let ready = async {
        wait::for_store(&open, &settings, migrate, context).await?;
        checks::index(&settings, &open, migrate, context).await?;
        Ok::<_, anyhow::Error>(sinks::streams(&settings, &sinks, args.apply_streams, context).await)
    };
    let problem = tokio::select! {
        ready = ready => ready?,
        () = signals.first.cancelled() => {
            context.say("Stopped before the start.");
            return Ok(Answer::Yes);
        }
    };
    if let Some(problem) = problem {
        return Err(problem);
    }

    if let Some(warning) = sqlite::exposed(&settings.database.url) {
        tracing::warn!("{warning}");
    }
    let started = std::time::Instant::now();
    let relay = relay(&settings, &open, sinks, channels, checks, traces).start();
    let (id, progress) = (relay.id, relay.progress.clone());
    if let Some((_, api)) = &servers {
        api.relay_started(&relay);
    }
    say_started(&settings, context);
    let stop = relay.stopper();
    let mut finished = std::pin::pin!(relay.finished());
    let ended: Result<(), RelayError> = tokio::select! {
        ended = &mut finished => ended,
        () = signals.first.cancelled() => {
            context.say("Stopping: finishing what is in flight. A second signal ends at once.");
            stop.cancel();
            finished.await
        }
    };
    if let Some((servers, api)) = servers {
        api.close();
        for server in servers {
            server.stop().await;
        }
        api.finish().await;
    }
    summary::print(
        id,
        &progress.report(),
        open.store.statements(),
        started.elapsed(),
        context,
    )?;
    ended.map(|()| Answer::Yes).map_err(|error| anyhow!(error))
}

fn relay(
    settings: &Settings,
    open: &OpenStore,
    sinks: BTreeMap<Arc<str>, OpenSink>,
    channels: Vec<Arc<dyn Channel>>,
    checks: Option<Arc<Checks>>,
    traces: Option<Arc<Traces>>,
) -> Relay {
    let engine = engine::Options {
        checks,
        traces,
        ..settings.engine.clone()
    };
    Relay {
        store: open.clone(),
        sinks: sinks.into_iter().map(|(name, open)| (name, open.sink)).collect(),
        routes: settings.routes.clone(),
        options: Options {
            engine,
            audit_every: settings.monitoring.audit_every,
            letters_kept: settings.dead_letters.retention,
            log_kept: settings.event_log.as_ref().and_then(|log| log.retention),
            reprocess: settings.reprocess.clone(),
            backpressure: settings.backpressure.clone(),
            notices: settings.notices.options.clone(),
            channels,
            schemas_reload: settings.checks.reload,
            outbox: settings.database.tables.name().to_owned(),
        },
    }
}

fn say_started(settings: &Settings, context: &Context) {
    let sinks: Vec<String> = settings
        .sinks
        .iter()
        .map(|sink| format!("{} ({})", sink.name, config::sink_address(&sink.options.url)))
        .collect();
    context.say(&format!(
        "Relaying from {} to {}. Ctrl-C stops.",
        config::address(&settings.database.url),
        sinks.join(", ")
    ));
}

/// The first SIGTERM or SIGINT asks the relay to stop; the second ends the process.
struct Signals {
    first: CancellationToken,
}

impl Signals {
    fn start() -> Result<Self> {
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let first = CancellationToken::new();
        let asked = first.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if asked.is_cancelled() {
                    tell("Ended at once. Events in flight will be sent again, with the same ids.");
                    std::process::exit(130);
                }
                asked.cancel();
            }
        });
        Ok(Self { first })
    }
}
