//! Configuration and help.

use std::process::Stdio;

use super::*;

#[test]
fn an_unknown_key_names_the_nearest_and_every_command_refuses_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("pillarbox.yaml"),
        "outbox:\n  publisher:\n    batch_sise: 5\n",
    )
    .unwrap();
    let output = run(folder.path(), &["config", "check"]);
    assert_eq!(code(&output), 1);
    assert!(
        stderr(&output).contains("pillarbox.yaml:3:")
            && stderr(&output).contains("Did you mean `batch_size`?")
    );
    assert_eq!(
        json(&run(folder.path(), &["config", "check", "--json"]))["valid"],
        false
    );
    for command in ["run", "status", "migrate", "tail"] {
        let output = run(folder.path(), &[command]);
        assert_eq!(code(&output), 2, "{command}");
        assert!(
            stderr(&output).contains("Did you mean `batch_size`?"),
            "{command}"
        );
    }
}

#[test]
fn config_check_shows_the_settings_in_force_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let output = pillarbox(folder.path())
        .args(["config", "check"])
        .env(
            "PILLARBOX_OUTBOX__DATABASE__URL",
            "postgres://app:geheim@127.0.0.1/shop",
        )
        .env("PILLARBOX_OUTBOX__PUBLISHER__BATCH_SIZE", "123")
        .output()
        .unwrap();
    let text = stdout(&output);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        text.contains("batch_size: 123") && text.contains("app:***@") && !text.contains("geheim"),
        "{text}"
    );
    assert_eq!(json(&run(folder.path(), &["config", "schema"]))["type"], "object");
}

#[test]
fn a_closed_pipe_is_a_normal_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = pillarbox(folder.path())
        .args(["config", "schema"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output).as_str()), (0, ""));
}

#[test]
fn every_command_teaches_by_example() {
    let folder = tempfile::tempdir().unwrap();
    for command in [
        "demo",
        "run",
        "migrate",
        "enqueue",
        "status",
        "tail",
        "streams",
        "config",
        "completions",
        #[cfg(feature = "bench")]
        "bench",
    ] {
        let help = stdout(&run(folder.path(), &[command, "--help"]));
        assert!(
            help.contains(&format!("pillarbox {command}")) && help.contains("\n  pillarbox "),
            "{command}: {help}"
        );
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            stdout(&run(folder.path(), &["completions", shell])).contains("enqueue"),
            "{shell}"
        );
    }
    let output = run(folder.path(), &["streams", "check"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("outbox.streams"));
}
