//! Acknowledges what is committed, using the durable consumer's own deliveries.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use async_nats::{
    Subject,
    datetime::DateTime,
    jetstream::{self, AckKind, consumer::pull, stream::Stream},
};
use futures::StreamExt;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use super::{Beginning, by_hand::acknowledgement};
use crate::{backoff, consume::source::Note};

const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// The timeout of the last acknowledgements when the consumer stops.
const FLUSH_MAX: Duration = Duration::from_secs(5);

const INFO_MAX: Duration = Duration::from_secs(5);

/// Dropped when everything is given back.
type Closed = Option<oneshot::Sender<()>>;

pub(super) struct Acks {
    context: jetstream::Context,
    stream: Stream,
    durable: pull::Config,
    ack_wait: Duration,
    messages: OpenMessages,
    /// When the stream of these messages was created.
    created: DateTime,
    /// Where the reader wants to continue once nothing is open.
    renewed: Option<(Beginning, oneshot::Sender<()>)>,
}

/// What was read, what of it is done, and the deliveries to acknowledge it with. No I/O.
#[derive(Debug, Default)]
struct OpenMessages {
    /// The last position that was read.
    high: u64,
    /// Read, and not done.
    open: HashSet<u64>,
    /// Deliveries that can't be acknowledged yet.
    kept: HashMap<u64, Subject>,
    /// Messages whose deliveries can't be read. Each is removed when the durable consumer's floor has passed
    /// it.
    by_hand: BTreeSet<u64>,
}

impl OpenMessages {
    fn opened(&mut self, position: u64, by_hand: bool) {
        self.open.insert(position);
        if by_hand {
            self.by_hand.insert(position);
        }
        self.high = self.high.max(position);
    }

    /// The delivery to acknowledge now.
    fn done(&mut self, position: u64) -> Option<Subject> {
        self.open.remove(&position);
        self.kept.remove(&position)
    }

    /// The delivery to acknowledge now: it is returned if the message is already done.
    fn delivered(&mut self, position: u64, reply: Subject) -> Option<Subject> {
        if self.is_done(position) {
            return Some(reply);
        }
        self.kept.insert(position, reply);
        None
    }

    /// Positions that are done and have to be acknowledged without a delivery.
    fn unseen(&self) -> Vec<u64> {
        let done = self.by_hand.iter().filter(|position| self.is_done(**position));
        done.copied().collect()
    }

    /// Every position up to the last one read is done or open, or was removed from the stream before it could
    /// be read.
    fn is_done(&self, position: u64) -> bool {
        position <= self.high && !self.open.contains(&position)
    }

    /// Deliveries of messages that were removed from the stream before they could be read.
    fn gone(&mut self) -> Vec<Subject> {
        let gone: Vec<u64> = self
            .kept
            .keys()
            .copied()
            .filter(|position| self.is_done(*position))
            .collect();
        gone.iter()
            .filter_map(|position| self.kept.remove(position))
            .collect()
    }
}

impl Acks {
    pub(super) fn new(
        context: jetstream::Context,
        stream: Stream,
        durable: pull::Config,
        ack_wait: Duration,
    ) -> Self {
        Self {
            created: stream.cached_info().created,
            context,
            stream,
            durable,
            ack_wait,
            messages: OpenMessages::default(),
            renewed: None,
        }
    }

    /// Runs until it is told to close. `reader` ends with it.
    pub(super) async fn run(mut self, mut notes: mpsc::UnboundedReceiver<Note>, reader: JoinHandle<()>) {
        let mut failures = 0;
        loop {
            let closed = match self.take(&mut notes, &mut failures).await {
                Ok(closed) => Some(closed),
                Err(error) => {
                    failures += 1;
                    if failures > 3 {
                        tracing::warn!(%error, "the durable consumer can't be read; nothing is acknowledged");
                    }
                    self.rest(&mut notes, failures).await
                }
            };
            if let Some(closed) = closed {
                reader.abort();
                self.give_back().await;
                drop(closed);
                return;
            }
        }
    }

