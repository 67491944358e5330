//! Dead letters on JetStream.

use std::{pin::Pin, time::Duration};

use async_nats::{HeaderMap, HeaderName, HeaderValue, header, jetstream};
use tokio::time::timeout;

use crate::consume::{letter::Letter, source::Letters};

const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct NatsLetters {
    pub(super) context: jetstream::Context,
}

impl Letters for NatsLetters {
    fn publish(&self, letter: Letter) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        Box::pin(async move {
            let headers = headers(&letter);
            let publishing = async {
                let sent = self
                    .context
                    .publish_with_headers(letter.topic, headers, letter.body);
                sent.await?.await
            };
            match timeout(PATIENCE, publishing).await {
                Ok(Ok(_)) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("JetStream did not acknowledge it".to_owned()),
            }
        })
    }
}

/// Copies the headers. It skips those that the client can't send.
fn headers(letter: &Letter) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, text) in &letter.headers {
        let text = String::from_utf8_lossy(text);
        if let (Ok(name), Ok(text)) = (name.parse::<HeaderName>(), text.parse::<HeaderValue>()) {
            headers.append(name, text);
        }
    }
    headers.insert(header::NATS_MESSAGE_ID, letter.id.as_str());
    headers
}
