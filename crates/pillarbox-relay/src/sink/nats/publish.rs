//! One batch: sends it without waiting, then collects its acknowledgements.
//!
//! All acknowledgements arrive in one inbox of our own, and one task passes them to their batches. The client's own
//! JetStream layer creates an inbox, a channel, a permit and two timers for each event. Cost of an event in this
//! process, in µs of CPU (300-byte payloads, eight batches of 500 in flight, three runs of 100,000):
//!
//! | headers | the client's layer | an inbox of our own |
//! | --- | --- | --- |
//! | the id only | 7.2–8.5 | 3.3–4.5 |
//! | the id and seven fields | 11.8–14.0 | 6.7–7.4 |

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::{PublishErrorKind, Subscriber, connection::State};
use futures::StreamExt;
use tokio::sync::Notify;

use super::{
    audit::{Place, Receipt},
    connect::{Connection, Link, Shared},
    headers::message,
    outcome::{Denied, Reply, check_subject, inbox_denied},
};
use crate::sink::{
    Outcome, Outgoing, SinkError, SinkErrorKind,
    audit::{Chosen, Sample},
};

/// The answers to a batch. The server answers an event, or it fails on our side. The first answer counts.
pub(super) struct Answers {
    by_event: Mutex<Vec<Option<Result<Reply, SinkError>>>>,
    missing: AtomicUsize,
    complete: Notify,
    /// The event whose place in the stream is kept for an audit.
    chosen: Option<usize>,
    place: OnceLock<Place>,
}

impl Answers {
    fn new(events: usize, chosen: Option<usize>) -> Self {
        Self {
            by_event: Mutex::new((0..events).map(|_| None).collect()),
            missing: AtomicUsize::new(events),
            complete: Notify::new(),
            chosen,
            place: OnceLock::new(),
        }
    }

    fn by_event(&self) -> MutexGuard<'_, Vec<Option<Result<Reply, SinkError>>>> {
        self.by_event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, index: usize, answer: Result<Reply, SinkError>) {
        match self.by_event().get_mut(index) {
            Some(slot) if slot.is_none() => *slot = Some(answer),
            _ => return,
        }
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete.notify_one();
        }
    }

    async fn complete(&self) {
        while self.missing.load(Ordering::Acquire) > 0 {
            self.complete.notified().await;
        }
    }
}

/// Passes each acknowledgement to its batch. Ignores those of a batch that has timed out.
pub(super) async fn gather(mut acknowledgements: Subscriber, prefix: usize, shared: Arc<Shared>) {
    // Acknowledgements of one batch usually arrive together, so look it up only once.
    let mut last: Option<(u64, Arc<Answers>)> = None;
    while let Some(message) = acknowledgements.next().await {
        let token = message
            .subject
            .get(prefix..)
            .and_then(|token| token.split_once('-'));
        let Some((Ok(number), Ok(index))) = token.map(|(number, index)| (number.parse(), index.parse()))
        else {
            continue;
        };
        if last.as_ref().is_none_or(|(known, _)| *known != number) {
            last = shared.batches().get(&number).map(|batch| (number, batch.clone()));
        }
        if let Some((_, batch)) = &last {
            if batch.chosen == Some(index)
                && let Some(place) = Place::read(&message.payload)
            {
                let _ = batch.place.set(place);
            }
            batch.answer(index, Ok(Reply::read(&message)));
        }
    }
}

/// A batch in flight. Dropping it removes it from the table of batches.
pub(super) struct BatchInFlight<'a> {
    connection: &'a Connection,
    batch: &'a [Outgoing],
    number: u64,
    answers: Arc<Answers>,
    /// How many events were given to the client. These may arrive.
    sent: AtomicUsize,
    delivered: &'a Sample<Receipt>,
    chosen: Option<Chosen>,
}

