//! Measures the processor time of an event. It is run by hand:
//! `cargo test -p pillarbox-relay --release --test it sinks::kafka::cost -- --ignored --nocapture`. The
//! result is in a comment of `sink/kafka/reports.rs`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use pillarbox_relay::{
    Sink,
    sink::{Outcome, Outgoing},
};
use pillarbox_testkit::{contract::sink::event, servers};
use rdkafka::{
    ClientConfig,
    message::{Header, OwnedHeaders},
    producer::{BaseProducer, BaseRecord, FutureProducer, FutureRecord, Producer},
};

use super::harness::{new_topic, open, to};

const EVENTS: usize = 100_000;
const BATCH: usize = 500;

/// Processor time of this process so far.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

#[allow(clippy::print_stdout, reason = "the test prints its measurements")]
fn tell(what: &str, began: (Instant, Duration)) {
    let (wall, used) = (began.0.elapsed(), cpu() - began.1);
    println!(
        "{what}: {:.1} µs of processor time an event, {:.0} events/s",
        used.as_secs_f64() * 1e6 / EVENTS as f64,
        EVENTS as f64 / wall.as_secs_f64()
    );
}

fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", bootstrap)
        .set("enable.idempotence", "true")
        .set("compression.type", "lz4")
        .set("linger.ms", "5");
    config
}

fn headers(event: &Outgoing) -> OwnedHeaders {
    let id = event.event.event.id.to_string();
    (0..8).fold(OwnedHeaders::new_with_capacity(8), |headers, _| {
        headers.insert(Header {
            key: "Pillarbox-Event-Type",
            value: Some(&id),
        })
    })
}

async fn through_the_sink(url: &str, events: &Arc<Vec<Outgoing>>, what: &str) {
    let sink = Arc::new(open(url));
    assert_eq!(sink.publish(&events[..1]).await, [Outcome::Delivered]);
    let began = (Instant::now(), cpu());
    let publishers = (0..5).map(|publisher| {
        let (sink, events) = (sink.clone(), events.clone());
        tokio::spawn(async move {
            for batch in events.chunks(BATCH).skip(publisher).step_by(5) {
                assert_eq!(sink.publish(batch).await, vec![Outcome::Delivered; batch.len()]);
            }
        })
    });
    for publisher in publishers.collect::<Vec<_>>() {
        publisher.await.unwrap();
    }
    tell(what, began);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn what_an_event_costs() {
    let Some(server) = servers::kafka().await else {
        return;
    };
    let topic = new_topic(server, 6).await;
    let payload = format!("\"{}\"", "payload ".repeat(37));
    let make = |keys: usize| -> Arc<Vec<Outgoing>> {
        Arc::new(
            (0..EVENTS)
                .map(|n| to(&topic, event(&format!("k{}", n % keys), payload.clone())))
                .collect(),
        )
    };
    let events = make(EVENTS);
    for _ in 0..2 {
        let began = (Instant::now(), cpu());
        let bare: BaseProducer = config(&server.bootstrap()).create().unwrap();
        for event in events.iter() {
            let stored = &event.event.event;
            let record = BaseRecord::to(&topic)
                .key(stored.key())
                .payload(&stored.payload[..])
                .headers(headers(event));
            bare.send(record).map_err(|(error, _)| error).unwrap();
        }
        bare.flush(Duration::from_secs(60)).unwrap();
        tell("the bare producer", began);

        let began = (Instant::now(), cpu());
        let future: FutureProducer = config(&server.bootstrap()).create().unwrap();
        for batch in events.chunks(BATCH * 5) {
            let sent: Vec<_> = batch
                .iter()
                .map(|event| {
                    let stored = &event.event.event;
                    let record = FutureRecord::to(&topic)
                        .key(stored.key())
                        .payload(&stored.payload[..])
                        .headers(headers(event));
                    future.send_result(record).map_err(|(error, _)| error).unwrap()
                })
                .collect();
            for delivery in sent {
                delivery.await.unwrap().map_err(|(error, _)| error).unwrap();
            }
        }
        tell("FutureProducer", began);
        through_the_sink(&server.url(), &events, "the sink").await;
        let transactions = format!("{}?transactions=true", server.url());
        through_the_sink(&transactions, &events, "the sink, in transactions").await;
    }
    // With a single key, batches are sent one after the other.
    let sink = open(&server.url());
    let began = (Instant::now(), cpu());
    for batch in make(1).chunks(BATCH) {
        assert_eq!(sink.publish(batch).await, vec![Outcome::Delivered; batch.len()]);
    }
    tell("the sink, one key", began);
}
