//! The yardsticks, measured in the same run on the same machine: the bare client and a hand-written loop.

use std::{sync::Arc, time::Instant};

use anyhow::{Result, anyhow};
use jiff::Timestamp;
use pillarbox::{Event, lane::lane_of};
use pillarbox_relay::{
    StoredEvent,
    sink::{Outcome, Outgoing},
};

use super::{arena::Arena, events::Maker};

/// Events per second of the bare client. It publishes events from memory, with the same headers and as many
/// in flight as the relay. (With NATS, four times as many in flight made it a tenth faster, and the relay no
/// faster.)
pub(super) async fn pure(arena: &Arena, maker: &mut Maker, count: usize) -> Result<f64> {
    let events = maker.take(count);
    let Some(broker) = &arena.broker else {
        return pure_sink(arena, events).await;
    };
    let events = events.into_iter().map(outgoing).collect();
    let seconds = broker.pure(events, arena.in_flight_max()).await?;
    Ok(count as f64 / seconds)
}

/// The same for a sink without a bare client: the sink alone, without a store.
async fn pure_sink(arena: &Arena, events: Vec<Event>) -> Result<f64> {
    let mut options = arena.sink_options.clone();
    if options.url.starts_with("stdout:") {
        // The stdout of this process is for its result.
        options.url = "null:".into();
    }
    let sink = pillarbox_relay::connect::sink(&options)
        .map_err(|error| anyhow!(error))?
        .sink;
    let count = events.len();
    let outgoing: Vec<Outgoing> = events.into_iter().map(outgoing).collect();
    let began = Instant::now();
    for batch in outgoing.chunks(200) {
        delivered(sink.publish(batch).await)?;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// Events per second of the hand-written loop: fetch 200 (MongoDB: find and lock one), publish one, mark one.
pub(super) async fn naive(arena: &Arena, maker: &mut Maker, count: usize) -> Result<f64> {
    let tables = &arena.database_options.tables;
    let payloads: Vec<String> = maker
        .take(count)
        .into_iter()
        .map(|event| String::from_utf8_lossy(&event.payload).into_owned())
        .collect();
    arena.database.fill_naive(tables, &payloads).await?;
    let broker = match &arena.broker {
        Some(broker) => Some(broker.one_by_one().await?),
        None => None,
    };
    let began = Instant::now();
    let mut done = 0;
    while done < count {
        for row in arena.database.naive_batch(tables).await? {
            if let Some(broker) = &broker {
                broker.publish(&row.id, row.payload).await?;
            }
            arena.database.naive_mark(tables, &row.id).await?;
            done += 1;
        }
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn outgoing(event: Event) -> Outgoing {
    let lane = lane_of(event.key());
    let event = StoredEvent {
        seq: 0,
        lane,
        attempts: 0,
        created_at: Timestamp::UNIX_EPOCH,
        event,
    };
    Outgoing::new(Arc::new(event))
}

fn delivered(outcomes: Vec<Outcome>) -> Result<()> {
    match outcomes
        .into_iter()
        .find(|outcome| *outcome != Outcome::Delivered)
    {
        Some(Outcome::Failed(error)) => Err(anyhow!(error)),
        Some(other) => Err(anyhow!("the sink did not deliver: {other:?}")),
        None => Ok(()),
    }
}
