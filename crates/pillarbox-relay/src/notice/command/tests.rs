use std::time::Instant;

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
async fn its_exit_code_and_last_words_are_passed_on() {
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
