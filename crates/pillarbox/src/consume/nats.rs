//! JetStream: a durable pull consumer, read in the stream's order.
//!
//! A durable consumer alone does not keep order. After a crash, what was delivered and not acknowledged comes
//! again when the ack wait is over, but what follows comes at once. The same happens when a delivery is lost
//! on the wire, or went to another instance. So the stream is read twice. [`reader`] reads it in order, with
//! a consumer that lives as long as the connection. It starts at the durable consumer's ack floor, below
//! which everything is done. [`acks`] receives the durable consumer's deliveries (headers only) and uses them
//! only to acknowledge what is committed. If the message is done, its delivery is acknowledged; otherwise the
//! delivery is kept until it is done. So a delivery that comes again after a crash, late or twice, only
//! delays an acknowledgement.
//!
//! A message that the client can't read is fetched separately: see [`by_hand`].
//!
//! A stream that is deleted and recreated under a running consumer is read from its beginning: see
//! [`renewal`].
//!
//! Several instances of one group give redundancy, not speed: each reads the whole stream, and the inbox lets
//! one of them apply an event. To share the work, give each instance its own part of the subjects and its own
//! group.

mod acks;
mod by_hand;
mod letters;
mod patterns;
mod reader;
mod renewal;

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, DeliverPolicy, pull},
    stream::{RetentionPolicy, Stream},
};
use tokio::sync::{mpsc, watch};

pub(super) use self::renewal::Beginning;
use self::{acks::Acks, letters::NatsLetters, patterns::beside, reader::Reader};
use super::{ConsumeError, DeadLetters, Options, message::Rooms, source::Source};

/// The only lane of a stream.
const LANE: u64 = 0;
/// Deliveries that may wait for their acknowledgement. After an instance is killed, all of its deliveries
/// have to come again before the ack floor can move. So this is only as large as the acknowledgements need.
const ACK_PENDING_MAX: i64 = 2_000;

/// A JetStream stream to consume.
#[derive(Debug, Clone)]
pub struct JetStream {
    context: jetstream::Context,
    stream: String,
    subjects: Vec<String>,
    ack_wait: Duration,
    from: DeliverPolicy,
}

impl JetStream {
    /// The whole stream, from its beginning. The durable consumer is named after the group.
    pub fn new(context: jetstream::Context, stream: impl Into<String>) -> Self {
        Self {
            context,
            stream: stream.into(),
            subjects: Vec::new(),
            ack_wait: Duration::from_secs(30),
            from: DeliverPolicy::All,
        }
    }

    /// Only this subject, with `*` and `>` as in NATS. Several can be given (NATS 2.10 and later).
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subjects.push(subject.into());
        self
    }

    /// The time after which JetStream delivers an unacknowledged message again: 30 s. A handler may take
    /// longer.
    pub fn ack_wait(mut self, wait: Duration) -> Self {
        self.ack_wait = wait;
        self
    }

    /// Where a new group starts. An existing group continues where it was.
    pub fn from(mut self, from: DeliverPolicy) -> Self {
        self.from = from;
        self
    }

    pub(super) async fn open(
        self,
        group: &str,
        options: &Options,
        rooms: Rooms,
    ) -> Result<Source, ConsumeError> {
        let stream = self
            .context
            .get_stream(&self.stream)
            .await
            .map_err(|error| self.refused(error))?;
        if stream.cached_info().config.retention == RetentionPolicy::WorkQueue {
            return Err(self.refused(
                "a work queue can't be read in order. Give the stream the retention `limits` or `interest`",
            ));
        }
        self.check_dead_letters(options, &stream.cached_info().config.subjects)
            .await?;
        let mut durable = stream
            .create_consumer(self.durable(group))
            .await
            .map_err(|error| self.refused(error))?;
        let floor = durable
            .info()
            .await
            .map_err(|error| self.refused(error))?
            .ack_floor
            .stream_sequence;
        let (incoming_sender, incoming) = mpsc::unbounded_channel();
        let (notes, notes_receiver) = mpsc::unbounded_channel();
        let (waiting_sender, waiting) = watch::channel(None);
        let reader = Reader {
            context: self.context.clone(),
            stream: stream.clone(),
            subjects: self.subjects.clone(),
            place: Beginning {
                created: stream.cached_info().created,
                next: floor + 1,
            },
            rooms,
            incoming: incoming_sender,
            notes: notes.clone(),
            waiting: waiting_sender,
        };
        let acks = Acks::new(self.context.clone(), stream, self.durable(group), self.ack_wait);
        let reader = tokio::spawn(reader.run());
        tokio::spawn(acks.run(notes_receiver, reader));
        Ok(Source {
            incoming,
            notes,
            letters: Arc::new(NatsLetters {
                context: self.context,
            }),
            waiting,
        })
    }

    fn durable(&self, group: &str) -> pull::Config {
        let mut config = pull::Config {
            durable_name: Some(group.to_owned()),
            deliver_policy: self.from,
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_wait,
            max_deliver: -1,
            max_ack_pending: ACK_PENDING_MAX,
            headers_only: true,
            ..pull::Config::default()
        };
        filter(&mut config, &self.subjects);
        config
    }

    /// A stream has to accept the dead letters of every consumed subject. It is better to find out now than
    /// at the first dead letter.
    async fn check_dead_letters(&self, options: &Options, stream: &[String]) -> Result<(), ConsumeError> {
        let topics = match &options.dead_letters {
            DeadLetters::To(topic) => vec![topic.clone()],
            DeadLetters::Beside => beside(&self.subjects, stream),
        };
        for topic in topics {
            if let Err(error) = self.context.stream_by_subject(&topic).await {
                return Err(ConsumeError::Broker {
                    what: format!(
                        "no stream accepts the dead letter subject {topic} (add the subject to a stream, or name another \
                         with `dead_letters`)"
                    ),
                    source: error.into(),
                });
            }
        }
        Ok(())
    }

    fn refused(&self, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ConsumeError {
        ConsumeError::Broker {
            what: format!("the stream {} can't be consumed", self.stream),
            source: why.into(),
        }
    }
}

/// Uses the older field for a single subject, so that older servers understand it.
fn filter(config: &mut pull::Config, subjects: &[String]) {
    match subjects {
        [] => {}
        [subject] => config.filter_subject = subject.clone(),
        several => config.filter_subjects = several.to_vec(),
    }
}

/// The reader's consumer: it exists while somebody reads, delivers in order and needs no acknowledgements.
async fn ordered(
    stream: &Stream,
    subjects: &[String],
    from: u64,
) -> Result<jetstream::consumer::Consumer<pull::Config>, async_nats::Error> {
    let mut config = pull::Config {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from },
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        inactive_threshold: Duration::from_secs(30),
        ..pull::Config::default()
    };
    filter(&mut config, subjects);
    Ok(stream.create_consumer(config).await?)
}
