//! Many clients follow the stream while the relay is killed and started again.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::{Event, Outbox};
use pillarbox_testkit::{servers::free_port, torture::Campaign, wait};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    task::JoinSet,
    time::Instant,
};

use super::harness::{PATIENCE, STREAM, Scene};

const PROJECTS: u64 = 20;
const USERS: u64 = 100;
const KEYS: u64 = 1_000;
/// The relay's memory, with 2,000 clients.
const MEMORY_MAX: u64 = 300 * 1024 * 1024;

struct Size {
    clients: u64,
    /// In each 20 ms.
    events: u64,
    seconds: u64,
}

/// What a client follows. Three of four follow a user, the others a whole project.
#[derive(Clone, Copy)]
enum Wanted {
    User(u64),
    Project(u64),
}

impl Wanted {
    fn of(client: u64) -> Self {
        match client % 4 {
            0 => Self::Project(client / 4 % PROJECTS),
            _ => Self::User(client % USERS),
        }
    }

    fn query(self) -> String {
        match self {
            Self::User(user) => format!("user_id=u-{user}"),
            Self::Project(project) => format!("project_id=p-{project}"),
        }
    }

    fn has(self, number: u64) -> bool {
        match self {
            Self::User(user) => number % USERS == user,
            Self::Project(project) => number % PROJECTS == project,
        }
    }
}

fn numbered(number: u64) -> Event {
    Event::to("orders.placed")
        .event_type("Placed")
        .aggregate("order", format!("key-{}", number % KEYS))
        .project_id(format!("p-{}", number % PROJECTS))
        .user_id(format!("u-{}", number % USERS))
        .json(&json!({ "n": number, "text": "x".repeat(200) }))
        .unwrap()
}

/// Writes events at a steady rate. Returns how many.
async fn write(pool: PgPool, size: &Size) -> u64 {
    let outbox = Outbox::default();
    let mut next = Instant::now();
    let rounds = size.seconds * 50;
    for round in 0..rounds {
        let events: Vec<_> = (round * size.events..(round + 1) * size.events)
            .map(numbered)
            .collect();
        let mut tx = pool.begin().await.unwrap();
        outbox.enqueue_all(&mut tx, &events).await.unwrap();
        tx.commit().await.unwrap();
        next += Duration::from_millis(20);
        tokio::time::sleep_until(next).await;
    }
    rounds * size.events
}

/// What a client has seen.
#[derive(Default)]
struct Seen {
    position: i64,
    numbers: Vec<u64>,
    connections: u64,
}

/// What all clients share.
struct Shared {
    address: String,
    over: AtomicBool,
    seen: AtomicU64,
    connected: AtomicU64,
}

