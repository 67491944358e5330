//! Runs the examples in other languages. Each one compares what was committed with what arrived, and reports
//! the result by its exit code. These tests also check what the examples wrote.

mod python;
mod typescript;

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use pillarbox_testkit::{
    servers,
    wait::{until, until_ok_within},
};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::Command,
};

const PATIENCE: Duration = Duration::from_secs(120);

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(path)
}

/// Runs a program to its end with this database.
async fn run(command: &mut Command, database: &str) -> Output {
    let ended = command
        .env("PILLARBOX_OUTBOX__DATABASE__URL", database)
        .env_remove("PILLARBOX_LOG")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap()
}

/// What an example printed. It must have succeeded.
fn told(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    said
}

/// Starts an example that runs for ever and kills it when everything in it runs. The processes it started
/// must end too.
async fn nothing_outlives(story: &mut Command, database: &str) {
    let mut story = story
        .env("PILLARBOX_OUTBOX__DATABASE__URL", database)
        .env_remove("PILLARBOX_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(story.stdout.take().unwrap()).lines();
    let runs = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.starts_with("The service: ") {
                return;
            }
        }
        panic!("the example ended");
    };
    tokio::time::timeout(PATIENCE, runs).await.unwrap();
    let others = "select count(*) from pg_stat_activity where datname = current_database() and application_name <> 'test'";
    let database = format!("{database}?application_name=test");
    assert!(
        number(&database, others).await >= 2,
        "the service and the relay must be connected"
    );
    story.kill().await.unwrap();
    until("the service and the relay end", async || {
        number(&database, others).await == 0
    })
    .await;
}

async fn number(database: &str, sql: &str) -> i64 {
    let pool = PgPool::connect(database).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
        .fetch_one(&pool)
        .await
        .unwrap()
}

async fn migrate(database: &str) {
    let mut migrate = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
    told(&run(migrate.arg("migrate"), database).await);
}

/// A service that answers at this address. No relay runs beside it.
struct Service<'a> {
    database: &'a str,
    address: String,
    process: tokio::process::Child,
}

impl<'a> Service<'a> {
    /// Starts the service and waits until it listens.
    async fn start(command: &mut Command, database: &'a str, port: u16) -> Self {
        let child = command
            .env("PILLARBOX_OUTBOX__DATABASE__URL", database)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let address = format!("127.0.0.1:{port}");
        until_ok_within(PATIENCE, async || TcpStream::connect(&address).await).await;
        Self {
            database,
            address,
            process: child,
        }
    }

    /// Sends SIGTERM, as a supervisor would, so that the service can clean up.
    async fn end(mut self) {
        servers::signal("TERM", &[self.process.id().unwrap()]).unwrap();
        tokio::time::timeout(PATIENCE, self.process.wait())
            .await
            .unwrap()
            .unwrap();
    }

    /// Returns the status and the whole answer.
    async fn post(&self, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    /// Pauses the relay and sends requests until one is refused. Then the relay continues, and requests are
    /// accepted again. Returns how many were accepted in total.
    async fn feels_the_pressure(&self, path: &str, headers: &str, body: &str) -> i64 {
        let relay = Relay::start(self.database).await;
        servers::signal("STOP", &[relay.process.id().unwrap()]).unwrap();
        let mut taken = 0;
        let refused = loop {
            let (status, answer) = self.post(path, headers, body).await;
            if status == 429 {
                break answer.to_lowercase();
            }
            assert_eq!(status, 201, "{answer}");
            taken += 1;
            assert!(taken <= HARD, "more events are pending than the limit allows");
        };
        // PostgreSQL can't distinguish a sequence that was never used from one at its first value.
        assert!(taken >= HARD - 1, "{taken}: {refused}");
        let seconds = refused
            .lines()
            .find_map(|line| line.strip_prefix("retry-after: "));
        let seconds: u64 = seconds.and_then(|seconds| seconds.trim().parse().ok()).unwrap();
        assert!((1..=60).contains(&seconds), "{refused}");
        let written = "select count(*) from outbox_events where status = 'pending'";
        assert_eq!(number(self.database, written).await, taken, "{refused}");

        servers::signal("CONT", &[relay.process.id().unwrap()]).unwrap();
        until("all are delivered", async || {
            number(self.database, written).await == 0
        })
        .await;
        // The relay's next figures end the refusal.
        until("one more event is accepted", async || {
            let (status, answer) = self.post(path, headers, body).await;
            assert!(matches!(status, 201 | 429), "{answer}");
            status == 201
        })
        .await;
        taken + 1
    }
}

/// The hard limit: how many events may be pending.
const HARD: i64 = 5;

/// A relay with a backpressure limit and a sink that keeps nothing.
struct Relay {
    process: tokio::process::Child,
    _folder: tempfile::TempDir,
}

impl Relay {
    /// Starts the relay and waits until producers can see its figures.
    async fn start(database: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "outbox:\n  sinks: {{ out: {{ url: \"null:\" }} }}\n  backpressure: {{ classes: [{{ name: all, hard: {HARD} }}] }}\n"
        );
        std::fs::write(folder.path().join("pillarbox.yaml"), config).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_pillarbox"))
            .args(["run", "--no-http"])
            .current_dir(folder.path())
            .env("PILLARBOX_OUTBOX__DATABASE__URL", database)
            .env_remove("PILLARBOX_CONFIG")
            .env_remove("PILLARBOX_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let figures = "select count(*) from outbox_events_pressure where isfinite(measured_at)";
        until("there are figures", async || number(database, figures).await > 0).await;
        Self {
            process,
            _folder: folder,
        }
    }
}
