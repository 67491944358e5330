//! One answer of a relay.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, Response, StatusCode, Url, header};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    FollowError,
    lines::{Line, Lines, LinesError},
};

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long the answer may take to begin.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// What is read of an error.
const ERROR_BYTES_MAX: usize = 16 * 1024;
const MESSAGE_CHARS_MAX: usize = 500;

/// Why there is no line.
pub(super) enum Failed {
    /// It may work later, or at another relay.
    Passing(String),
    ForGood(FollowError),
}

/// A client that trusts the certificate authorities of the machine. No redirects: a token is for one server.
pub(super) fn client() -> Result<Client, FollowError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| FollowError::Client(Arc::new(error)))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT_MAX)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .map_err(|error| FollowError::Client(Arc::new(error)))
}

/// The lines of one answer.
pub(super) struct Connection {
    answer: Response,
    lines: Lines,
}

impl Connection {
    pub(super) async fn open(
        client: &Client,
        address: &Url,
        token: Option<&str>,
        after: Option<i64>,
        line_bytes_max: usize,
    ) -> Result<Self, Failed> {
        let mut address = address.clone();
        if let Some(after) = after {
            address.query_pairs_mut().append_pair("after", &after.to_string());
        }
        let mut request = client.get(address).header(header::ACCEPT, "application/x-ndjson");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = match timeout(ANSWER_MAX, request.send()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Failed::Passing(error.without_url().to_string())),
            Err(_) => return Err(Failed::Passing("the relay did not answer".into())),
        };
        if answer.status() != StatusCode::OK {
            return Err(refused(answer, after.unwrap_or_default()).await);
        }
        Ok(Self {
            answer,
            lines: Lines::new(line_bytes_max),
        })
    }

    /// The next line; `None` at the end. A last line without a line break was cut off, and does not count.
    pub(super) async fn line(&mut self) -> Result<Option<Line>, LinesError> {
        loop {
            if let Some(line) = self.lines.take()? {
                return Ok(Some(line));
            }
            match self.answer.chunk().await {
                Ok(Some(chunk)) => self.lines.push(&chunk)?,
                Ok(None) => return Ok(None),
                Err(error) => return Err(LinesError::Lost(error.without_url().to_string())),
            }
        }
    }
}

#[derive(Deserialize)]
struct Problem {
    error: String,
}

async fn refused(answer: Response, position: i64) -> Failed {
    let status = answer.status();
    let failed = match status {
        StatusCode::CONFLICT => FollowError::Beyond { position },
        StatusCode::GONE => FollowError::Expired { position },
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            return Failed::Passing(format!("the relay answered {}", status.as_u16()));
        }
        status if status.is_server_error() => {
            return Failed::Passing(format!("the relay answered {}", status.as_u16()));
        }
        _ => FollowError::Refused {
            status: status.as_u16(),
            message: message(answer).await,
        },
    };
    Failed::ForGood(failed)
}

async fn message(mut answer: Response) -> String {
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            if body.len() + chunk.len() > ERROR_BYTES_MAX {
                break;
            }
            body.extend_from_slice(&chunk);
        }
    };
    let _ = timeout(ANSWER_MAX, reading).await;
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => problem.error.chars().take(MESSAGE_CHARS_MAX).collect(),
        Err(_) => "this is not a relay of Pillarbox, or something stands between".into(),
    }
}
