//! The permissions of the database file.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use pillarbox_relay::{
    connect::{self, DatabaseOptions},
    store::{RelayId, sqlite::exposed},
};
use pillarbox_testkit::contract::store::scene::LONG;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn only_the_owner_can_read_a_new_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let url = format!("sqlite:{}", path.display());
    let open = connect::store(&DatabaseOptions::new(&url)).unwrap();
    open.admin.migrate().await.unwrap();
    // A write creates the files beside it. They exist as long as the connections.
    let relay = RelayId::now_v7();
    open.store.heartbeat(relay, "relay", LONG, &[]).await.unwrap();
    for name in ["app.db", "app.db-wal", "app.db-shm"] {
        assert_eq!(mode(&folder.path().join(name)), 0o600, "{name}");
    }
    assert_eq!(exposed(&url), None);
}

#[tokio::test]
async fn an_existing_database_keeps_its_rights_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let url = format!("sqlite:{}", path.display());
    assert_eq!(exposed(&url), None, "the file does not exist");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let open = connect::store(&DatabaseOptions::new(&url)).unwrap();
    open.admin.migrate().await.unwrap();
    assert_eq!(mode(&path), 0o644);
    let told = exposed(&url).expect("everybody can read it");
    assert!(told.contains("644") && told.contains("chmod o-r"), "{told}");
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    assert_eq!(exposed(&url), None);
}
