//! The place of a measurement: its own tables and stream, created at the start and dropped at the end.

use std::{collections::BTreeMap, io::Write, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use pillarbox::table::Tables;
use pillarbox_relay::{
    connect::{self, DatabaseOptions, OpenSink, OpenStore, SinkOptions},
    driver,
    engine::Options,
    sink::{Storage, StreamSpec, TopicSpec},
};
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;

use super::{
    Target,
    broker::{self, Broker},
    database::Database,
    store_error,
};

pub(super) struct Arena {
    pub(super) store: OpenStore,
    pub(super) database: Database,
    pub(super) database_options: DatabaseOptions,
    pub(super) sink_options: SinkOptions,
    relay_options: Options,
    /// The receiving side with its bare client, if there is one.
    pub(super) broker: Option<Arc<dyn Broker>>,
    pub(super) topic: String,
    pub(super) stream: String,
    /// The folder of a database that was created for this measurement.
    _folder: Option<tempfile::TempDir>,
}

impl Arena {
    /// Opens an arena on the target's database and sink. Without a database, it creates a SQLite file.
    pub(super) async fn open(target: &Target) -> Result<Self> {
        let mark = format!("{:08x}", rand::random::<u32>());
        let folder = if target.default_database {
            Some(tempfile::tempdir()?)
        } else {
            None
        };
        let mut database_options = target.database.clone();
        if let Some(folder) = &folder {
            database_options.url = format!("sqlite:{}", folder.path().join("bench.db").display());
        }
        let database = Database::connect(&database_options).await?;
        let table = database.make_room(&format!("pillarbox_bench_{mark}")).await?;
        database_options.tables = Tables::new(&table, None)?;
        let store = connect::store(&database_options).map_err(store_error)?;
        store.admin.migrate().await.map_err(store_error)?;

        let stream = format!("PILLARBOX_BENCH_{mark}");
        let mut sink_options = target.sink.clone();
        sink_options.streams = vec![stream_spec(&stream, &mark)];
        let topic = format!("pillarbox-bench.{mark}.event");
        sink_options.topics = vec![topic_spec(&topic)];
        let arena = Self {
            store,
            database,
            database_options,
            sink_options,
            relay_options: target.relay.clone(),
            broker: broker::open(&target.sink, &stream, &topic)?,
            topic,
            stream,
            _folder: folder,
        };
        arena.open_sink()?.apply(&arena).await?;
        Ok(arena)
    }

    pub(super) fn open_sink(&self) -> Result<ArenaSink> {
        Ok(ArenaSink(
            connect::sink(&self.sink_options).map_err(|error| anyhow!(error))?,
        ))
    }

    /// The configuration of a relay in this arena, with these groups. Only this user can read the file, because it contains the
    /// addresses.
    pub(super) fn configuration(&self, groups: &Map<String, Value>) -> Result<NamedTempFile> {
        let spec = &self.sink_options.streams[0];
        let relay = &self.relay_options;
        let mut outbox = json!({
            "database": {
                "url": self.database_options.url,
                "table_name": self.database_options.tables.name(),
                "notify": self.database_options.notify,
                "pooler": self.database_options.pooler,
                "connections_max": self.database_options.connections_max,
            },
            "publisher": {
                "batch_size": relay.batch_events_max,
                "max_concurrent_publishers": relay.publishers_max,
                "poll_interval_ms": relay.poll_interval_max.as_millis() as u64,
                "window_events_max": relay.window_events_max,
                "window_bytes_max": relay.window_bytes_max,
            },
            "sinks": { "bench": { "url": self.sink_options.url } },
        });
        if self.has_streams() {
            outbox["streams"] = json!([{
                "name": spec.name,
                "subjects": spec.subjects,
                "replicas": spec.replicas,
                "storage": "file",
                "sink": "bench",
            }]);
        }
        for (name, group) in groups {
            outbox[name] = group.clone();
        }
        let mut file = NamedTempFile::with_suffix(".yaml")?;
        file.write_all(serde_json::to_string(&json!({ "outbox": outbox }))?.as_bytes())?;
        file.flush()?;
        Ok(file)
    }

    /// Whether the sink has streams that must be created, like NATS.
    pub(super) fn has_streams(&self) -> bool {
        driver::sink(&self.sink_options.url)
            .is_some_and(|driver| driver.provisions == Some(driver::Provisions::Streams))
    }

    /// How many events a relay has in flight at the sink.
    pub(super) fn in_flight_max(&self) -> usize {
        self.relay_options.batch_events_max * self.relay_options.publishers_max
    }

    /// A topic that the sink accepts but no stream does.
    pub(super) fn topic_without_stream(&self) -> String {
        format!("pillarbox-bench-poison.{}", self.stream)
    }

    /// Drops everything that was created.
    pub(super) async fn close(self) -> Result<()> {
        if let Some(broker) = &self.broker {
            broker.clear().await?;
        }
        self.database.clear_room(&self.database_options.tables).await
    }
}

pub(super) struct ArenaSink(pub(super) OpenSink);

impl ArenaSink {
    async fn apply(&self, arena: &Arena) -> Result<()> {
        if let Some(streams) = &self.0.streams {
            streams
                .apply_streams()
                .await
                .map_err(|error| anyhow!(error))
                .with_context(|| {
                    format!(
                        "can't create a stream at {}",
                        connect::redacted(&arena.sink_options.url)
                    )
                })?;
        }
        Ok(())
    }
}

/// Six partitions, like a small cluster. The broker sets the timestamp when it stores an event.
fn topic_spec(name: &str) -> TopicSpec {
    let stamped = ("message.timestamp.type".to_owned(), "LogAppendTime".to_owned());
    TopicSpec {
        name: name.to_owned(),
        partitions: Some(6),
        replication: None,
        settings: BTreeMap::from([stamped]),
    }
}

fn stream_spec(name: &str, mark: &str) -> StreamSpec {
    StreamSpec {
        name: name.to_owned(),
        subjects: vec![format!("pillarbox-bench.{mark}.>")],
        replicas: 1,
        storage: Storage::File,
        duplicate_window: Duration::from_secs(120),
    }
}
