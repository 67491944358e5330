//! The relays' clocks, which step forward and back (libfaketime). Servers and producers use the machine's
//! clock.

use std::path::{Path, PathBuf};

use pillarbox_testkit::{servers, storm::Storm};
use rand::RngExt;

/// One clock for all relays: with SQLite, they are on one machine.
#[derive(Clone)]
pub(super) struct Clock {
    library: PathBuf,
    file: PathBuf,
    /// The largest step in either direction.
    seconds_max: i64,
}

impl Clock {
    /// `None`: libfaketime is not installed.
    pub(super) fn start(folder: &Path, seconds_max: i64) -> Option<Self> {
        let clock = Self {
            library: servers::faketime()?,
            file: folder.join("clock"),
            seconds_max,
        };
        clock.set(0);
        Some(clock)
    }

    /// The environment of a relay.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            // A step of the wall clock never changes the monotonic clock.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    pub(super) fn fail(&self, storm: &mut Storm) {
        let clock = self.clone();
        storm.add(|mut source| async move {
            while source.next(1_500..5_000).await {
                let seconds = source.rng().random_range(-clock.seconds_max..=clock.seconds_max);
                let _lasting = source.begin("relays' clock stepped");
                clock.set(seconds);
                source.last(500..4_000).await;
                clock.set(0);
            }
        });
    }

    fn set(&self, seconds: i64) {
        // The file is replaced as a whole, so that a relay never reads half of it.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}s\n")).unwrap();
        std::fs::rename(&new, &self.file).unwrap();
    }
}
