//! One server process in its private folder.
//!
//! Dropping the [`Service`] ends the process and removes the folder. A test process can also die without
//! dropping anything (a static, an abort, `kill -9`). So a small shell, the caretaker, waits next to every
//! server. Only the test process holds its standard input open. When that closes, the caretaker ends the
//! server and removes the folder.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::cache;

/// How often to check a state that has no notification.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// A server that takes longer than this to start or to stop is broken. The machine may be very busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// `$1` is the folder, `$2` the signal that ends the server. A pid is used only while its command line
/// contains the folder, so that a reused pid is not touched.
const CARETAKER: &str = r#"
trap '' INT TERM HUP
while read -r _; do :; done
pid=$(cat "$1/server.pid" 2>/dev/null) || pid=
ours() { [ -n "$pid" ] && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$1"; }
if ours "$1"; then
    kill -s CONT "$pid"; kill -s "$2" "$pid"; looks=0
    while ours "$1" && [ $looks -lt 200 ]; do sleep 0.05; looks=$((looks + 1)); done
    ours "$1" && kill -s KILL "$pid"
fi
# An orphaned initdb may still be writing.
looks=0
until rm -rf "$1" || [ $looks -ge 200 ]; do sleep 0.05; looks=$((looks + 1)); done
"#;

pub(super) struct Service {
    folder: PathBuf,
    account: Option<Account>,
    child: Option<Child>,
    caretaker: Child,
    last_signal: &'static str,
}

/// The user for servers that refuse to run as root, if we are root.
#[derive(Clone, Copy)]
pub(super) struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// The account for servers that refuse to run as root; `None` if we are not root and need no other.
    pub(super) fn unprivileged() -> Result<Option<Self>> {
        if !cache::running_as_root() {
            return Ok(None);
        }
        for name in ["postgres", "nobody"] {
            if let (Some(user), Some(group)) = (id("-u", name), id("-g", name)) {
                return Ok(Some(Self { user, group }));
            }
        }
        bail!("PostgreSQL refuses to run as root, and there is neither a user `postgres` nor `nobody`")
    }
}

fn id(which: &str, name: &str) -> Option<u32> {
    let answer = Command::new("id")
        .args([which, name])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    String::from_utf8(answer.stdout).ok()?.trim().parse().ok()
}

impl Service {
    /// A new folder under the system's temporary folder, owned by `account`. `last_signal` ends the server at
    /// the very end, when its data no longer matters.
    pub(super) fn new(name: &str, account: Option<Account>, last_signal: &'static str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("pillarbox-{name}-"))
            .tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        if let Some(account) = account {
            chown(folder.path(), Some(account.user), Some(account.group))?;
        }
        let caretaker = Command::new("sh")
            .args(["-c", CARETAKER, "pillarbox-caretaker"])
            .arg(folder.path())
            .arg(last_signal)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        Ok(Self {
            folder: folder.keep(),
            account,
            child: None,
            caretaker,
            last_signal,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A command that runs in the folder, as the folder's owner.
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.current_dir(&self.folder).stdin(Stdio::null());
        if let Some(account) = self.account {
            command.uid(account.user).gid(account.group);
        }
        command
    }

    /// Writes a file that only the folder's owner can read.
    pub(super) fn write_private(&self, path: &Path, content: &str) -> Result<()> {
        fs::write(path, content)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        if let Some(account) = self.account {
            chown(path, Some(account.user), Some(account.group))?;
        }
        Ok(())
    }

    /// Starts the server in its own process group, so that Ctrl-C reaches only the tests.
    pub(super) fn spawn(&mut self, mut command: Command) -> Result<()> {
        ensure!(
            self.child.is_none(),
            "the server in {} runs already",
            self.folder.display()
        );
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))?;
        let child = command
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let pid = child.id();
        self.child = Some(child);
        fs::write(self.folder.join("server.pid"), pid.to_string())?;
        Ok(())
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Waits until `ready` returns true. Fails as soon as the process has ended.
    pub(super) fn wait_until(&mut self, mut ready: impl FnMut(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !ready(self) {
            let Some(child) = &mut self.child else {
                bail!("the server is not running")
            };
            if let Some(status) = child.try_wait()? {
                self.forget();
                bail!(
                    "the server ended while it started ({status}):\n{}",
                    self.end_of_log()
                );
            }
            ensure!(
                Instant::now() < deadline,
                "the server is not ready after {PATIENCE:?}:\n{}",
                self.end_of_log()
            );
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Sends the signal and waits until the process has ended.
    pub(super) fn end(&mut self, name: &str) -> Result<()> {
        let Some(pid) = self.pid() else {
            bail!("the server is stopped already")
        };
        signal(name, &[pid])?;
        let deadline = Instant::now() + PATIENCE;
        while let Some(child) = &mut self.child {
            if child.try_wait()?.is_some() {
                self.forget();
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the server is still running after SIG{name}:\n{}",
                self.end_of_log()
            );
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.child = None;
        let _ = fs::remove_file(self.folder.join("server.pid"));
    }

    pub(super) fn end_of_log(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(4000)..]).into_owned()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = signal("CONT", &[pid]);
            if self.end(self.last_signal).is_err()
                && let Some(child) = &mut self.child
            {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        self.forget();
        drop(self.caretaker.stdin.take());
        let _ = self.caretaker.wait();
    }
}

/// Sends a signal by its name (`TERM`) with the `kill` of the shell: not every machine has a program of that
/// name, and this needs no unsafe code.
pub fn signal(name: &str, pids: &[u32]) -> Result<()> {
    let sent = Command::new("sh")
        .args(["-c", r#"signal=$1; shift; kill -s "$signal" "$@""#, "sh", name])
        .args(pids.iter().map(u32::to_string))
        .output()?;
    ensure!(
        sent.status.success(),
        "cannot send SIG{name} to {pids:?}: {}",
        String::from_utf8_lossy(&sent.stderr)
    );
    Ok(())
}

/// Stops processes and returns when every thread of them is stopped: sending the signal alone does not
/// guarantee that.
pub(super) fn freeze(pids: &[u32]) -> Result<()> {
    signal("STOP", pids)?;
    let started = Instant::now();
    while !pids.iter().all(|&pid| stands_still(pid)) {
        ensure!(started.elapsed() < PATIENCE, "{pids:?} do not stop");
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Whether every thread is stopped. A thread that is gone counts as stopped.
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The name before the state is in brackets and may contain anything.
        let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        state.is_empty() || state.starts_with(['T', 't', 'Z', 'X'])
    })
}

/// A free port below the range that Linux uses for outgoing connections. The clients that keep trying to
/// reach a stopped server could take a port in that range, and then the server could not come back.
pub fn free_port() -> u16 {
    loop {
        let port = rand::random_range(20_000..32_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Starts on a free port, and retries on another one if a different program took it first.
pub(super) fn on_a_free_port<T>(mut start: impl FnMut(u16) -> Result<T>) -> Result<T> {
    let mut left = 4;
    loop {
        match start(free_port()) {
            Err(error) if left > 0 && format!("{error:#}").contains("address already in use") => left -= 1,
            Err(error) if left > 0 && format!("{error:#}").contains("Address already in use") => left -= 1,
            other => return other,
        }
    }
}
