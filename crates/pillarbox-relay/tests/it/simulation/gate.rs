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
use pillarbox_testkit::gate::Gate;

/// Runs a call of the process. If the gate is closed, the process is stopped.
async fn through<T>(gate: &Gate, call: impl Future<Output = T>) -> T {
    gate.pass().await;
    let answer = call.await;
    gate.pass().await;
    answer
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
        through(&self.gate, self.inner.check()).await
    }

    fn destination<'a>(&self, event: &'a Event, stream: Option<&'a str>) -> DestinationName<'a> {
        self.inner.destination(event, stream)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        through(&self.gate, self.inner.publish(batch)).await
    }
}

#[async_trait]
impl Store for Gated<dyn Store> {
    async fn check(&self) -> Result<(), StoreError> {
        through(&self.gate, self.inner.check()).await
    }

    async fn heartbeat(
        &self,
        relay: RelayId,
        name: &str,
        ttl: Duration,
        held: &[HeldLane],
    ) -> Result<Census, StoreError> {
        through(&self.gate, self.inner.heartbeat(relay, name, ttl, held)).await
    }

    async fn take_lanes(
        &self,
        relay: RelayId,
        count: usize,
        ttl: Duration,
    ) -> Result<Vec<HeldLane>, StoreError> {
        through(&self.gate, self.inner.take_lanes(relay, count, ttl)).await
    }

    async fn release_lanes(&self, relay: RelayId, lanes: &[HeldLane]) -> Result<(), StoreError> {
        through(&self.gate, self.inner.release_lanes(relay, lanes)).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), StoreError> {
        through(&self.gate, self.inner.leave(relay)).await
    }

    fn reader(&self, lanes: &[HeldLane]) -> Box<dyn Reader> {
        Box::new(GatedReader {
            gate: self.gate.clone(),
            inner: self.inner.reader(lanes),
        })
    }

    async fn settle(&self, held: &[HeldLane], settlement: &Settlement) -> Result<Settled, StoreError> {
        through(&self.gate, self.inner.settle(held, settlement)).await
    }

    async fn due(
        &self,
        held: &[HeldLane],
        after: Option<DuePlace>,
        limit: PageLimit,
    ) -> Result<Due, StoreError> {
        through(&self.gate, self.inner.due(held, after, limit)).await
    }

    async fn blocked_keys(&self, lanes: &[HeldLane]) -> Result<Vec<(u8, u64)>, StoreError> {
        through(&self.gate, self.inner.blocked_keys(lanes)).await
    }

    async fn report(&self, relay: RelayId, troubles: &[Trouble]) -> Result<(), StoreError> {
        through(&self.gate, self.inner.report(relay, troubles)).await
    }

    async fn troubles(&self) -> Result<Vec<Trouble>, StoreError> {
        through(&self.gate, self.inner.troubles()).await
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
        through(&self.gate, self.inner.next(limit)).await
    }
}
