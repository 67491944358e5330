//! The rights on the file.

use std::{
    fs::OpenOptions,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    str::FromStr,
};

use sqlx::sqlite::SqliteConnectOptions;

/// Creates the file, unless it exists. SQLite would make it readable for everybody. The files that SQLite creates
/// beside it get the same rights. If this fails, SQLite reports the reason later.
pub fn make_private(path: &Path) {
    let _ = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
}

/// A warning if everybody on the machine can read the file.
pub fn exposed(url: &str) -> Option<String> {
    let options = SqliteConnectOptions::from_str(url).ok()?;
    let path = options.get_filename();
    let mode = path.metadata().ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| {
        let file = path.display();
        format!(
            "{file} can be read by everybody on this machine (mode {:03o}), and contains events: remove that right with \
             `chmod o-r {file}*`",
            mode & 0o777
        )
    })
}
