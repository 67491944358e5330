//! Reads the stream strictly in order. After any failure it continues behind the last message that it handed
//! on.

use std::{sync::atomic::Ordering, time::Duration};

use async_nats::jetstream::{
    self,
    consumer::{Consumer, pull},
    stream::Stream,
};
use futures::StreamExt;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{sleep, timeout},
};

use super::{Beginning, LANE, by_hand::unreadable, ordered};
use crate::{
    backoff,
    consume::{
        message::{Message, Rooms},
        source::{Incoming, Note},
    },
};

/// Messages per request.
const BATCH_MAX: usize = 500;
/// How long the server keeps a request.
const EXPIRES: Duration = Duration::from_secs(2);
/// After this time without any message the connection was lost, and the request with it.
const SILENCE_MAX: Duration = Duration::from_secs(3);
const AGAIN_FIRST: Duration = Duration::from_millis(50);
const AGAIN_MAX: Duration = Duration::from_secs(2);

pub(super) struct Reader {
    pub(super) context: jetstream::Context,
    pub(super) stream: Stream,
    pub(super) subjects: Vec<String>,
    /// The position after the last message handed on.
    pub(super) place: Beginning,
    pub(super) rooms: Rooms,
    pub(super) incoming: mpsc::UnboundedSender<Incoming>,
    pub(super) notes: mpsc::UnboundedSender<Note>,
    pub(super) waiting: watch::Sender<Option<u64>>,
}

/// Why reading has to stop or start over.
enum Broken {
    /// The engine has ended.
    Over,
    /// A message is missing: its delivery was lost.
    Gap,
    /// The stream was recreated.
    Renewed,
    Error(async_nats::Error),
}

impl<E: Into<async_nats::Error>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Reader {
    pub(super) async fn run(mut self) {
        let mut failures = 0;
        loop {
            let (from, connects) = (self.place, self.connects());
            let broken = match self.read().await {
                Err(broken) => broken,
                Ok(never) => match never {},
            };
            failures = if self.place == from { failures + 1 } else { 1 };
            let lost = self.connects() != connects;
            match broken {
                Broken::Over => return,
                Broken::Renewed => continue,
                Broken::Gap => tracing::debug!(self.place.next, "a delivery was lost; reading it again"),
                Broken::Error(error) if failures > 1 => {
                    let (stream, from) = (&self.stream.cached_info().config.name, self.place.next);
                    tracing::warn!(stream, from, %error, "could not read the stream; retrying");
                }
                Broken::Error(error) => tracing::debug!(%error, "reading the stream was interrupted"),
            }
            // The connection breaks again and again at one message: the client may not be able to read it.
            if lost
                && failures > 1
                && let Err(Broken::Error(error)) = self.read_by_hand().await
            {
                let (stream, from) = (&self.stream.cached_info().config.name, self.place.next);
                tracing::warn!(stream, from, %error, "could not fetch the next message separately");
            }
            sleep(backoff::delay(failures, AGAIN_FIRST, AGAIN_MAX, self.place.next)).await;
        }
    }

    fn connects(&self) -> u64 {
        let statistics = self.context.client().statistics();
        statistics.connects.load(Ordering::Relaxed)
    }

    /// Handles a message that the client can't read and goes past it.
    async fn read_by_hand(&mut self) -> Result<(), Broken> {
        let info = timeout(SILENCE_MAX, self.stream.get_info()).await??;
        if self.place.renewed(&info).is_some() {
            return Ok(());
        }
        let unreadable = unreadable(&self.context, &self.stream, &self.subjects, self.place.next);
        if let Some(message) = timeout(SILENCE_MAX, unreadable).await?? {
            tracing::error!(
                stream = self.stream.cached_info().config.name,
                sequence = message.position,
                subject = message.topic,
                "the NATS client can't read the headers of a message and closes its connection; the message was fetched \
                 separately. `nats stream rmm STREAM SEQUENCE` removes it"
            );
            self.hand_on(message, true).await?;
        }
        Ok(())
    }

    async fn read(&mut self) -> Result<std::convert::Infallible, Broken> {
        let ordered = ordered(&self.stream, &self.subjects, self.place.next);
        let mut consumer = timeout(SILENCE_MAX, ordered).await??;
        // Check this after creating the consumer: if the stream is recreated later, the consumer is deleted
        // with it.
        let info = timeout(SILENCE_MAX, self.stream.get_info()).await??;
        if let Some(place) = self.place.renewed(&info) {
            self.renew(place).await?;
            return Err(Broken::Renewed);
        }
        let mut delivered = 0;
        loop {
            let before = delivered;
            self.read_batch(&consumer, &mut delivered).await?;
            if delivered == before {
                // The last message of a batch can be lost, and no later one would show the gap.
                let info = timeout(SILENCE_MAX, consumer.info()).await??;
                self.waiting.send_replace(Some(info.num_pending));
                if info.delivered.consumer_sequence != delivered {
                    return Err(Broken::Gap);
                }
            }
        }
    }

    /// Continues at the new place when everything read before is done.
    async fn renew(&mut self, place: Beginning) -> Result<(), Broken> {
        tracing::error!(
            stream = self.stream.cached_info().config.name,
            read_up_to = self.place.next - 1,
            from = place.next,
            "the stream was recreated, or lost messages; reading continues there, and the inbox skips known events"
        );
        let (settled, settling) = oneshot::channel();
        self.notes
            .send(Note::Renewed { place, settled })
            .map_err(|_| Broken::Over)?;
        settling.await.map_err(|_| Broken::Over)?;
        self.place = place;
        Ok(())
    }

    async fn read_batch(
        &mut self,
        consumer: &Consumer<pull::Config>,
        delivered: &mut u64,
    ) -> Result<(), Broken> {
        let room = self.rooms.free().clamp(1, BATCH_MAX);
        let mut batch = consumer
            .batch()
            .max_messages(room)
            .expires(EXPIRES)
            .messages()
            .await?;
        while let Some(message) = timeout(SILENCE_MAX, batch.next()).await? {
            let message = message?;
            let info = message.info()?;
            *delivered += 1;
            if info.consumer_sequence != *delivered {
                return Err(Broken::Gap);
            }
            let (position, pending) = (info.stream_sequence, info.pending);
            self.hand_on(received(message, position), false).await?;
            self.waiting.send_replace(Some(pending));
        }
        Ok(())
    }

    async fn hand_on(&mut self, mut message: Message, by_hand: bool) -> Result<(), Broken> {
        let position = message.position;
        message.room = self.rooms.take(message.bytes()).await;
        // Send this before the engine can finish the message.
        self.notes
            .send(Note::Opened { position, by_hand })
            .map_err(|_| Broken::Over)?;
        self.incoming
            .send(Incoming::Message(message))
            .map_err(|_| Broken::Over)?;
        self.place.next = position + 1;
        Ok(())
    }
}

fn received(message: jetstream::Message, position: u64) -> Message {
    let message = message.message;
    let headers = message.headers.iter().flat_map(|headers| headers.iter());
    let headers = headers.flat_map(|(name, values)| {
        let text = |value: &async_nats::HeaderValue| bytes::Bytes::copy_from_slice(value.as_str().as_bytes());
        values
            .iter()
            .map(move |value| (name.to_string(), text(value)))
            .collect::<Vec<_>>()
    });
    Message {
        lane: LANE,
        position,
        topic: message.subject.to_string(),
        partition: None,
        key: None,
        headers: headers.collect(),
        body: message.payload,
        room: None,
    }
}
