//! What a producer sends to write an event: one command where nothing has to be looked up first.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use mongodb::{
    Client, ClientSession,
    bson::doc,
    event::{EventHandler, command::CommandEvent},
    options::ClientOptions,
};
use pillarbox::{EnqueueError, Enqueued, Event, Outbox, pressure::Limit};
use pillarbox_relay::pressure::Class;
use pillarbox_testkit::servers;

use super::harness::MongoHarness;

const DEADLINE: Duration = Duration::from_secs(30);

/// An application whose commands are listened to.
struct Application {
    harness: MongoHarness,
    client: Client,
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
        Some(Self {
            harness,
            client: Client::with_options(options).unwrap(),
            sent,
        })
    }

    async fn begin(&self) -> ClientSession {
        let mut session = self.client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        session
    }

    async fn enqueue(&self, event: &Event) -> Result<Enqueued, EnqueueError> {
        let mut session = self.begin().await;
        let enqueued = Outbox::default().enqueue(&mut session, event).await?;
        session.commit_transaction().await.unwrap();
        Ok(enqueued)
    }

    /// The commands of the application's transactions since this was last asked.
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
    Event::new("t.x", "X", "thing", "1")
}

#[tokio::test]
async fn a_new_event_is_one_command() {
    let Some(application) = Application::new().await else {
        return;
    };
    assert_eq!(application.enqueue(&event()).await.unwrap(), Enqueued::New);
    let first = ["aggregate", "insert", "commitTransaction"];
    assert_eq!(application.commands(), first, "whether there is an outbox");
    assert_eq!(application.enqueue(&event()).await.unwrap(), Enqueued::New);
    assert_eq!(application.commands(), ["insert", "commitTransaction"]);
    let given = event().id(uuid::Uuid::now_v7());
    assert_eq!(application.enqueue(&given).await.unwrap(), Enqueued::New);
    assert_eq!(application.commands(), first, "it may be there already");
}

#[tokio::test]
async fn an_event_written_again_is_told_as_a_duplicate_and_ends_no_transaction() {
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

#[tokio::test]
async fn who_gave_away_an_unused_id_loses_the_transaction_once_and_no_event() {
    let Some(application) = Application::new().await else {
        return;
    };
    let event = event();
    let same = Event::new("t.y", "Y", "thing", "2").id(event.id);
    assert_eq!(application.enqueue(&same).await.unwrap(), Enqueued::New);
    let error = application.enqueue(&event).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Database(_)), "{error}");
    assert_eq!(application.enqueue(&event).await.unwrap(), Enqueued::Duplicate);
    assert_eq!(application.stored().await, 1);
}

#[tokio::test]
async fn what_is_known_of_an_outbox_is_renewed_outside_of_transactions() {
    let Some(application) = Application::new().await else {
        return;
    };
    application.enqueue(&event()).await.unwrap();
    application.commands();
    let full = Class {
        name: "full".into(),
        topics: Vec::new(),
        limit: Limit {
            soft: None,
            hard: Some(1),
            max_delay: Duration::ZERO,
        },
    };
    application
        .harness
        .store
        .gauge
        .set_classes(&[full])
        .await
        .unwrap();
    let refused = async {
        loop {
            match application.enqueue(&event()).await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(EnqueueError::Busy { .. }) => return,
                Err(other) => panic!("{other}"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, refused).await.unwrap();
    let looks = application.commands();
    assert!(!looks.contains(&"aggregate".to_owned()), "{looks:?}");
}
