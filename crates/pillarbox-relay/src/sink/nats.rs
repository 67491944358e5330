//! NATS JetStream: sends a whole batch without waiting, then collects its acknowledgements.
//!
//! - `audit`: looking up delivered events
//! - `connect`: the connection and its state
//! - [`headers`]: the format of an event on the wire
//! - `publish`: sending, and collecting acknowledgements
//! - `outcome`: the meaning of an answer
//! - `streams`: comparing and creating streams

mod audit;
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
    audit::Receipt,
    connect::{Address, Connection},
    publish::BatchInFlight,
};
use super::{
    Audit, Capabilities, DestinationName, Outcome, Outgoing, Sink, SinkError, StreamSpec, StreamState,
    Streams,
    audit::{Audited, Sample},
};
use crate::connect::SinkOptions;

/// The longest wait for a connection when the state of the sink is asked. The client keeps trying and is asked again.
const CONNECT_MAX: Duration = Duration::from_secs(2);

pub struct NatsSink {
    address: Address,
    streams: Vec<StreamSpec>,
    publish_timeout: Duration,
    /// Created at the first use, inside the runtime that uses it.
    connection: RwLock<Option<Arc<Connection>>>,
    /// Locked while a connection is created.
    starting: Mutex<()>,
    delivered: Sample<Receipt>,
}

impl NatsSink {
    /// `nats://[user:password@ | token@]host[:port][,host…][?creds=FILE&ca=FILE&cert=FILE&key=FILE]`, or `tls://…`.
    ///
    /// Reads the files now and connects at the first use. After that it always reconnects.
    pub fn open(options: &SinkOptions) -> Result<Self, SinkError> {
        Ok(Self {
            address: Address::parse(&options.url)?,
            streams: options.streams.clone(),
            publish_timeout: options.publish_timeout,
            connection: RwLock::default(),
            starting: Mutex::default(),
            delivered: Sample::default(),
        })
    }

    /// A working connection, or the reason why there is none.
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

    /// The current connection. If the client's task has ended, for example after an unreadable answer, a new client
    /// replaces it.
    fn kept(&self) -> Option<Arc<Connection>> {
        let connection = self.connection.read().unwrap_or_else(PoisonError::into_inner);
        connection.clone().filter(|connection| !connection.is_over())
    }
}

#[async_trait]
impl Sink for NatsSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // Of three events in flight, the server can lose the second and store the third.
            ordered: false,
            deduplicates: true,
            payload_bytes_max: self.kept().and_then(|connection| connection.payload_bytes_max()),
            ..Capabilities::default()
        }
    }

    async fn check(&self) -> Result<(), SinkError> {
        let connection = self.connected().await?;
        streams::answers(&connection).await
    }

    /// A subject belongs to at most one stream, and a stream can refuse single subjects. So the smallest part that can
    /// be away is a subject of the stream for which the event is meant.
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
        BatchInFlight::new(&connection, batch, &self.delivered)
            .publish(self.publish_timeout)
            .await
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

#[async_trait]
impl Audit for NatsSink {
    async fn audit(&self) -> Audited {
        let entries = self.delivered.open();
        if entries.is_empty() {
            return Audited::default();
        }
        match self.connected().await {
            Ok(connection) => self.delivered.close(audit::look_up(&connection, entries).await),
            Err(error) => Audited::nothing(error.message),
        }
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
