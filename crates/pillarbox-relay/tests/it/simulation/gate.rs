//! The store and the sink as seen by a process that can be stopped (SIGSTOP). While it is stopped, none of
//! its calls starts or returns. Requests that were already sent continue.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use pillarbox::Event;
use pillarbox_relay::{
    Sink,
    settlement::Settlement,
    sink::{self, DestinationName, Outcome, Outgoing, SinkError},
    store::{
        Census, Due, DuePlace, HeldLane, Page, PageLimit, Reader, RelayId, Settled, Store, StoreError,
        Trouble,
    },
};
use tokio::sync::watch;

/// If it is closed, the process is stopped.
#[derive(Clone)]
pub(super) struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub(super) fn open() -> Self {
        Self(Arc::new(watch::Sender::new(true)))
    }

    pub(super) fn set(&self, open: bool) {
        self.0.send_replace(open);
    }

    async fn pass(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }

    /// Runs a call of the process.
    async fn through<T>(&self, call: impl Future<Output = T>) -> T {
        self.pass().await;
        let answer = call.await;
        self.pass().await;
        answer
    }
}

pub(super) struct Gated<T: ?Sized> {
    pub(super) gate: Gate,
    pub(super) inner: Arc<T>,
}

#[async_trait]
impl Sink for Gated<dyn Sink> {
    fn capabilities(&self) -> sink::Capabilities {
        self.inner.capabilities()
    }

    async fn check(&self) -> Result<(), SinkError> {
        self.gate.through(self.inner.check()).await
    }

    fn destination<'a>(&self, event: &'a Event, stream: Option<&'a str>) -> DestinationName<'a> {
        self.inner.destination(event, stream)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        self.gate.through(self.inner.publish(batch)).await
    }
}

#[async_trait]
impl Store for Gated<dyn Store> {
    async fn check(&self) -> Result<(), StoreError> {
        self.gate.through(self.inner.check()).await
    }

    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        self.gate
            .through(self.inner.heartbeat(relay, name, ttl, held))
            .await
    }

    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError> {
        self.gate.through(self.inner.take_lanes(relay, count, ttl)).await
    }

    async fn release_lanes(&self, relay: RelayId, lanes: &[HeldLane]) -> Result<(), StoreError> {
        self.gate.through(self.inner.release_lanes(relay, lanes)).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), StoreError> {
        self.gate.through(self.inner.leave(relay)).await
    }

    fn reader(&self, lanes: &[HeldLane]) -> Box<dyn Reader> {
        Box::new(GatedReader {
            gate: self.gate.clone(),
            inner: self.inner.reader(lanes),
        })
    }

    async fn settle(&self, held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError> {
        self.gate.through(self.inner.settle(held, settlement)).await
    }

    async fn due(
        &self,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError> {
        self.gate.through(self.inner.due(held, after, limit)).await
    }

    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(u8, u64)>, StoreError> {
        self.gate.through(self.inner.blocked_keys(lanes)).await
    }

    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
        self.gate.through(self.inner.report(relay, troubles)).await
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        self.gate.through(self.inner.troubles()).await
    }

    fn statements(&self) -> u64 {
        self.inner.statements()
    }
}

struct GatedReader {
    gate: Gate,
    inner: Box<dyn Reader>,
}

#[async_trait]
impl Reader for GatedReader {
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        self.gate.through(self.inner.next(limit)).await
    }
}
