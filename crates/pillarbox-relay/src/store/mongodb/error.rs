//! Translates errors of MongoDB: what each means for the relay, and what an operator should do about it.

use mongodb::error::{
    Error, ErrorKind, RETRYABLE_WRITE_ERROR, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT,
    WriteFailure,
};

use crate::{
    store::{StoreError, StoreErrorKind},
    tls::{handshake_error, is_about_tls},
};

/// An error that ends an attempt at a transaction: the driver's, for which a retry may help, or the store's own.
#[derive(Debug)]
pub(super) enum TxError {
    Driver(Error),
    Store(StoreError),
    /// Another run of the whole transaction may succeed.
    Again,
}

impl From<Error> for TxError {
    fn from(error: Error) -> Self {
        Self::Driver(error)
    }
}

impl From<mongodb::bson::error::Error> for TxError {
    fn from(error: mongodb::bson::error::Error) -> Self {
        Self::Driver(error.into())
    }
}

impl From<StoreError> for TxError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl TxError {
    /// A retry of the whole transaction may succeed.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Driver(error) => error.contains_label(TRANSIENT_TRANSACTION_ERROR),
            Self::Store(_) => false,
            Self::Again => true,
        }
    }

    /// It is unknown whether the transaction was committed. Another commit finds out.
    pub(super) fn is_unknown_commit(&self) -> bool {
        matches!(self, Self::Driver(error) if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT))
    }

    pub(super) fn into_store_error(self, table: &str) -> StoreError {
        match self {
            Self::Driver(error) => explain(&error, table),
            Self::Store(error) => error,
            Self::Again => StoreError::new(
                StoreErrorKind::Away,
                "another write came in between too often: it can be retried",
            ),
        }
    }
}

/// Explains an error. `table` is the outbox's collection, for the message. The driver's own text can contain parts
/// of documents, so only parts known to contain none are passed on.
pub(super) fn explain(error: &Error, table: &str) -> StoreError {
    let (kind, context) = judge(error, table);
    StoreError::new(kind, context).with_source(cause(error))
}

/// The error for a server that is not a replica set, which the relay and the store need.
pub(super) fn standalone() -> StoreError {
    StoreError::new(
        StoreErrorKind::Misconfigured,
        "MongoDB must run as a replica set, because events are written in transactions and read from snapshots: start it with \
         --replSet (one node is enough) and run rs.initiate()",
    )
}

pub(super) fn not_migrated(table: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::NotMigrated,
        format!("there is no outbox {table} in this database: run `pillarbox migrate` first"),
    )
}

pub(super) fn misconfigured(text: impl Into<String>) -> StoreError {
    StoreError::new(StoreErrorKind::Misconfigured, text)
}

/// No answer came in time.
pub(super) fn silent() -> StoreError {
    StoreError::new(
        StoreErrorKind::Away,
        "MongoDB did not answer in time: it can't be reached, or is overloaded",
    )
}

fn judge(error: &Error, table: &str) -> (StoreErrorKind, String) {
    use StoreErrorKind::{Away, Misconfigured, Refused};
    if let Some(code) = code(error)
        && let Some(judged) = judge_code(code, table)
    {
        return judged;
    }
    let labelled = [
        TRANSIENT_TRANSACTION_ERROR,
        RETRYABLE_WRITE_ERROR,
        UNKNOWN_TRANSACTION_COMMIT_RESULT,
    ];
    match &*error.kind {
        ErrorKind::Authentication { .. } => (
            Misconfigured,
            "MongoDB refuses this user or password: check the address, and `authSource` in it".to_owned(),
        ),
        ErrorKind::InvalidTlsConfig { .. } => (Misconfigured, no_tls()),
        // The other side can fix all of this while the relay waits, even an expired certificate.
        ErrorKind::Io(error) if handshake_error(&**error).is_some() => (Away, no_tls()),
        ErrorKind::ServerSelection { message, .. } if is_about_tls(message) => (Away, no_tls()),
        ErrorKind::InvalidArgument { .. } => (
            Misconfigured,
            "MongoDB's address can't be used: check it".to_owned(),
        ),
        ErrorKind::SessionsNotSupported => {
            let error = standalone();
            (error.kind, error.to_string())
        }
        ErrorKind::Io(_)
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::DnsResolve { .. }
        | ErrorKind::Shutdown => (
            Away,
            "MongoDB can't be reached, or the connection broke".to_owned(),
        ),
        _ if labelled.iter().any(|label| error.contains_label(label)) => {
            (Away, "MongoDB aborted a command: it can be retried".to_owned())
        }
        _ => (Refused, "MongoDB refused a command".to_owned()),
    }
}

