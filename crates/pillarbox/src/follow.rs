//! Follows the event log of an outbox: every delivered event once, in the order of the log, from a position.
//!
//! For applications that have a streaming endpoint of their own and want to feed it with delivered events, or
//! that keep a copy of the data up to date. A relay serves the log at `/v1/stream`; the configuration
//! `outbox.event_log` turns it on.
//!
//! ```no_run
//! # async fn follow(last: i64) -> Result<(), pillarbox::follow::FollowError> {
//! use pillarbox::follow::Follow;
//!
//! let mut chat = Follow::new("http://127.0.0.1:7420")
//!     .topic("chat.>")
//!     .after(last) // the position of the last event that was processed
//!     .start()?;
//! loop {
//!     let event = chat.next().await?;
//!     println!("{}: {}", event.position, event.event_type);
//!     // process the event, then store `event.position`
//! }
//! # }
//! ```
//!
//! A lost connection, a relay that stops and a relay that does not answer are no errors: the follower connects
//! again, to the next relay if there are several, and continues where it was.

mod connection;
mod lines;

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use jiff::Timestamp;
use reqwest::{Client, Url};
use thiserror::Error;
use tokio::time::{Instant, sleep_until, timeout};

use self::{
    connection::{Connection, Failed},
    lines::{Line, LinesError},
};
use crate::{backoff, event::Event};

/// A relay sends at least a heartbeat every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(40);
/// The first and the longest wait before the next connection.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Which events to follow, and where. [`Follow::start`] makes a [`Follower`].
#[derive(Clone)]
#[must_use = "`start` begins to follow"]
pub struct Follow {
    relays: Vec<String>,
    filters: Vec<(&'static str, String)>,
    after: Option<i64>,
    token: Option<String>,
    client: Option<Client>,
    event_bytes_max: usize,
}

impl Follow {
    /// Follows the event log that this relay serves: `https://pillarbox.example.com:7420`.
    pub fn new(relay: impl Into<String>) -> Self {
        Self {
            relays: vec![relay.into()],
            filters: Vec::new(),
            after: None,
            token: None,
            client: None,
            event_bytes_max: EVENT_BYTES_MAX,
        }
    }

    /// Adds another relay of the same outbox. If one is away, the next one is asked.
    pub fn relay(mut self, relay: impl Into<String>) -> Self {
        self.relays.push(relay.into());
        self
    }

    /// Starts after this position; 0 is the beginning of the log. Without it, the follower starts with the
    /// next event.
    pub fn after(mut self, position: i64) -> Self {
        self.after = Some(position);
        self
    }

    /// Only events of this topic, or of topics that match: `*` is one token, `>` at the end is all the rest.
    pub fn topic(self, pattern: impl Into<String>) -> Self {
        self.filter("topic", pattern)
    }

    /// Only events of this type.
    pub fn event_type(self, event_type: impl Into<String>) -> Self {
        self.filter("event_type", event_type)
    }

    /// Only events of this aggregate.
    pub fn aggregate(self, aggregate_type: impl Into<String>, aggregate_id: impl Into<String>) -> Self {
        self.filter("aggregate_type", aggregate_type)
            .filter("aggregate_id", aggregate_id)
    }

    /// Only events of this project.
    pub fn project_id(self, project_id: impl Into<String>) -> Self {
        self.filter("project_id", project_id)
    }

    /// Only events of this user.
    pub fn user_id(self, user_id: impl Into<String>) -> Self {
        self.filter("user_id", user_id)
    }

    fn filter(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.filters.retain(|(known, _)| *known != name);
        self.filters.push((name, value.into()));
        self
    }

    /// The token for the relay's HTTP API, with the role `read`. When it expires, the follower ends in
    /// [`FollowError::Refused`] with the status 401: start another one with a new token, after the position of the
    /// last event.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Uses this client: for another certificate authority, a client certificate or a proxy. It must not have
    /// a timeout for whole requests, because the answer never ends.
    pub fn client(mut self, client: Client) -> Self {
        self.client = Some(client);
        self
    }

