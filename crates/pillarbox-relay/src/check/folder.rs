//! Schemas from a folder. `OrderPlaced/2.json` or `OrderPlaced.v2.json` is version 2 of `OrderPlaced`.
//! `OrderPlaced.json` is for all versions without their own file.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use serde_json::Value;
use thiserror::Error;
use url::Url;

use super::schema::Schema;

const FILES_MAX: usize = 10_000;
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// For all files together, because a new set is compiled while the current one is still in use.
const FOLDER_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Why the schemas of a folder can't be used.
#[derive(Debug, Error)]
pub enum FolderError {
    #[error("the schema folder {} can't be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the schema {} is broken: {problem}", path.display())]
    Broken { path: PathBuf, problem: String },
    #[error("the schema folder {} is too large: {problem}", path.display())]
    TooLarge { path: PathBuf, problem: String },
}

/// A folder, and the schemas of the last read without an error.
pub struct Folder {
    path: PathBuf,
    /// The files when the folder was opened.
    opened: Listing,
    set: RwLock<Arc<Set>>,
}

/// The schemas of a folder at one moment.
#[derive(Default)]
pub struct Set {
    types: HashMap<String, Versions>,
    pub schemas: usize,
}

#[derive(Default)]
struct Versions {
    any: Option<Schema>,
    by_version: HashMap<i32, Schema>,
}

/// The files with their times and sizes, to detect changes.
type Listing = BTreeMap<PathBuf, (SystemTime, u64)>;

impl Folder {
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let opened = list(path)?;
        Ok(Self {
            path: path.to_owned(),
            set: RwLock::new(Arc::new(read(path, &opened)?)),
            opened,
        })
    }

    pub fn set(&self) -> Arc<Set> {
        self.set.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the folder again whenever it has changed. An error is logged once, and the last good schemas stay in use.
    pub(super) async fn keep_fresh(&self, every: Duration) {
        let mut known = Ok(self.opened.clone());
        loop {
            let (path, before) = (self.path.clone(), known.clone());
            let look = tokio::task::spawn_blocking(move || changed(&path, &before));
            match look.await {
                Ok(Ok(Some((listing, set)))) => {
                    tracing::info!(schemas = set.schemas, "the schema folder has changed: read again");
                    *self.set.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(set);
                    known = Ok(listing);
                }
                Ok(Err((seen, error))) => {
                    let seen = seen.ok_or_else(|| error.to_string());
                    if known != seen {
                        tracing::error!(
                            why = error.to_string(),
                            "the schema folder has changed and can't be used: keeping the previous schemas"
                        );
                    }
                    known = seen;
                }
                Ok(Ok(None)) | Err(_) => {}
            }
            tokio::time::sleep(every).await;
        }
    }
}

/// The last listing, or the error instead of it.
type Seen = Result<Listing, String>;
type Changed = Result<Option<(Listing, Set)>, (Option<Listing>, FolderError)>;

fn changed(path: &Path, known: &Seen) -> Changed {
    let listing = list(path).map_err(|error| (None, error))?;
    if known.as_ref() == Ok(&listing) {
        return Ok(None);
    }
    match read(path, &listing) {
        Ok(set) => Ok(Some((listing, set))),
        Err(error) => Err((Some(listing), error)),
    }
}

impl Set {
    pub fn find(&self, event_type: &str, version: i32) -> Option<&Schema> {
        let versions = self.types.get(event_type)?;
        versions.by_version.get(&version).or(versions.any.as_ref())
    }
}

