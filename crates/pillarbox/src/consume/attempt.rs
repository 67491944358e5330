//! One attempt at one message: begin, check the inbox, handle, commit.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::timeout;
use tracing::Instrument;

use super::{
    Options,
    handler::{Context, Handler, HandlerError, told},
    keys::Failure,
    letter::{Cause, Letter},
    message::Message,
    received::Received,
    source::Letters,
    trace::Trace,
};
use crate::{
    event::EventId,
    inbox::{Database, Inbox, InboxError, Place, Seen, Sighting},
};

/// The timeout of the database itself, without the handler: to begin, to commit, and to check whether it is
/// available.
pub(super) const DATABASE_PATIENCE: Duration = Duration::from_secs(10);

/// What all attempts share.
pub(super) struct Work<D, H> {
    pub(super) group: String,
    /// The id of this consumer process. No other consumer of the group ever has the same one.
    pub(super) member: EventId,
    pub(super) database: D,
    pub(super) inbox: Inbox,
    pub(super) handler: H,
    pub(super) options: Options,
    pub(super) letters: Arc<dyn Letters>,
}

/// A message that was read.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) message: Message,
    /// The event, or why the message is not an event.
    pub(super) received: Result<Received, String>,
    pub(super) key: Arc<str>,
    /// Its number among the messages that arrived in its lane.
    pub(super) arrival: u64,
    /// The database has a row that the event has begun, and it is not removed yet.
    pub(super) begun: AtomicBool,
    /// Its dead letter is published. A database error while recording that must not publish a second one.
    buried: AtomicBool,
}

#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// It is committed, or it became a dead letter.
    Done,
    /// It was processed before.
    Before,
    /// Its handler failed.
    Failed { error: String, reject: bool },
    /// The database failed; the event is not charged.
    Away { error: String },
    /// The database aborted this transaction in favour of another; the event is not charged. `handled`: the
    /// handler had begun.
    Conflict { error: String, handled: bool },
    /// The dead letter could not be published.
    Unburied { error: String },
}

impl Job {
    pub(super) fn new(message: Message, arrival: u64) -> Self {
        let received = Received::read(&message);
        let key = received.as_ref().ok().map(|received| received.key());
        // Events without a key are kept in order with the other keyless events of their topic.
        let key = key.filter(|key| !key.is_empty()).unwrap_or(&message.topic);
        Self {
            key: Arc::from(key),
            message,
            received,
            arrival,
            begun: AtomicBool::new(false),
            buried: AtomicBool::new(false),
        }
    }

    /// The id of the event, if the message is one.
    pub(super) fn id(&self) -> Option<&EventId> {
        self.received.as_ref().ok().map(|received| &received.event.id)
    }
}

impl<D: Database, H: Handler<D>> Work<D, H> {
    /// `failure`: the result of earlier attempts.
    pub(super) async fn attempt(&self, job: &Job, failure: Option<Failure>) -> Outcome {
        if let Some(Failure {
            doom: Some(reason),
            error,
            attempts,
            ..
        }) = &failure
        {
            return self.bury(job, reason, error, *attempts).await;
        }
        match &job.received {
            Ok(received) => {
                let attempt = failure.as_ref().map_or(1, |failure| failure.attempts + 1);
                match self.apply(job, received, attempt).await {
                    Ok(outcome) => outcome,
                    Err(error) => self.judge(error, failure.is_some()).await,
                }
            }
            Err(why) => Outcome::Failed {
                error: why.clone(),
                reject: true,
            },
        }
    }

    /// An error comes from the handler or from its commit.
    async fn apply(&self, job: &Job, received: &Received, attempt: u32) -> Result<Outcome, HandlerError> {
        let mut tx = match self.opened(received).await {
            Ok(Some(tx)) => tx,
            Ok(None) => return Ok(Outcome::Before),
            Err(outcome) => return Ok(outcome),
        };
        let context = self.context(job, received, attempt);
        let handling = self
            .handler
            .handle(received, &context, &mut tx)
            .instrument(span(&context));
        match timeout(self.options.handler_timeout, handling).await {
            Ok(Ok(())) => self.commit(tx, job).await,
            Ok(Err(error)) => Err(error),
            Err(_) => {
                drop(tx);
                Ok(self.outlived().await)
            }
        }
    }

    /// Decides what a handler's error means. An error that looks like an unavailable database counts as one
    /// only if the database really does not answer now: it may also come from a statement that took too long,
    /// or from another database. The first such error is not charged, because the database may have been away
    /// and be back by now.
    async fn judge(&self, error: HandlerError, failed_before: bool) -> Outcome {
        let HandlerError { reject, cause } = error;
        let error = told(&*cause);
        match excuse::<D>(&*cause) {
            None => Outcome::Failed { error, reject },
            Some(Outcome::Away { error }) if self.answers().await => match failed_before {
                true => Outcome::Failed { error, reject },
                false => Outcome::Conflict { error, handled: true },
            },
            Some(Outcome::Conflict { error, .. }) => Outcome::Conflict { error, handled: true },
            Some(excuse) => excuse,
        }
    }