impl<'a> BatchInFlight<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        batch: &'a [Outgoing],
        delivered: &'a Sample<Receipt>,
    ) -> Self {
        let chosen = delivered.choose(batch.len());
        let answers = Arc::new(Answers::new(batch.len(), chosen.map(|chosen| chosen.index)));
        let number = connection.shared.next_batch.fetch_add(1, Ordering::Relaxed);
        connection.shared.batches().insert(number, answers.clone());
        Self {
            connection,
            batch,
            number,
            answers,
            sent: AtomicUsize::new(0),
            delivered,
            chosen,
        }
    }

    pub(super) async fn publish(self, timeout: Duration) -> Vec<Outcome> {
        let mut changes = self.connection.shared.link.subscribe();
        let before = changes.borrow_and_update().clone();
        if !before.connected {
            // At the start the client has not failed yet, so give it time. Later, an outage is known at once.
            let starting = before.losses == 0 && before.problem.is_none();
            let wait = if starting { timeout } else { Duration::ZERO };
            if let Err(error) = self.connection.ready(wait).await {
                return vec![Outcome::Failed(error); self.batch.len()];
            }
        }
        let losses = {
            let now = changes.borrow_and_update();
            if now.cannot_receive_acks(&self.connection.inbox) {
                return vec![Outcome::Failed(inbox_denied()); self.batch.len()];
            }
            now.losses
        };
        let unanswered = {
            let mut work = std::pin::pin!(async {
                self.send().await;
                self.answers.complete().await;
            });
            let mut deadline = std::pin::pin!(tokio::time::sleep(timeout));
            loop {
                tokio::select! {
                    () = &mut work => break None,
                    () = &mut deadline => break Some(timed_out(timeout)),
                    _ = changes.changed() => {
                        let now = changes.borrow_and_update().clone();
                        if now.losses != losses {
                            break Some(self.connection.lost());
                        }
                        self.refuse(&now, before.refusals);
                    }
                }
            }
        };
        if unanswered.is_some() {
            // A refusal may have arrived together with what ended the wait.
            self.refuse(&changes.borrow(), before.refusals);
        }
        self.outcomes(unanswered)
    }

    /// Gives the batch to the client. Stops when the connection is lost: the client would keep the rest and send it
    /// long after it was reported as failed.
    async fn send(&self) {
        for (index, outgoing) in self.batch.iter().enumerate() {
            if self.connection.client.connection_state() != State::Connected {
                return;
            }
            if let Err(error) = self.send_one(index, outgoing).await {
                self.answers.answer(index, Err(error));
            }
            self.sent.store(index + 1, Ordering::Relaxed);
        }
    }

    async fn send_one(&self, index: usize, outgoing: &Outgoing) -> Result<(), SinkError> {
        let event = &outgoing.event.event;
        check_subject(&event.topic)?;
        let (headers, body) = message(outgoing)?;
        let size = body.len();
        let reply = format!("{}.{}-{index}", self.connection.inbox, self.number);
        self.connection
            .client
            .publish_with_reply_and_headers(event.topic.clone(), reply, headers, body)
            .await
            .map_err(|error| match error.kind() {
                // The client refuses it, because the server would close the connection for all others.
                PublishErrorKind::MaxPayloadExceeded => SinkError::new(
                    SinkErrorKind::TooLarge,
                    format!(
                        "the message has {size} bytes plus its headers; the server accepts {} bytes (its \
                         max_payload)",
                        self.connection.client.max_payload()
                    ),
                ),
                PublishErrorKind::InvalidSubject => SinkError::new(
                    SinkErrorKind::Invalid,
                    format!("{:?} is not a NATS subject", event.topic),
                ),
                PublishErrorKind::Send => self.connection.lost(),
            })
    }

    /// The server reports a missing permission separately from the answers, and names only the subject.
    fn refuse(&self, link: &Link, refusals_before: u64) {
        let no_acks = link.cannot_receive_acks(&self.connection.inbox);
        let new = || link.denied.iter().filter(|(number, _)| *number > refusals_before);
        for (index, outgoing) in self.batch[..self.sent.load(Ordering::Relaxed)].iter().enumerate() {
            let topic = &outgoing.event.event.topic;
            if no_acks {
                self.answers.answer(index, Err(inbox_denied().in_doubt()));
            } else if new().any(|(_, denied)| matches!(denied, Denied::Publish(to) if to == topic)) {
                // Not permanent: somebody can grant it while the event waits.
                let error = SinkError::new(
                    SinkErrorKind::NotGranted,
                    format!("this NATS user may not publish to {topic}. Grant it"),
                );
                self.answers.answer(index, Err(error));
            }
        }
    }

    fn outcomes(&self, unanswered: Option<SinkError>) -> Vec<Outcome> {
        let sent = self.sent.load(Ordering::Relaxed);
        let unanswered = unanswered.unwrap_or_else(|| self.connection.lost());
        let answers = std::mem::take(&mut *self.answers.by_event());
        let outcomes: Vec<Outcome> = answers
            .into_iter()
            .zip(self.batch)
            .enumerate()
            .map(|(index, (answer, outgoing))| match answer {
                Some(Ok(reply)) => reply.outcome(outgoing),
                Some(Err(error)) => Outcome::Failed(error),
                None if index < sent => Outcome::Failed(unanswered.clone().in_doubt()),
                None => Outcome::Failed(unanswered.clone()),
            })
            .collect();
        assert_eq!(outcomes.len(), self.batch.len());
        self.keep_receipt(&outcomes);
        outcomes
    }

    fn keep_receipt(&self, outcomes: &[Outcome]) {
        if let (Some(chosen), Some(place)) = (self.chosen, self.answers.place.get())
            && outcomes[chosen.index] == Outcome::Delivered
        {
            let id = self.batch[chosen.index].event.event.id.clone();
            let place = place.clone();
            self.delivered.keep(chosen, Receipt { id, place });
        }
    }
}

impl Drop for BatchInFlight<'_> {
    fn drop(&mut self) {
        self.connection.shared.batches().remove(&self.number);
    }
}

fn timed_out(timeout: Duration) -> SinkError {
    SinkError::new(
        SinkErrorKind::Timeout,
        format!("no acknowledgement within {} ms", timeout.as_millis()),
    )
}
