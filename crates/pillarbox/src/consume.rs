//! Hands events to a handler: each once, in order per key, several keys at a time.
//!
//! ```no_run
//! # #[cfg(all(feature = "postgres", feature = "nats"))]
//! # async fn bill(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use pillarbox::consume::{Consumer, JetStream};
//!
//! let client = async_nats::connect("nats://127.0.0.1:4222").await?;
//! let orders = JetStream::new(async_nats::jetstream::new(client), "SHOP").subject("shop.order.>");
//! let consumer = Consumer::new("billing", pool)
//!     .start_fn(orders, |event, _context, tx| {
//!         Box::pin(async move {
//!             let order = event.aggregate_id.as_str();
//!             sqlx::query("insert into invoices (order_id) values ($1)").bind(order).execute(&mut **tx).await?;
//!             Ok(())
//!         })
//!     })
//!     .await?;
//! // … until the service ends:
//! consumer.stop().await?;
//! # Ok(()) }
//! ```
//!
//! Each event is handled in a transaction of the application's own database, together with the [inbox](crate::inbox) that
//! remembers it; only after the commit is it acknowledged. A handler that fails, panics or takes too long is rolled back and
//! tried again later; its key waits, and nothing else does. After the last attempt, or when the handler
//! [rejects](HandlerError::reject) it, the event goes to a dead letter topic and its key goes on.
//!
//! An event that takes the whole process with it (an abort, a stack that overflows, no memory left) is found out: see `suspects`.
//!
//! `engine` is the loop, `keys` decides what may be worked on, `attempt` is one try; `nats` and `kafka` are the brokers.

mod attempt;
mod backoff;
mod engine;
mod handler;
#[cfg(feature = "kafka")]
mod kafka;
mod keys;
mod lag;
mod letter;
mod message;
#[cfg(feature = "nats")]
mod nats;
mod received;
mod source;
mod suspects;
mod trace;
mod upkeep;
mod watched;

use std::time::Duration;

use thiserror::Error;
use tokio::{
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
};

#[cfg(feature = "kafka")]
pub use self::kafka::Kafka;
#[cfg(feature = "nats")]
pub use self::nats::JetStream;
use self::{attempt::Work, engine::Engine, handler::FromFn, message::Rooms, source::Source, upkeep::Upkeep};
pub use self::{
    handler::{Context, Handler, HandlerError, Handling},
    lag::{Failing, Lag},
    letter::DeadLetters,
    received::Received,
    trace::Trace,
};
use crate::inbox::{Database, Inbox, InboxError};

/// How a consumer works. The defaults suit most.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Handlers at work at a time, each for another key: 16. The database's pool should have as many connections.
    pub concurrency: usize,
    /// Attempts before an event becomes a dead letter: 5. Only failures of the handler count. They are counted in memory: a
    /// consumer that is started again begins anew.
    pub attempts_max: u32,
    /// How often the process may die while an event is at work before it becomes a dead letter: 5. What else was at work at
    /// the first of these times is not blamed. 0: nobody looks, and the table for it need not be there.
    pub deaths_max: u32,
    /// The wait after the first failure: 1 s. It doubles with each, a quarter more or less.
    pub backoff_base: Duration,
    /// The longest wait: 60 s.
    pub backoff_max: Duration,
    /// A handler that takes longer has failed: 30 s. (It must not block its thread, or nobody notices.)
    pub handler_timeout: Duration,
    /// Events in memory: 10,000. When a failing key holds back so many, nothing more is taken until it is through.
    pub held_events_max: usize,
    /// Their size together: 64 MiB.
    pub held_bytes_max: usize,
    /// How long handlers at work may take to finish when the consumer is stopped: 30 s.
    pub shutdown_timeout: Duration,
    /// How long the inbox remembers an event: 7 days. It must be longer than the broker can deliver one again: longer than
    /// the stream or topic keeps its events, if somebody may reset the consumer. `None`: for ever.
    pub inbox_retention: Option<Duration>,
    /// Pass over events whose aggregate version is not newer than the last one applied.
    pub newer_only: bool,
    /// Where dead letters go: beside their topic.
    pub dead_letters: DeadLetters,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 16,
            attempts_max: 5,
            deaths_max: 5,
            backoff_base: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            handler_timeout: Duration::from_secs(30),
            held_events_max: 10_000,
            held_bytes_max: 64 * 1024 * 1024,
            shutdown_timeout: Duration::from_secs(30),
            inbox_retention: Some(Duration::from_secs(7 * 24 * 3600)),
            newer_only: false,
            dead_letters: DeadLetters::Beside,
        }
    }
}

/// Why a consumer could not start, or ended by itself.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConsumeError {
    /// The inbox is not there, or the database refused.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// The group's name is not one that every broker takes.
    #[error("`{name}` can't be a group's name: use letters, digits, `-` and `_`, up to 200 of them")]
    Group {
        /// The name given.
        name: String,
    },
    /// The broker refused, or was not there.
    #[error("{what}: {source}")]
    Broker {
        /// What could not be done.
        what: String,
        /// Why: the error of the broker's client, or what is wrong with what it said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A defect of the consumer; a handler that panics only fails.
    #[error("the consumer panicked: {0}")]
    Panicked(String),
}

/// Where events come from.
#[non_exhaustive]
pub enum Broker {
    /// A stream of JetStream.
    #[cfg(feature = "nats")]
    JetStream(Box<JetStream>),
    /// Topics of Kafka.
    #[cfg(feature = "kafka")]
    Kafka(Kafka),
}

#[cfg(feature = "nats")]
impl From<JetStream> for Broker {
    fn from(broker: JetStream) -> Self {
        Self::JetStream(Box::new(broker))
    }
}

