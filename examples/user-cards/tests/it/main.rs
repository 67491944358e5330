//! The example's story, as in `cargo xtask example user-cards --once`, on a real MongoDB and a real Kafka.

#![allow(clippy::unwrap_used, reason = "a test that can't go on has failed")]

use std::{path::Path, process::Stdio, time::Duration};

use pillarbox_testkit::servers::{Kafka, Mongo};
use tokio::process::Command;

const PATIENCE: Duration = Duration::from_secs(300);

/// Users are created and changed, one transaction is rolled back, Pillarbox and the projection are killed
/// half-way. The program itself compares the topic and the cards with what was committed, and its exit code
/// is the verdict.
#[tokio::test(flavor = "multi_thread")]
async fn every_committed_change_is_on_its_card_once() {
    let Some(mongo) = Mongo::start().await else { return };
    let Some(kafka) = Kafka::start().await else { return };
    let program = Path::new(env!("CARGO_BIN_EXE_user-cards"));
    let pillarbox = program.with_file_name("pillarbox");
    assert!(
        pillarbox.exists(),
        "{} is not there: run `cargo build` first, or `cargo xtask test`",
        pillarbox.display()
    );
    let story = Command::new(program)
        .args(["story", "--once", "--changes", "60"])
        .args(["--mongodb", &mongo.url_of("users"), "--kafka", &kafka.url()])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, story).await.unwrap().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Five created and sixty changed; nothing of the one that was rolled back.
    assert!(
        told.contains("65 events were committed and all of them are in Kafka"),
        "{told}"
    );
    assert!(told.contains("5 cards show their users"), "{told}");
}