    /// The upper bound for an event as JSON, in bytes; 16 MiB by default. A larger one ends in
    /// [`FollowError::TooLarge`].
    pub fn event_bytes_max(mut self, bytes: usize) -> Self {
        self.event_bytes_max = bytes;
        self
    }

    /// Checks the settings. The connection is made by the first [`Follower::next`].
    pub fn start(self) -> Result<Follower, FollowError> {
        let mut addresses = Vec::with_capacity(self.relays.len());
        for relay in &self.relays {
            addresses.push(self.address(relay)?);
        }
        let client = match self.client {
            Some(client) => client,
            None => connection::client()?,
        };
        Ok(Follower {
            client,
            addresses,
            relay: 0,
            token: self.token,
            event_bytes_max: self.event_bytes_max,
            position: self.after,
            connection: None,
            failures: 0,
            again_at: None,
            lost: None,
        })
    }

    fn address(&self, relay: &str) -> Result<Url, FollowError> {
        let wrong = || FollowError::Address {
            example: "https://pillarbox.example.com:7420",
        };
        let mut url = Url::parse(relay).map_err(|_| wrong())?;
        let only_path = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !only_path {
            return Err(wrong());
        }
        let path = format!("{}/v1/stream", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.query_pairs_mut().extend_pairs(&self.filters);
        Ok(url)
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow")
            .field("filters", &self.filters)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

/// A delivered event. It is an [`Event`] with its place in the log.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Followed {
    /// Store it when the event is processed, and pass it to [`Follow::after`] at the next start.
    pub position: i64,
    /// What the producer wrote.
    pub event: Event,
    /// When the producer wrote it.
    pub created_at: Option<Timestamp>,
    /// When a sink had stored it.
    pub published_at: Option<Timestamp>,
}

impl Deref for Followed {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

/// What ends in an error. After an error, `next` tries again from the same position. Not after
/// [`FollowError::Expired`] and [`FollowError::Beyond`]: they come again at every call, because the position can't be
/// used any more. Start a new follower with another one.
#[derive(Debug, Clone, Error)]
#[non_exhaustive]
pub enum FollowError {
    /// The relay's address can't be used. It is not shown, because it may contain a password.
    #[error("the address of a relay must have the form {example}, without a user or a query")]
    Address {
        /// An address of the right form.
        example: &'static str,
    },
    /// The HTTP client can't be made.
    #[error("can't make the HTTP client: {0}")]
    Client(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// The relay does not allow it, or has no event log.
    #[error("the relay answered {status}: {message}")]
    Refused {
        /// The status of the answer.
        status: u16,
        /// The relay's own words.
        message: String,
    },
    /// Events after the position were deleted because of their age.
    #[error(
        "the events after position {position} have expired: start after 0, and get what is missing from the data itself"
    )]
    Expired {
        /// The position of the follower.
        position: i64,
    },
    /// The log ends before the position: it was emptied or restored, or is that of another outbox.
    #[error(
        "the log ends before position {position}: it was emptied or restored, or is that of another outbox. \
         Start after 0, or without a position"
    )]
    Beyond {
        /// The position of the follower.
        position: i64,
    },
    /// An event is larger than [`Follow::event_bytes_max`].
    #[error("the event after position {position} is larger than {bytes_max} bytes: raise `event_bytes_max`")]
    TooLarge {
        /// The position of the follower.
        position: i64,
        /// The upper bound.
        bytes_max: usize,
    },
    /// A line of the stream is not what a relay sends.
    #[error("the relay sent a line that is not an event: {0}")]
    Unreadable(String),
}

/// Follows the event log. One task calls [`Follower::next`] again and again.
pub struct Follower {
    client: Client,
    addresses: Vec<Url>,
    /// The relay that is asked next.
    relay: usize,
    token: Option<String>,
    event_bytes_max: usize,
    position: Option<i64>,
    connection: Option<Connection>,
    /// Since the last line.
    failures: u32,
    again_at: Option<Instant>,
    /// The log no longer has what comes after the position. A later request could succeed all the same, when the log
    /// has grown past the position, and would leave events out.
    lost: Option<FollowError>,
}

impl Follower {
    /// Waits for the next event. It may be dropped at any time, for example in `select!`: nothing is lost.
    pub async fn next(&mut self) -> Result<Followed, FollowError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        loop {
            let line = match self.line().await {
                Ok(line) => line,
                Err(Failed::Passing(why)) => {
                    self.try_again(&why);
                    continue;
                }
                Err(Failed::ForGood(error)) => {
                    self.connection = None;
                    if matches!(error, FollowError::Expired { .. } | FollowError::Beyond { .. }) {
                        self.lost = Some(error.clone());
                    }
                    self.wait_before_next_try();
                    return Err(error);
                }
            };
            if let Some(followed) = self.apply(line)? {
                return Ok(followed);
            }
        }
    }

