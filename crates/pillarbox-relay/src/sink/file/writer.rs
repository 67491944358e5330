//! Appends batches to the file and puts full files aside.
//!
//! Several relays may write one file: each batch is written under a lock on the file, and whoever gets the lock looks
//! whether the file was put aside meanwhile.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::Address;
use crate::sink::{SinkError, SinkErrorKind};

/// How often to try for a lock that another process has.
const LOCK_EVERY: Duration = Duration::from_millis(5);

pub(super) struct Writer {
    address: Address,
    file: Option<File>,
}

/// Why nothing was appended; `in_doubt`: some of it may be there.
struct Problem {
    error: io::Error,
    in_doubt: bool,
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        let in_doubt = false;
        Self { error, in_doubt }
    }
}

impl Writer {
    pub(super) fn new(address: Address) -> Self {
        Self { address, file: None }
    }

    /// Appends whole lines and syncs them to the disk. Nothing is waited for beyond `timeout` but the disk.
    pub(super) fn append(&mut self, lines: &[u8], timeout: Duration) -> Result<(), SinkError> {
        let deadline = Instant::now() + timeout;
        let done = self.try_append(lines, deadline);
        done.map_err(|Problem { error, in_doubt }| {
            // Opened anew: the next try finds out what is there.
            self.file = None;
            let told = told(&self.address.path, &error);
            if in_doubt { told.in_doubt() } else { told }
        })
    }

    fn try_append(&mut self, lines: &[u8], deadline: Instant) -> Result<(), Problem> {
        let mut file = self.locked(deadline)?;
        let mut length = without_torn_line(&mut file)?;
        if length >= self.address.rotate_bytes && !lines.is_empty() {
            self.put_aside()?;
            // Its lock ends with it; the new file has one of its own.
            drop(file);
            file = self.locked(deadline)?;
            length = without_torn_line(&mut file)?;
        }
        let written = file.write_all(lines).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // A batch that is not whole goes: its events come again.
            let in_doubt = file.set_len(length).and_then(|()| file.sync_data()).is_err();
            let _ = file.unlock();
            return Err(Problem { error, in_doubt });
        }
        file.unlock()?;
        self.file = Some(file);
        Ok(())
    }

    /// The file that has the name now, open and locked.
    fn locked(&mut self, deadline: Instant) -> Result<File, Problem> {
        loop {
            let file = match self.file.take() {
                Some(file) => file,
                None => open(&self.address.path)?,
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, &self.address.path)? => return Ok(file),
                // Another process put it aside.
                Ok(()) => continue,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    self.file = Some(file);
                    std::thread::sleep(LOCK_EVERY);
                }
                Err(TryLockError::WouldBlock) => {
                    let error = io::Error::new(ErrorKind::TimedOut, "another process has it locked");
                    return Err(error.into());
                }
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
    }

    /// Gives the full file its number, and drops the oldest beyond `keep`.
    fn put_aside(&self) -> io::Result<()> {
        let mut aside = put_aside(&self.address.path)?;
        let next = aside.last().map_or(1, |(number, _)| number + 1);
        let to = numbered(&self.address.path, next);
        fs::rename(&self.address.path, &to)?;
        aside.push((next, to));
        sync_folder(&self.address.path)?;
        if let Some(keep) = self.address.keep {
            let excess = aside.len().saturating_sub(keep);
            for (_, old) in &aside[..excess] {
                fs::remove_file(old)?;
            }
        }
        Ok(())
    }
}

/// Makes it where it is not, for its owner and group to read.
fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).append(true);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let file = options.create(true).open(path)?;
            sync_folder(path)?;
            Ok(file)
        }
        opened => opened,
    }
}

/// Whether the name still leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Cuts off a last line without its end, which a crash left: its event was never reported as delivered. Returns the length.
fn without_torn_line(file: &mut File) -> io::Result<u64> {
    const PART: u64 = 64 * 1024;
    let length = file.metadata()?.len();
    if length == 0 || ends_a_line(file)? {
        return Ok(length);
    }
    let mut end = length;
    let mut part = Vec::new();
    while end > 0 {
        let start = end.saturating_sub(PART);
        part.resize(usize::try_from(end - start).unwrap_or_default(), 0);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut part)?;
        if let Some(place) = part.iter().rposition(|byte| *byte == b'\n') {
            end = start + place as u64 + 1;
            break;
        }
        end = start;
    }
    if end < length {
        file.set_len(end)?;
    }
    Ok(end)
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The files put aside so far, by their numbers.
fn put_aside(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
        + ".";
    let mut found = Vec::new();
    for entry in fs::read_dir(folder(path))? {
        let entry = entry?;
        let entry_name = entry.file_name().to_string_lossy().into_owned();
        let number = entry_name.strip_prefix(&name).and_then(|end| end.parse().ok());
        found.extend(number.map(|number| (number, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// `events.ndjson.000007`: by name they sort by age.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number:06}"));
    name.into()
}

fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A new name outlives a crash only when its folder is synced.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

fn told(path: &Path, error: &io::Error) -> SinkError {
    let kind = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => SinkErrorKind::Full,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => SinkErrorKind::NotGranted,
        _ => SinkErrorKind::Unreachable,
    };
    SinkError::new(kind, format!("can't write {}: {error}", path.display()))
}