/// The JSON files of the folder and of the folders in it. Names that begin with a dot are ignored.
fn list(folder: &Path) -> Result<Listing, FolderError> {
    let mut listing = Listing::new();
    let mut bytes = 0;
    let too_large = |problem: String| FolderError::TooLarge {
        path: folder.to_owned(),
        problem,
    };
    for (path, is_folder) in entries(folder)? {
        let files = match is_folder {
            true => entries(&path)?,
            false => vec![(path, false)],
        };
        for (path, is_folder) in files {
            if is_folder {
                return Err(FolderError::Broken {
                    path,
                    problem: "it is a folder in a folder: schemas must be at most one folder deep".into(),
                });
            }
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let meta = path.metadata().map_err(|source| unreadable(&path, source))?;
            if meta.len() > FILE_BYTES_MAX {
                return Err(FolderError::Broken {
                    path,
                    problem: format!("it has more than {FILE_BYTES_MAX} bytes"),
                });
            }
            bytes += meta.len();
            let modified = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            listing.insert(path, (modified, meta.len()));
            if listing.len() > FILES_MAX {
                return Err(too_large(format!("it has more than {FILES_MAX} files")));
            }
        }
    }
    if bytes > FOLDER_BYTES_MAX {
        return Err(too_large(format!(
            "its files have more than {FOLDER_BYTES_MAX} bytes"
        )));
    }
    Ok(listing)
}

fn entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>, FolderError> {
    let failed = |source| unreadable(folder, source);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if found.len() >= FILES_MAX {
            return Err(FolderError::TooLarge {
                path: folder.to_owned(),
                problem: format!("it has more than {FILES_MAX} entries"),
            });
        }
        // A link counts as its target.
        let path = entry.path();
        let is_folder = path.is_dir();
        found.push((path, is_folder));
    }
    Ok(found)
}

fn unreadable(path: &Path, source: std::io::Error) -> FolderError {
    FolderError::Unreadable {
        path: path.to_owned(),
        source,
    }
}

fn read(folder: &Path, listing: &Listing) -> Result<Set, FolderError> {
    let mut files = Vec::with_capacity(listing.len());
    for path in listing.keys() {
        let text = std::fs::read(path).map_err(|source| unreadable(path, source))?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| FolderError::Broken {
            path: path.clone(),
            problem: error.to_string(),
        })?;
        files.push((path, value));
    }
    // A reference can use the file's path or the file's own `$id`.
    let mut addresses: HashMap<String, Value> = HashMap::new();
    for (path, value) in &files {
        addresses.insert(address(folder, path), value.clone());
        if let Some(id) = value.get("$id").and_then(Value::as_str) {
            addresses.insert(id.trim_end_matches('#').to_owned(), value.clone());
        }
    }
    let addresses = Arc::new(addresses);
    let mut set = Set::default();
    for (path, value) in &files {
        let broken = |problem| FolderError::Broken {
            path: (*path).clone(),
            problem,
        };
        let name = inside(folder, path);
        let schema =
            Schema::compile(&name, value, &address(folder, path), addresses.clone()).map_err(broken)?;
        set.add(&name, schema).map_err(broken)?;
    }
    Ok(set)
}

impl Set {
    fn add(&mut self, name: &str, schema: Schema) -> Result<(), String> {
        let (event_type, version) = match stands_for(name) {
            Some(found) => found,
            // A file that is only a target of references.
            None => return Ok(()),
        };
        let versions = self.types.entry(event_type.to_owned()).or_default();
        let before = match version {
            Some(version) => versions.by_version.insert(version, schema),
            None => versions.any.replace(schema),
        };
        self.schemas += 1;
        match before {
            Some(before) => Err(format!("{} is for the same version", before.name)),
            None => Ok(()),
        }
    }
}

/// The event type and version of a file, by its name.
fn stands_for(name: &str) -> Option<(&str, Option<i32>)> {
    let stem = name.strip_suffix(".json")?;
    if let Some((event_type, version)) = stem.split_once('/') {
        let digits = version.strip_prefix('v').unwrap_or(version);
        return Some((event_type, Some(digits.parse().ok()?)));
    }
    match stem.rsplit_once(".v") {
        Some((event_type, version)) if version.bytes().all(|b| b.is_ascii_digit()) => match version.parse() {
            Ok(version) => Some((event_type, Some(version))),
            Err(_) => Some((stem, None)),
        },
        _ => Some((stem, None)),
    }
}

fn inside(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder)
        .unwrap_or(path)
        .to_string_lossy()
        .into_owned()
}

/// A file's address for references: its path below the folder.
fn address(folder: &Path, path: &Path) -> String {
    let base = "schemas://folder/";
    match Url::parse(base).and_then(|base| base.join(&inside(folder, path))) {
        Ok(url) => url.to_string(),
        Err(_) => base.to_owned(),
    }
}
