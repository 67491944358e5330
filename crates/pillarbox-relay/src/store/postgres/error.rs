//! Translates errors of PostgreSQL: what each means for the relay, and what an operator should do about it.

use sqlx::{Error, error::DatabaseError};

use crate::{
    store::{StoreError, StoreErrorKind},
    tls::handshake_error,
};

/// Explains an error. `table` is the outbox's table, for the message.
pub(super) fn explain(error: Error, table: &str) -> StoreError {
    let (kind, context) = match &error {
        Error::Database(refusal) => judge(refusal.as_ref(), table),
        Error::PoolTimedOut => (
            StoreErrorKind::Away,
            "no connection to the database in time: it can't be reached, or all connections are in use"
                .to_owned(),
        ),
        // The other side can fix all of this while the relay waits, even an expired certificate.
        Error::Io(error) if handshake_error(error).is_some() => (StoreErrorKind::Away, no_tls()),
        Error::Io(_) | Error::Protocol(_) | Error::PoolClosed | Error::WorkerCrashed | Error::BeginFailed => {
            (
                StoreErrorKind::Away,
                "the database can't be reached, or the connection broke".to_owned(),
            )
        }
        Error::Tls(_) => (StoreErrorKind::Misconfigured, no_tls()),
        Error::Configuration(_) | Error::InvalidArgument(_) => (
            StoreErrorKind::Misconfigured,
            "the database's address can't be used: check the URL".to_owned(),
        ),
        _ => (
            StoreErrorKind::Refused,
            "the database's answer can't be used".to_owned(),
        ),
    };
    StoreError::new(kind, context).with_source(error)
}

fn judge(refusal: &dyn DatabaseError, table: &str) -> (StoreErrorKind, String) {
    let code = refusal.code().unwrap_or_default();
    match code.as_ref() {
        "42P01" | "3F000" => not_migrated(table),
        "42703" | "42883" | "42704" => (
            StoreErrorKind::NotMigrated,
            format!(
                "the tables of {table} have another version: run `pillarbox migrate`, or use the `pillarbox` that created them"
            ),
        ),
        // PostgreSQL itself checks the certificates of clients. Its words are only known in English.
        "28000" if refusal.message().contains("certificate") => (
            StoreErrorKind::Misconfigured,
            "the database wants another client certificate for this user: give one that names the user \
             (sslcert=FILE&sslkey=FILE in the address)"
                .to_owned(),
        ),
        "28000" | "28P01" => (
            StoreErrorKind::Misconfigured,
            "the database refuses this user or password: check the URL, and whose certificate it gives (sslcert)"
                .to_owned(),
        ),
        "3D000" => (
            StoreErrorKind::Misconfigured,
            "there is no such database: check the URL, or create it".to_owned(),
        ),
        "42501" => (
            StoreErrorKind::Misconfigured,
            format!(
                "this user may not use the tables of {table}: `pillarbox migrate --print` says which rights it needs"
            ),
        ),
        "23505"
            if refusal
                .constraint()
                .is_some_and(|name| name.ends_with("_unique_versions")) =>
        {
            (
                StoreErrorKind::Refused,
                format!(
                    "two events of {table} would have one version of an aggregate, which `outbox.database.unique_versions` forbids: \
                 replay a dead letter under its own id, or correct the versions"
                ),
            )
        }
        // A reader has made the position of an entry void meanwhile. The next attempt takes another one.
        "23505" if refusal.table().is_some_and(|name| name.ends_with("_log")) => (
            StoreErrorKind::Away,
            "a position of the event log was taken meanwhile: it can be retried".to_owned(),
        ),
        // The message says what to do: see sql/schema/create.sql.
        "PB403" => (StoreErrorKind::Misconfigured, refusal.message().to_owned()),
        "25006" => (
            StoreErrorKind::Away,
            "the database is read-only, perhaps a standby: waiting for a primary".to_owned(),
        ),
        "40001" | "40P01" | "55P03" | "57014" => (
            StoreErrorKind::Away,
            "the database aborted a statement: it can be retried".to_owned(),
        ),
        code if code.starts_with("57P")
            || code.starts_with("08")
            || code.starts_with("53")
            || code.starts_with("58") =>
        {
            (
                StoreErrorKind::Away,
                "the database is starting, stopping or out of resources".to_owned(),
            )
        }
        _ => (
            StoreErrorKind::Refused,
            "the database refused a statement".to_owned(),
        ),
    }
}

fn no_tls() -> String {
    "no TLS connection to the database. Check in its address that `sslmode` is right, that the database's certificate \
     names this host and is trusted (sslrootcert=FILE), and whether it wants one of ours (sslcert=FILE&sslkey=FILE)"
        .to_owned()
}

fn not_migrated(table: &str) -> (StoreErrorKind, String) {
    (
        StoreErrorKind::NotMigrated,
        format!("there is no outbox {table} in this database: run `pillarbox migrate` first"),
    )
}

/// The error for missing tables.
pub(super) fn missing(table: &str) -> StoreError {
    let (kind, context) = not_migrated(table);
    StoreError::new(kind, context)
}
