//! Reads events as they are committed, ahead of what is being published, and no further than there is room.

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

/// Between two looks while events come in: an event waits half of it on average, and it bounds the statements per
/// second of a busy relay.
const BUSY_WAIT: Duration = Duration::from_millis(2);
/// The longest wait before the store has been told that we sleep.
const AWAKE_WAIT: Duration = Duration::from_millis(16);
/// How long nothing must have come before we say that we sleep: saying it is a write.
const SLEEP_AFTER: Duration = Duration::from_secs(1);

/// A reader at work. It reads a page when asked, and waits until there is one to give.
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

    /// Asks for the next page, unless one is on its way.
    pub(super) fn ask(&mut self, limit: PageLimit) {
        if !self.asked && self.requests.try_send(limit).is_ok() {
            self.asked = true;
        }
    }

    /// The page asked for. Never ends when none was.
    pub(super) async fn next(&mut self) -> Result<Examined<Page>, StoreError> {
        match self.pages.recv().await {
            Some(page) => {
                self.asked = false;
                page
            }
            // It ends only after an error, which came before, or by a panic.
            None => match (&mut self.task).await {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => std::future::pending().await,
            },
        }
    }

    /// Since when the store owes an answer. A reader that finds nothing asks again and again: each of these counts anew.
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
    /// What producers were told. `None`: what an earlier tenure told them, which may be that we sleep.
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
        self.owes_an_answer(true);
        let objections = self.examiner.look(found.events.iter()).await;
        self.owes_an_answer(false);
        let objections = objections?;
        Ok(Examined { found, objections })
    }

    /// Looks until there is something to tell: events, or that the store is decided or read further.
    async fn next(&mut self, limit: PageLimit) -> Result<Page, StoreError> {
        let since = Instant::now();
        let mut wait = BUSY_WAIT;
        loop {
            self.owes_an_answer(true);
            let page = self.reader.next(limit).await;
            self.owes_an_answer(false);
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
                // One more look after saying so: what was committed before producers could see it sent no hint.
                self.set_asleep(true).await?;
                continue;
            }
            let longest = if self.asleep == Some(true) {
                self.poll_interval_max
            } else {
                AWAKE_WAIT
            };
            self.store
                .wait(wait.min(longest).min(self.poll_interval_max))
                .await;
            wait = (wait * 2).min(self.poll_interval_max);
        }
    }

    async fn set_asleep(&mut self, asleep: bool) -> Result<(), StoreError> {
        if self.asleep != Some(asleep) {
            self.owes_an_answer(true);
            let told = self.store.set_asleep(asleep).await;
            self.owes_an_answer(false);
            told?;
            self.asleep = Some(asleep);
        }
        Ok(())
    }

    fn owes_an_answer(&self, owes: bool) {
        let mut since = self.reading_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = owes.then(Instant::now);
    }
}
