//! The transactional mode: for readers of committed events, a batch becomes visible completely or not at all.
//!
//! - Only one transaction at a time can use the producer's identity, so batches take turns.
//! - If a commit was not requested, nothing of the transaction is ever visible. Its events have certainly failed. Only
//!   a commit without an answer leaves a doubt.
//! - A producer that was retired in the middle of a transaction needs no abort. Its successor has the same identity,
//!   and taking it over ends the open transaction.
//! - After each transaction that did not commit, the producer is replaced. A producer that had aborted because of a
//!   refused event was seen to accept the events of the next transaction and send nothing.

use std::sync::Arc;

use rdkafka::{
    error::{KafkaError, RDKafkaErrorCode as Code},
    producer::{BaseProducer, Producer as _},
};
use tokio::{
    sync::Mutex,
    task::spawn_blocking,
    time::{Duration, Instant},
};

use super::{
    KafkaSink,
    flight::Until,
    outcome::{Refusal, ended, fenced, misconfigured, refusal, timed_out},
    producer::Producer,
    publish::{Batch, bytes},
    reports::{Report, Reports},
    settings::Role,
};
use crate::sink::{Outcome, Outgoing, SinkError, SinkErrorKind};

/// The producer that has the identity. Batches take turns by this lock.
#[derive(Default)]
pub(super) struct Transactions {
    producer: Mutex<Option<Arc<Producer>>>,
}

type Client = BaseProducer<Reports>;

pub(super) async fn publish(sink: &KafkaSink, events: &[Outgoing]) -> Vec<Outcome> {
    let mut batch = Batch::new(sink, events);
    let asked = match sink.producer() {
        Ok(asked) => asked,
        Err(error) => return batch.all_failed(&error),
    };
    batch.sort_out(&sink.seen, &asked).await;
    let open = batch.open();
    if open.is_empty() {
        return batch.finish();
    }
    let turn = tokio::time::timeout_at(batch.deadline, sink.transactions.producer.lock()).await;
    let Ok(mut turn) = turn else {
        let error = timed_out(batch.timeout);
        return batch.all_failed(&error);
    };
    let suspects = one(sink, &mut turn, &mut batch, &open).await;
    // Each in its own transaction, so that a refusal is about that event.
    for (index, error) in suspects {
        if batch.follows_failed(index) || Instant::now() >= batch.deadline {
            batch.not_tried(&[index]);
        } else if !one(sink, &mut turn, &mut batch, &[index]).await.is_empty() {
            batch.fail(index, error);
        }
    }
    batch.keep_receipt(sink);
    batch.finish()
}

/// Events that were refused together, and why.
type Suspects = Vec<(usize, SinkError)>;

/// One transaction. If it ends early, or the caller is dropped, the producer is retired.
async fn one(
    sink: &KafkaSink,
    turn: &mut Option<Arc<Producer>>,
    batch: &mut Batch<'_>,
    indices: &[usize],
) -> Suspects {
    let producer = match turn.take().filter(|producer| producer.is_usable()) {
        Some(producer) => producer,
        None => match start(sink, batch.deadline).await {
            Ok(producer) => producer,
            Err(error) => {
                indices.iter().for_each(|&index| batch.fail(index, error.clone()));
                return Suspects::new();
            }
        },
    };
    let (suspects, committed) = within(&producer, sink, batch, indices).await;
    if committed {
        *turn = Some(producer);
    }
    suspects
}

/// Starts a producer and takes over the identity. This ends whatever an earlier producer left open.
async fn start(sink: &KafkaSink, deadline: Instant) -> Result<Arc<Producer>, SinkError> {
    let producer = Arc::new(Producer::start(
        &sink.address,
        Role::Transactions,
        sink.publish_timeout,
    )?);
    call(&producer, deadline, |client, left| client.init_transactions(left))
        .await
        .map_err(|error| match sink_error(&producer, &error) {
            // If it could not be asked, all brokers may be away.
            unknown if unknown.kind == SinkErrorKind::Timeout => producer.silence(sink.publish_timeout),
            known => known,
        })?;
    Ok(producer)
}

/// Runs one transaction. Returns the suspects, and whether it was committed.
async fn within(
    producer: &Arc<Producer>,
    sink: &KafkaSink,
    batch: &mut Batch<'_>,
    indices: &[usize],
) -> (Suspects, bool) {
    if let Err(error) = call(producer, batch.deadline, |client, _| client.begin_transaction()).await {
        let error = sink_error(producer, &error);
        indices.iter().for_each(|&index| batch.fail(index, error.clone()));
        return (Suspects::new(), false);
    }
    // The time after that is for the end of the transaction.
    let sending = batch.deadline - batch.timeout / 4;
    let flight = batch.give(producer, indices, sending).await;
    let reports = flight.reports(sending, Until::FirstFailure).await;
    let given: Vec<usize> = indices
        .iter()
        .copied()
        .filter(|&index| batch.outcomes[index].is_none())
        .collect();
    let arrived = reports
        .iter()
        .filter(|report| report.is_some_and(Report::is_delivered))
        .count();
    for (&index, report) in indices.iter().zip(&reports) {
        if let Some(Report::Delivered(place)) = report {
            batch.stored_at(index, *place);
        }
    }
    if arrived == given.len() {
        return (Suspects::new(), commit(producer, batch, &given).await);
    }
    abort(producer, batch.deadline).await;
    (refused(producer, sink, batch, indices, reports), false)
}

