//! The commands that a producer sends to write an event: only one, if nothing must be looked up first.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mongodb::{
    Client, ClientSession,
    bson::{Document, doc},
    event::{EventHandler, command::CommandEvent},
    options::ClientOptions,
};
use pillarbox::{EnqueueError, Enqueued, Event, Outbox, enqueue::MongodbClock, pressure::Limit};
use pillarbox_relay::{
    pressure::{Class, Figures},
    route::Pattern,
};
use pillarbox_testkit::{
    servers::{self, Mongo},
    wait::until,
};

use super::harness::MongoHarness;

/// Longer than an outbox uses what it has read.
const KNOWN_FOR: Duration = Duration::from_secs(6);

/// An application whose commands are recorded. The clock of its outbox stands still unless the test moves it,
/// so the result does not depend on the speed of the machine.
struct Application {
    harness: MongoHarness,
    client: Client,
    clock: MongodbClock,
    outbox: Outbox,
    sent: Arc<Mutex<Vec<Sent>>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sent {
    name: String,
    in_transaction: bool,
}

impl Application {
    async fn new() -> Option<Self> {
        let harness = MongoHarness::new(servers::mongo().await?).await;
        let sent: Arc<Mutex<Vec<Sent>>> = Arc::default();
        let mut options = ClientOptions::parse(&harness.url).await.unwrap();
        let hears = sent.clone();
        options.command_event_handler = Some(EventHandler::callback(move |event| {
            if let CommandEvent::Started(started) = event {
                hears.lock().unwrap().push(Sent {
                    name: started.command_name,
                    in_transaction: started.command.contains_key("autocommit"),
                });
            }
        }));
        let clock = MongodbClock::stopped();
        Some(Self {
            harness,
            client: Client::with_options(options).unwrap(),
            outbox: Outbox::by_mongodb_clock(clock.clone()),
            clock,
            sent,
        })
    }

    async fn with_classes(classes: &[Class]) -> Option<Self> {
        let application = Self::new().await?;
        application
            .harness
            .store
            .gauge
            .as_ref()
            .unwrap()
            .set_classes(classes)
            .await
            .unwrap();
        Some(application)
    }

    async fn begin(&self) -> ClientSession {
        let mut session = self.client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        session
    }

    async fn enqueue(&self, event: &Event) -> Result<Enqueued, EnqueueError> {
        let mut session = self.begin().await;
        // Clones share what an outbox has read.
        let enqueued = self.outbox.clone().enqueue(&mut session, event).await?;
        session.commit_transaction().await.unwrap();
        Ok(enqueued)
    }

    /// The commands of the application's transactions since the last call.
    fn commands(&self) -> Vec<String> {
        let sent = std::mem::take(&mut *self.sent.lock().unwrap());
        let of_transactions = sent.into_iter().filter(|sent| sent.in_transaction);
        of_transactions.map(|sent| sent.name).collect()
    }

