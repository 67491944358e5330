//! An attempt whose beginning and end are recorded in the database, because it may kill the process.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    sync::atomic::Ordering,
    task::Poll,
};

use tokio::time::timeout;

use super::{
    attempt::{DATABASE_PATIENCE, Job, Outcome, Work, not_the_events_fault},
    handler::Handler,
    keys::Failure,
    suspects::Watch,
};
use crate::inbox::{Database, InboxError};

impl<D: Database, H: Handler<D>> Work<D, H> {
    pub(super) async fn watched(&self, job: &Job, failure: Option<Failure>, watch: Watch) -> Outcome {
        if watch == Watch::No {
            return self.attempt(job, failure).await;
        }
        if let Err(outcome) = self.begins(job, watch == Watch::Alone).await {
            return outcome;
        }
        let outcome = surviving(self.attempt(job, failure)).await;
        // The process is alive. If the effect was committed, its transaction deleted the row.
        if job.begun.load(Ordering::SeqCst) {
            self.ends(job).await;
        }
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs in its own transaction, before any other, so that a pool with one connection is enough.
    async fn begins(&self, job: &Job, alone: bool) -> Result<(), Outcome> {
        // If the end of an earlier attempt could not be recorded, its row still exists.
        let Some(id) = job.id().filter(|_| !job.begun.load(Ordering::SeqCst)) else {
            return Ok(());
        };
        let beginning = self.database.begins(self.place(), id, alone);
        let beginning = timeout(DATABASE_PATIENCE, beginning).await;
        match beginning.unwrap_or_else(|_| Err(InboxError::Database("the database did not answer".into()))) {
            Ok(Some(_)) => {
                job.begun.store(true, Ordering::SeqCst);
                Ok(())
            }
            Ok(None) => Err(Outcome::Before),
            Err(error) => Err(not_the_events_fault::<D>(&error)),
        }
    }

    pub(super) async fn ends(&self, job: &Job) {
        let Some(id) = job.id() else { return };
        match timeout(DATABASE_PATIENCE, self.database.ends(self.place(), id)).await {
            Ok(Ok(())) => job.begun.store(false, Ordering::SeqCst),
            Ok(Err(error)) => tracing::debug!(%error, "could not record the end of an attempt"),
            Err(_) => tracing::debug!("could not record the end of an attempt in time"),
        }
    }
}

/// The future's result, or its panic. The future is dropped when this returns, and its transaction with it.
async fn surviving<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    std::future::poll_fn(move |context| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}
