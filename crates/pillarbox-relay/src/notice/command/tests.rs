use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use super::*;

fn shell(script: &str, timeout: Duration) -> CommandChannel {
    let command = ["sh", "-c", script].map(str::to_owned);
    CommandChannel::open(&command, timeout).unwrap()
}

async fn tell(script: &str, timeout: Duration) -> Result<(), String> {
    let channel = shell(script, timeout);
    let told = channel.tell(Uuid::nil(), r#"{"type":"x"}"#).await;
    told.map_err(|error| error.to_string())
}

const LONG: Duration = Duration::from_secs(30);

#[tokio::test]
async fn the_notice_is_on_its_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("told");
    tell(&format!("cat > {}", file.display()), LONG).await.unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), r#"{"type":"x"}"#);
}

#[tokio::test]
async fn its_exit_code_and_last_output_are_reported() {
    let error = tell(
        "echo first >&2; printf 'no \\033[1mmodem\\n\\n' >&2; exit 3",
        LONG,
    )
    .await
    .unwrap_err();
    assert!(error.contains("exit status: 3: no [1mmodem"), "{error}");
    let error = tell("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", LONG)
        .await
        .unwrap_err();
    assert!(error.len() < 300, "{}", error.len());
    tell("exit 0", LONG).await.expect("it need not read");
    let missing = CommandChannel::open(&["/no/such/program".to_owned()], LONG).unwrap();
    assert!(missing.tell(Uuid::nil(), "{}").await.is_err());
}

#[tokio::test]
async fn one_that_does_not_end_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 600", pid.display());
    let started = Instant::now();
    let error = tell(&script, Duration::from_millis(500)).await.unwrap_err();
    assert!(error.contains("was killed"), "{error}");
    assert!(started.elapsed() < LONG);
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
}

#[tokio::test]
async fn one_that_leaves_a_child_behind_is_not_waited_for() {
    let started = Instant::now();
    assert!(tell("(sleep 20) & exit 1", LONG).await.is_err());
    assert!(started.elapsed() < Duration::from_secs(15));
}

/// A program that starts a child and waits for it, and the file to which the child writes its process id.
fn with_a_child(folder: &Path) -> (String, PathBuf) {
    let pid = folder.join("pid");
    let script = format!(
        "sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & wait",
        pid.display()
    );
    (script, pid)
}

/// Waits until the process whose id is in this file has ended. A zombie counts as ended: nothing here waits for it.
async fn ended(pid: &Path) -> bool {
    let pid = std::fs::read_to_string(pid).unwrap();
    let stat = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        match std::fs::read_to_string(&stat) {
            Ok(stat) if !stat.contains(") Z ") => tokio::time::sleep(Duration::from_millis(10)).await,
            _ => return true,
        }
    }
    false
}

#[tokio::test]
async fn its_children_are_killed_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (script, pid) = with_a_child(folder.path());
    let error = tell(&script, Duration::from_secs(2)).await.unwrap_err();
    assert!(error.contains("was killed"), "{error}");
    assert!(ended(&pid).await, "its child survived");
}

#[tokio::test]
async fn its_children_are_killed_when_the_relay_stops() {
    let folder = tempfile::tempdir().unwrap();
    let (script, pid) = with_a_child(folder.path());
    let telling = tokio::spawn(async move { tell(&script, LONG).await });
    let start = Instant::now();
    while !pid.exists() {
        assert!(start.elapsed() < LONG, "it starts");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    telling.abort();
    assert!(telling.await.is_err());
    assert!(ended(&pid).await, "its child survived");
}
