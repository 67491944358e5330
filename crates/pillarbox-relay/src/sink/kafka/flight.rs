//! Events on their way in a producer: given to it, and waited for.

use std::{sync::Arc, time::Duration};

use rdkafka::{
    error::RDKafkaErrorCode as Code,
    message::{Header, OwnedHeaders},
    producer::BaseRecord,
};
use tokio::time::Instant;

use super::{
    producer::Producer,
    reports::{Inflight, PLACES_MAX, Report, Reports},
};
use crate::{envelope::Message, sink::SinkError};

/// How often what an ended producer still has is dropped, until everything in it has its report.
const PURGE_EVERY: Duration = Duration::from_millis(20);

/// What a flight waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    All,
    /// Where one that failed is the end of all.
    FirstFailure,
}

/// Why an event was not taken.
pub(super) enum NotTaken {
    /// It can't be made a message.
    Impossible(SinkError),
    /// The client refuses it.
    Refused(Code),
    /// There was no room in time.
    Full,
    /// The producer has ended.
    Over,
}

/// Events on their way in one producer. Dropped before everything has its report, it retires the producer: what is still in
/// there must not be sent for ever.
pub(super) struct Flight {
    producer: Arc<Producer>,
    number: u64,
    inflight: Arc<Inflight>,
}

impl Flight {
    pub(super) fn new(producer: Arc<Producer>, events: usize) -> Self {
        assert!(events <= PLACES_MAX, "a batch has at most {PLACES_MAX} events");
        let (number, inflight) = producer.reports().open(events);
        Self {
            producer,
            number,
            inflight,
        }
    }

    /// Gives an event to the client, and waits for room where there is none.
    pub(super) async fn send(
        &self,
        place: usize,
        topic: &str,
        message: &Message<'_>,
        deadline: Instant,
    ) -> Result<(), NotTaken> {
        let mut headers = OwnedHeaders::new_with_capacity(message.headers.len());
        for (name, value) in &message.headers {
            headers = headers.insert(Header {
                key: name,
                value: Some(value.as_bytes()),
            });
        }
        let mut record = BaseRecord::with_opaque_to(topic, Reports::tag(self.number, place))
            .key(message.key)
            .payload(&message.body[..])
            .headers(headers);
        let reports = self.producer.reports();
        loop {
            let mut room = std::pin::pin!(reports.room.notified());
            // From now on no report is missed, also one that comes before we wait.
            room.as_mut().enable();
            let (error, back) = match self.producer.client().send(record) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            match error.rdkafka_error_code().unwrap_or(Code::Unknown) {
                Code::QueueFull => {}
                // A transaction that has failed already takes nothing more.
                Code::Fatal | Code::State => return Err(NotTaken::Over),
                code => return Err(NotTaken::Refused(code)),
            }
            record = back;
            if tokio::time::timeout_at(deadline, room).await.is_err() {
                return Err(NotTaken::Full);
            }
        }
    }

    /// Whether something of it was lost already.
    pub(super) fn has_failed(&self) -> bool {
        self.inflight.has_failed()
    }

    /// An event that was not sent has nothing to wait for.
    pub(super) fn skip(&self, place: usize) {
        self.inflight.report(place, Report::NotSent);
    }

    /// Waits for all reports until the deadline, and takes those that came.
    pub(super) async fn reports(self, deadline: Instant, until: Until) -> Vec<Option<Report>> {
        let mut health = self.producer.reports().health.subscribe();
        let ended = tokio::select! {
            biased;
            () = self.inflight.complete_or_failed(), if until == Until::FirstFailure => return self.inflight.take(),
            () = self.inflight.complete() => false,
            _ = health.wait_for(|health| health.over) => true,
            () = tokio::time::sleep_until(deadline) => false,
        };
        // What was not sent yet comes back at once; what a broker answers to what was sent comes after that, and what it
        // would send again for that answer stays in the queue of a producer that sends no more.
        while ended && !self.inflight.is_complete() && Instant::now() < deadline {
            self.producer.purge().await;
            let _ = tokio::time::timeout(PURGE_EVERY, self.inflight.complete()).await;
        }
        if ended || !self.inflight.is_complete() {
            self.producer.retire();
        }
        self.inflight.take()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.inflight.is_complete() {
            self.producer.retire();
        }
        self.producer.reports().close(self.number);
    }
}
