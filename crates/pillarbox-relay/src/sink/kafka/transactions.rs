//! The transactional mode: a batch becomes visible whole to those who read committed, or not at all.
//!
//! One transaction at a time has the producer's identity, so batches take turns. Nothing of a transaction that was not asked to
//! commit is ever seen: its events failed without a doubt. Only an unanswered commit leaves one. A producer that has been
//! retired in the middle of a transaction needs no abort of its own: its successor has the same identity, and by taking it
//! over ends what the former left open. Each transaction that did not commit costs its producer: one that was aborted for
//! a refused event has been seen to take the next one's events and send nothing.

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

/// The producer that has the identity; whoever holds the lock has the turn.
#[derive(Default)]
pub(super) struct Transactions {
    producer: Mutex<Option<Arc<Producer>>>,
}

type Client = BaseProducer<Reports>;

pub(super) async fn publish(sink: &KafkaSink, events: &[Outgoing]) -> Vec<Outcome> {
    let mut batch = Batch::new(events, sink.publish_timeout);
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
    // Each in a transaction of its own, so that a refusal is its own.
    for (index, error) in suspects {
        if batch.held_back(index) || Instant::now() >= batch.deadline {
            batch.hold(&[index]);
        } else if !one(sink, &mut turn, &mut batch, &[index]).await.is_empty() {
            batch.fail(index, error);
        }
    }
    batch.finish()
}

/// Events that were refused together, with what for.
type Suspects = Vec<(usize, SinkError)>;

/// One transaction. Whatever ends it early retires the producer, and so does a caller that goes away.
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

/// A producer that has taken the identity over, with all that a former one left open at an end.
async fn start(sink: &KafkaSink, deadline: Instant) -> Result<Arc<Producer>, SinkError> {
    let producer = Arc::new(Producer::start(
        &sink.address,
        Role::Transactions,
        sink.publish_timeout,
    )?);
    call(&producer, deadline, |client, left| client.init_transactions(left))
        .await
        .map_err(|error| match told(&producer, &error) {
            // Who could not be asked may be away altogether.
            unknown if unknown.kind == SinkErrorKind::Timeout => producer.silence(sink.publish_timeout),
            known => known,
        })?;
    Ok(producer)
}

/// The suspects, and whether it was committed.
async fn within(
    producer: &Arc<Producer>,
    sink: &KafkaSink,
    batch: &mut Batch<'_>,
    indices: &[usize],
) -> (Suspects, bool) {
    if let Err(error) = call(producer, batch.deadline, |client, _| client.begin_transaction()).await {
        let error = told(producer, &error);
        indices.iter().for_each(|&index| batch.fail(index, error.clone()));
        return (Suspects::new(), false);
    }
    // What is left after that is for the end of the transaction.
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
        .filter(|report| **report == Some(Report::Delivered))
        .count();
    if arrived == given.len() {
        return (Suspects::new(), commit(producer, batch, &given).await);
    }
    abort(producer, batch.deadline).await;
    (refused(producer, sink, batch, indices, reports), false)
}

/// Sorts out who is to blame for a transaction that was aborted. The others are given back; where nobody is, all have failed.
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
            (true, true) => batch.hold(&[index]),
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
        let told = told(producer, &error);
        // Kafka asked for the abort, so the commit has not been.
        let told = if abortable { certain(told) } else { told.in_doubt() };
        given.iter().for_each(|&index| batch.fail(index, told.clone()));
        if abortable {
            abort(producer, batch.deadline).await;
        }
        return false;
    }
}

/// Readers wait for what is open: it is ended now if it can be.
async fn abort(producer: &Arc<Producer>, deadline: Instant) {
    let aborted = call(producer, deadline, |client, left| client.abort_transaction(left)).await;
    if let Err(error) = aborted {
        tracing::debug!(%error, "a transaction is left to the next producer to end");
    }
}

/// Runs what waits for a broker, with the time that is left; at least for a moment.
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

fn told(producer: &Producer, error: &KafkaError) -> SinkError {
    let code = match error {
        KafkaError::Transaction(error) => error.code(),
        other => other.rdkafka_error_code().unwrap_or(Code::Unknown),
    };
    match (code, producer.end()) {
        (Code::Fenced | Code::ProducerFenced, _) | (_, Some((Code::Fenced | Code::ProducerFenced, _))) => {
            fenced()
        }
        (_, Some(end)) => ended(Some(end)),
        (Code::UnsupportedFeature | Code::InvalidTransactionTimeout, _) => {
            misconfigured(format!("Kafka takes no transactions from us: {error}"))
        }
        (code, None) => refusal(code, "a transaction", 0).into_error(),
    }
}

/// Nothing of an aborted transaction is ever seen.
fn certain(error: SinkError) -> SinkError {
    SinkError {
        in_doubt: false,
        ..error
    }
}
