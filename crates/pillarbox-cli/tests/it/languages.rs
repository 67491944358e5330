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
    io::{AsyncReadExt, AsyncWriteExt},
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

async fn number(database: &str, sql: &str) -> i64 {
    let pool = PgPool::connect(database).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
        .fetch_one(&pool)
        .await
        .unwrap()
}

async fn execute(database: &str, sql: &str) {
    let pool = PgPool::connect(database).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
        .execute(&pool)
        .await
        .unwrap();
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

    /// What a busy relay would have written: no event more. The service passes it on, writes nothing, and works again after.
    async fn feels_the_pressure(&self, path: &str, headers: &str, body: &str) {
        let busy = "insert into outbox_events_pressure (place, class, topics, hard, max_delay_ms) values (0, 'all', '', 0, 0)";
        execute(self.database, busy).await;
        let (status, answer) = self.post(path, headers, body).await;
        assert_eq!(status, 429, "{answer}");
        // As nobody has measured how fast it drains.
        assert!(
            answer.to_lowercase().contains("\r\nretry-after: 5\r\n"),
            "{answer}"
        );
        assert_eq!(
            number(self.database, "select count(*) from outbox_events").await,
            0
        );
        execute(self.database, "delete from outbox_events_pressure").await;
        let (status, answer) = self.post(path, headers, body).await;
        assert_eq!(status, 201, "{answer}");
        assert_eq!(
            number(self.database, "select count(*) from outbox_events").await,
            1
        );
    }
}
