//! A batch: gives it to the client without waiting, then collects its reports.
//!
//! Events of one key for one topic are in one partition, and a producer sends all of them or only the first ones (see
//! [`super::producer`]). So they are sent together, with two exceptions:
//! - The first event of a key in a producer. A broker that has nothing of that producer in a partition accepts any
//!   sequence number, so it would store the second request after it refused the first.
//! - Events of a key for several topics. Nothing keeps the order between topics.
//!
//! In both cases the next events are sent after the reports of the earlier ones have arrived.

mod alone;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::{
    CLOUDEVENTS, KafkaSink,
    audit::Receipt,
    flight::{Flight, NotTaken, Until},
    outcome::{Refusal, ended, no_room, refusal},
    producer::Producer,
    reports::{Place, Report},
    seen::{Hindrance, Seen},
};
use crate::{
    envelope,
    sink::{Outcome, Outgoing, SinkError, audit::Chosen},
};

pub(super) struct Batch<'a> {
    pub(super) events: &'a [Outgoing],
    pub(super) timeout: Duration,
    pub(super) deadline: Instant,
    pub(super) outcomes: Vec<Option<Outcome>>,
    /// Keys with an event that failed.
    broken: HashSet<&'a str>,
    /// Keys with several events.
    several: HashSet<&'a str>,
    /// The event whose place is kept for an audit, and its place.
    chosen: Option<Chosen>,
    place: Option<Place>,
}

/// The result of events that were given to a producer.
#[derive(Default)]
struct Sent {
    /// Events that were refused together with others, and why. Each must be tried alone.
    suspects: Vec<(usize, SinkError)>,
    /// Something failed, or has no report.
    trouble: bool,
}

/// Drops a producer that was retired, even if the caller is dropped, because its events must not be sent later.
struct Tidy<'a>(&'a KafkaSink);

impl Drop for Tidy<'_> {
    fn drop(&mut self) {
        self.0.drop_unusable();
    }
}

pub(super) async fn publish(sink: &KafkaSink, events: &[Outgoing]) -> Vec<Outcome> {
    let _tidy = Tidy(sink);
    let mut batch = Batch::new(sink, events);
    let producer = match sink.producer() {
        Ok(producer) => producer,
        Err(error) => return batch.all_failed(&error),
    };
    batch.sort_out(&sink.seen, &producer).await;
    let (mut waiting, mut suspects) = batch.suspected(&sink.seen);
    while !waiting.is_empty() {
        let (turn, later) = batch.next_turn(&waiting, &producer);
        let sent = batch.send(&producer, &sink.seen, &turn).await;
        suspects.extend(sent.suspects.into_iter().map(|(index, _)| index));
        if !producer.is_usable() || Instant::now() >= batch.deadline {
            batch.not_tried(&later);
            break;
        }
        waiting = later;
    }
    suspects.sort_unstable();
    if !suspects.is_empty() && batch.alone(sink, suspects).await {
        sink.send_smaller_batches();
    }
    batch.keep_receipt(sink);
    batch.finish()
}

impl<'a> Batch<'a> {
    pub(super) fn new(sink: &KafkaSink, events: &'a [Outgoing]) -> Self {
        let timeout = sink.publish_timeout;
        Self {
            events,
            timeout,
            deadline: Instant::now() + timeout,
            outcomes: vec![None; events.len()],
            broken: HashSet::new(),
            several: HashSet::new(),
            chosen: sink.delivered.choose(events.len()),
            place: None,
        }
    }

