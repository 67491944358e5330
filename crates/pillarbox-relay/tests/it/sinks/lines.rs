//! Standard output, which gets lines of JSON.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use pillarbox::Event;
use pillarbox_relay::{
    Sink,
    sink::{Outcome, SinkErrorKind, stdout::Stdout},
};
use pillarbox_testkit::{
    contract::sink::{Arrived, SinkHarness, event, outgoing},
    sink_contract,
};
use serde_json::{Value, value::RawValue};

/// Reads one such line.
pub(super) fn arrived(line: &[u8]) -> Arrived {
    let whole: Value = serde_json::from_slice(line).expect("a line is JSON");
    assert!(
        whole["seq"].is_i64() && whole["created_at"].is_string(),
        "{whole}"
    );
    let raw: std::collections::HashMap<String, Box<RawValue>> = serde_json::from_slice(line).unwrap();
    let text = |name: &str| whole[name].as_str().unwrap_or_default().to_owned();
    Arrived {
        id: text("id").parse().unwrap(),
        key: whole["partition_key"]
            .as_str()
            .or(whole["aggregate_id"].as_str())
            .unwrap()
            .to_owned(),
        event_type: text("event_type"),
        aggregate: (text("aggregate_type"), text("aggregate_id")),
        aggregate_version: whole["aggregate_version"].as_i64(),
        headers: serde_json::from_value(whole["headers"].clone()).unwrap_or_default(),
        payload: Bytes::from(raw["payload"].get().to_owned()),
    }
}

pub(super) fn no_json() -> Option<Event> {
    Some(event("bad", "{"))
}

mod stdout {
    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Harness(Arc<Stdout>, Captured);

    #[async_trait]
    impl SinkHarness for Harness {
        fn sink(&self) -> Arc<dyn Sink> {
            self.0.clone()
        }

        async fn arrived(&mut self) -> Option<Vec<Arrived>> {
            let written = self.1.0.lock().unwrap();
            let lines = written.strip_suffix(b"\n").unwrap_or(&written);
            Some(lines.split(|byte| *byte == b'\n').map(arrived).collect())
        }

        fn invalid(&self) -> Option<Event> {
            no_json()
        }
    }

    async fn harness() -> Option<Harness> {
        let captured = Captured::default();
        Some(Harness(Arc::new(Stdout::to(captured.clone())), captured))
    }

    sink_contract!(harness);

    /// Accepts some bytes; after that the reader is gone.
    struct Closed(usize);

    impl Write for Closed {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 {
                Err(io::ErrorKind::BrokenPipe.into())
            } else {
                Ok(taken)
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_reader_that_went_away_stops_the_relay_and_leaves_the_batch_in_doubt() {
        let sink = Stdout::to(Closed(100));
        let outcomes = sink
            .publish(&[outgoing(event("a", "1")), outgoing(event("b", "2"))])
            .await;
        for outcome in outcomes {
            let Outcome::Failed(error) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!((error.kind, error.in_doubt), (SinkErrorKind::Misconfigured, true));
            assert!(error.message.contains("went away"), "{error}");
        }
    }
}