/// Follows until the test is over, and connects again whenever the connection ends.
async fn follow(wanted: Wanted, shared: Arc<Shared>) -> Seen {
    let mut seen = Seen::default();
    while !shared.over.load(Ordering::Relaxed) {
        if let Ok(stream) = TcpStream::connect(&shared.address).await {
            read(stream, wanted, &mut seen, &shared).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    seen
}

/// Reads one answer to its end. A line that was cut off is read again with the next connection.
async fn read(mut stream: TcpStream, wanted: Wanted, seen: &mut Seen, shared: &Shared) {
    let request = format!(
        "GET /v1/stream?after={}&{} HTTP/1.0\r\nHost: localhost\r\n\r\n",
        seen.position,
        wanted.query()
    );
    if stream.write_all(request.as_bytes()).await.is_err() {
        return;
    }
    let mut lines = BufReader::with_capacity(2_048, stream).lines();
    let mut in_body = false;
    loop {
        let line = tokio::time::timeout(Duration::from_secs(1), lines.next_line()).await;
        let line = match line {
            Err(_) if shared.over.load(Ordering::Relaxed) => return,
            Err(_) => continue,
            Ok(Ok(Some(line))) => line,
            Ok(_) => return,
        };
        if !in_body {
            assert!(!line.starts_with("HTTP/") || line.contains(" 200 "), "{line}");
            in_body = line.is_empty();
            if in_body {
                seen.connections += 1;
                shared.connected.fetch_add(1, Ordering::Relaxed);
            }
            continue;
        }
        let Ok(line) = serde_json::from_str::<Value>(&line) else {
            return;
        };
        let position = line["position"].as_i64().unwrap();
        if let Some(number) = line["payload"]["n"].as_u64() {
            assert!(position > seen.position, "{position} after {}", seen.position);
            seen.numbers.push(number);
            shared.seen.fetch_add(1, Ordering::Relaxed);
        }
        assert!(line["end"].is_null() || line["end"] == "closed", "{line}");
        seen.position = position;
    }
}

fn check(client: u64, wanted: Wanted, seen: &Seen, written: u64) {
    let numbers: HashSet<u64> = seen.numbers.iter().copied().collect();
    assert_eq!(
        numbers.len(),
        seen.numbers.len(),
        "client {client} saw an event twice"
    );
    let expected: HashSet<u64> = (0..written).filter(|number| wanted.has(*number)).collect();
    assert_eq!(numbers.len(), expected.len(), "client {client}");
    assert!(numbers == expected, "client {client} saw events of others");
    let mut last = HashMap::new();
    for number in &seen.numbers {
        let before = last.insert(number % KEYS, *number);
        assert!(
            before < Some(*number),
            "client {client}: {number} after {before:?}"
        );
    }
    assert!(seen.connections > 1, "client {client} was never cut off");
}

/// As a campaign: 2,000 clients, 500 events per second.
#[tokio::test(flavor = "multi_thread")]
async fn torture_stream_clients_see_each_event_once_across_a_restart() {
    let campaign = Campaign::begin("stream_clients_see_each_event_once_across_a_restart");
    let started = Scene::start(|config| {
        config.routes = format!("[{{ topic: 'orders.>', sink: events, stream: {STREAM}, event_log: true }}]");
    });
    let Some((scene, _nats)) = started.await else {
        return;
    };
    let size = match campaign.is_short() {
        true => Size {
            clients: 100,
            events: 4,
            seconds: 4,
        },
        false => Size {
            clients: 2_000,
            events: 10,
            seconds: campaign.budget().as_secs(),
        },
    };
    let shared = Arc::new(Shared {
        address: format!("127.0.0.1:{}", free_port()),
        over: AtomicBool::new(false),
        seen: AtomicU64::new(0),
        connected: AtomicU64::new(0),
    });
    let first = scene.serving_at("first", &shared.address).await;
    let mut clients = JoinSet::new();
    for client in 0..size.clients {
        let (wanted, shared) = (Wanted::of(client), shared.clone());
        clients.spawn(async move { (client, wanted, follow(wanted, shared).await) });
    }
    wait::until("every client is connected", async || {
        shared.connected.load(Ordering::Relaxed) == size.clients
    })
    .await;

    let half = Duration::from_millis(size.seconds * 500);
    let pool = scene.pool.clone();
    let writing = write(pool, &size);
    let restart = async {
        tokio::time::sleep(half).await;
        let memory = first.memory().1;
        first.kill().await;
        (memory, scene.serving_at("second", &shared.address).await)
    };
    let (written, (memory, second)) = tokio::join!(writing, restart);
    scene.settled().await;
    let expected: u64 = (0..size.clients)
        .map(|client| {
            (0..written)
                .filter(|number| Wanted::of(client).has(*number))
                .count() as u64
        })
        .sum();
    let deadline = Instant::now() + PATIENCE;
    while shared.seen.load(Ordering::Relaxed) < expected && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // Whatever comes too often comes now.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let memory = memory.max(second.memory().1);
    shared.over.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        let (client, wanted, seen) = client.unwrap();
        check(client, wanted, &seen, written);
    }
    println!(
        "{} clients, {written} events, {expected} lines; the relay's memory: {} MiB at most",
        size.clients,
        memory / 1024 / 1024
    );
    assert!(memory < MEMORY_MAX, "{memory} bytes");
    second.stop().await;
}
