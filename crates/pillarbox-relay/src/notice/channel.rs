//! A way to reach people.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use ring::digest;
use thiserror::Error;
use uuid::Uuid;

use super::{CommandChannel, LogChannel, WebhookChannel};
use crate::http_client::HttpClientError;
use crate::signature::Secret;

/// Delivers a notice. It may receive the same one again, with the same id.
///
/// It returns within its timeout, keeps secrets out of its errors, and says in the error whether a retry makes
/// sense.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Identifies the deliveries of this channel: the same in every relay with this configuration. Contains no
    /// secret.
    fn key(&self) -> &str;

    /// The name for people.
    fn name(&self) -> String;

    /// The longest `tell` may take.
    fn timeout(&self) -> Duration;

    async fn tell(&self, id: Uuid, body: &str) -> Result<(), ChannelError>;
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChannelError {
    #[error("{0}")]
    Retry(String),
    /// The receiver wants no more notices, ever.
    #[error("{0}")]
    Gone(String),
}

/// A configured channel.
#[derive(Clone)]
pub enum ChannelOptions {
    Log {
        /// Log deaths as errors instead of warnings.
        alert: bool,
    },
    Webhook {
        url: String,
        secrets: Vec<Secret>,
        timeout: Duration,
    },
    Command {
        /// The program and its arguments. No shell parses them.
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

/// A key for a text that may contain a secret, such as an address: the beginning of its SHA-256.
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

/// The id as `msg_…`, by which a receiver drops copies.
pub(super) fn message_id(id: Uuid) -> impl fmt::Display {
    format!("msg_{}", id.simple())
}
