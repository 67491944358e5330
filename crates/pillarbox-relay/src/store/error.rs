//! The errors of a store, and what an operator should do about them.

use thiserror::Error;

use crate::tls::PemError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The database can't be reached, or the connection broke: wait and retry.
    Away,
    /// The outbox's tables do not exist or have another version.
    NotMigrated,
    /// The caller no longer holds a lane.
    Fenced,
    /// The settings are wrong: address, credentials, rights.
    Misconfigured,
    /// The database refused a statement for another reason.
    Refused,
}

/// The text is for an operator: what happened and what to do. It never contains a secret or a payload.
#[derive(Debug, Error)]
#[error("{context}")]
pub struct StoreError {
    pub kind: StoreErrorKind,
    context: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl From<PemError> for StoreError {
    fn from(error: PemError) -> Self {
        Self::new(StoreErrorKind::Misconfigured, error.to_string())
    }
}

impl StoreError {
    pub fn new(kind: StoreErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    pub fn fenced() -> Self {
        Self::new(
            StoreErrorKind::Fenced,
            "another relay has taken over some of the lanes",
        )
    }

    /// The error and its causes on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
