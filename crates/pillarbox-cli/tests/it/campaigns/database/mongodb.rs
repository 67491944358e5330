//! MongoDB with one member: shut down, killed, frozen; connections closed.

use std::{collections::HashSet, path::Path, sync::Arc};

use mongodb::{
    Client, Collection,
    bson::{Document, doc},
};
use pillarbox::EventId;
use pillarbox_testkit::{
    ledger::Ledger,
    proxy::Proxy,
    servers::Mongo,
    storm::{Source, Storm},
};
use rand::RngExt;
use tokio::{sync::Mutex, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Charges, Database};
use crate::campaigns::{intersection, producers::mongodb as producers, until_answered};

pub(in crate::campaigns) struct MongoDb {
    server: Arc<Mutex<Mongo>>,
    port: u16,
    /// The application's client, directly connected to the server.
    client: Client,
}

impl Database for MongoDb {
    const NAME: &'static str = "MongoDB";
    const NOT_COVERED: &'static [&'static str] = &[
        "MongoDB that elects another primary (a campaign of its own does: another_member_becomes_the_primary_under_load)",
    ];

    async fn start(_folder: &Path) -> Option<Self> {
        let server = Mongo::start().await?;
        let client = Client::with_uri_str(server.url_of("shop")).await.unwrap();
        Some(Self {
            port: server.ports()[0],
            server: Arc::new(Mutex::new(server)),
            client,
        })
    }

    async fn version(&self) -> String {
        let answer = until_answered(async || {
            self.client
                .database("admin")
                .run_command(doc! {"buildInfo": 1})
                .await
        })
        .await;
        format!("MongoDB {}", answer.get_str("version").unwrap())
    }

    /// With a direct connection: the addresses of the members would bypass the proxy.
    async fn link(&self) -> (Option<Arc<Proxy>>, String) {
        let url = format!("mongodb://127.0.0.1:{}/shop?directConnection=true", self.port);
        let proxy = Proxy::in_front_of(&url).await;
        let url = proxy.through(&url);
        (Some(Arc::new(proxy)), url)
    }

    async fn prepare(&self) {
        self.client
            .database("shop")
            .create_collection("counters")
            .await
            .unwrap();
    }

    fn produce(&self, ledger: &Arc<Ledger>, seed: u64, stop: CancellationToken) -> JoinSet<()> {
        producers::start(&self.client, ledger, seed, &stop)
    }

    fn fail(&self, storm: &mut Storm) {
        let server = Arc::clone(&self.server);
        storm.add(|source| fail_server(server, source));
        let client = self.client.clone();
        storm.add(|source| close_connections(client, source));
    }

    async fn which_exist(&self, ids: &[EventId]) -> HashSet<EventId> {
        let mut found = Vec::new();
        for id in ids {
            let there = self.count(doc! {"event_id": id.to_string()}).await;
            found.extend((there > 0).then_some(id.clone()));
        }
        intersection(ids, found)
    }

    async fn unsettled(&self) -> u64 {
        self.count(doc! {"status": {"$nin": ["published", "dead"]}}).await
    }

    async fn charges(&self) -> Charges {
        let charged = doc! {"retry_count": {"$ne": 0}};
        let events: Collection<Document> = self.client.database("shop").collection("outbox_events");
        let errors = until_answered(async || events.distinct("last_error", charged.clone()).await).await;
        Charges {
            dead: self.count(doc! {"status": "dead"}).await,
            charged: self.count(charged).await,
            errors: errors.iter().take(5).map(ToString::to_string).collect(),
        }
    }
}

impl MongoDb {
    async fn count(&self, filter: Document) -> u64 {
        let events: Collection<Document> = self.client.database("shop").collection("outbox_events");
        until_answered(async || events.count_documents(filter.clone()).await).await
    }
}

async fn fail_server(server: Arc<Mutex<Mongo>>, mut source: Source) {
    while source.next(2_000..6_000).await {
        let mut server = server.lock().await;
        match source.rng().random_range(0..3) {
            0 => {
                let _lasting = source.begin("database restarted");
                server.stop(0).await;
                source.last(0..1_000).await;
                server.start_again(0).await;
            }
            1 => {
                let _lasting = source.begin("database crashed");
                server.kill(0).await;
                source.last(0..1_000).await;
                server.start_again(0).await;
            }
            _ => {
                let _lasting = source.begin("database frozen");
                server.pause(0).await;
                source.last(200..4_000).await;
                server.resume(0).await;
            }
        }
    }
}

/// The server closes the connection at the next commands, also of the application.
async fn close_connections(client: Client, mut source: Source) {
    let commands = [
        "insert",
        "update",
        "find",
        "aggregate",
        "commitTransaction",
        "findAndModify",
    ];
    while source.next(1_000..4_000).await {
        let times = source.rng().random_range(1..20);
        let _lasting = source.begin("database connections closed");
        let fail = doc! {
            "configureFailPoint": "failCommand",
            "mode": {"times": times},
            "data": {"failCommands": &commands[..], "closeConnection": true},
        };
        // The server may be away.
        let _ = client.database("admin").run_command(fail).await;
        source.last(100..1_500).await;
        let mend = doc! {"configureFailPoint": "failCommand", "mode": "off"};
        until_answered(async || client.database("admin").run_command(mend.clone()).await).await;
    }
}
