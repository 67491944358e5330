//! Appends batches to the file and rotates full files.
//!
//! Several relays may write to one file. Each batch is written under a lock on the file. After getting the lock, a
//! relay checks whether another one has rotated the file meanwhile.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::Address;
use crate::sink::{SinkError, SinkErrorKind};

/// How often to try to get a lock that another process holds.
const LOCK_EVERY: Duration = Duration::from_millis(5);

/// Rotated files have six digits. Files with other endings are not ours.
const NUMBER_MAX: u64 = 999_999;

pub(super) struct Writer {
    address: Address,
    /// The real path of the file. Rotation must not rename a link to it.
    path: PathBuf,
    file: Option<File>,
}

impl Writer {
    pub(super) fn new(address: Address) -> Self {
        Self {
            path: address.path.clone(),
            address,
            file: None,
        }
    }

    /// Appends whole lines and syncs them to the disk. Apart from the disk, it waits no longer than `timeout`.
    pub(super) fn append(&mut self, lines: &[u8], timeout: Duration) -> Result<(), SinkError> {
        let deadline = Instant::now() + timeout;
        let done = self.try_append(lines, deadline);
        if done.is_err() {
            // The next attempt opens the file again and sees its state.
            self.file = None;
        }
        done
    }

    /// Whether the file could be written now. Does not change an existing file.
    pub(super) fn check(&mut self, timeout: Duration) -> Result<(), SinkError> {
        let file = self.locked(Instant::now() + timeout)?;
        let _ = file.unlock();
        self.file = Some(file);
        Ok(())
    }

    fn try_append(&mut self, lines: &[u8], deadline: Instant) -> Result<(), SinkError> {
        let mut file = self.locked(deadline)?;
        let mut length = self.io_result(without_torn_line(&mut file))?;
        if length >= self.address.rotate_bytes {
            self.io_result(self.put_aside())?;
            // Dropping the file releases its lock. The new file has its own lock.
            drop(file);
            file = self.locked(deadline)?;
            length = self.io_result(without_torn_line(&mut file))?;
        }
        let written = file.write_all(lines).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // Remove a part of a batch: its events are published again.
            let removed = file.set_len(length).and_then(|()| file.sync_data()).is_ok();
            let _ = file.unlock();
            let error = refused(&self.path, &error, SinkErrorKind::Unavailable);
            return Err(if removed { error } else { error.in_doubt() });
        }
        // At the latest, the lock ends when the file is closed.
        let _ = file.unlock();
        self.file = Some(file);
        Ok(())
    }

    /// Opens and locks the file that has the name now.
    fn locked(&mut self, deadline: Instant) -> Result<File, SinkError> {
        loop {
            let file = match self.file.take() {
                Some(file) => file,
                None => {
                    let file = self.io_result(open(&self.path))?;
                    // Resolve the path now that the file exists: before, a link may have led to nothing.
                    match fs::canonicalize(&self.path) {
                        Ok(real) => self.path = real,
                        // Another process has just rotated it.
                        Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < deadline => {
                            continue;
                        }
                        Err(error) => return self.io_result(Err(error)),
                    }
                    // Sync the folder, whoever created the file: only a synced name survives a crash.
                    self.io_result(sync_folder(&self.path))?;
                    self.refuse_strange(&file)?;
                    file
                }
            };
            let in_time = Instant::now() < deadline;
            match file.try_lock() {
                Ok(()) if self.io_result(is_at(&file, &self.path))? => return Ok(file),
                // Another process has rotated it.
                Ok(()) if in_time => {}
                Err(TryLockError::WouldBlock) if in_time => {
                    self.file = Some(file);
                    std::thread::sleep(LOCK_EVERY);
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {
                    let error = io::Error::new(ErrorKind::TimedOut, "another process has locked it");
                    return self.io_result(Err(error));
                }
                Err(TryLockError::Error(error)) => return self.io_result(Err(error)),
            }
        }
    }

    /// A typing error in the address must not damage another file.
    fn refuse_strange(&self, file: &File) -> Result<(), SinkError> {
        let mut first = [0];
        let read = self.io_result(file.take(1).read(&mut first))?;
        if read == 0 || first == *b"{" || !self.io_result(file.metadata())?.is_file() {
            return Ok(());
        }
        let path = self.path.display();
        let message = format!("{path} exists and does not contain lines of JSON: name another file");
        Err(SinkError::new(SinkErrorKind::Misconfigured, message))
    }

    /// Renames the full file to its number, and deletes the oldest files beyond `keep`.
    fn put_aside(&self) -> io::Result<()> {
        let mut aside = put_aside(&self.path)?;
        let next = aside.last().map_or(1, |(number, _)| number + 1);
        if next > NUMBER_MAX {
            return Err(io::Error::other("no number is left for a rotated file"));
        }
        let to = numbered(&self.path, next);
        fs::rename(&self.path, &to)?;
        aside.push((next, to));
        sync_folder(&self.path)?;
        let excess = aside
            .len()
            .saturating_sub(self.address.keep.unwrap_or(usize::MAX));
        for (_, old) in &aside[..excess] {
            match fs::remove_file(old) {
                // Another process removed it.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => tracing::warn!(file = %old.display(), %error, "can't remove an old file"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn io_result<T>(&self, done: io::Result<T>) -> Result<T, SinkError> {
        done.map_err(|error| refused(&self.path, &error, SinkErrorKind::Unreachable))
    }
}

/// Creates the file if it does not exist, readable only by its owner and group, because events may be confidential.
fn open(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
}

/// Whether the path still leads to this file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let opened = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (opened.dev(), opened.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes an incomplete last line, which a crash left. Its event was never reported as delivered. Returns the length.
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
    file.set_len(end)?;
    Ok(end)
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The rotated files, by their numbers. Other files are ignored.
fn put_aside(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder(path))? {
        let entry = entry?.path();
        let name = entry.to_string_lossy().into_owned();
        let number = name.rsplit_once('.').and_then(|(_, end)| end.parse().ok());
        let ours =
            |number: &u64| *number <= NUMBER_MAX && numbered(path, *number).file_name() == entry.file_name();
        found.extend(number.filter(ours).map(|number| (number, entry.clone())));
    }
    found.sort();
    Ok(found)
}

/// `events.ndjson.000007`: sorted by name, they are sorted by age.
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

/// A new name survives a crash only if its folder is synced.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder(path))?.sync_all()
}

/// `otherwise`: the kind for all other errors.
fn refused(path: &Path, error: &io::Error, otherwise: SinkErrorKind) -> SinkError {
    let kind = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => SinkErrorKind::Full,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => SinkErrorKind::NotGranted,
        _ => otherwise,
    };
    SinkError::new(kind, format!("can't write {}: {error}", path.display()))
}
