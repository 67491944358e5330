//! The relays' clocks, which step forward and back (libfaketime). The servers and the producers keep the machine's own.

use std::path::{Path, PathBuf};

use pillarbox_testkit::{servers, storm::Storm};
use rand::RngExt;

/// One clock for all relays: they run on one machine. Relays on machines with different clocks are the database's own time's
/// business, except with SQLite, where such relays can't be.
pub(super) struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// `None`: there is no libfaketime.
    pub(super) fn start(folder: &Path) -> Option<Self> {
        let clock = Self {
            library: servers::faketime()?,
            file: folder.join("clock"),
        };
        clock.set(0);
        Some(clock)
    }

    /// What a relay is started with.
    pub(super) fn environment(&self, _relay: usize) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".into()),
            // A step of the wall clock never moves the monotonic one.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
            ("DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }

    pub(super) fn fail(&self, storm: &mut Storm) {
        let clock = Self {
            library: self.library.clone(),
            file: self.file.clone(),
        };
        storm.add(|mut source| async move {
            while source.next(1_500..5_000).await {
                let seconds = source.rng().random_range(-90..90);
                let _lasting = source.begin("relays' clock stepped");
                clock.set(seconds);
                source.last(500..4_000).await;
                clock.set(0);
            }
        });
    }

    fn set(&self, seconds: i64) {
        // Replaced as a whole: a relay must not read half of it.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}s\n")).unwrap();
        std::fs::rename(&new, &self.file).unwrap();
    }
}
