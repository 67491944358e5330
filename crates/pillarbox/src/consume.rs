//! Calls a handler for events: once per event, in order per key, several keys in parallel.
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
//! Each event is handled in a transaction of the application's own database, together with its entry in the
//! [inbox](crate::inbox). The event is acknowledged only after the commit. If a handler fails, panics or
//! takes too long, its transaction is rolled back and the event is tried again later. Until then its key
//! waits, and nothing else does. After the last attempt, or when the handler [rejects](HandlerError::reject)
//! the event, it goes to a dead letter topic and its key continues.
//!
//! An event that kills the whole process (an abort, a stack overflow, no memory left) is detected: see
//! `suspects`.
//!
//! `engine` is the loop, `keys` decides which message may be handled now, `attempt` is one attempt; `nats`
//! and `kafka` are the brokers.

mod attempt;
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

/// The options of a consumer. The defaults suit most applications.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Handlers that run at the same time, each for a different key: 16. The database's pool should have as
    /// many connections.
    pub concurrency: usize,
    /// Attempts before an event becomes a dead letter: 5. Only failures of the handler count. They are
    /// counted in memory, so a restarted consumer counts from zero.
    pub attempts_max: u32,
    /// How often the process may die while it handles an event before that event becomes a dead letter: 5.
    /// After the first death, the events that were handled at the same time are tried one by one, so only the
    /// culprit's count rises. 0 turns this off; the table for it is not needed then.
    pub deaths_max: u32,
    /// The delay after the first failure: 1 s. It doubles with each failure, plus or minus a quarter.
    pub backoff_base: Duration,
    /// The longest delay: 60 s.
    pub backoff_max: Duration,
    /// The timeout of a handler: 30 s. A handler that takes longer has failed. (It must not block its thread,
    /// or the timeout can't fire.)
    pub handler_timeout: Duration,
    /// Events in memory: 10,000. When failing keys hold back so many, no more events are read until there is
    /// room.
    pub held_events_max: usize,
    /// The total size of the events in memory: 64 MiB.
    pub held_bytes_max: usize,
    /// How long running handlers may take to finish when the consumer is stopped: 30 s.
    pub shutdown_timeout: Duration,
    /// How long the inbox remembers an event: 7 days. This must be longer than the time in which the broker
    /// can deliver an event again. If somebody may reset the consumer, that is the retention time of the
    /// stream or topic. `None`: for ever.
    pub inbox_retention: Option<Duration>,
    /// Skip events whose aggregate version is not newer than the last version applied.
    pub newer_only: bool,
    /// Where dead letters go: by default to `<topic>.dead`.
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

/// Why a consumer could not start, or why it ended without being stopped.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConsumeError {
    /// The inbox's tables do not exist, or the database returned an error.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// The group's name is not valid for every broker.
    #[error("`{name}` can't be a group's name: use letters, digits, `-` and `_`, up to 200 of them")]
    Group {
        /// The name given.
        name: String,
    },
    /// The broker returned an error, or could not be reached.
    #[error("{what}: {source}")]
    Broker {
        /// The operation that failed.
        what: String,
        /// The cause: the error of the broker's client, or what is wrong with the broker's answer.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A bug in the consumer. (A panic in a handler is only a failed attempt.)
    #[error("the consumer panicked: {0}")]
    Panicked(String),
}

/// Where events come from.
#[non_exhaustive]
pub enum Broker {
    /// A JetStream stream.
    #[cfg(feature = "nats")]
    JetStream(Box<JetStream>),
    /// Kafka topics.
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

/// A consumer of a group: its name, and the database with its effects and its inbox.
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

    /// Uses an inbox with other table names.
    pub fn inbox(mut self, inbox: Inbox) -> Self {
        self.inbox = inbox;
        self
    }

    /// Changes the options: `.options(|options| options.concurrency = 4)`.
    pub fn options(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self
    }

    /// The same as [`start`](Self::start), with a closure as the handler.
    pub async fn start_fn<F>(&self, broker: impl Into<Broker>, handler: F) -> Result<Handle, ConsumeError>
    where
        F: for<'a> Fn(&'a Received, &'a Context, &'a mut D::Transaction) -> Handling<'a>
            + Send
            + Sync
            + 'static,
    {
        self.start(broker, FromFn(handler)).await
    }

    /// Starts the consumer on the current tokio runtime and returns. The consumer runs in the background
    /// until the [`Handle`] is stopped or dropped. The inbox's tables and the stream or topics must exist;
    /// otherwise this returns an error and starts nothing.
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
            member: upkeep.member.clone(),
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
            // The upkeep task ends with the engine. After that, nothing may record that the consumer is
            // alive.
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

/// A running consumer. Dropping the handle asks the consumer to stop and does not wait for it.
#[must_use = "the consumer stops when this is dropped"]
pub struct Handle {
    /// `None`: its result was returned already.
    running: Option<JoinHandle<Result<(), ConsumeError>>>,
    /// Dropping this asks the engine to stop.
    stop: Option<oneshot::Sender<()>>,
    lag: watch::Receiver<Lag>,
}

impl Handle {
    /// How far behind the consumer is, as of half a second ago.
    pub fn lag(&self) -> Lag {
        self.lag.borrow().clone()
    }

    /// A channel with the same value, to wait for changes. It closes when the consumer ends.
    pub fn watch(&self) -> watch::Receiver<Lag> {
        self.lag.clone()
    }

    /// Reads no more events, lets running handlers finish, acknowledges what is done and gives the rest back.
    /// Then it returns the result of [`finished`](Self::finished).
    pub async fn stop(mut self) -> Result<(), ConsumeError> {
        self.stop = None;
        self.finished().await
    }

    /// Waits until the consumer has ended. `Ok` means that it was asked to stop. An error says why it ended
    /// on its own, for example because the broker closed it permanently. The error is returned once; later
    /// calls return `Ok`.
    ///
    /// It can be used next to a signal. Dropping the future does not stop the consumer:
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
                // Only the end of the runtime cancels the task.
                Err(_) => Ok(()),
            },
        }
    }
}
