//! Appends batches to the file and puts full files aside.
//!
//! Several relays may write one file: each batch is written under a lock on the file, and whoever gets the lock looks
//! whether the file was put aside meanwhile.

use std::{
    fs::{self, File, TryLockError},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::Address;
use crate::sink::{SinkError, SinkErrorKind};

/// How often to try for a lock that another process has.
const LOCK_EVERY: Duration = Duration::from_millis(5);

/// Six digits: other endings of a name are somebody else's.
const NUMBER_MAX: u64 = 999_999;

pub(super) struct Writer {
    address: Address,
    /// Where the file really is: rotation must not rename a link to it.
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

    /// Appends whole lines and syncs them to the disk. Nothing is waited for beyond `timeout` but the disk.
    pub(super) fn append(&mut self, lines: &[u8], timeout: Duration) -> Result<(), SinkError> {
        let deadline = Instant::now() + timeout;
        let done = self.try_append(lines, deadline);
        if done.is_err() {
            // Opened anew: the next try finds out what is there.
            self.file = None;
        }
        done
    }

    /// Whether it could be written now. Changes nothing in a file that is there.
    pub(super) fn check(&mut self, timeout: Duration) -> Result<(), SinkError> {
        let file = self.locked(Instant::now() + timeout)?;
        let _ = file.unlock();
        self.file = Some(file);
        Ok(())
    }

    fn try_append(&mut self, lines: &[u8], deadline: Instant) -> Result<(), SinkError> {
        let mut file = self.locked(deadline)?;
        let mut length = self.told(without_torn_line(&mut file))?;
        if length >= self.address.rotate_bytes {
            self.told(self.put_aside())?;
            // Its lock ends with it; the new file has one of its own.
            drop(file);
            file = self.locked(deadline)?;
            length = self.told(without_torn_line(&mut file))?;
        }
        let written = file.write_all(lines).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // A batch that is not whole goes: its events come again.
            let removed = file.set_len(length).and_then(|()| file.sync_data()).is_ok();
            let _ = file.unlock();
            let error = refused(&self.path, &error, SinkErrorKind::Unavailable);
            return Err(if removed { error } else { error.in_doubt() });
        }
        // It ends with the file at the latest.
        let _ = file.unlock();
        self.file = Some(file);
        Ok(())
    }

    /// The file that has the name now, open and locked.
    fn locked(&mut self, deadline: Instant) -> Result<File, SinkError> {
        loop {
            let file = match self.file.take() {
                Some(file) => file,
                None => {
                    let file = self.told(open(&self.path))?;
                    // Now that it is there: a link may have led to nothing.
                    match fs::canonicalize(&self.path) {
                        Ok(real) => self.path = real,
                        // Another process put it aside in this moment.
                        Err(error) if error.kind() == ErrorKind::NotFound && Instant::now() < deadline => {
                            continue;
                        }
                        Err(error) => return self.told(Err(error)),
                    }
                    // Whoever made it: only a synced name outlives a crash.
                    self.told(sync_folder(&self.path))?;
                    self.refuse_strange(&file)?;
                    file
                }
            };
            let in_time = Instant::now() < deadline;
            match file.try_lock() {
                Ok(()) if self.told(is_at(&file, &self.path))? => return Ok(file),
                // Another process put it aside.
                Ok(()) if in_time => {}
                Err(TryLockError::WouldBlock) if in_time => {
                    self.file = Some(file);
                    std::thread::sleep(LOCK_EVERY);
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {
                    let error = io::Error::new(ErrorKind::TimedOut, "another process has it");
                    return self.told(Err(error));
                }
                Err(TryLockError::Error(error)) => return self.told(Err(error)),
            }
        }
    }

    /// A slip in the address must not spoil somebody's file.
    fn refuse_strange(&self, file: &File) -> Result<(), SinkError> {
        let mut first = [0];
        let read = self.told(file.take(1).read(&mut first))?;
        if read == 0 || first == *b"{" || !self.told(file.metadata())?.is_file() {
            return Ok(());
        }
        let path = self.path.display();
        let message = format!("{path} is there and does not hold lines of JSON: name another file");
        Err(SinkError::new(SinkErrorKind::Misconfigured, message))
    }

    /// Gives the full file its number, and drops the oldest beyond `keep`.
    fn put_aside(&self) -> io::Result<()> {
        let mut aside = put_aside(&self.path)?;
        let next = aside.last().map_or(1, |(number, _)| number + 1);
        if next > NUMBER_MAX {
            return Err(io::Error::other("the numbers of the files before it are used up"));
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
                Err(error) => tracing::warn!(file = %old.display(), %error, "an old file can't be removed"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn told<T>(&self, done: io::Result<T>) -> Result<T, SinkError> {
        done.map_err(|error| refused(&self.path, &error, SinkErrorKind::Unreachable))
    }
}

/// Makes it where it is not, for its owner and group to read: events may be nobody else's business.
fn open(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o640)
        .open(path)
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
    file.set_len(end)?;
    Ok(end)
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// The files put aside so far, by their numbers. Other names beside them are left alone.
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

/// `otherwise`: the kind of an error that tells nothing more.
fn refused(path: &Path, error: &io::Error, otherwise: SinkErrorKind) -> SinkError {
    let kind = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => SinkErrorKind::Full,
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => SinkErrorKind::NotGranted,
        _ => otherwise,
    };
    SinkError::new(kind, format!("can't write {}: {error}", path.display()))
}
