//! Checks for free disk space. A server that can't write ends in the middle of a test, and no error says why.

use std::{env, path::Path, process::Command};

/// The maximum size of the servers' data and a build from scratch.
const NEEDED_GIB: u64 = 12;

/// Warns if the tests may run out of space.
pub(crate) fn warn_if_little() {
    let temporary = env::temp_dir();
    for folder in [Path::new("."), &temporary] {
        let Some(free) = free_gib(folder) else {
            continue;
        };
        if free < NEEDED_GIB {
            eprintln!(
                "warning: {free} GiB are free at {}, and the tests may need {NEEDED_GIB}: servers that can't write end without an error",
                folder.display()
            );
            return;
        }
    }
}

/// Uses `df`. With `-P` its second line is the same everywhere: device, size, used, free, share, place.
fn free_gib(folder: &Path) -> Option<u64> {
    let told = Command::new("df").arg("-Pk").arg(folder).output().ok()?;
    parsed(&String::from_utf8(told.stdout).ok()?)
}

fn parsed(told: &str) -> Option<u64> {
    let kib: u64 = told.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kib >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_df_is_parsed() {
        let told = "Filesystem 1024-blocks     Used Available Capacity Mounted on\n/dev/vda 263991300 35651584 58720256 40% /\n";
        assert_eq!(parsed(told), Some(56));
        assert_eq!(parsed("df: no such file"), None);
    }
}