fn no_tls() -> String {
    "no TLS connection to MongoDB. Check in its address that `tls` is right, that MongoDB's certificate names this host \
     and is trusted (tlsCAFile=FILE), and whether it wants one of ours (tlsCertificateKeyFile=FILE)"
        .to_owned()
}

fn judge_code(code: i32, table: &str) -> Option<(StoreErrorKind, String)> {
    let judged = match code {
        // NamespaceNotFound
        26 => {
            let error = not_migrated(table);
            (error.kind, error.to_string())
        }
        // AuthenticationFailed; AtlasError
        18 | 8000 => (
            StoreErrorKind::Misconfigured,
            "MongoDB refuses this user or password: check the address, and `authSource` in it".to_owned(),
        ),
        // Unauthorized
        13 => (
            StoreErrorKind::Misconfigured,
            format!(
                "this user may not use the collections of {table}: it needs the role readWrite on their database, and dbAdmin to migrate one that is older"
            ),
        ),
        // IllegalOperation: transactions on a standalone server; NoReplicationEnabled
        20 | 76 => {
            let error = standalone();
            (error.kind, error.to_string())
        }
        // HostUnreachable, HostNotFound, NetworkTimeout, ShutdownInProgress, PrimarySteppedDown, SocketException,
        // NotWritablePrimary, Interrupted…, NotPrimary…, ReadConcernMajorityNotAvailableYet
        6 | 7 | 89 | 91 | 189 | 9001 | 10107 | 11600 | 11602 | 13435 | 13436 | 10058 | 134 => (
            StoreErrorKind::Away,
            "MongoDB has no primary now, or its primary is stopping: waiting for one".to_owned(),
        ),
        // MaxTimeMSExpired, WriteConcernFailed, LockTimeout, LockBusy, WriteConflict, ExceededTimeLimit, SnapshotTooOld,
        // SnapshotUnavailable, NoSuchTransaction, TransactionCommitted, CursorNotFound, CursorKilled
        50 | 64 | 24 | 46 | 112 | 262 | 239 | 246 | 251 | 256 | 43 | 237 => (
            StoreErrorKind::Away,
            "MongoDB aborted a command: it can be retried".to_owned(),
        ),
        _ => return None,
    };
    Some(judged)
}

/// A document with this key exists already.
pub(super) fn is_duplicate(error: &Error) -> bool {
    code(error) == Some(11_000)
}

/// Of many documents, some exist already, and the others were inserted.
pub(super) fn are_duplicates(error: &Error) -> bool {
    let ErrorKind::InsertMany(refused) = &*error.kind else {
        return false;
    };
    let mut errors = refused.write_errors.iter().flatten();
    refused.write_concern_error.is_none() && errors.all(|error| error.code == 11_000)
}

/// The server's error code.
pub(super) fn code(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some(error.code),
        ErrorKind::InsertMany(error) => match (&error.write_errors, &error.write_concern_error) {
            (Some(errors), _) if !errors.is_empty() => Some(errors[0].code),
            (_, Some(error)) => Some(error.code),
            _ => None,
        },
        _ => None,
    }
}

fn cause(error: &Error) -> String {
    const LETTERS_MAX: usize = 400;
    let text = match &*error.kind {
        ErrorKind::Command(error) => format!("{} ({})", error.code_name, error.code),
        ErrorKind::Io(error) => error.to_string(),
        ErrorKind::Authentication { message, .. }
        | ErrorKind::ServerSelection { message, .. }
        | ErrorKind::DnsResolve { message, .. }
        | ErrorKind::InvalidTlsConfig { message, .. }
        | ErrorKind::Transaction { message, .. } => message.clone(),
        _ => match code(error) {
            Some(code) => format!("error {code}"),
            None => "no details".to_owned(),
        },
    };
    text.chars().take(LETTERS_MAX).collect()
}
