//! Reads committed events ahead of publishing, as far as there is room.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::mpsc, task::JoinHandle, time::Instant};

use super::examine::{Examined, Examiner};
use crate::{
    event::Seq,
    store::{HeldLane, Page, PageLimit, Reader, Store, StoreError},
};

/// The wait between two reads while events come in. An event waits half of it on average. It also limits the statements
/// per second of a busy relay.
const BUSY_WAIT: Duration = Duration::from_millis(2);
/// The longest wait between two reads while producers still believe that the relay is awake.
const AWAKE_WAIT: Duration = Duration::from_millis(16);
/// After this long without events, the relay tells producers that it sleeps. Telling them is a write.
const SLEEP_AFTER: Duration = Duration::from_secs(1);

/// A running reader. It reads a page when asked, and waits until there is one.
pub(super) struct Discovery {
    requests: mpsc::Sender<PageLimit>,
    pages: mpsc::Receiver<Result<Examined<Page>, StoreError>>,
    asked: bool,
    reading_since: Arc<Mutex<Option<Instant>>>,
    task: JoinHandle<()>,
}

impl Discovery {
    pub(super) fn start(
        store: Arc<dyn Store>,
        lanes: &[HeldLane],
        poll_interval_max: Duration,
        examiner: Examiner,
    ) -> Self {
        let (requests, asked) = mpsc::channel(1);
        let (found, pages) = mpsc::channel(1);
        let reader = store.reader(lanes);
        let low_mark = lanes.iter().map(|lane| lane.low_mark).min().unwrap_or(0);
        let reading_since: Arc<Mutex<Option<Instant>>> = Arc::default();
        let poll = Poll {
            reading_since: reading_since.clone(),
            store,
            reader,
            examiner,
            poll_interval_max,
            asleep: None,
            decided: low_mark,
            reached: low_mark,
        };
        let task = tokio::spawn(poll.run(asked, found));
        Self {
            requests,
            pages,
            asked: false,
            reading_since,
            task,
        }
    }

    /// Asks for the next page, unless one was asked for already.
    pub(super) fn ask(&mut self, limit: PageLimit) {
        if !self.asked && self.requests.try_send(limit).is_ok() {
            self.asked = true;
        }
    }

    /// Waits for the page that was asked for. Never returns if none was.
    pub(super) async fn next(&mut self) -> Result<Examined<Page>, StoreError> {
        match self.pages.recv().await {
            Some(page) => {
                self.asked = false;
                page
            }
            // The task ends only after an error, which was returned before, or by a panic.
            None => match (&mut self.task).await {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => std::future::pending().await,
            },
        }
    }

    /// Since when the reader waits for an answer of the store. It starts again with each statement, also while the
    /// reader finds nothing.
    pub(super) fn reading_since(&self) -> Option<Instant> {
        *self.reading_since.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Poll {
    reading_since: Arc<Mutex<Option<Instant>>>,
    store: Arc<dyn Store>,
    reader: Box<dyn Reader>,
    examiner: Examiner,
    poll_interval_max: Duration,
    /// What producers were told. `None`: this tenure has told them nothing; an earlier one may have told them that it
    /// sleeps.
    asleep: Option<bool>,
    decided: Seq,
    reached: Seq,
}

impl Poll {
    async fn run(
        mut self,
        mut asked: mpsc::Receiver<PageLimit>,
        found: mpsc::Sender<Result<Examined<Page>, StoreError>>,
    ) {
        let mut full = true;
        while let Some(limit) = asked.recv().await {
            if !full {
                tokio::time::sleep(BUSY_WAIT).await;
            }
            let page = self.examined(limit).await;
            full = page.as_ref().is_ok_and(|page| page.found.more);
            let failed = page.is_err();
            if found.send(page).await.is_err() || failed {
                return;
            }
        }
    }

    async fn examined(&mut self, limit: PageLimit) -> Result<Examined<Page>, StoreError> {
        let found = self.next(limit).await?;
        self.set_waiting_for_store(true);
        let objections = self.examiner.look(found.events.iter()).await;
        self.set_waiting_for_store(false);
        let objections = objections?;
        Ok(Examined { found, objections })
    }

    /// Reads until there is something to return: events, or a higher `decided` or `reached`.
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        let since = Instant::now();
        let mut wait = BUSY_WAIT;
        loop {
            self.set_waiting_for_store(true);
            let page = self.reader.next(limit).await;
            self.set_waiting_for_store(false);
            let page = page?;
            if !page.events.is_empty()
                || !page.unreadable.is_empty()
                || page.decided > self.decided
                || page.reached > self.reached
                || page.more
            {
                self.decided = page.decided;
                self.reached = page.reached;
                if !page.events.is_empty() {
                    self.set_asleep(false).await?;
                }
                return Ok(page);
            }
            if self.asleep != Some(true) && since.elapsed() >= SLEEP_AFTER {
                // Read once more after telling producers. Events committed before they could see it sent no hint.
                self.set_asleep(true).await?;
                continue;
            }
            let longest = if self.asleep == Some(true) {
                self.poll_interval_max
            } else {
                AWAKE_WAIT
            };
            sleep(&*self.store, wait.min(longest).min(self.poll_interval_max)).await;
            wait = (wait * 2).min(self.poll_interval_max);
        }
    }

    async fn set_asleep(&mut self, asleep: bool) -> Result<(), StoreError> {
        if self.asleep != Some(asleep) {
            if let Some(waker) = self.store.waker() {
                self.set_waiting_for_store(true);
                let result = waker.set_asleep(asleep).await;
                self.set_waiting_for_store(false);
                result?;
            }
            self.asleep = Some(asleep);
        }
        Ok(())
    }

    fn set_waiting_for_store(&self, waiting: bool) {
        let mut since = self.reading_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = waiting.then(Instant::now);
    }
}

/// Until something may have been committed.
async fn sleep(store: &dyn Store, at_most: Duration) {
    match store.waker() {
        Some(waker) => waker.wait(at_most).await,
        None => tokio::time::sleep(at_most).await,
    }
}
