//! The examples in other languages, run for real: each tells its story, compares what was committed with what arrived, and
//! says by its exit code what it found. What they wrote is looked at here once more.

mod python;
mod typescript;

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use pillarbox_testkit::servers;
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

/// Runs a program to its end beside a database.
async fn run(command: &mut Command, database: &str) -> Output {
    let ended = command
        .env("PILLARBOX_OUTBOX__DATABASE__URL", database)
        .env_remove("PILLARBOX_LOG")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap()
}

/// What a story told, which must have ended well.
fn told(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    said
}

/// Starts a story that goes on, and kills it when all of it runs: what it started must end too.
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
        panic!("the story ended");
    };
    tokio::time::timeout(PATIENCE, runs).await.unwrap();
    let others = "select count(*) from pg_stat_activity where datname = current_database() and application_name <> 'test'";
    let database = format!("{database}?application_name=test");
    assert!(number(&database, others).await >= 2, "the service and the relay");
    story.kill().await.unwrap();
    let ended = async {
        while number(&database, others).await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
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

/// A service that answers at this address, with no relay beside it.
struct Service<'a> {
    database: &'a str,
    address: String,
    process: tokio::process::Child,
}

impl<'a> Service<'a> {
    /// Waits until it listens.
    async fn start(command: &mut Command, database: &'a str, port: u16) -> Self {
        let child = command
            .env("PILLARBOX_OUTBOX__DATABASE__URL", database)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let address = format!("127.0.0.1:{port}");
        let listens = async {
            while TcpStream::connect(&address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, listens).await.unwrap();
        Self {
            database,
            address,
            process: child,
        }
    }

    /// As a supervisor would: it may clear up.
    async fn end(mut self) {
        servers::signal("TERM", &[self.process.id().unwrap()]).unwrap();
        tokio::time::timeout(PATIENCE, self.process.wait())
            .await
            .unwrap()
            .unwrap();
    }

    /// The status, and the whole answer.
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

    /// Sends requests while the relay does not move, until one is refused; and goes on when the relay does. How many were taken.
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
            assert!(taken <= HARD, "more wait than may");
        };
        // PostgreSQL can't tell a seq that was never taken from the first.
        assert!(taken >= HARD - 1, "{taken}: {refused}");
        let seconds = refused
            .lines()
            .find_map(|line| line.strip_prefix("retry-after: "));
        let seconds: u64 = seconds.and_then(|seconds| seconds.trim().parse().ok()).unwrap();
        assert!((1..=60).contains(&seconds), "{refused}");
        let written = "select count(*) from outbox_events where status = 'pending'";
        assert_eq!(number(self.database, written).await, taken, "{refused}");

        servers::signal("CONT", &[relay.process.id().unwrap()]).unwrap();
        let delivered = async {
            while number(self.database, written).await > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // The relay's next figures say so.
            loop {
                let (status, answer) = self.post(path, headers, body).await;
                if status == 201 {
                    return;
                }
                assert_eq!(status, 429, "{answer}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, delivered).await.unwrap();
        taken + 1
    }
}

/// So many events may wait.
const HARD: i64 = 5;

/// A relay that limits what may wait, and delivers to nobody.
struct Relay {
    process: tokio::process::Child,
    _folder: tempfile::TempDir,
}

impl Relay {
    /// Waits until producers can see its figures.
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
        let figures = async {
            let sql = "select count(*) from outbox_events_pressure where isfinite(measured_at)";
            while number(database, sql).await == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, figures).await.unwrap();
        Self {
            process,
            _folder: folder,
        }
    }
}