    /// Opens a transaction in which the event is new. `None`: it was processed before.
    async fn opened(&self, received: &Received) -> Result<Option<D::Transaction>, Outcome> {
        let opening = async {
            let mut tx = self.database.begin().await?;
            let seen = self.remember(&mut tx, received).await?;
            if let Seen::Stale { .. } = seen {
                // Commit, so that the next delivery is recognised at once.
                self.database.commit(tx).await?;
                return Ok(None);
            }
            Ok::<_, InboxError>((seen == Seen::First).then_some(tx))
        };
        // Another instance may be handling the same event; this waits for it.
        let patience = self.options.handler_timeout + DATABASE_PATIENCE;
        match timeout(patience, opening).await {
            Ok(Ok(opened)) => Ok(opened),
            Ok(Err(error)) => Err(not_the_events_fault::<D>(&error)),
            Err(_) => Err(Outcome::Away {
                error: "the database did not answer".to_owned(),
            }),
        }
    }

    async fn remember(&self, tx: &mut D::Transaction, received: &Received) -> Result<Seen, InboxError> {
        let event = &received.event;
        let typed;
        let entity_id = match (self.options.newer_only, event.aggregate_version) {
            // Entities of different types may have the same id.
            (true, Some(_)) => {
                typed = format!("{}:{}", event.aggregate_type, event.aggregate_id);
                Some(typed.as_str())
            }
            _ => Some(event.aggregate_id.as_str()).filter(|id| !id.is_empty()),
        };
        let sighting = Sighting {
            group: &self.group,
            event_id: &event.id,
            entity_id,
            version: event.aggregate_version,
            newer: self.options.newer_only,
        };
        self.inbox.remember(tx, sighting).await
    }

    /// If the commit gets no answer, its result is unknown. The next attempt finds out.
    async fn commit(&self, mut tx: D::Transaction, job: &Job) -> Result<Outcome, HandlerError> {
        let committing = async {
            if let Some(id) = job.id().filter(|_| job.begun.load(Ordering::SeqCst)) {
                self.inbox.ended(&mut tx, &self.group, id).await?;
            }
            self.database.commit(tx).await
        };
        match timeout(DATABASE_PATIENCE, committing).await {
            Ok(Ok(())) => {
                job.begun.store(false, Ordering::SeqCst);
                Ok(Outcome::Done)
            }
            // For example a deferred constraint.
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Ok(Outcome::Away {
                error: "the database did not answer the commit".to_owned(),
            }),
        }
    }

    /// The handler may have timed out because the database does not answer.
    async fn outlived(&self) -> Outcome {
        let error = format!("the handler took longer than {:?}", self.options.handler_timeout);
        match self.answers().await {
            true => Outcome::Failed { error, reject: false },
            false => Outcome::Away {
                error: format!("{error}, and the database does not answer"),
            },
        }
    }

    /// Whether the database answers.
    async fn answers(&self) -> bool {
        matches!(
            timeout(DATABASE_PATIENCE, self.database.check(&self.inbox)).await,
            Ok(Ok(()))
        )
    }

    /// Publishes the dead letter durably, then writes the inbox entry, so that the event is never applied
    /// later.
    async fn bury(&self, job: &Job, reason: &'static str, error: &str, attempts: u32) -> Outcome {
        let id = job.received.as_ref().ok().map(|received| received.id.to_string());
        let cause = Cause {
            group: &self.group,
            reason,
            error,
            attempts,
        };
        let topic = self.options.dead_letters.topic(&job.message.topic);
        if !job.buried.load(Ordering::SeqCst) {
            let letter = Letter::new(&job.message, topic, id.as_deref(), cause);
            if let Err(error) = self.letters.publish(letter).await {
                return Outcome::Unburied { error };
            }
            job.buried.store(true, Ordering::SeqCst);
        }
        let Ok(received) = &job.received else {
            return Outcome::Done;
        };
        match self.opened(received).await {
            Ok(Some(tx)) => match self.commit(tx, job).await {
                Ok(outcome) => outcome,
                // Whatever the error is, the dead letter is published.
                Err(error) => excuse::<D>(&*error.cause).unwrap_or_else(|| Outcome::Away {
                    error: told(&*error.cause),
                }),
            },
            Ok(None) => Outcome::Done,
            Err(outcome) => outcome,
        }
    }

    pub(super) fn place(&self) -> Place<'_> {
        Place {
            inbox: &self.inbox,
            group: &self.group,
        }
    }

    fn context(&self, job: &Job, received: &Received, attempt: u32) -> Context {
        Context {
            group: self.group.clone(),
            event_id: received.id.clone(),
            topic: job.message.topic.clone(),
            key: job.key.to_string(),
            attempt,
            partition: job.message.partition,
            position: job.message.position,
            trace: Trace::of(&received.event),
        }
    }
}

/// Turns an inbox error into an outcome. The event is never the cause.
pub(super) fn not_the_events_fault<D: Database>(error: &InboxError) -> Outcome {
    excuse::<D>(error).unwrap_or_else(|| Outcome::Away { error: told(error) })
}

/// The outcome of an error that is the database's own problem, if it is one.
fn excuse<D: Database>(error: &(dyn std::error::Error + 'static)) -> Option<Outcome> {
    if D::is_conflict(error) {
        return Some(Outcome::Conflict {
            error: told(error),
            handled: false,
        });
    }
    D::is_away(error).then(|| Outcome::Away { error: told(error) })
}

/// With the feature `trace`, the handler's span belongs to the trace of the event.
fn span(context: &Context) -> tracing::Span {
    let span = tracing::info_span!(
        "handle",
        group = context.group,
        topic = context.topic,
        event = %context.event_id,
        attempt = context.attempt
    );
    #[cfg(feature = "trace")]
    if let Some(parent) = &context.trace.traceparent {
        crate::trace::adopt(
            &span,
            parent,
            context.trace.tracestate.as_deref().unwrap_or_default(),
        );
    }
    span
}
