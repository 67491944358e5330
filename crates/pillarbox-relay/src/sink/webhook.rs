//! Webhooks: each event is one HTTP request, signed as Standard Webhooks defines it.
//!
//! - `address`: the receiver's address
//! - `request`: the headers and the body of a request
//! - `outcome`: the meaning of an answer
//!
//! The keys of a batch are sent in parallel, and the events of a key one after the other.

pub(crate) mod address;
mod outcome;
mod request;

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use futures::future::join_all;
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use url::Url;

use super::{Capabilities, Outcome, Outgoing, Sink, SinkError, SinkErrorKind};
use crate::{connect::SinkOptions, http_client, signature::Secret, tls::TlsFiles};

/// Where the TLS files are named, for errors.
const NAMED: &str = "the settings of the webhook";
/// The body of an answer is not used. A little of it is read so that the connection can be reused.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Many servers close an idle connection after 5 seconds. A request that is sent at that moment would be in doubt.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// How requests are made.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// Each of them signs. Without any, requests are not signed.
    pub secrets: Vec<Secret>,
    /// Sent with each request.
    pub headers: HeaderMap,
    /// How many requests may be waiting for an answer at one time.
    pub requests_max: usize,
    pub tls: TlsFiles,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            secrets: Vec::new(),
            headers: HeaderMap::new(),
            requests_max: 16,
            tls: TlsFiles::default(),
        }
    }
}

pub struct WebhookSink {
    url: Url,
    secrets: Vec<Secret>,
    headers: HeaderMap,
    timeout: Duration,
    client: reqwest::Client,
    requests_max: usize,
    /// One for each request that may be sent now.
    permits: Semaphore,
}

impl WebhookSink {
    /// Reads the TLS files now and connects at the first use.
    pub fn open(options: &SinkOptions) -> Result<Self, SinkError> {
        let WebhookOptions {
            secrets,
            headers,
            requests_max,
            tls,
        } = options.webhook.clone();
        let misconfigured = |message: String| SinkError::new(SinkErrorKind::Misconfigured, message);
        let client = http_client::builder(&tls, NAMED)
            .and_then(|builder| {
                let builder = builder
                    .connect_timeout(options.publish_timeout / 2)
                    .pool_idle_timeout(IDLE_MAX);
                Ok(builder.pool_max_idle_per_host(requests_max).build()?)
            })
            .map_err(|error| misconfigured(error.to_string()))?;
        Ok(Self {
            url: address::parse(&options.url)?,
            secrets,
            headers,
            timeout: options.publish_timeout,
            client,
            requests_max: requests_max.max(1),
            permits: Semaphore::new(requests_max.max(1)),
        })
    }

    /// The events of one key. After a failure, the later ones are not tried.
    async fn send_key(
        &self,
        batch: &[Outgoing],
        key: Vec<usize>,
        start_until: Instant,
    ) -> Vec<(usize, Outcome)> {
        let mut outcomes = Vec::with_capacity(key.len());
        let mut goes_on = true;
        for index in key {
            let outcome = match goes_on {
                true => self.send(&batch[index], start_until).await,
                false => Outcome::NotTried,
            };
            goes_on = outcome == Outcome::Delivered;
            outcomes.push((index, outcome));
        }
        outcomes
    }

    async fn send(&self, outgoing: &Outgoing, start_until: Instant) -> Outcome {
        // A free permit is given even after the deadline, so the clock is asked first.
        if Instant::now() >= start_until {
            return Outcome::NotTried;
        }
        // Closed never. If the time is over, other requests are slow, which says nothing about this event.
        let Ok(Ok(_permit)) = timeout_at(start_until, self.permits.acquire()).await else {
            return Outcome::NotTried;
        };
        let (headers, body) = match request::of(outgoing, &self.headers, &self.secrets) {
            Ok(request) => request,
            Err(error) => return Outcome::Failed(error),
        };
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        match request.timeout(self.timeout).send().await {
            Ok(answer) => {
                let outcome = outcome::of_answer(answer.status(), answer.headers(), Timestamp::now());
                // Only the status matters, so errors while reading the body are ignored.
                let _ = http_client::body(answer, ANSWER_BYTES_MAX).await;
                outcome
            }
            Err(error) => Outcome::Failed(outcome::of_error(error)),
        }
    }
}

#[async_trait]
impl Sink for WebhookSink {
    fn capabilities(&self) -> Capabilities {
        // Not `ordered`: requests are independent of each other. So a later event that was accepted shows that the
        // receiver works, and that an unclear answer is the fault of its event.
        Capabilities {
            // One slow request holds back only the outcomes of its batch.
            batch_events_max: Some(self.requests_max),
            ..Capabilities::default()
        }
    }

    /// Any answer will do: it is the receiver's.
    async fn check(&self) -> Result<(), SinkError> {
        let request = self.client.head(self.url.clone()).headers(self.headers.clone());
        match request.timeout(self.timeout).send().await {
            Ok(_) => Ok(()),
            Err(error) => Err(outcome::of_error(error)),
        }
    }

    /// Requests begin within the timeout, and each one has the timeout for its answer. So a batch takes at most twice as
    /// long, and only if the receiver is slow.
    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let start_until = Instant::now() + self.timeout;
        let mut keys: HashMap<&str, Vec<usize>> = HashMap::with_capacity(batch.len());
        for (index, outgoing) in batch.iter().enumerate() {
            keys.entry(outgoing.event.event.key()).or_default().push(index);
        }
        let sent = keys
            .into_values()
            .map(|key| self.send_key(batch, key, start_until));
        let mut outcomes = vec![Outcome::NotTried; batch.len()];
        for (index, outcome) in join_all(sent).await.into_iter().flatten() {
            outcomes[index] = outcome;
        }
        outcomes
    }
}
