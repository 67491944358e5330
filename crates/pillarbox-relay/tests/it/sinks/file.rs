//! The file sink: the contract, rotation, several writers, and disks that refuse.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use pillarbox::Event;
use pillarbox_relay::{
    Sink,
    connect::{self, SinkOptions},
    sink::{Outcome, SinkErrorKind},
};
use pillarbox_testkit::{
    contract::sink::{Arrived, SinkHarness, event, outgoing},
    sink_contract,
};
use tempfile::TempDir;

use super::lines::{arrived, no_json};

fn open(url: &str) -> Arc<dyn Sink> {
    let mut options = SinkOptions::new(url);
    options.publish_timeout = Duration::from_millis(300);
    connect::sink(&options).unwrap().sink
}

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sink(&self, options: &str) -> Arc<dyn Sink> {
        let path = self.path("events.ndjson");
        open(&format!("file:{}{options}", path.display()))
    }

    /// The payloads in the file of this name, in order.
    fn payloads(&self, name: &str) -> Vec<String> {
        let text = fs::read(self.path(name)).unwrap_or_default();
        assert!(
            text.is_empty() || text.ends_with(b"\n"),
            "{name} must contain whole lines only"
        );
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines
            .map(|line| String::from_utf8(arrived(line).payload.to_vec()).unwrap())
            .collect()
    }

    /// Renamed files, the oldest first.
    fn put_aside(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("events.ndjson.")).collect();
        names.sort();
        names
    }
}

struct Harness(Arc<dyn Sink>, Place);

#[async_trait]
impl SinkHarness for Harness {
    fn sink(&self) -> Arc<dyn Sink> {
        self.0.clone()
    }

    async fn arrived(&mut self) -> Option<Vec<Arrived>> {
        let written = fs::read(self.1.path("events.ndjson")).unwrap();
        let lines = written.strip_suffix(b"\n").unwrap_or(&written);
        Some(lines.split(|byte| *byte == b'\n').map(arrived).collect())
    }

    fn invalid(&self) -> Option<Event> {
        no_json()
    }
}

async fn harness() -> Option<Harness> {
    let place = Place::new();
    Some(Harness(place.sink(""), place))
}

sink_contract!(harness);