#[cfg(feature = "kafka")]
impl From<Kafka> for Broker {
    fn from(broker: Kafka) -> Self {
        Self::Kafka(broker)
    }
}

/// A group's consumer: what it is called, and the database that its effects and its inbox are in.
#[derive(Debug, Clone)]
pub struct Consumer<D> {
    group: String,
    database: D,
    inbox: Inbox,
    options: Options,
}

impl<D: Database> Consumer<D> {
    /// `database` is a `sqlx::PgPool`, a `sqlx::SqlitePool` or a `mongodb::Database`.
    pub fn new(group: impl Into<String>, database: D) -> Self {
        Self {
            group: group.into(),
            database,
            inbox: Inbox::default(),
            options: Options::default(),
        }
    }

    /// With an inbox of another name.
    pub fn inbox(mut self, inbox: Inbox) -> Self {
        self.inbox = inbox;
        self
    }

    /// Changes how it works: `.options(|options| options.concurrency = 4)`.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// [`start`](Self::start) with a closure as the handler.
    pub async fn start_fn<F>(&self, broker: impl Into<Broker>, handler: F) -> Result<Handle, ConsumeError>
    where
        F: for<'a> Fn(&'a Received, &'a Context, &'a mut D::Transaction) -> Handling<'a>
            + Send
            + Sync
            + 'static,
    {
        self.start(broker, FromFn(handler)).await
    }

    /// Starts the consumer on the current tokio runtime and returns: it consumes in the background until the [`Handle`] is
    /// stopped or dropped. The inbox's tables and what is consumed must exist; if they don't, nothing is started.
    pub async fn start<H: Handler<D>>(
        &self,
        broker: impl Into<Broker>,
        handler: H,
    ) -> Result<Handle, ConsumeError> {
        self.check_group()?;
        let inbox = self.database.place(&self.inbox);
        self.database.check(&inbox).await?;
        let upkeep = Upkeep::new(self, inbox);
        upkeep.enter().await?;
        let source = match self.open(broker.into()).await {
            Ok(source) => source,
            Err(error) => {
                upkeep.leave().await;
                return Err(error);
            }
        };
        Ok(self.spawn(upkeep, source, handler))
    }

    async fn open(&self, broker: Broker) -> Result<Source, ConsumeError> {
        let rooms = Rooms::new(self.options.held_events_max, self.options.held_bytes_max);
        match broker {
            #[cfg(feature = "nats")]
            Broker::JetStream(broker) => broker.open(&self.group, &self.options, rooms).await,
            #[cfg(feature = "kafka")]
            Broker::Kafka(broker) => broker.open(&self.group, &self.options, rooms).await,
        }
    }

    fn spawn<H: Handler<D>>(&self, upkeep: Upkeep<D>, source: Source, handler: H) -> Handle {
        let work = Work {
            group: self.group.clone(),
            member: upkeep.member,
            database: self.database.clone(),
            inbox: upkeep.inbox.clone(),
            handler,
            options: self.options.clone(),
            letters: source.letters.clone(),
        };
        let (lag_sender, lag) = watch::channel(Lag::default());
        let (stop, stopped) = oneshot::channel();
        let engine = Engine::new(work, source, lag_sender);
        let running = tokio::spawn(async move {
            // It ends with the engine: afterwards nobody may say that the consumer is there.
            let mut beside = JoinSet::new();
            beside.spawn(upkeep.run());
            engine.run(stopped).await
        });
        Handle {
            running: Some(running),
            stop: Some(stop),
            lag,
        }
    }

    fn check_group(&self) -> Result<(), ConsumeError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        match self.group.len() {
            1..=200 if self.group.chars().all(allowed) => Ok(()),
            _ => Err(ConsumeError::Group {
                name: self.group.clone(),
            }),
        }
    }
}

/// A consumer at work. Dropping it asks the consumer to stop, and does not wait for that.
#[must_use = "the consumer stops when this is dropped"]
pub struct Handle {
    /// `None`: its end was told.
    running: Option<JoinHandle<Result<(), ConsumeError>>>,
    /// Dropped, it asks the engine to stop.
    stop: Option<oneshot::Sender<()>>,
    lag: watch::Receiver<Lag>,
}

impl Handle {
    /// How far behind it is, as of half a second ago.
    pub fn lag(&self) -> Lag {
        self.lag.borrow().clone()
    }

    /// The same, to be told of changes. It closes when the consumer ends.
    pub fn watch(&self) -> watch::Receiver<Lag> {
        self.lag.clone()
    }

    /// Takes nothing more, lets handlers at work finish, acknowledges what was done and gives the rest back. Then it says what
    /// [`finished`](Self::finished) does.
    pub async fn stop(mut self) -> Result<(), ConsumeError> {
        self.stop = None;
        self.finished().await
    }

    /// Waits until the consumer has ended. `Ok`: it was asked to. An error says why it ended by itself, for instance because
    /// the broker wants nothing more of it. Says so once, and `Ok` from then on.
    ///
    /// It can be waited for beside a signal, and does not stop the consumer when the wait is given up:
    ///
    /// ```no_run
    /// # use pillarbox::consume::{ConsumeError, Handle};
    /// # async fn serve(mut consumer: Handle, signal: impl Future<Output = ()>) -> Result<(), ConsumeError> {
    /// tokio::select! {
    ///     ended = consumer.finished() => ended,
    ///     () = signal => consumer.stop().await,
    /// }
    /// # }
    /// ```
    pub async fn finished(&mut self) -> Result<(), ConsumeError> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        let ended = running.await;
        self.running = None;
        match ended {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Err(ConsumeError::Panicked(engine::panic_text(&*panic).to_owned())),
                // Only the end of the runtime cancels it.
                Err(_) => Ok(()),
            },
        }
    }
}