    /// Waits between two attempts. What is done meanwhile is acknowledged when it is delivered again. `Some`:
    /// it was told to close.
    async fn rest(&mut self, notes: &mut mpsc::UnboundedReceiver<Note>, failures: u32) -> Option<Closed> {
        let pause = sleep(backoff::delay(
            failures,
            AGAIN_FIRST,
            AGAIN_MAX,
            u64::from(failures),
        ));
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return None,
                note = notes.recv() => match note {
                    Some(Note::Close { closed }) => return Some(Some(closed)),
                    None => return Some(None),
                    Some(note) => drop(self.noted(note)),
                },
            }
        }
    }

    /// Runs until it is told to close (`Ok`), or has to start over.
    async fn take(
        &mut self,
        notes: &mut mpsc::UnboundedReceiver<Note>,
        failures: &mut u32,
    ) -> Result<Closed, async_nats::Error> {
        let durable = self.stream.create_consumer(self.durable.clone()).await?;
        self.same_stream().await?;
        self.acknowledge_unseen().await?;
        let mut deliveries = durable.stream().max_messages_per_batch(500).messages().await?;
        let mut progress = interval(self.ack_wait / 3);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = 0;
        loop {
            tokio::select! {
                note = notes.recv() => match note {
                    Some(Note::Close { closed }) => return Ok(Some(closed)),
                    None => return Ok(None),
                    Some(note) => {
                        if let Some(reply) = self.noted(note) {
                            self.tell(reply, AckKind::Ack).await?;
                        }
                    }
                },
                delivery = deliveries.next() => {
                    let Some(delivery) = delivery else {
                        return Err("the deliveries ended".into());
                    };
                    let delivery = delivery?;
                    *failures = 0;
                    let info = delivery.info()?;
                    // These numbers only grow. One that does not belongs to another consumer, on another
                    // stream.
                    if info.consumer_sequence <= last {
                        return Err("the durable consumer was recreated".into());
                    }
                    last = info.consumer_sequence;
                    let position = info.stream_sequence;
                    let Some(reply) = delivery.message.reply else { continue };
                    if let Some(reply) = self.messages.delivered(position, reply) {
                        self.tell(reply, AckKind::Ack).await?;
                    }
                }
                _ = progress.tick() => {
                    self.same_stream().await?;
                    self.acknowledge_unseen().await?;
                    for reply in self.messages.gone() {
                        self.tell(reply, AckKind::Ack).await?;
                    }
                    for reply in self.messages.kept.values() {
                        self.tell(reply.clone(), AckKind::Progress).await?;
                    }
                }
            }
        }
    }

    /// The delivery to acknowledge now. The caller handles `Close`.
    fn noted(&mut self, note: Note) -> Option<Subject> {
        let reply = match note {
            Note::Opened { position, by_hand } => {
                self.messages.opened(position, by_hand);
                None
            }
            Note::Done { position, .. } => self.messages.done(position).or_else(|| {
                self.messages
                    .by_hand
                    .contains(&position)
                    .then(|| self.unseen(position))
            }),
            Note::Renewed { place, settled } => {
                self.renewed = Some((place, settled));
                None
            }
            Note::Close { .. } => None,
        };
        if self.messages.open.is_empty()
            && let Some((place, settled)) = self.renewed.take()
        {
            self.messages = OpenMessages {
                high: place.next - 1,
                ..OpenMessages::default()
            };
            self.created = place.created;
            // The reader may be gone already.
            let _ = settled.send(());
        }
        reply
    }

    fn unseen(&self, position: u64) -> Subject {
        let durable = self.durable.durable_name.as_deref().unwrap_or_default();
        acknowledgement(&self.stream.cached_info().config.name, durable, position)
    }

    /// Repeats these acknowledgements until the floor shows that they worked: they have no effect before the
    /// server has tried to deliver the messages.
    async fn acknowledge_unseen(&mut self) -> Result<(), async_nats::Error> {
        if self.messages.by_hand.is_empty() {
            return Ok(());
        }
        let durable = self.durable.durable_name.as_deref().unwrap_or_default();
        let info = timeout(INFO_MAX, self.stream.consumer_info(durable)).await??;
        let floor = info.ack_floor.stream_sequence;
        self.messages.by_hand.retain(|position| *position > floor);
        for position in self.messages.unseen() {
            self.tell(self.unseen(position), AckKind::Ack).await?;
        }
        Ok(())
    }

    /// Deliveries of a recreated stream must not be mistaken for what is done. The reader reports when it
    /// starts over.
    async fn same_stream(&self) -> Result<(), async_nats::Error> {
        let known = Beginning {
            created: self.created,
            next: self.messages.high + 1,
        };
        let info = timeout(INFO_MAX, self.stream.get_info()).await??;
        match known.renewed(&info) {
            Some(_) => Err("the stream was recreated".into()),
            None => Ok(()),
        }
    }

    async fn tell(&self, reply: Subject, kind: AckKind) -> Result<(), async_nats::Error> {
        Ok(self.context.client().publish(reply, kind.into()).await?)
    }

    /// Returns what is not done, so that another instance may get it at once. Deliveries still on their way
    /// come again after the ack wait. That only delays their acknowledgement.
    async fn give_back(&mut self) {
        let giving = async {
            for (_, reply) in self.messages.kept.drain() {
                let nak = AckKind::Nak(None);
                self.context.client().publish(reply, nak.into()).await?;
            }
            self.context.client().flush().await?;
            Ok::<_, async_nats::Error>(())
        };
        if let Ok(Err(error)) = timeout(FLUSH_MAX, giving).await {
            tracing::debug!(%error, "could not give everything back; the rest is delivered again later");
        }
    }
}
