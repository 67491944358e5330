//! One batch on its way: sent without waiting, then its acknowledgements are gathered.
//!
//! Acknowledgements come to one inbox of our own, and one task hands them to their batches. The client's own JetStream
//! layer makes an inbox, a channel, a permit and two timers for each event. What an event costs in this process, in µs of
//! CPU (300-byte payloads, eight batches of 500 in flight, three runs of 100,000):
//!
//! | headers | the client's layer | an inbox of our own |
//! | --- | --- | --- |
//! | the id only | 7.2–8.5 | 3.3–4.5 |
//! | the id and seven fields | 11.8–14.0 | 6.7–7.4 |

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::{PublishErrorKind, Subscriber, connection::State};
use futures::StreamExt;
use tokio::sync::Notify;

use super::{
    connect::{Connection, Link, Shared},
    headers::wrapped,
    outcome::{Denied, Reply, check_subject, inbox_denied},
};
use crate::sink::{Outcome, Outgoing, SinkError, SinkErrorKind};

/// What a batch waits for. An index is answered by the server, or failed on our side; the first answer counts.
pub(super) struct Inflight {
    answers: Mutex<Vec<Option<Result<Reply, SinkError>>>>,
    missing: AtomicUsize,
    complete: Notify,
}

impl Inflight {
    fn new(events: usize) -> Self {
        Self {
            answers: Mutex::new((0..events).map(|_| None).collect()),
            missing: AtomicUsize::new(events),
            complete: Notify::new(),
        }
    }

    fn answers(&self) -> MutexGuard<'_, Vec<Option<Result<Reply, SinkError>>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, index: usize, answer: Result<Reply, SinkError>) {
        match self.answers().get_mut(index) {
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

/// Hands each acknowledgement to its batch. One for a batch that is gone (it timed out) has nobody left to tell.
pub(super) async fn gather(mut acknowledgements: Subscriber, prefix: usize, shared: Arc<Shared>) {
    // Acknowledgements of one batch come one after the other: it is looked up once.
    let mut last: Option<(u64, Arc<Inflight>)> = None;
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
            batch.answer(index, Ok(Reply::read(&message)));
        }
    }
}

/// A batch in flight; leaves the table of batches when dropped.
pub(super) struct Window<'a> {
    connection: &'a Connection,
    batch: &'a [Outgoing],
    number: u64,
    inflight: Arc<Inflight>,
    /// How many were handed to the client: these may arrive.
    sent: AtomicUsize,
}

impl<'a> Window<'a> {
    pub(super) fn new(connection: &'a Connection, batch: &'a [Outgoing]) -> Self {
        let inflight = Arc::new(Inflight::new(batch.len()));
        let number = connection.shared.next_batch.fetch_add(1, Ordering::Relaxed);
        connection.shared.batches().insert(number, inflight.clone());
        Self {
            connection,
            batch,
            number,
            inflight,
            sent: AtomicUsize::new(0),
        }
    }

    pub(super) async fn publish(self, timeout: Duration) -> Vec<Outcome> {
        let mut changes = self.connection.shared.link.subscribe();
        let before = changes.borrow_and_update().clone();
        if !before.connected {
            // At the very start the client has not failed yet: give it its time. Later, being away is known at once.
            let starting = before.losses == 0 && before.problem.is_none();
            let wait = if starting { timeout } else { Duration::ZERO };
            if let Err(error) = self.connection.ready(wait).await {
                return vec![Outcome::Failed(error); self.batch.len()];
            }
        }
        let losses = {
            let now = changes.borrow_and_update();
            if now.deaf(&self.connection.inbox) {
                return vec![Outcome::Failed(inbox_denied()); self.batch.len()];
            }
            now.losses
        };
        let unanswered = {
            let mut work = std::pin::pin!(async {
                self.send().await;
                self.inflight.complete().await;
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
            // A refusal may have come together with what ended the waiting.
            self.refuse(&changes.borrow(), before.refusals);
        }
        self.outcomes(unanswered)
    }

    /// Hands the batch to the client; stops when the connection is gone, because the client would keep the rest and
    /// send it long after we have said that it failed.
    async fn send(&self) {
        for (index, outgoing) in self.batch.iter().enumerate() {
            if self.connection.client.connection_state() != State::Connected {
                return;
            }
            if let Err(error) = self.send_one(index, outgoing).await {
                self.inflight.answer(index, Err(error));
            }
            self.sent.store(index + 1, Ordering::Relaxed);
        }
    }

    async fn send_one(&self, index: usize, outgoing: &Outgoing) -> Result<(), SinkError> {
        let event = &outgoing.event.event;
        check_subject(&event.topic)?;
        let (headers, body) = wrapped(outgoing)?;
        let size = body.len();
        let reply = format!("{}.{}-{index}", self.connection.inbox, self.number);
        self.connection
            .client
            .publish_with_reply_and_headers(event.topic.clone(), reply, headers, body)
            .await
            .map_err(|error| match error.kind() {
                // The client refuses it: the server would close the connection on all the others.
                PublishErrorKind::MaxPayloadExceeded => SinkError::new(
                    SinkErrorKind::TooLarge,
                    format!(
                        "the message has {size} bytes and its headers come on top; the server takes {} bytes (its \
                         max_payload)",
                        self.connection.client.max_payload()
                    ),
                ),
                PublishErrorKind::InvalidSubject => {
                    SinkError::new(SinkErrorKind::Invalid, format!("{:?} is no NATS subject", event.topic))
                }
                PublishErrorKind::Send => self.connection.lost(),
            })
    }

    /// The server tells a missing right apart from the answers, and only by its subject.
    fn refuse(&self, link: &Link, refusals_before: u64) {
        let deaf = link.deaf(&self.connection.inbox);
        let new = || link.denied.iter().filter(|(number, _)| *number > refusals_before);
        for (index, outgoing) in self.batch[..self.sent.load(Ordering::Relaxed)].iter().enumerate() {
            let topic = &outgoing.event.event.topic;
            if deaf {
                self.inflight.answer(index, Err(inbox_denied().in_doubt()));
            } else if new().any(|(_, denied)| matches!(denied, Denied::Publish(to) if to == topic)) {
                // Not for good: somebody can grant it while the event waits.
                let error = SinkError::new(
                    SinkErrorKind::NotGranted,
                    format!("this NATS user may not publish to {topic}. Grant it"),
                );
                self.inflight.answer(index, Err(error));
            }
        }
    }

    fn outcomes(&self, unanswered: Option<SinkError>) -> Vec<Outcome> {
        let sent = self.sent.load(Ordering::Relaxed);
        let unanswered = unanswered.unwrap_or_else(|| self.connection.lost());
        let answers = std::mem::take(&mut *self.inflight.answers());
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
        outcomes
    }
}

impl Drop for Window<'_> {
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
