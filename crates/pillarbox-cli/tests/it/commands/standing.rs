//! What a relay reports about itself, its database file, and limits that are not in its configuration.

use std::{fs::Permissions, os::unix::fs::PermissionsExt};

use pillarbox_relay::{
    connect::{self, DatabaseOptions},
    store::{RelayId, Trouble, TroubleKind},
};

use super::*;

#[tokio::test]
async fn status_shows_troubles() {
    let folder = migrated();
    let url = format!("sqlite:{}", folder.path().join("pillarbox.db").display());
    let store = connect::store(&DatabaseOptions::new(url)).unwrap().store;
    let relay = RelayId::now_v7();
    store.heartbeat(relay, "shop-1", DEADLINE, &[]).await.unwrap();
    let quiet = stdout(&run(folder.path(), &["status"]));
    assert!(quiet.contains("shop-1") && !quiet.contains("reports"), "{quiet}");

    let trouble = Trouble {
        kind: TroubleKind::Destination,
        what: "events/ORDERS orders.placed".into(),
        why: "the stream ORDERS is missing".into(),
        since: "2026-11-16T15:00:00Z".parse().unwrap(),
        events: None,
    };
    store.report(relay, &[trouble]).await.unwrap();
    let words = "events/ORDERS orders.placed has been paused since 2026-11-16T15:00:00Z: the stream ORDERS is missing";
    let shown = stdout(&run(folder.path(), &["status"]));
    assert!(shown.contains(&format!("shop-1 reports:\n  {words}")), "{shown}");
    let shown = json(&run(folder.path(), &["status", "--json"]));
    let shown = &shown["relays"][0]["troubles"][0];
    assert_eq!(
        (&shown["kind"], &shown["what"]),
        (&"destination".into(), &"events/ORDERS orders.placed".into())
    );
}

#[test]
fn a_database_that_all_users_can_read_is_warned_about() {
    let folder = migrated();
    let database = folder.path().join("pillarbox.db");
    let mode = || std::fs::metadata(&database).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o600, "the mode of a new file");
    let fine = json(&run(folder.path(), &["config", "check", "--json"]));
    assert_eq!(fine["warnings"].as_array().unwrap().len(), 0, "{fine}");

    std::fs::set_permissions(&database, Permissions::from_mode(0o644)).unwrap();
    let checked = run(folder.path(), &["config", "check"]);
    assert_eq!(code(&checked), 0);
    assert!(
        stderr(&checked).contains("can be read by everybody"),
        "{}",
        stderr(&checked)
    );
    let relay = Running::start(folder.path(), &["run", "--no-http"]);
    relay.says("can be read by everybody");
    assert_eq!(relay.stop().0, 0);
    assert_eq!(mode(), 0o644, "a relay must not change the mode");
}

fn until_classes(folder: &Path, expected: &[&str]) {
    wait::until_ok_blocking(|| {
        let status = json(&run(folder, &["status", "--json"]));
        let classes = status["pressure"].as_array().unwrap().iter();
        let classes: Vec<&str> = classes.map(|class| class["class"].as_str().unwrap()).collect();
        if classes == expected {
            return Ok(());
        }
        Err(format!("found {classes:?}, expected {expected:?}"))
    });
}

#[test]
fn a_relay_without_classes_keeps_the_classes_of_others() {
    let folder = migrated();
    let start = |backpressure: &str| {
        let text = format!("outbox:\n  sinks:\n    out: {{ url: \"null:\" }}\n{backpressure}");
        std::fs::write(folder.path().join("pillarbox.yaml"), text).unwrap();
        Running::start(folder.path(), &["run", "--no-http"])
    };
    let with = start("  backpressure: { classes: [{ name: bulk, hard: 100 }] }\n");
    until_classes(folder.path(), &["bulk"]);

    // The relay reports this after it has looked. If it removed classes, it would have done so before.
    let without = start("");
    without.says("no `backpressure.classes`");
    until_classes(folder.path(), &["bulk"]);
    assert_eq!(without.stop().0, 0);
    assert_eq!(with.stop().0, 0);

    let removing = start("  backpressure: { classes: [] }\n");
    until_classes(folder.path(), &[]);
    assert_eq!(removing.stop().0, 0);
}
