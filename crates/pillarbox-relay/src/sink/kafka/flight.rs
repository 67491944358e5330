//! Events in a producer: gives them to it and waits for their reports.

use std::{sync::Arc, time::Duration};

use rdkafka::{
    error::RDKafkaErrorCode as Code,
    message::{Header, OwnedHeaders},
    producer::BaseRecord,
};
use tokio::time::Instant;

use super::{
    producer::Producer,
    reports::{BatchReports, PLACES_MAX, Report, Reports},
};
use crate::{envelope::Message, sink::SinkError};

/// How often to purge the queue of an ended producer, until every event in it has a report.
const PURGE_EVERY: Duration = Duration::from_millis(20);

/// What a flight waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    All,
    /// All reports, or the first failure, if one failure means that all fail.
    FirstFailure,
}

/// Why the producer did not accept an event.
pub(super) enum NotTaken {
    /// The event can't be turned into a message.
    Impossible(SinkError),
    /// The client refused it.
    Refused(Code),
    /// There was no room in time.
    Full,
    /// The producer has ended.
    Over,
}

/// Events in one producer. If it is dropped before every event has a report, it retires the producer, so that the
/// remaining events are not sent later.
pub(super) struct Flight {
    producer: Arc<Producer>,
    number: u64,
    reports: Arc<BatchReports>,
}

impl Flight {
    pub(super) fn new(producer: Arc<Producer>, events: usize) -> Self {
        assert!(events <= PLACES_MAX, "a batch has at most {PLACES_MAX} events");
        let (number, reports) = producer.reports().open(events);
        Self {
            producer,
            number,
            reports,
        }
    }

    /// Gives an event to the client. Waits if there is no room.
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
            // From now on no notification is missed, even one that comes before the wait.
            room.as_mut().enable();
            let (error, back) = match self.producer.client().send(record) {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            };
            match error.rdkafka_error_code().unwrap_or(Code::Unknown) {
                Code::QueueFull => {}
                // A transaction that has already failed accepts nothing more.
                Code::Fatal | Code::State => return Err(NotTaken::Over),
                code => return Err(NotTaken::Refused(code)),
            }
            record = back;
            if tokio::time::timeout_at(deadline, room).await.is_err() {
                return Err(NotTaken::Full);
            }
        }
    }

    /// Whether one of the events has already failed.
    pub(super) fn has_failed(&self) -> bool {
        self.reports.has_failed()
    }

    /// Records that an event was not sent, so that nothing waits for its report.
    pub(super) fn skip(&self, place: usize) {
        self.reports.report(place, Report::NotSent);
    }

    /// Waits for all reports until the deadline, and returns those that arrived.
    pub(super) async fn reports(self, deadline: Instant, until: Until) -> Vec<Option<Report>> {
        let mut health = self.producer.reports().health.subscribe();
        let ended = tokio::select! {
            biased;
            () = self.reports.complete_or_failed(), if until == Until::FirstFailure => return self.reports.take(),
            () = self.reports.complete() => false,
            _ = health.wait_for(|health| health.over) => true,
            () = tokio::time::sleep_until(deadline) => false,
        };
        // Events that were not sent yet are purged at once. Answers to those that were sent arrive later. An event that
        // the client would then retry stays in the queue of the ended producer, so it must be purged again.
        while ended && !self.reports.is_complete() && Instant::now() < deadline {
            self.producer.purge().await;
            let _ = tokio::time::timeout(PURGE_EVERY, self.reports.complete()).await;
        }
        if ended || !self.reports.is_complete() {
            self.producer.retire();
        }
        self.reports.take()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.reports.is_complete() {
            self.producer.retire();
        }
        self.producer.reports().close(self.number);
    }
}