async fn publish(sink: &dyn Sink, numbers: std::ops::Range<u32>) -> Vec<Outcome> {
    let batch: Vec<_> = numbers.map(|n| outgoing(event("a", n.to_string()))).collect();
    sink.publish(&batch).await
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn full_files_are_put_aside_and_the_oldest_go() {
    let place = Place::new();
    let sink = place.sink("?rotate_bytes=1024&keep=2");
    for n in 0..40 {
        assert_eq!(publish(&*sink, n..n + 1).await, [Outcome::Delivered]);
    }
    let aside = place.put_aside();
    assert_eq!(aside.len(), 2, "{aside:?}");
    let names = aside.iter().map(String::as_str).chain(["events.ndjson"]);
    let kept: Vec<String> = names.flat_map(|name| place.payloads(name)).collect();
    let first: u32 = kept[0].parse().unwrap();
    assert!(first > 0, "the oldest files must be removed");
    assert_eq!(kept, numbers(first..40), "the rest must be complete and in order");
}

#[tokio::test]
async fn without_keep_nothing_is_removed() {
    let place = Place::new();
    for n in 0..30 {
        // Each event comes from a new process, which continues the file of the one before.
        let sink = place.sink("?rotate_bytes=1024");
        assert_eq!(publish(&*sink, n..n + 1).await, [Outcome::Delivered]);
    }
    let aside = place.put_aside();
    let names = aside.iter().map(String::as_str).chain(["events.ndjson"]);
    let kept: Vec<String> = names.flat_map(|name| place.payloads(name)).collect();
    assert!(aside.len() > 2, "{aside:?}");
    assert_eq!(kept, numbers(0..30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn several_relays_write_one_file() {
    let place = Place::new();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let sink = place.sink("?rotate_bytes=4096");
        writers.spawn(async move {
            for n in 0..50 {
                let key = format!("key-{writer}");
                let mut wanted = sink.publish(&[outgoing(event(&key, n.to_string()))]).await;
                while wanted != [Outcome::Delivered] {
                    wanted = sink.publish(&[outgoing(event(&key, n.to_string()))]).await;
                }
            }
        });
    }
    writers.join_all().await;
    let aside = place.put_aside();
    let names = aside.iter().map(String::as_str).chain(["events.ndjson"]);
    let files: Vec<Vec<u8>> = names.map(|name| fs::read(place.path(name)).unwrap()).collect();
    let lines = files.iter().flat_map(|file| file.split(|byte| *byte == b'\n'));
    let lines: Vec<Arrived> = lines.filter(|line| !line.is_empty()).map(arrived).collect();
    for writer in 0..4 {
        let key = format!("key-{writer}");
        let of_key = lines.iter().filter(|arrived| arrived.key == key);
        let payloads: Vec<String> = of_key
            .map(|arrived| String::from_utf8(arrived.payload.to_vec()).unwrap())
            .collect();
        assert_eq!(payloads, numbers(0..50), "{key}");
    }
}

#[tokio::test]
async fn a_half_written_line_is_cut_off() {
    let place = Place::new();
    publish(&*place.sink(""), 0..2).await;
    let mut file = OpenOptions::new()
        .append(true)
        .open(place.path("events.ndjson"))
        .unwrap();
    // Longer than the part of the file that is read at once.
    write!(file, "{{\"half\":\"{}", "x".repeat(200_000)).unwrap();
    assert_eq!(publish(&*place.sink(""), 2..3).await, [Outcome::Delivered]);
    assert_eq!(place.payloads("events.ndjson"), numbers(0..3));
}

#[tokio::test]
async fn a_moved_file_is_created_again() {
    let place = Place::new();
    let sink = place.sink("");
    publish(&*sink, 0..2).await;
    fs::rename(place.path("events.ndjson"), place.path("taken")).unwrap();
    assert_eq!(publish(&*sink, 2..3).await, [Outcome::Delivered]);
    assert_eq!(place.payloads("taken"), numbers(0..2));
    assert_eq!(place.payloads("events.ndjson"), numbers(2..3));
}

fn failed(outcomes: &[Outcome]) -> (SinkErrorKind, String) {
    match &outcomes[0] {
        Outcome::Failed(error) => (error.kind, error.message.clone()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_full_disk_and_a_missing_folder_have_different_errors() {
    let (kind, message) = failed(&publish(&*open("file:/dev/full"), 0..1).await);
    assert_eq!(kind, SinkErrorKind::Full, "{message}");

    let place = Place::new();
    let late = place.path("not-yet");
    let sink = open(&format!("file:{}/events.ndjson", late.display()));
    let (kind, message) = failed(&publish(&*sink, 0..1).await);
    assert_eq!(kind, SinkErrorKind::Unreachable);
    assert!(message.contains("not-yet/events.ndjson"), "{message}");
    assert!(sink.check().await.is_err());
    fs::create_dir(&late).unwrap();
    sink.check().await.unwrap();
    assert_eq!(publish(&*sink, 0..1).await, [Outcome::Delivered]);
}

#[tokio::test]
async fn a_process_that_keeps_the_lock_is_not_waited_for_longer_than_the_timeout() {
    let place = Place::new();
    let sink = place.sink("");
    publish(&*sink, 0..1).await;
    let other = fs::File::open(place.path("events.ndjson")).unwrap();
    other.lock().unwrap();
    let (kind, message) = failed(&publish(&*sink, 1..2).await);
    assert_eq!(kind, SinkErrorKind::Unreachable);
    assert!(message.contains("another process"), "{message}");
    other.unlock().unwrap();
    assert_eq!(publish(&*sink, 1..2).await, [Outcome::Delivered]);
    assert_eq!(place.payloads("events.ndjson"), numbers(0..2));
}

#[tokio::test]
async fn a_foreign_file_is_refused_and_not_changed() {
    let place = Place::new();
    let path = place.path("events.ndjson");
    fs::write(&path, "-----BEGIN KEY-----").unwrap();
    let error = place.sink("").check().await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Misconfigured, "{error}");
    let (kind, message) = failed(&publish(&*place.sink(""), 0..1).await);
    assert_eq!(kind, SinkErrorKind::Misconfigured, "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "-----BEGIN KEY-----");
}

#[tokio::test]
async fn a_link_stays_and_other_names_are_left_alone() {
    let place = Place::new();
    fs::create_dir(place.path("large")).unwrap();
    std::os::unix::fs::symlink(place.path("large/real"), place.path("events.ndjson")).unwrap();
    fs::write(place.path("large/real"), "").unwrap();
    let foreign = ["large/real.1", "large/real.20240101", "large/real.gz"].map(|name| place.path(name));
    foreign.iter().for_each(|path| fs::write(path, "x").unwrap());
    let sink = place.sink("?rotate_bytes=1024&keep=1");
    for n in 0..30 {
        assert_eq!(publish(&*sink, n..n + 1).await, [Outcome::Delivered]);
    }
    assert!(
        fs::symlink_metadata(place.path("events.ndjson"))
            .unwrap()
            .is_symlink()
    );
    assert!(foreign.iter().all(|path| path.exists()));
    let numbered = fs::read_dir(place.path("large")).unwrap();
    assert_eq!(
        numbered.count(),
        5,
        "the file, one renamed file, and three unrelated files"
    );
}
