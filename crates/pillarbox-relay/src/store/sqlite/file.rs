//! Who may read the file.

use std::{
    fs::OpenOptions,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    str::FromStr,
};

use sqlx::sqlite::SqliteConnectOptions;

/// Makes the file, unless it is there. SQLite would let everybody read it; what it makes beside it has the same rights as it.
/// Where this fails, SQLite says why.
pub fn make_private(path: &Path) {
    let _ = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
}

/// What to say about a file that everybody on the machine can read, if it is such a one.
pub fn exposed(url: &str) -> Option<String> {
    let options = SqliteConnectOptions::from_str(url).ok()?;
    let path = options.get_filename();
    let mode = path.metadata().ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| {
        let file = path.display();
        format!(
            "{file} can be read by everybody on this machine (mode {:03o}), and holds events: take that right away with \
             `chmod o-r {file}*`",
            mode & 0o777
        )
    })
}
