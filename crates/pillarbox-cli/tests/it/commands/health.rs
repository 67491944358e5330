//! `pillarbox health` and `/healthz`: each part turns red and green with a real relay.

use super::{dead_http::Served, *};

fn health(folder: &Path, address: &str, args: &[&str]) -> Output {
    run(folder, &[&["health", "--address", address], args].concat())
}

/// Waits until this part is red because of `problem`.
fn until_red(folder: &Path, address: &str, part: &str, problem: &str) {
    wait::until_ok_blocking(|| {
        let output = health(folder, address, &["--part", part]);
        match code(&output) == 1 && stdout(&output).contains(problem) {
            true => Ok(()),
            false => Err(format!("{part}: {}{}", stdout(&output), stderr(&output))),
        }
    });
    // The whole answer names the part.
    let whole = health(folder, address, &[]);
    assert_eq!(code(&whole), 1, "{}", stdout(&whole));
    assert!(
        stdout(&whole).contains(&format!("{part}: ")),
        "{}",
        stdout(&whole)
    );
}

fn until_healthy(folder: &Path, address: &str) {
    wait::until_ok_blocking(|| {
        let output = health(folder, address, &[]);
        match code(&output) {
            0 => Ok(()),
            _ => Err(stdout(&output)),
        }
    });
}

#[test]
fn each_part_turns_red_and_green_again() {
    let folder = migrated();
    let at = folder.path();
    std::fs::write(
        at.join("pillarbox.yaml"),
        "outbox:\n  sinks: { out: { url: \"file:gone/events.ndjson\" } }\n  \
         routes: [{ topic: \"t.>\", sink: out }]\n  http: { listen: \"127.0.0.1:0\" }\n  \
         monitoring: { oldest_age_max_seconds: 1, dead_letters_growth_max: 2 }\n",
    )
    .unwrap();
    let served = Served::start(at, &["run"]);
    let address = &served.address;
    wait::until_blocking("the relay works", || {
        code(&health(at, address, &["--ready"])) == 0
    });

    // The folder of the sink is missing. No event is needed to notice it.
    until_red(at, address, "publisher", "the sink out is away");
    let data = || code(&health(at, address, &["--part", "data"])) == 0;
    wait::until_blocking("its lanes are seen to be taken", data);
    let (code_of_all, state) = served.get("/healthz");
    assert_eq!(code_of_all, 503);
    assert_eq!(state["parts"]["publisher"]["healthy"], false, "{state}");
    assert_eq!(
        code(&health(at, address, &["--live"])),
        0,
        "a restart does not help"
    );

    assert_eq!(code(&run_with_input(at, &["enqueue", "--ndjson"], &line(1))), 0);
    until_red(at, address, "performance", "the oldest undelivered event");
    let status = json(&run(at, &["status", "--json"]));
    assert_eq!(status["health"]["performance"]["healthy"], false, "{status}");

    std::fs::create_dir(at.join("gone")).unwrap();
    until_healthy(at, address);
    let status = json(&run(at, &["status", "--json"]));
    assert_eq!(status["health"]["performance"]["healthy"], true, "{status}");

    let lost: String = (2..5).map(|n| line(n).replace("t.x", "lost.x")).collect();
    assert_eq!(code(&run_with_input(at, &["enqueue", "--ndjson"], &lost)), 0);
    until_red(at, address, "data", "3 more dead letters");
    let discard = ["dead", "discard", "--topic", "lost.x", "--why", "a test", "--yes"];
    assert_eq!(code(&run(at, &discard)), 0);
    until_healthy(at, address);

    // Without a relay, the database says that lanes have no owner, and nobody answers.
    assert_eq!(served.relay.stop().0, 0);
    let status = json(&run(at, &["status", "--json"]));
    assert_eq!(
        status["health"]["publisher"]["problems"][0], "no relay is running",
        "{status}"
    );
    assert_eq!(status["health"]["data"]["healthy"], false, "{status}");
    assert_eq!(code(&health(at, "127.0.0.1:1", &[])), 2);
}