    async fn stored(&self) -> u64 {
        self.harness.events().count_documents(doc! {}).await.unwrap()
    }
}

fn event() -> Event {
    Event::to("t.x").event_type("X").aggregate("thing", "1")
}

#[tokio::test]
async fn a_new_event_is_one_command() {
    let Some(application) = Application::new().await else {
        return;
    };
    assert_eq!(application.enqueue(&event()).await.unwrap(), Enqueued::New);
    assert_eq!(application.commands(), ["insert", "commitTransaction"]);
    let given = event().id(uuid::Uuid::now_v7());
    assert_eq!(application.enqueue(&given).await.unwrap(), Enqueued::New);
    let look = ["find", "insert", "commitTransaction"];
    assert_eq!(application.commands(), look, "the event may already exist");
}

#[tokio::test]
async fn an_event_written_again_is_a_duplicate_and_ends_no_transaction() {
    let Some(application) = Application::new().await else {
        return;
    };
    let event = event();
    let clone = event.clone();
    assert_eq!(application.enqueue(&event).await.unwrap(), Enqueued::New);
    assert_eq!(application.enqueue(&event).await.unwrap(), Enqueued::Duplicate);
    assert_eq!(application.enqueue(&clone).await.unwrap(), Enqueued::Duplicate);
    assert_eq!(application.stored().await, 1);
}

/// What an outbox knows about one cluster must not be used for the other: neither that the outbox exists, nor
/// its limits.
#[tokio::test]
async fn two_clusters_with_the_same_names_are_two_outboxes() {
    let (Some(one), Some(two)) = (Mongo::start().await, Mongo::start().await) else {
        return;
    };
    let [first, second] = [one.url_of("shop"), two.url_of("shop")];
    let client = async |url: &str| Client::with_uri_str(url).await.unwrap();
    let enqueue = async |client: &Client, outbox: &Outbox| {
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let enqueued = outbox.enqueue(&mut session, &event()).await?;
        session.commit_transaction().await.unwrap();
        Ok::<_, EnqueueError>(enqueued)
    };
    let (at_first, at_second) = (client(&first).await, client(&second).await);
    let (of_first, of_second) = (Outbox::default(), Outbox::default());
    let harness = MongoHarness::at(first).await;
    assert_eq!(enqueue(&at_first, &of_first).await.unwrap(), Enqueued::New);
    let missing = enqueue(&at_second, &of_second).await.unwrap_err();
    assert!(matches!(missing, EnqueueError::NotMigrated { .. }), "{missing}");
    MongoHarness::at(second).await;
    let full = class("full", ">", Some(1));
    harness
        .store
        .gauge
        .as_ref()
        .unwrap()
        .set_classes(&[full])
        .await
        .unwrap();
    let refused = enqueue(&at_first, &Outbox::default()).await.unwrap_err();
    assert!(matches!(refused, EnqueueError::Busy { .. }), "{refused}");
    for _ in 0..3 {
        assert_eq!(enqueue(&at_second, &of_second).await.unwrap(), Enqueued::New);
    }
}

#[tokio::test]
async fn a_shared_unused_id_fails_one_transaction() {
    let Some(application) = Application::new().await else {
        return;
    };
    let event = event();
    let same = Event::to("t.y")
        .event_type("Y")
        .aggregate("thing", "2")
        .id(event.id.clone());
    assert_eq!(application.enqueue(&same).await.unwrap(), Enqueued::New);
    let error = application.enqueue(&event).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Database(_)), "{error}");
    assert_eq!(application.enqueue(&event).await.unwrap(), Enqueued::Duplicate);
    assert_eq!(application.stored().await, 1);
}

/// An application that has written one event and does not know the new limit yet.
async fn before_a_new_limit() -> Option<Application> {
    let application = Application::new().await?;
    application.enqueue(&event()).await.unwrap();
    application.commands();
    let full = class("full", ">", Some(1));
    application
        .harness
        .store
        .gauge
        .as_ref()
        .unwrap()
        .set_classes(&[full])
        .await
        .unwrap();
    assert!(
        application.is_taken("t.x").await,
        "limits must not be read for every event"
    );
    Some(application)
}

/// The limits are read outside of transactions.
#[tokio::test]
async fn a_new_limit_is_learnt_in_the_background() {
    let Some(application) = before_a_new_limit().await else {
        return;
    };
    application.clock.advance(Duration::from_secs(2));
    assert!(
        application.is_taken("t.x").await,
        "a producer must not wait for the read"
    );
    until("the new limit takes effect", async || {
        !application.is_taken("t.x").await
    })
    .await;
    let sent = application.commands();
    assert!(!sent.contains(&"aggregate".to_owned()), "{sent:?}");
}

#[tokio::test]
async fn a_new_limit_applies_at_once_after_seconds_without_a_look() {
    let Some(application) = before_a_new_limit().await else {
        return;
    };
    application.clock.advance(KNOWN_FOR);
    assert!(!application.is_taken("t.x").await);
    let sent = application.commands();
    assert!(!sent.contains(&"aggregate".to_owned()), "{sent:?}");
}

