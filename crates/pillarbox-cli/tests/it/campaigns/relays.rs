//! Relays that are killed, paused, stopped and restarted. Each has its own network links.

mod process;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use pillarbox_testkit::{
    proxy::Proxy,
    storm::{LinkFaults, REPORT_FOLDER, Source, Storm, Summary, break_link},
    torture::Campaign,
};
use rand::RngExt;
use tokio::{process::Command, sync::Mutex};

use self::process::Process;
use super::{PATIENCE, RELAYS, broker::Broker, clock::Clock, database::Database};

/// Short, so that a relay is often paused for longer.
pub(super) const LEASE_MS: u64 = 2_000;
/// How long a relay may take to stop after SIGTERM: the sum of its own limits for publishing, settling and
/// handing back, on a busy machine.
const LEAVE_MAX: Duration = Duration::from_secs(45);

pub(super) struct Relays {
    slots: Vec<Arc<Mutex<Process>>>,
    /// One for each relay that has its own link.
    database_links: Vec<Arc<Proxy>>,
    broker_links: Vec<Arc<Proxy>>,
    folder: PathBuf,
}

impl Relays {
    pub(super) async fn new<D: Database, B: Broker>(
        folder: &Path,
        database: &D,
        broker: &B,
        clock: Option<&Clock>,
    ) -> Self {
        let mut relays = Self {
            slots: Vec::new(),
            database_links: Vec::new(),
            broker_links: Vec::new(),
            folder: folder.to_owned(),
        };
        for n in 0..RELAYS {
            let (database_link, database) = database.link().await;
            let (broker_link, sink) = broker.link().await;
            relays.database_links.extend(database_link);
            relays.broker_links.extend(broker_link);
            let config = folder.join(format!("relay-{n}.yaml"));
            std::fs::write(&config, yaml(&database, &sink, B::ROUTES)).unwrap();
            let environment = clock.map(Clock::environment).unwrap_or_default();
            let process = Process::new(n, config, environment);
            relays.slots.push(Arc::new(Mutex::new(process)));
        }
        relays
    }

    /// Runs another command of the binary to its end.
    pub(super) async fn run_once(&self, arguments: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
        command
            .arg("--config")
            .arg(self.folder.join("relay-0.yaml"))
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        let output = tokio::time::timeout(PATIENCE, command.output())
            .await
            .unwrap()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "pillarbox {arguments:?}: {said}");
    }

    pub(super) async fn start_all(&self) {
        for slot in &self.slots {
            slot.lock().await.start();
        }
        for slot in &self.slots {
            slot.lock().await.says("Relaying from").await;
        }
    }

    pub(super) fn fail(&self, storm: &mut Storm) {
        for slot in &self.slots {
            let slot = Arc::clone(slot);
            storm.add(|source| come_and_go(slot, source));
        }
        for (links, name) in [
            (&self.database_links, "link to the database"),
            (&self.broker_links, "link to the broker"),
        ] {
            for link in links {
                let faults = LinkFaults {
                    name,
                    calm: 700..4_000,
                    length: 100..3_000,
                };
                let link = Arc::clone(link);
                storm.add(|source| break_link(link, faults, source));
            }
        }
    }

    /// Restarts relays that have ended by themselves, as a supervisor does.
    pub(super) async fn revive(&self) {
        for slot in &self.slots {
            slot.lock().await.revive();
        }
    }

    /// Stops all relays. Without faults they must stop properly, and their logs must contain nothing
    /// alarming.
    pub(super) async fn stop_all(&self, summary: &mut Summary) {
        for slot in &self.slots {
            let mut slot = slot.lock().await;
            slot.leave(LEAVE_MAX).await;
            summary.broken.append(&mut slot.complaints());
            summary.relay_exits += slot.exits();
        }
    }

    /// Keeps the logs beside the report, or prints their ends.
    pub(super) fn show_logs(&self, campaign: &Campaign) {
        for n in 0..self.slots.len() {
            let log = self.folder.join(format!("relay-{n}.log"));
            if let Some(folder) = std::env::var_os(REPORT_FOLDER) {
                let copy = PathBuf::from(folder).join(format!("{}-relay-{n}.log", campaign.name()));
                let _ = std::fs::copy(&log, copy);
            } else {
                let text = std::fs::read(&log).unwrap_or_default();
                let end = String::from_utf8_lossy(&text[text.len().saturating_sub(4_000)..]);
                let _ = writeln!(std::io::stderr(), "--- the log of relay {n}:\n{end}");
            }
        }
    }
}

/// Repeatedly kills, pauses and stops one relay. The relay is running when the storm is over.
async fn come_and_go(slot: Arc<Mutex<Process>>, mut source: Source) {
    while source.next(700..3_500).await {
        let mut relay = slot.lock().await;
        relay.revive();
        match source.rng().random_range(0..3) {
            0 => {
                let _lasting = source.begin("relay killed");
                relay.kill().await;
                source.last(0..1_500).await;
                relay.start();
            }
            1 => {
                let _lasting = source.begin("relay paused");
                relay.signal("STOP");
                source.last(500..LEASE_MS * 7 / 4).await;
                relay.signal("CONT");
            }
            _ => {
                let _lasting = source.begin("relay left and joined");
                relay.leave(LEAVE_MAX).await;
                source.last(0..1_500).await;
                relay.start();
            }
        }
    }
}

fn yaml(database: &str, sink: &str, routes: &str) -> String {
    format!(
        "outbox:\n  database: {{ url: '{database}' }}\n  sinks:\n    events: {{ url: '{sink}', publish_timeout_ms: 2000 }}\n  \
         routes: {routes}\n  publisher: {{ lease_ms: {LEASE_MS} }}\n  \
         retry_policy: {{ default_base_delay_ms: 200, default_max_delay_ms: 1000, default_max_attempts: 50 }}\n"
    )
}
