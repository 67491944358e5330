//! Faults of the server while a relay works: errors in each command, lost connections, elections, `kill -9`.
//! No event is lost, each key keeps its order, and the event log has each event once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mongodb::bson::{Document, doc};
use pillarbox_relay::engine::EngineHandle;
use pillarbox_testkit::{
    ledger::Ledger,
    servers::{Mongo, MongoOptions},
};

use super::{
    event_log::assert_every_event_is_logged,
    harness::MongoHarness,
    shop::{Habits, Noting, delivered, noting, produce, relay},
};

const HABITS: Habits = Habits {
    keys: 50,
    given_up: 5,
    held_open: 5,
    held_open_max: Duration::from_millis(500),
};

/// How long to wait until a command has failed often enough.
const PATIENCE: Duration = Duration::from_secs(5);

/// Producers and two relays.
struct Work {
    ledger: Arc<Ledger>,
    sink: Arc<Noting>,
    harness: MongoHarness,
    stop: Arc<AtomicBool>,
    relays: Vec<EngineHandle>,
}

impl Work {
    async fn new(server: &Mongo) -> Self {
        let harness = MongoHarness::new(server).await;
        let ledger = Arc::new(Ledger::new());
        let sink = noting(&ledger);
        let relays = vec![relay(&harness.url, &sink), relay(&harness.url, &sink)];
        Self {
            ledger,
            sink,
            harness,
            stop: Arc::default(),
            relays,
        }
    }

    fn produce(&self, writers: u64, transactions: usize) -> Vec<tokio::task::JoinHandle<()>> {
        let writer = |seed| {
            let client = self.harness.application.clone();
            let (ledger, stop) = (self.ledger.clone(), self.stop.clone());
            tokio::spawn(produce(client, ledger, HABITS, transactions, stop, seed))
        };
        (0..writers).map(writer).collect()
    }

    async fn end(mut self, writers: Vec<tokio::task::JoinHandle<()>>) {
        for writer in writers {
            writer.await.unwrap();
        }
        delivered(&self.ledger).await;
        let verdict = self.ledger.verdict();
        println!("{verdict}");
        for relay in self.relays.drain(..) {
            relay.stop().await.unwrap();
        }
        assert_eq!(self.pending().await, 0, "delivered events must be settled");
        assert_every_event_is_logged(&self.harness).await;
    }

    async fn pending(&self) -> u64 {
        let unsettled = doc! { "status": { "$nin": ["published"] } };
        self.harness.events().count_documents(unsettled).await.unwrap()
    }
}

/// Lets the next two of these commands fail, only for the clients of the relays. Returns how many have failed
/// so far.
async fn fail(server: &Mongo, command: &str, how: &Document) -> i64 {
    let admin = server.direct(0).database("admin");
    let mut data = doc! { "failCommands": [command], "appName": "pillarbox" };
    data.extend(how.clone());
    let on = doc! { "configureFailPoint": "failCommand", "mode": { "times": 2 }, "data": data };
    admin.run_command(on).await.unwrap();
    // The failpoint keeps its count from one use to the next.
    let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
    let start = std::time::Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let status = doc! { "getParameter": 1, "failpoint.failCommand": 1 };
        let status = admin.run_command(status).await.unwrap();
        let point = status.get_document("failpoint.failCommand").unwrap();
        let over = point.get_i32("mode").is_ok_and(|mode| mode == 0);
        if over || start.elapsed() > PATIENCE {
            let answer = admin.run_command(off).await.unwrap();
            return answer
                .get_i64("count")
                .or_else(|_| answer.get_i32("count").map(i64::from))
                .unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_or_a_lost_connection_in_any_command_loses_nothing() {
    let Some(server) = Mongo::start().await else {
        return;
    };
    let work = Work::new(&server).await;
    let writers = work.produce(4, usize::MAX);
    let mut before = 0;
    let transient = ["TransientTransactionError"];
    let ways = [
        doc! { "closeConnection": true },
        // NotWritablePrimary, NoSuchTransaction, MaxTimeMSExpired
        doc! { "errorCode": 10107 },
        doc! { "errorCode": 251, "errorLabels": transient },
        doc! { "errorCode": 50 },
    ];
    // The write is there, but the answer says that it may be lost.
    let in_doubt = [doc! { "writeConcernError": { "code": 64, "errmsg": "waiting timed out" } }];
    for (command, ways) in [
        ("find", &ways[..]),
        ("update", &ways),
        ("aggregate", &ways),
        ("delete", &ways),
        // Entries of the event log, and their positions.
        ("insert", &ways[3..]),
        ("insert", &in_doubt),
        ("findAndModify", &ways[3..]),
        ("commitTransaction", &ways),
        ("hello", &ways),
    ] {
        for how in ways {
            let count = fail(&server, command, how).await;
            println!("{command}, {how}: failed {} times", count - before);
            assert!(count > before, "{command} never failed: the test proves nothing");
            before = count;
        }
    }
    work.stop.store(true, Ordering::Relaxed);
    work.end(writers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_in_a_set_of_three_lose_nothing() {
    let options = MongoOptions {
        members: 3,
        ..MongoOptions::default()
    };
    let Some(server) = Mongo::start_with(options).await else {
        return;
    };
    let work = Work::new(&server).await;
    let writers = work.produce(4, 150);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        let primary = server.direct(server.primary().await);
        let step_down = doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 3, "force": true };
        // The old primary may close the connection before it answers.
        let _ = primary.database("admin").run_command(step_down).await;
        server.primary().await;
    }
    work.end(writers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_server_under_load_loses_nothing() {
    let Some(mut server) = Mongo::start().await else {
        return;
    };
    let work = Work::new(&server).await;
    let writers = work.produce(4, 150);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        server.kill(0).await;
        server.start_again(0).await;
    }
    work.end(writers).await;
}

/// When a relay dies, the other one takes its lanes after the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_dies_is_replaced_by_another() {
    let Some(server) = Mongo::start().await else {
        return;
    };
    let mut work = Work::new(&server).await;
    let writers = work.produce(4, 150);
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        work.relays.remove(0).abort();
        work.relays.push(relay(&work.harness.url, &work.sink));
    }
    work.end(writers).await;
}
