//! JetStream.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, anyhow};
use async_nats::{
    HeaderMap,
    jetstream::{
        self,
        consumer::{DeliverPolicy, pull::OrderedConfig},
        context::PublishAckFuture,
        stream::Config,
    },
};
use async_trait::async_trait;
use futures::StreamExt;
use pillarbox_relay::{
    connect::SinkOptions,
    sink::{Outgoing, nats::headers::raw_headers},
};

use super::{Arrival, Broker};

#[derive(Clone)]
pub(super) struct Nats {
    url: String,
    stream: String,
}

pub(super) struct OneByOne {
    nats: jetstream::Context,
    subject: String,
}

pub(super) fn open(options: &SinkOptions, stream: &str, _topic: &str) -> Result<Arc<dyn Broker>> {
    Ok(Arc::new(Nats {
        url: options.url.clone(),
        stream: stream.to_owned(),
    }))
}

impl Nats {
    async fn connect(&self) -> Result<jetstream::Context> {
        let url: async_nats::ServerAddr = self.url.parse().context("the sink's address")?;
        Ok(jetstream::new(async_nats::connect(url).await?))
    }

    /// Creates a second stream, so that a yardstick does not mix with the measured events. Returns its
    /// subject.
    async fn side_stream(&self, name: &str) -> Result<String> {
        let subject = format!("pillarbox-bench-{}.{}", name, self.stream);
        let config = Config {
            name: format!("{}_{}", self.stream, name),
            subjects: vec![subject.clone()],
            ..Default::default()
        };
        self.connect().await?.create_stream(config).await?;
        Ok(subject)
    }
}

#[async_trait]
impl Broker for Nats {
    fn look_every_ms(&self) -> u64 {
        20
    }

    async fn arrived(&self) -> Result<u64> {
        let stream = self.connect().await?.get_stream(&self.stream).await?;
        Ok(stream.cached_info().state.messages)
    }

    async fn read_back(&self, each: &mut (dyn FnMut(Arrival) + Send)) -> Result<()> {
        let stream = self.connect().await?.get_stream(&self.stream).await?;
        let total = stream.cached_info().state.messages;
        let config = OrderedConfig {
            deliver_policy: DeliverPolicy::All,
            ..Default::default()
        };
        let mut messages = stream.create_consumer(config).await?.messages().await?;
        for _ in 0..total {
            let message = messages.next().await.context("the stream ended early")??;
            let info = message.info().map_err(|error| anyhow!(error))?;
            let at =
                SystemTime::UNIX_EPOCH + Duration::from_nanos(info.published.unix_timestamp_nanos() as u64);
            each(Arrival {
                mark: serde_json::from_slice(&message.payload)?,
                at,
            });
        }
        Ok(())
    }

    async fn pure(&self, events: Vec<Outgoing>, in_flight_max: usize) -> Result<f64> {
        let subject = self.side_stream("pure").await?;
        let nats = self.connect().await?;
        let began = Instant::now();
        let mut waiting: VecDeque<PublishAckFuture> = VecDeque::with_capacity(in_flight_max);
        for outgoing in events {
            if waiting.len() == in_flight_max
                && let Some(oldest) = waiting.pop_front()
            {
                oldest.await?;
            }
            let payload = outgoing.event.event.payload.clone();
            let headers = raw_headers(&outgoing).map_err(|error| anyhow!(error))?;
            waiting.push_back(
                nats.publish_with_headers(subject.clone(), headers, payload)
                    .await?,
            );
        }
        for last in waiting {
            last.await?;
        }
        Ok(began.elapsed().as_secs_f64())
    }

    async fn one_by_one(&self) -> Result<Box<dyn super::OneByOne>> {
        Ok(Box::new(OneByOne {
            subject: self.side_stream("naive").await?,
            nats: self.connect().await?,
        }))
    }

    async fn clear(&self) -> Result<()> {
        let nats = self.connect().await?;
        for name in [
            self.stream.clone(),
            format!("{}_pure", self.stream),
            format!("{}_naive", self.stream),
        ] {
            // If a yardstick was skipped, its stream does not exist.
            let _ = nats.delete_stream(name).await;
        }
        Ok(())
    }
}

#[async_trait]
impl super::OneByOne for OneByOne {
    async fn publish(&self, id: &str, payload: String) -> Result<()> {
        let mut headers = HeaderMap::new();
        headers.insert(pillarbox::wire::NATS_MSG_ID, id);
        self.nats
            .publish_with_headers(self.subject.clone(), headers, payload.into())
            .await?
            .await?;
        Ok(())
    }
}
