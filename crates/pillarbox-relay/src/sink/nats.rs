//! NATS JetStream: a whole batch goes out without waiting, then its acknowledgements are gathered.
//!
//! Read on in `connect` (the connection and what is known of it), [`headers`] (what an event looks like on the
//! wire), `publish` (sending and gathering), `outcome` (what an answer means), `streams` (comparing and making).

mod connect;
pub mod headers;
mod outcome;
mod publish;
mod streams;

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use pillarbox::Event;
use tokio::sync::Mutex;

use self::{
    connect::{Address, Connection},
    publish::Window,
};
use super::{
    Capabilities, DestinationName, Outcome, Outgoing, Sink, SinkError, StreamSpec, StreamState, Streams,
};
use crate::connect::SinkOptions;

/// Whoever asks how the sink is gets an answer by then. The client goes on trying, and is asked again.
const CONNECT_MAX: Duration = Duration::from_secs(2);

pub struct NatsSink {
    address: Address,
    streams: Vec<StreamSpec>,
    publish_timeout: Duration,
    /// Made at the first use, inside the runtime that uses it.
    connection: RwLock<Option<Arc<Connection>>>,
    /// Held by whoever makes one.
    starting: Mutex<()>,
}

impl NatsSink {
    /// `nats://[user:password@ | token@]host[:port][,host…][?creds=FILE&ca=FILE&cert=FILE&key=FILE]`, or `tls://…`.
    ///
    /// Reads the files, and connects at the first use; from then on it reconnects for ever.
    pub fn open(options: &SinkOptions) -> Result<Self, SinkError> {
        Ok(Self {
            address: Address::parse(&options.url)?,
            streams: options.streams.clone(),
            publish_timeout: options.publish_timeout,
            connection: RwLock::default(),
            starting: Mutex::default(),
        })
    }

    /// A connection that works now, or why there is none.
    async fn connected(&self) -> Result<Arc<Connection>, SinkError> {
        let connection = self.connection().await?;
        connection.ready(self.publish_timeout.min(CONNECT_MAX)).await?;
        Ok(connection)
    }

    async fn connection(&self) -> Result<Arc<Connection>, SinkError> {
        if let Some(connection) = self.kept() {
            return Ok(connection);
        }
        let _starting = self.starting.lock().await;
        if let Some(connection) = self.kept() {
            return Ok(connection);
        }
        let made = Arc::new(Connection::start(&self.address, self.publish_timeout).await?);
        let mut connection = self.connection.write().unwrap_or_else(PoisonError::into_inner);
        *connection = Some(made.clone());
        Ok(made)
    }

    /// The one in use. If the client's task has ended, for example after an unreadable answer, a new client replaces it.
    fn kept(&self) -> Option<Arc<Connection>> {
        let connection = self.connection.read().unwrap_or_else(PoisonError::into_inner);
        connection.clone().filter(|connection| !connection.is_over())
    }
}

#[async_trait]
impl Sink for NatsSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // A window can lose the middle of three and store the third.
            ordered: false,
            deduplicates: true,
            payload_bytes_max: self.kept().and_then(|connection| connection.payload_bytes_max()),
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        let connection = self.connected().await?;
        streams::answers(&connection).await
    }

    /// A subject belongs to one stream at most, and a stream can refuse single subjects: the smallest part that can be away
    /// is a subject of the stream that the event is meant for.
    fn destination<'a>(&self, event: &'a Event, stream: Option<&'a str>) -> DestinationName<'a> {
        DestinationName {
            stream,
            topic: Some(&event.topic),
            partition: None,
        }
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        if batch.is_empty() {
            return Vec::new();
        }
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(error) => return vec![Outcome::Failed(error); batch.len()],
        };
        Window::new(&connection, batch)
            .publish(self.publish_timeout)
            .await
    }
}

#[async_trait]
impl Streams for NatsSink {
    async fn check_streams(&self) -> Result<Vec<StreamState>, SinkError> {
        let connection = self.connected().await?;
        streams::compare_all(&connection, &self.streams).await
    }

    async fn apply_streams(&self) -> Result<Vec<StreamState>, SinkError> {
        let connection = self.connected().await?;
        streams::apply_all(&connection, &self.streams).await
    }
}
