//! Dead letters at a terminal: a bulk action asks for confirmation. `script` provides the terminal.

use super::{
    dead_http::{Served, configure, enqueue, lost},
    *,
};

/// Three dead letters and no relay. `None`: `script` is not installed, or it can't create a terminal.
fn dead_letters() -> Option<TempDir> {
    let works = |arguments: &[&str]| {
        let output = Command::new("script").args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !works(&["--version"]) {
        return servers::skip("script (of util-linux)");
    }
    if !works(&["--quiet", "--return", "--command", "true", "/dev/null"]) {
        return servers::lacking("pseudo terminals (devpts)");
    }
    let folder = migrated();
    configure(folder.path(), "");
    enqueue(folder.path(), &(lost(1, "a") + &lost(2, "a") + &lost(3, "b")));
    let served = Served::start(folder.path(), &["run"]);
    served.until_open(3);
    let (status, _) = served.relay.stop();
    assert_eq!(status, 0);
    Some(folder)
}

/// Returns the exit code and the output of the terminal.
fn at_a_terminal(folder: &Path, arguments: &str, typed: &str) -> (i32, String) {
    let command = format!("'{}' {arguments}", env!("CARGO_BIN_EXE_pillarbox"));
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .current_dir(folder)
        .env_remove("PILLARBOX_CONFIG")
        .env_remove("PILLARBOX_LOG")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (code(&output), stdout(&output))
}

fn open(folder: &Path) -> usize {
    let listed = json(&run(folder, &["--json", "dead", "list", "--letters"]));
    listed["letters"].as_array().unwrap().len()
}

#[test]
fn a_person_is_asked_before_many_are_touched_and_only_a_yes_is_one() {
    let Some(folder) = dead_letters() else {
        return;
    };
    let folder = folder.path();
    let discard = "dead discard --all --why 'a test'";
    for no in ["n\n", "\n", "what?\n", "yess\n", ""] {
        let (code, seen) = at_a_terminal(folder, discard, no);
        assert!(
            seen.contains("To be discarded: 3 events of 2 keys"),
            "{no:?}: {seen}"
        );
        assert!(
            seen.contains("3 events will be discarded. Continue? [y/N]"),
            "{no:?}: {seen}"
        );
        assert!(seen.contains("Nothing was changed."), "{no:?}: {seen}");
        assert_eq!((code, open(folder)), (1, 3), "{no:?}: {seen}");
    }

    let (code, seen) = at_a_terminal(folder, "dead replay --topic 'lost.>'", "n\n");
    assert!(
        seen.contains("3 events will be replayed. Continue? [y/N]"),
        "{seen}"
    );
    assert_eq!((code, open(folder)), (1, 3), "{seen}");

    // One event given by its id is not a bulk action.
    let first = "018f0000-0000-7000-8000-000000000001";
    let (code, seen) = at_a_terminal(folder, &format!("dead discard {first} --why x"), "");
    assert!(!seen.contains("[y/N]"), "{seen}");
    assert_eq!((code, open(folder)), (0, 2), "{seen}");

    let (code, seen) = at_a_terminal(folder, discard, "y\n");
    assert!(
        seen.contains("2 events will be discarded. Continue? [y/N]"),
        "{seen}"
    );
    assert!(seen.contains("2 discarded."), "{seen}");
    assert_eq!((code, open(folder)), (0, 0), "{seen}");
}

#[test]
fn yes_on_the_command_line_skips_the_question() {
    let Some(folder) = dead_letters() else {
        return;
    };
    let (code, seen) = at_a_terminal(folder.path(), "dead replay --all --yes", "");
    assert!(!seen.contains("[y/N]") && seen.contains("3 replayed."), "{seen}");
    assert_eq!((code, open(folder.path())), (0, 0), "{seen}");
}
