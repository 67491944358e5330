//! How the engine treats events that may have killed a process: see [`suspects`](crate::consume::suspects).

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use tokio::time::{Instant, timeout};

use super::Engine;
use crate::{
    consume::{attempt::Job, handler::Handler, handler::told, keys::Failure, suspects},
    inbox::{Begun, Database, InboxError},
};

/// The timeout for reading the rows.
const LOOK_MAX: Duration = Duration::from_secs(10);

impl<D: Database, H: Handler<D>> Engine<D, H> {
    /// Nothing begins before the rows are read.
    pub(super) fn look_for_suspects(&mut self) {
        if !self.looks.is_empty() {
            return;
        }
        let work = self.work.clone();
        self.looks.spawn(async move {
            let looking = work.database.begun(work.place());
            timeout(LOOK_MAX, looking)
                .await
                .unwrap_or_else(|_| Err(InboxError::Database("the database did not answer".into())))
        });
    }

    pub(super) fn looked(&mut self, rows: Result<Vec<Begun>, InboxError>) {
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => return self.database_away(&told(&error)),
        };
        self.database_is_back();
        self.suspects.looked(&rows, &self.work.member);
        let (group, deaths_max) = (&self.work.group, self.work.options.deaths_max);
        let at_work = rows.iter().filter(|row| row.times > 0).count();
        if at_work > 0 {
            tracing::warn!(
                group,
                events = at_work,
                "these events were being handled when a consumer died; each is now tried alone"
            );
        }
        for row in rows.iter().filter(|row| row.times >= deaths_max && row.times > 0) {
            tracing::error!(
                group,
                event = %row.id,
                deaths = row.times,
                "the event kills the process; it becomes a dead letter"
            );
        }
    }

    /// The earlier failure, or a new one if the event has killed the process too often.
    pub(super) fn doomed(&self, job: &Job, failure: Option<Failure>) -> Option<Failure> {
        if failure.as_ref().is_some_and(|failure| failure.doom.is_some()) {
            return failure;
        }
        let Some(deaths) = self.suspects.deaths(job.id()) else {
            return failure;
        };
        let (reason, error) = suspects::told(deaths);
        Some(Failure {
            attempts: deaths,
            conflicts: 0,
            conflicts_handled: 0,
            since: Instant::now(),
            error,
            doom: Some(reason),
        })
    }

    /// Handlers that the stop rolled back did not kill the process, so their counts must not rise.
    pub(super) async fn leave_no_counts(&mut self) {
        if self.work.options.deaths_max == 0 {
            return;
        }
        let jobs = self.turns.drain().map(|(_, (_, job))| job);
        let begun: Vec<Arc<Job>> = jobs.filter(|job| job.begun.load(Ordering::SeqCst)).collect();
        for job in begun {
            self.work.ends(&job).await;
        }
        if let Err(error) = self
            .work
            .database
            .leave(self.work.place(), &self.work.member)
            .await
        {
            tracing::debug!(%error, "could not record that the consumer left");
        }
    }
}
