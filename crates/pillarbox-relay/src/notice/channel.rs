//! A way to people.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use ring::digest;
use thiserror::Error;
use uuid::Uuid;

use super::{CommandChannel, LogChannel, Secret, WebhookChannel};
use crate::http_client::HttpClientError;

/// Delivers a notice. It may be given the same one again, with the same id.
///
/// It answers within its time limit, keeps secrets out of its errors, and says in the error whether trying again makes
/// sense.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// What deliveries are remembered by: the same in every relay with this configuration. It holds no secret.
    fn key(&self) -> &str;

    /// As people may read it.
    fn name(&self) -> String;

    /// The longest `tell` may take.
    fn timeout(&self) -> Duration;

    async fn tell(&self, id: Uuid, body: &str) -> Result<(), ChannelError>;
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChannelError {
    #[error("{0}")]
    Retry(String),
    /// The other side wants no more notices, ever.
    #[error("{0}")]
    Gone(String),
}

/// A channel as it is configured.
#[derive(Clone)]
pub enum ChannelOptions {
    Log {
        /// Deaths are errors in the log, and not only warnings.
        alert: bool,
    },
    Webhook {
        url: String,
        secrets: Vec<Secret>,
        timeout: Duration,
    },
    Command {
        /// The program and its arguments; no shell reads them.
        command: Vec<String>,
        timeout: Duration,
    },
}

#[derive(Debug, Error)]
pub enum NoticeError {
    #[error("a webhook's address can't be read: use https://host/path")]
    Address,
    #[error("a command needs a program to run")]
    NoProgram,
    #[error(transparent)]
    Http(#[from] HttpClientError),
}

pub fn open(options: &ChannelOptions) -> Result<Arc<dyn Channel>, NoticeError> {
    Ok(match options {
        ChannelOptions::Log { alert } => Arc::new(LogChannel { alert: *alert }),
        ChannelOptions::Webhook {
            url,
            secrets,
            timeout,
        } => Arc::new(WebhookChannel::open(url, secrets.clone(), *timeout)?),
        ChannelOptions::Command { command, timeout } => Arc::new(CommandChannel::open(command, *timeout)?),
    })
}

/// A key for what may hold a secret, such as an address: the beginning of its SHA-256.
pub(super) fn key(kind: &str, of: &str) -> String {
    let digest = digest::digest(&digest::SHA256, of.as_bytes());
    let hex: String = digest
        .as_ref()
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{kind}-{hex}")
}

/// As `msg_…`: what a receiver drops copies by.
pub(super) fn message_id(id: Uuid) -> impl fmt::Display {
    format!("msg_{}", id.simple())
}