/// Finds the events that are at fault for an aborted transaction. The others count as not tried. If none is at fault,
/// all have failed.
fn refused(
    producer: &Producer,
    sink: &KafkaSink,
    batch: &mut Batch<'_>,
    indices: &[usize],
    reports: Vec<Option<Report>>,
) -> Suspects {
    let mut suspects = Suspects::new();
    let mut blamed = false;
    for (&index, report) in indices.iter().zip(reports) {
        if batch.outcomes[index].is_some() {
            continue;
        }
        let topic = batch.topic(index);
        match report {
            Some(Report::Failed(Code::PurgeQueue | Code::PurgeInflight)) => {}
            Some(Report::Failed(code)) => match refusal(code, topic, bytes(&batch.events[index])) {
                Refusal::Shared(error) => suspects.push((index, error)),
                Refusal::Topic(error) => batch.fail(index, sink.seen.refuse(topic, error)),
                Refusal::Own(error) => batch.fail(index, certain(error)),
            },
            _ => continue,
        }
        blamed |= batch.outcomes[index].is_some();
    }
    blamed |= !suspects.is_empty();
    for &index in indices {
        let open = batch.outcomes[index].is_none() && !suspects.iter().any(|(suspect, _)| *suspect == index);
        match (open, blamed) {
            (false, _) => {}
            (true, true) => batch.not_tried(&[index]),
            (true, false) => {
                let error = match producer.end() {
                    Some(end) => ended(Some(end)),
                    None => producer.silence(batch.timeout),
                };
                batch.fail(index, certain(error));
            }
        }
    }
    suspects
}

async fn commit(producer: &Arc<Producer>, batch: &mut Batch<'_>, given: &[usize]) -> bool {
    loop {
        let error = match call(producer, batch.deadline, |client, left| {
            client.commit_transaction(left)
        })
        .await
        {
            Ok(()) => {
                given
                    .iter()
                    .for_each(|&index| batch.outcomes[index] = Some(Outcome::Delivered));
                return true;
            }
            Err(error) => error,
        };
        let (again, abortable) = match &error {
            KafkaError::Transaction(error) => (error.is_retriable(), error.txn_requires_abort()),
            _ => (false, false),
        };
        if again && Instant::now() < batch.deadline {
            continue;
        }
        let failure = sink_error(producer, &error);
        // Kafka requires an abort, so it did not commit.
        let failure = if abortable {
            certain(failure)
        } else {
            failure.in_doubt()
        };
        given.iter().for_each(|&index| batch.fail(index, failure.clone()));
        if abortable {
            abort(producer, batch.deadline).await;
        }
        return false;
    }
}

/// Readers wait for an open transaction, so it is ended now if possible.
async fn abort(producer: &Arc<Producer>, deadline: Instant) {
    let aborted = call(producer, deadline, |client, left| client.abort_transaction(left)).await;
    if let Err(error) = aborted {
        tracing::debug!(%error, "could not abort a transaction: the next producer ends it");
    }
}

/// Runs a blocking call with the remaining time, but at least 50 ms.
async fn call(
    producer: &Arc<Producer>,
    deadline: Instant,
    work: impl FnOnce(&Client, Duration) -> Result<(), KafkaError> + Send + 'static,
) -> Result<(), KafkaError> {
    let left = deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(50));
    let client = producer.client().clone();
    spawn_blocking(move || work(&client, left))
        .await
        .unwrap_or(Err(KafkaError::Canceled))
}

fn sink_error(producer: &Producer, error: &KafkaError) -> SinkError {
    let code = match error {
        KafkaError::Transaction(error) => error.code(),
        other => other.rdkafka_error_code().unwrap_or(Code::Unknown),
    };
    match (code, producer.end()) {
        (Code::Fenced | Code::ProducerFenced, _) | (_, Some((Code::Fenced | Code::ProducerFenced, _))) => {
            fenced()
        }
        (_, Some(end)) => ended(Some(end)),
        (Code::UnsupportedFeature | Code::InvalidTransactionTimeout, _) => misconfigured(format!(
            "Kafka does not accept transactions from this client: {error}"
        )),
        (code, None) => refusal(code, "a transaction", 0).into_error(),
    }
}

/// Nothing of an aborted transaction is ever visible, so there is no doubt.
fn certain(error: SinkError) -> SinkError {
    SinkError {
        in_doubt: false,
        ..error
    }
}
