//! Transactions that are retried when the server says that this helps.

use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt;
use mongodb::{
    ClientSession, Collection, SessionCursor,
    bson::{Bson, Document, doc},
    options::ReadConcern,
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{
    connection::{Collections, Connection, durable},
    error::{TxError, silent},
};
use crate::store::{StoreError, StoreErrorKind};

/// The pause between two attempts: twice as long each time, up to the longest.
const AGAIN_AFTER: Duration = Duration::from_millis(5);
const AGAIN_AFTER_MAX: Duration = Duration::from_millis(250);
/// Updates in one command.
const UPDATES_MAX: usize = 500;

/// An open transaction. Every command in it takes `session`. Commands that no method counts are counted by hand.
pub(super) struct Tx<'a> {
    pub(super) at: &'a Collections,
    pub(super) session: ClientSession,
    pub(super) connection: &'a Connection,
}

/// The work of one transaction. It is run again from its start if the server says that this may help.
#[async_trait]
pub(super) trait Work: Sync {
    type Done: Send;

    async fn run(&self, tx: &mut Tx<'_>) -> Result<Self::Done, TxError>;
}

impl Tx<'_> {
    pub(super) fn counted(&self, commands: u64) {
        self.connection.counted(commands);
    }

    /// All results of a cursor in this transaction.
    pub(super) async fn all<T>(&mut self, mut cursor: SessionCursor<T>) -> Result<Vec<T>, TxError>
    where
        T: DeserializeOwned + Unpin + Send + Sync,
    {
        Ok(cursor.stream(&mut self.session).try_collect().await?)
    }

    pub(super) async fn find(
        &mut self,
        collection: &Collection<Document>,
        filter: Document,
        projection: Document,
    ) -> Result<Vec<Document>, TxError> {
        self.counted(1);
        let find = collection.find(filter).projection(projection);
        let cursor = find.session(&mut self.session).await?;
        self.all(cursor).await
    }

    pub(super) async fn aggregate(
        &mut self,
        collection: &Collection<Document>,
        pipeline: Vec<Document>,
    ) -> Result<Vec<Document>, TxError> {
        self.counted(1);
        let cursor = collection.aggregate(pipeline).session(&mut self.session).await?;
        self.all(cursor).await
    }

    /// Many updates of one collection, each `{ q, u, upsert }`, 500 in a command. Returns the number of documents
    /// that matched.
    pub(super) async fn update_all(
        &mut self,
        collection: &Collection<Document>,
        updates: Vec<Document>,
    ) -> Result<i64, TxError> {
        let namespace = collection.namespace();
        let database = self.at.client.database(&namespace.db);
        let mut met = 0;
        for updates in updates.chunks(UPDATES_MAX) {
            self.counted(1);
            let command = doc! { "update": &namespace.coll, "updates": updates, "ordered": true };
            let answer = database.run_command(command).session(&mut self.session).await?;
            if answer
                .get_array("writeErrors")
                .is_ok_and(|errors| !errors.is_empty())
            {
                return Err(refused(&answer).into());
            }
            met += match answer.get("n") {
                Some(Bson::Int32(n)) => i64::from(*n),
                Some(Bson::Int64(n)) => *n,
                _ => 0,
            };
        }
        Ok(met)
    }
}

impl Connection {
    /// Runs `work` in a transaction. Retries while the server says that this helps and the timeout has not passed.
    pub(super) async fn transaction<W: Work>(&self, work: &W) -> Result<W::Done, StoreError> {
        let end = Instant::now() + self.answer_timeout();
        let mut pause = AGAIN_AFTER;
        loop {
            let trouble = match tokio::time::timeout_at(end, self.attempt(work, end)).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(trouble)) => trouble,
                Err(_) => return Err(silent()),
            };
            if !trouble.is_transient() || Instant::now() + pause >= end {
                return Err(trouble.into_store_error(self.tables.name()));
            }
            tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            pause = (pause * 2).min(AGAIN_AFTER_MAX);
        }
    }

    async fn attempt<W: Work>(&self, work: &W, end: Instant) -> Result<W::Done, TxError> {
        let at = self.collections().await?;
        let mut session = at.client.start_session().await?;
        session
            .start_transaction()
            .read_concern(ReadConcern::snapshot())
            .write_concern(durable())
            .await?;
        let mut tx = Tx {
            at,
            session,
            connection: self,
        };
        let done = match work.run(&mut tx).await {
            Ok(done) => done,
            Err(trouble) => {
                // Otherwise its locks would stay until the server finds that the session was dropped. An error here
                // adds nothing to the first one.
                let _ = tx.session.abort_transaction().await;
                return Err(trouble);
            }
        };
        loop {
            self.counted(1);
            match tx.session.commit_transaction().await.map_err(TxError::from) {
                Ok(()) => return Ok(done),
                Err(trouble) if trouble.is_unknown_commit() && Instant::now() + AGAIN_AFTER_MAX < end => {
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                Err(trouble) => return Err(trouble),
            }
        }
    }
}

fn refused(answer: &Document) -> StoreError {
    let errors = answer
        .get_array("writeErrors")
        .map(Vec::as_slice)
        .unwrap_or_default();
    let code = errors
        .first()
        .and_then(Bson::as_document)
        .and_then(|error| error.get_i32("code").ok())
        .unwrap_or_default();
    StoreError::new(StoreErrorKind::Refused, "MongoDB refused an update").with_source(format!("error {code}"))
}
