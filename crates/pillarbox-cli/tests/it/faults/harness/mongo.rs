//! The same scene with the outbox in MongoDB: an application that uses session transactions.

use std::{
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use mongodb::{
    Client, ClientSession, Collection, Database,
    bson::{Document, doc},
    options::ReturnDocument,
};
use pillarbox::{EventId, Outbox};
use pillarbox_testkit::{ledger::Ledger, servers::Kafka, servers::Mongo, wait};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Binary, Config, PATIENCE, event, kafka::TOPIC};

const WRITERS: u64 = 4;
const KEYS: u32 = 48;

/// The binary with its outbox in MongoDB and Kafka as its sink.
pub(in super::super) struct MongoScene {
    binary: Binary,
    pub ledger: Arc<Ledger>,
    client: Client,
}

impl Deref for MongoScene {
    type Target = Binary;

    fn deref(&self) -> &Binary {
        &self.binary
    }
}

impl MongoScene {
    pub(in super::super) async fn new(
        mongo: &Mongo,
        kafka: &Kafka,
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        kafka.create_topic(TOPIC, 6).await;
        let url = mongo.database();
        let mut config = Config::to_kafka(&url, &kafka.url());
        adjust(&mut config);
        let scene = Self {
            binary: Binary::new(config),
            ledger: Arc::new(Ledger::new()),
            client: Client::with_uri_str(&url).await.unwrap(),
        };
        scene.done(&["migrate"]).await;
        scene.database().create_collection("counters").await.unwrap();
        scene
    }

    fn database(&self) -> Database {
        self.client.default_database().unwrap()
    }

    fn collection(&self, name: &str) -> Collection<Document> {
        self.database().collection(name)
    }

    /// Counts the documents that match until the number is as wanted.
    pub(in super::super) async fn until(&self, filter: Document, wanted: impl Fn(u64) -> bool) -> u64 {
        wait::until_ok(async || {
            // If the server is being restarted, ask again.
            let found = self
                .collection("outbox_events")
                .count_documents(filter.clone())
                .await;
            match found {
                Ok(number) if wanted(number) => Ok(number),
                other => Err(format!("{filter}: still {other:?}")),
            }
        })
        .await
    }

    /// Waits until every event is published or dead.
    pub(in super::super) async fn settled(&self) {
        let waiting = doc! {"status": {"$nin": ["published", "dead"]}};
        self.until(waiting, |waiting| waiting == 0).await;
    }

    /// Waits until more events are published than now.
    pub(in super::super) async fn moves(&self) {
        let published = doc! {"status": "published"};
        let before = self.until(published.clone(), |_| true).await;
        self.until(published, |now| now >= before + 100).await;
    }

    /// Waits until the relay of this name holds lanes.
    pub(in super::super) async fn holds_lanes(&self, relay: &str) {
        let (relays, lanes) = (
            self.collection("outbox_events_relays"),
            self.collection("outbox_events_lanes"),
        );
        wait::until(&format!("relay {relay} holds lanes"), async || {
            let Ok(Some(known)) = relays.find_one(doc! {"name": relay}).await else {
                return false;
            };
            let owner = known.get("_id").cloned().unwrap();
            let held = lanes.count_documents(doc! {"owner": owner}).await;
            held.is_ok_and(|held| held > 0)
        })
        .await;
    }

    /// Only failures of an event itself are counted. An outage is not.
    pub(in super::super) async fn assert_nobody_was_charged(&self) {
        let charged = doc! {"$or": [{"retry_count": {"$ne": 0}}, {"status": {"$ne": "published"}}]};
        assert_eq!(
            self.until(charged, |_| true).await,
            0,
            "an outage must charge no event"
        );
    }
}

/// The events of one transaction.
struct Written {
    key: String,
    events: Vec<(EventId, u64)>,
}

/// Many concurrent transactions until it is stopped. Some abort, some commit late.
pub(in super::super) struct MongoLoad {
    application: Application,
    stop: CancellationToken,
    writers: JoinSet<()>,
    in_doubt: Arc<Mutex<Vec<Written>>>,
}