fn class(name: &str, topic: &str, hard: Option<u64>) -> Class {
    Class {
        name: name.into(),
        topics: vec![Pattern::new(topic).unwrap()],
        limit: Limit {
            soft: None,
            hard,
            max_delay: Duration::ZERO,
        },
    }
}

impl Application {
    /// Writes the relay's figures. They count as new whenever they are read.
    async fn note(&self, pending: &[u64]) {
        let figures = Figures {
            at: 0,
            measured: tokio::time::Instant::now(),
            drained: 100.0,
            classes: pending.iter().map(|pending| (*pending, None)).collect(),
        };
        self.harness
            .store
            .gauge
            .as_ref()
            .unwrap()
            .note(&figures)
            .await
            .unwrap();
        let database = self.client.default_database().unwrap();
        let rows = database.collection::<Document>("outbox_events_pressure");
        let ahead = doc! { "$set": { "measured_at": { "$add": ["$$NOW", 3_600_000] } } };
        rows.update_many(doc! {}, vec![ahead]).await.unwrap();
    }

    async fn is_taken(&self, topic: &str) -> bool {
        match self
            .enqueue(&Event::to(topic).event_type("X").aggregate("thing", "1"))
            .await
        {
            Ok(_) => true,
            Err(EnqueueError::Busy { .. }) => false,
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_process_counts_its_own_events_at_once() {
    let classes = [
        class("free", "free.>", None),
        class("far", "far.>", Some(1_000)),
        class("near", "near.>", Some(20)),
    ];
    let Some(application) = Application::with_classes(&classes).await else {
        return;
    };
    application.note(&[0, 0, 0]).await;
    for taken in 0..20 {
        assert!(application.is_taken("near.x").await, "after {taken}");
    }
    assert!(!application.is_taken("near.x").await, "the limit holds");
}

#[tokio::test]
async fn a_class_is_not_refused_for_events_of_another_class() {
    let classes = [
        class("bulk", "bulk.>", Some(1_000)),
        class("orders", "order.>", Some(20)),
    ];
    let Some(application) = Application::with_classes(&classes).await else {
        return;
    };
    let bulk: Vec<Event> = (0..50)
        .map(|_| Event::to("bulk.x").event_type("X").aggregate("thing", "1"))
        .collect();
    let mut session = application.begin().await;
    application.outbox.enqueue_all(&mut session, &bulk).await.unwrap();
    session.commit_transaction().await.unwrap();
    application.note(&[50, 0]).await;
    assert!(
        !application.is_taken("order.x").await,
        "events that this process has just written count for every class"
    );
    for seconds in [1, 0, 2, 3, 4, 6] {
        application.clock.advance(Duration::from_secs(seconds));
        application.note(&[50, 0]).await;
        assert!(application.is_taken("order.x").await, "after {seconds} s");
    }
}

#[tokio::test]
async fn where_the_relay_is_silent_all_that_waits_counts_for_every_class() {
    let classes = [
        class("bulk", "bulk.>", Some(1_000)),
        class("orders", "order.>", Some(20)),
    ];
    let Some(application) = Application::with_classes(&classes).await else {
        return;
    };
    // As if another process had written it.
    let bulk: Vec<Event> = (0..20)
        .map(|_| Event::to("bulk.x").event_type("X").aggregate("thing", "1"))
        .collect();
    let mut session = application.begin().await;
    Outbox::default().enqueue_all(&mut session, &bulk).await.unwrap();
    session.commit_transaction().await.unwrap();
    for seconds in [0, 1, 3, 6] {
        application.clock.advance(Duration::from_secs(seconds));
        assert!(!application.is_taken("order.x").await, "after {seconds} s");
    }
    assert!(application.is_taken("bulk.x").await);
}
