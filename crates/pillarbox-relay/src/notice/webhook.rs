//! A signed HTTP request, as the Standard Webhooks specification defines it.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::{StatusCode, header::CONTENT_TYPE};
use url::Url;
use uuid::Uuid;

use super::{
    Channel, ChannelError, NoticeError,
    channel::{key, message_id},
};
use crate::{
    http_client,
    signature::{Secret, sign},
};

/// The body of an answer is not used. A little of it is read so that the connection can be reused.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

pub struct WebhookChannel {
    key: String,
    url: Url,
    secrets: Vec<Secret>,
    timeout: Duration,
    client: reqwest::Client,
}

impl WebhookChannel {
    pub fn open(url: &str, secrets: Vec<Secret>, timeout: Duration) -> Result<Self, NoticeError> {
        let parsed = Url::parse(url).map_err(|_| NoticeError::Address)?;
        if !matches!(parsed.scheme(), "http" | "https") || parsed.host_str().is_none_or(str::is_empty) {
            return Err(NoticeError::Address);
        }
        Ok(Self {
            key: key("webhook", url),
            url: parsed,
            secrets,
            timeout,
            client: http_client::client(timeout)?,
        })
    }
}

#[async_trait]
impl Channel for WebhookChannel {
    fn key(&self) -> &str {
        &self.key
    }

    /// Everything after the host may be a secret.
    fn name(&self) -> String {
        format!("webhook {}", self.url.origin().ascii_serialization())
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    async fn tell(&self, id: Uuid, body: &str) -> Result<(), ChannelError> {
        let (id, now) = (message_id(id).to_string(), Timestamp::now().as_second());
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", now)
            .header(
                "webhook-signature",
                sign(&self.secrets, &id, now, body.as_bytes()),
            )
            .body(body.to_owned());
        let answer = request
            .send()
            .await
            .map_err(|error| ChannelError::Retry(http_client::words(error)))?;
        let status = answer.status();
        // Only the status matters, so errors while reading the body are ignored.
        let _ = http_client::body(answer, ANSWER_BYTES_MAX).await;
        match status {
            status if status.is_success() => Ok(()),
            StatusCode::GONE => Err(ChannelError::Gone(
                "it answered 410: it wants no more notices".into(),
            )),
            status => Err(ChannelError::Retry(format!("it answered {}", status.as_u16()))),
        }
    }
}
