//! Wakes a sleeping relay, by a change stream of inserts. The stream is open only while the relay is asleep,
//! because a busy relay would receive every event twice. It is only a hint: polling finds every event.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use mongodb::{
    bson::{Document, doc},
    change_stream::{ChangeStream, event::ChangeStreamEvent},
};
use tokio::{sync::Notify, task::JoinHandle};

use super::connection::Connection;

const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

pub(super) struct Wakening {
    wanted: bool,
    woken: Arc<Notify>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Wakening {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            woken: Arc::default(),
            listener: Mutex::default(),
        }
    }

    pub(super) fn listens(&self) -> bool {
        self.wanted
    }

    /// Opens or closes the stream. After this returns, every commit wakes the relay. If the stream can't be opened,
    /// it is retried in the background, and polling finds events meanwhile.
    pub(super) async fn set_asleep(&self, connection: &Arc<Connection>, asleep: bool) {
        if !asleep {
            return self.replace(None);
        }
        if !self.wanted || self.is_listening() {
            return;
        }
        let stream = open(connection).await;
        let task = listen(connection.clone(), stream, self.woken.clone());
        self.replace(Some(tokio::spawn(task)));
    }

    /// Whether something was committed.
    pub(super) async fn wait(&self, at_most: Duration) -> bool {
        tokio::time::timeout(at_most, self.woken.notified()).await.is_ok()
    }

    fn is_listening(&self) -> bool {
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener.as_ref().is_some_and(|task| !task.is_finished())
    }

    fn replace(&self, listener: Option<JoinHandle<()>>) {
        let mut place = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = std::mem::replace(&mut *place, listener) {
            task.abort();
        }
    }
}

impl Drop for Wakening {
    fn drop(&mut self) {
        self.replace(None);
    }
}

type Inserts = ChangeStream<Document>;

/// None: not now, or not with this user's rights.
async fn open(connection: &Connection) -> Option<Inserts> {
    let at = connection.collections().await.ok()?;
    let inserts = [
        doc! { "$match": { "operationType": "insert" } },
        doc! { "$project": { "_id": 1 } },
    ];
    let stream: Result<ChangeStream<ChangeStreamEvent<Document>>, _> =
        connection.run(at.events.watch().pipeline(inserts)).await;
    match stream {
        Ok(stream) => Some(stream.with_type()),
        Err(error) => {
            tracing::debug!(error = %error.chain(), "not listening for commits: polling finds them");
            None
        }
    }
}

/// Listens until it is aborted. The driver resumes after most errors by itself.
async fn listen(connection: Arc<Connection>, mut stream: Option<Inserts>, woken: Arc<Notify>) {
    let mut pause = AGAIN_AFTER;
    loop {
        if let Some(stream) = &mut stream {
            pause = AGAIN_AFTER;
            while let Some(Ok(_)) = stream.next().await {
                woken.notify_one();
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN_AFTER_MAX);
        stream = open(&connection).await;
        // Something may have been missed.
        woken.notify_one();
    }
}
