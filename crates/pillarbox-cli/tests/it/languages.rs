//! The examples in other languages, run for real: each tells its story, compares what was committed with what arrived, and
//! says by its exit code what it found. What they wrote is looked at here once more.

mod python;
mod typescript;

use std::{
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use sqlx::{AssertSqlSafe, PgPool};
use tokio::process::Command;

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
