//! What an application writes: a handler and its errors.

use std::{error::Error, fmt, pin::Pin};

use super::{received::Received, trace::Trace};
use crate::{event::EventId, inbox::Database};

/// Applies events. Called once for each event, in order per key, several keys in parallel; called again after
/// a failure.
///
/// Everything that is written through `tx` is committed together with the event's inbox entry. Effects
/// elsewhere (a mail, a call to another service) can happen twice: the process may die before the commit.
pub trait Handler<D: Database>: Send + Sync + 'static {
    /// Applies one event through `tx`. It must neither commit nor roll back.
    fn handle(
        &self,
        event: &Received,
        context: &Context,
        tx: &mut D::Transaction,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;
}

/// What a closure handler returns: `Box::pin(async move { … })`.
pub type Handling<'a> = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + 'a>>;

/// A closure as a handler: see [`Consumer::start_fn`](super::Consumer::start_fn).
pub(super) struct FromFn<F>(pub(super) F);

impl<D, F> Handler<D> for FromFn<F>
where
    D: Database,
    F: for<'a> Fn(&'a Received, &'a Context, &'a mut D::Transaction) -> Handling<'a> + Send + Sync + 'static,
{
    async fn handle(
        &self,
        event: &Received,
        context: &Context,
        tx: &mut D::Transaction,
    ) -> Result<(), HandlerError> {
        (self.0)(event, context, tx).await
    }
}

/// Where an event comes from, and which attempt this is.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Context {
    /// The consumer's group.
    pub group: String,
    /// The event's id.
    pub event_id: EventId,
    /// The topic or subject from which it was received.
    pub topic: String,
    /// The unit of order.
    pub key: String,
    /// 1 at the first attempt.
    pub attempt: u32,
    /// The Kafka partition.
    pub partition: Option<i32>,
    /// The offset in the partition, or the sequence in the stream.
    pub position: u64,
    /// The event's trace context and correlation id.
    pub trace: Trace,
}

/// Why an event could not be applied. `?` turns any error into one that is retried.
pub struct HandlerError {
    pub(super) reject: bool,
    pub(super) cause: Box<dyn Error + Send + Sync>,
}

impl HandlerError {
    /// A failure that may succeed later. The event is retried after a delay, as often as the consumer's
    /// options say.
    pub fn retry(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            reject: false,
            cause: cause.into(),
        }
    }

    /// A failure that will never succeed. The event becomes a dead letter at once.
    pub fn reject(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            reject: true,
            cause: cause.into(),
        }
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for HandlerError {
    fn from(cause: E) -> Self {
        Self::retry(cause)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.reject { "reject" } else { "retry" };
        write!(f, "{kind}: {}", told(&*self.cause))
    }
}

/// An error with its causes on one line, short enough for a header.
pub(super) fn told(error: &(dyn Error + 'static)) -> String {
    const CHARACTERS_MAX: usize = 500;
    const CAUSES_MAX: usize = 8;
    let mut text = String::new();
    for error in std::iter::successors(Some(error), |error| (**error).source()).take(CAUSES_MAX) {
        let part = error.to_string();
        // Some errors already contain the text of their cause.
        if !text.contains(&part) {
            let separator = if text.is_empty() { "" } else { ": " };
            text.push_str(separator);
            text.push_str(&part);
        }
    }
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(CHARACTERS_MAX)
        .collect()
}
