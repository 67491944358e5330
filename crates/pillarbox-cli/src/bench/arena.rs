//! Where a measurement takes place: tables and a stream of its own, made at the start and dropped at the end.

use std::{collections::BTreeMap, io::Write, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use pillarbox::table::Tables;
use pillarbox_relay::{
    connect::{self, DatabaseOptions, OpenSink, OpenStore, SinkOptions},
    driver,
    engine::Options,
    sink::{Storage, StreamSpec, TopicSpec},
};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{
    broker::{self, Broker},
    database::Database,
};
use crate::config::Settings;

pub(super) struct Arena {
    pub(super) store: OpenStore,
    pub(super) database: Database,
    pub(super) database_options: DatabaseOptions,
    pub(super) sink_options: SinkOptions,
    relay_options: Options,
    /// The other side by its bare client, where it has one.
    pub(super) broker: Option<Arc<dyn Broker>>,
    pub(super) topic: String,
    pub(super) stream: String,
    /// A folder for a database made for this measurement alone.
    _folder: Option<tempfile::TempDir>,
}

impl Arena {
    /// On the database and the first sink of the settings; without a database, on a SQLite file of its own.
    pub(super) async fn open(settings: &Settings) -> Result<Self> {
        let mark = format!("{:08x}", rand::random::<u32>());
        let folder = if settings.default_database {
            Some(tempfile::tempdir()?)
        } else {
            None
        };
        let mut database_options = settings.database.clone();
        if let Some(folder) = &folder {
            database_options.url = format!("sqlite:{}", folder.path().join("bench.db").display());
        }
        let database = Database::connect(&database_options).await?;
        let table = database.make_room(&format!("pillarbox_bench_{mark}")).await?;
        database_options.tables = Tables::new(&table, None)?;
        let store = connect::store(&database_options).map_err(|error| anyhow!(error.chain()))?;
        store
            .admin
            .migrate()
            .await
            .map_err(|error| anyhow!(error.chain()))?;

        let first = settings
            .sinks
            .first()
            .context("the configuration names no sink")?;
        let stream = format!("PILLARBOX_BENCH_{mark}");
        let mut sink_options = first.options.clone();
        sink_options.streams = vec![stream_spec(&stream, &mark)];
        let topic = format!("pillarbox-bench.{mark}.event");
        sink_options.topics = vec![topic_spec(&topic)];
        let arena = Self {
            store,
            database,
            database_options,
            sink_options,
            relay_options: settings.engine.clone(),
            broker: broker::open(&first.options, &stream, &topic)?,
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

    /// The configuration of a relay that works here. It is readable by this user alone: it holds the addresses.
    pub(super) fn configuration(&self, validation: Option<&Value>) -> Result<NamedTempFile> {
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
        if let Some(validation) = validation {
            outbox["validation"] = validation.clone();
        }
        let mut file = NamedTempFile::with_suffix(".yaml")?;
        file.write_all(serde_json::to_string(&json!({ "outbox": outbox }))?.as_bytes())?;
        file.flush()?;
        Ok(file)
    }

    /// The sink has streams that must be made, as NATS has.
    pub(super) fn has_streams(&self) -> bool {
        driver::sink(&self.sink_options.url)
            .is_some_and(|driver| driver.provisions == Some(driver::Provisions::Streams))
    }

    /// Events that a relay has with the sink at once.
    pub(super) fn in_flight_max(&self) -> usize {
        self.relay_options.batch_events_max * self.relay_options.publishers_max
    }

    /// A topic that the sink takes and no stream does.
    pub(super) fn topic_without_stream(&self) -> String {
        format!("pillarbox-bench-poison.{}", self.stream)
    }

    /// Drops what was made.
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
                        "can't make a stream at {}",
                        connect::redacted(&arena.sink_options.url)
                    )
                })?;
        }
        Ok(())
    }
}

/// Six partitions, as many as a small cluster would have, stamped by the broker when it has them.
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
