//! Every sink passes the contract. Tests of one sink only are in its own module.

mod envelopes;
mod file;
mod kafka;
mod lines;
mod nats;
mod nats_access;
mod nats_audit;
mod nats_faults;
mod nats_garbage;
mod nats_old;
mod nats_tls;
mod webhook;

mod null {
    use std::sync::Arc;

    use async_trait::async_trait;
    use pillarbox_relay::{Sink, sink::null::Null};
    use pillarbox_testkit::{
        contract::sink::{Arrived, SinkHarness},
        sink_contract,
    };

    struct Harness;

    #[async_trait]
    impl SinkHarness for Harness {
        fn sink(&self) -> Arc<dyn Sink> {
            Arc::new(Null)
        }

        async fn arrived(&mut self) -> Option<Vec<Arrived>> {
            None
        }
    }

    async fn harness() -> Option<Harness> {
        Some(Harness)
    }

    sink_contract!(harness);
}