    /// Everything up to this position was returned, or was not asked for. `None`: the follower started without
    /// a position, and no relay has answered yet.
    pub fn position(&self) -> Option<i64> {
        self.position
    }

    async fn line(&mut self) -> Result<Line, Failed> {
        if self.connection.is_none() {
            if let Some(at) = self.again_at {
                sleep_until(at).await;
            }
            let address = &self.addresses[self.relay];
            let token = self.token.as_deref();
            let asked = Connection::open(&self.client, address, token, self.position, self.event_bytes_max);
            self.connection = Some(asked.await?);
        }
        let Some(connection) = &mut self.connection else {
            return Err(Failed::Passing("the connection ended".into()));
        };
        match timeout(SILENCE_MAX, connection.line()).await {
            Ok(Ok(Some(line))) => Ok(line),
            Ok(Ok(None)) => Err(Failed::Passing("the connection ended".into())),
            Ok(Err(LinesError::Lost(why))) => Err(Failed::Passing(why)),
            Ok(Err(LinesError::TooLarge)) => Err(Failed::ForGood(FollowError::TooLarge {
                position: self.position.unwrap_or_default(),
                bytes_max: self.event_bytes_max,
            })),
            Ok(Err(LinesError::Unreadable(why))) => Err(Failed::ForGood(FollowError::Unreadable(why))),
            Err(_) => Err(Failed::Passing("the relay is silent".into())),
        }
    }

    fn apply(&mut self, line: Line) -> Result<Option<Followed>, FollowError> {
        if self.failures > 0 {
            tracing::info!(position = self.position, "follows the event log again");
            self.failures = 0;
        }
        match line {
            Line::Event(followed) => {
                self.position = Some(followed.position);
                Ok(Some(*followed))
            }
            Line::Heartbeat { position } => {
                self.position = Some(position);
                Ok(None)
            }
            Line::End { why } => {
                self.connection = None;
                match why.as_str() {
                    why @ ("replaced" | "expired") => {
                        let position = self.position.unwrap_or_default();
                        let error = match why {
                            "expired" => FollowError::Expired { position },
                            _ => FollowError::Beyond { position },
                        };
                        self.lost = Some(error.clone());
                        return Err(error);
                    }
                    "too_slow" => {}
                    // It is a 401, unless somebody has made the token valid for longer.
                    "token_expired" => self.wait_before_next_try(),
                    _ => self.try_again("the relay stops"),
                }
                Ok(None)
            }
        }
    }

    /// Asks the next relay. The first failure is only a debug line: a relay that is replaced is no news.
    fn try_again(&mut self, why: &str) {
        self.connection = None;
        self.relay = (self.relay + 1) % self.addresses.len();
        self.wait_before_next_try();
        if self.failures == self.addresses.len() as u32 + 1 {
            tracing::warn!(
                why,
                position = self.position,
                "can't follow the event log; trying again"
            );
        } else {
            tracing::debug!(
                why,
                position = self.position,
                "can't follow the event log; trying again"
            );
        }
    }

    fn wait_before_next_try(&mut self) {
        self.failures = self.failures.saturating_add(1);
        let seed = self.position.unwrap_or_default().unsigned_abs();
        let delay = backoff::delay(self.failures, AGAIN_FIRST, AGAIN_MAX, seed);
        self.again_at = Some(Instant::now() + delay);
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follower")
            .field("position", &self.position)
            .field("connected", &self.connection.is_some())
            .finish_non_exhaustive()
    }
}