#[derive(Clone)]
struct Application {
    client: Client,
    ledger: Arc<Ledger>,
}

impl MongoLoad {
    pub(in super::super) fn start(scene: &MongoScene, seed: u64) -> Self {
        let mut load = Self {
            application: Application {
                client: scene.client.clone(),
                ledger: scene.ledger.clone(),
            },
            stop: CancellationToken::new(),
            writers: JoinSet::new(),
            in_doubt: Arc::default(),
        };
        for writer in 0..WRITERS {
            let rng = StdRng::seed_from_u64(seed ^ writer);
            let application = load.application.clone();
            load.writers
                .spawn(application.write_on(rng, load.stop.clone(), load.in_doubt.clone()));
        }
        load
    }

    /// Stops the load. After that the ledger contains everything it did.
    pub(in super::super) async fn stop(mut self) {
        self.stop.cancel();
        let ended = async {
            while let Some(ended) = self.writers.join_next().await {
                ended.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, ended)
            .await
            .expect("the producers did not end");
        let in_doubt = std::mem::take(&mut *self.in_doubt.lock().unwrap());
        for written in in_doubt {
            self.application.look_up(&written).await;
        }
    }
}

impl Application {
    /// Increments a key's document and writes events about it. A concurrent transaction that changes the same
    /// document fails.
    async fn write(&self, session: &mut ClientSession, key: &str, count: u64) -> Option<Written> {
        let counters: Collection<Document> = self.client.default_database()?.collection("counters");
        let counted = counters
            .find_one_and_update(doc! {"_id": key}, doc! {"$inc": {"n": count as i64}})
            .upsert(true)
            .return_document(ReturnDocument::After)
            .session(&mut *session)
            .await
            .ok()??;
        let last = counted.get_i64("n").unwrap() as u64;
        let events: Vec<_> = (last - count + 1..=last).map(|n| (event(key, n), n)).collect();
        let all: Vec<_> = events.iter().map(|(event, _)| event.clone()).collect();
        Outbox::default().enqueue_all(session, &all).await.ok()?;
        Some(Written {
            key: key.to_owned(),
            events: events.into_iter().map(|(event, n)| (event.id, n)).collect(),
        })
    }

    async fn write_on(self, mut rng: StdRng, stop: CancellationToken, in_doubt: Arc<Mutex<Vec<Written>>>) {
        while !stop.is_cancelled() {
            let key = format!("key-{}", rng.random_range(0..KEYS));
            let count = rng.random_range(1..=3);
            let (aborts, late) = (rng.random_bool(0.1), rng.random_bool(0.02));
            let late = Duration::from_millis(if late { rng.random_range(50..400) } else { 0 });
            let pause = Duration::from_millis(rng.random_range(0..4));
            // An error before the commit means that nothing was committed.
            if let Ok(mut session) = self.client.start_session().await
                && session.start_transaction().await.is_ok()
            {
                match self.write(&mut session, &key, count).await {
                    None => drop(session.abort_transaction().await),
                    Some(written) => {
                        tokio::time::sleep(late).await;
                        if aborts {
                            let _ = session.abort_transaction().await;
                            self.rolled_back(&written);
                        } else if session.commit_transaction().await.is_ok() {
                            self.committed(&written);
                        } else {
                            in_doubt.lock().unwrap().push(written);
                        }
                    }
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn committed(&self, written: &Written) {
        for (id, n) in &written.events {
            self.ledger.committed(id.clone(), &written.key, *n);
        }
    }

    fn rolled_back(&self, written: &Written) {
        for (id, _) in &written.events {
            self.ledger.rolled_back(id.clone());
        }
    }

    /// If a commit got no answer, asks the database whether the events exist.
    async fn look_up(&self, written: &Written) {
        let ids: Vec<String> = written.events.iter().map(|(id, _)| id.to_string()).collect();
        let events: Collection<Document> = self
            .client
            .default_database()
            .unwrap()
            .collection("outbox_events");
        match events
            .count_documents(doc! {"event_id": {"$in": ids}})
            .await
            .unwrap()
        {
            0 => self.rolled_back(written),
            _ => self.committed(written),
        }
    }
}