    fn key(&self, index: usize) -> &'a str {
        self.events[index].event.event.key()
    }

    /// The Kafka topic of an event: its stream, if the event or its route names one, otherwise its own topic.
    pub(super) fn topic(&self, index: usize) -> &'a str {
        let outgoing = &self.events[index];
        outgoing.stream.as_deref().unwrap_or(&outgoing.event.event.topic)
    }

    pub(super) fn fail(&mut self, index: usize, error: SinkError) {
        self.outcomes[index] = Some(Outcome::Failed(error));
        self.broken.insert(self.key(index));
    }

    pub(super) fn not_tried(&mut self, indices: &[usize]) {
        for &index in indices {
            self.outcomes[index] = Some(Outcome::NotTried);
        }
    }

    pub(super) fn all_failed(mut self, error: &SinkError) -> Vec<Outcome> {
        for index in self.open() {
            self.fail(index, error.clone());
        }
        self.finish()
    }

    /// Events that have no outcome yet.
    pub(super) fn open(&self) -> Vec<usize> {
        let open = |index: &usize| self.outcomes[*index].is_none();
        (0..self.events.len()).filter(open).collect()
    }

    /// Fails events whose topic can't be used, so that they do not affect others.
    pub(super) async fn sort_out(&mut self, seen: &Seen, producer: &Arc<Producer>) {
        let mut fine: Option<&str> = None;
        for index in 0..self.events.len() {
            let topic = self.topic(index);
            if fine == Some(topic) {
                continue;
            }
            match seen.ask(producer, topic, self.deadline).await {
                Ok(()) => fine = Some(topic),
                Err(Hindrance::Topic(error)) => self.fail(index, error),
                Err(Hindrance::Away(error)) => {
                    for index in self.open() {
                        self.fail(index, error.clone());
                    }
                    return;
                }
            }
        }
    }

    /// Splits the waiting events into those that may be sent together now, and those that come later.
    fn next_turn(&mut self, waiting: &[usize], producer: &Producer) -> (Vec<usize>, Vec<usize>) {
        let mut first: HashMap<&str, &str> = HashMap::with_capacity(waiting.len());
        let mut behind: HashSet<&str> = HashSet::new();
        let (mut turn, mut later) = (Vec::with_capacity(waiting.len()), Vec::new());
        for &index in waiting {
            let (key, topic) = (self.key(index), self.topic(index));
            let together = match first.get(key) {
                None => {
                    first.insert(key, topic);
                    true
                }
                Some(before) => {
                    self.several.insert(key);
                    *before == topic && !behind.contains(key) && producer.is_known_at(topic, key)
                }
            };
            if together {
                turn.push(index);
            } else {
                behind.insert(key);
                later.push(index);
            }
        }
        (turn, later)
    }

    /// Gives events to the producer and waits for their reports.
    async fn send(&mut self, producer: &Arc<Producer>, seen: &Seen, turn: &[usize]) -> Sent {
        let flight = self.give(producer, turn, self.deadline).await;
        let reports = flight.reports(self.deadline, Until::All).await;
        self.read(producer, seen, turn, reports)
    }

    /// Gives events to the producer. Events that it did not accept get their outcome here.
    pub(super) async fn give(
        &mut self,
        producer: &Arc<Producer>,
        turn: &[usize],
        deadline: Instant,
    ) -> Flight {
        let flight = producer.flight(turn.len());
        let mut stopped = false;
        for (place, &index) in turn.iter().enumerate() {
            // An event that was lost while we waited for room may be an earlier one of the same key.
            if stopped || flight.has_failed() || self.broken.contains(self.key(index)) {
                self.not_tried(&[index]);
                flight.skip(place);
                continue;
            }
            let taken = match envelope::message(&self.events[index], CLOUDEVENTS) {
                Ok(message) => flight.send(place, self.topic(index), &message, deadline).await,
                Err(error) => Err(NotTaken::Impossible(error)),
            };
            match taken {
                Ok(()) => continue,
                Err(NotTaken::Impossible(error)) => self.fail(index, error),
                Err(NotTaken::Refused(code)) => {
                    let bytes = bytes(&self.events[index]);
                    self.fail(index, refusal(code, self.topic(index), bytes).into_error());
                }
                Err(NotTaken::Full) => {
                    self.fail(index, no_room(self.timeout));
                    stopped = true;
                }
                Err(NotTaken::Over) => {
                    self.producer_ended(index, producer);
                    stopped = true;
                }
            }
            flight.skip(place);
        }
        flight
    }

    fn read(
        &mut self,
        producer: &Producer,
        seen: &Seen,
        turn: &[usize],
        reports: Vec<Option<Report>>,
    ) -> Sent {
        let mut sent = Sent::default();
        let over = producer.is_over();
        for (&index, report) in turn.iter().zip(reports) {
            sent.trouble |= !report.is_some_and(Report::is_delivered);
            match report {
                Some(Report::Delivered(place)) => {
                    self.stored_at(index, place);
                    self.outcomes[index] = Some(Outcome::Delivered);
                    if self.several.contains(self.key(index)) {
                        producer.known_at(self.topic(index), self.key(index));
                    }
                }
                Some(Report::NotSent) => {}
                Some(Report::Failed(Code::PurgeQueue)) if over => self.producer_ended(index, producer),
                Some(Report::Failed(code)) => {
                    let topic = self.topic(index);
                    match refusal(code, topic, bytes(&self.events[index])) {
                        Refusal::Own(error) => self.fail(index, error),
                        Refusal::Topic(error) => self.fail(index, seen.refuse(topic, error)),
                        Refusal::Shared(error) => sent.suspects.push((index, error)),
                    }
                }
                None => self.fail(index, producer.silence(self.timeout).in_doubt()),
            }
        }
        sent
    }

    pub(super) fn stored_at(&mut self, index: usize, place: Place) {
        if self.chosen.is_some_and(|chosen| chosen.index == index) {
            self.place = Some(place);
        }
    }

    pub(super) fn keep_receipt(&self, sink: &KafkaSink) {
        if let (Some(chosen), Some(place)) = (self.chosen, self.place)
            && place.offset >= 0
            && self.outcomes[chosen.index] == Some(Outcome::Delivered)
        {
            let receipt = Receipt {
                id: self.events[chosen.index].event.event.id.clone(),
                envelope: self.events[chosen.index].envelope.clone(),
                topic: self.topic(chosen.index).to_owned(),
                place,
            };
            sink.delivered.keep(chosen, receipt);
        }
    }

    /// The producer ended before it sent this event. If the reason is that another event was refused, this event is not
    /// at fault. Each such end decides the event that was refused, so there is progress.
    pub(super) fn producer_ended(&mut self, index: usize, producer: &Producer) {
        match producer.end() {
            Some((Code::GaplessGuarantee, _)) => self.outcomes[index] = Some(Outcome::NotTried),
            end => self.fail(index, ended(end)),
        }
    }

    /// One outcome for each event. In each key, the first event that did not arrive has the error; the events behind it
    /// are not tried.
    pub(super) fn finish(self) -> Vec<Outcome> {
        let mut broken: HashSet<&str> = HashSet::new();
        let events = self.events;
        let outcomes: Vec<Outcome> = self
            .outcomes
            .into_iter()
            .zip(events)
            .map(|(outcome, outgoing)| {
                let outcome = outcome.unwrap_or(Outcome::NotTried);
                let key = outgoing.event.event.key();
                match outcome {
                    Outcome::Delivered => {
                        if broken.contains(key) {
                            tracing::error!(
                                key,
                                "Kafka accepted an event although an earlier one of its key was lost"
                            );
                        }
                        Outcome::Delivered
                    }
                    _ if !broken.insert(key) => Outcome::NotTried,
                    failed => failed,
                }
            })
            .collect();
        assert_eq!(outcomes.len(), events.len());
        outcomes
    }
}

/// The approximate size of an event at the broker, before compression.
pub(super) fn bytes(outgoing: &Outgoing) -> usize {
    envelope::message(outgoing, CLOUDEVENTS).map_or(0, |message| {
        let headers: usize = message
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        message.key.len() + message.body.len() + headers
    })
}
