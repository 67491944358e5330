//! A relay with traces, on a SQLite file and a sink that refuses what it is told to.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use pillarbox::{Event, EventId, Limits};
use pillarbox_relay::{
    Handle, Options, Relay, Sink,
    connect::{self, DatabaseOptions, OpenStore},
    engine,
    envelope::Envelope,
    retry::RetryPolicy,
    route::{AfterDeath, Pattern, Route, Routes},
    sink::{Capabilities, Outcome, Outgoing, SinkError, SinkErrorKind},
    trace::{self, Traces},
};
use tempfile::TempDir;

/// What the payload contains and no span may.
pub(super) const PRIVATE: &str = "private-4711";

type Headers = BTreeMap<String, String>;

/// Keeps the headers of what it was asked to store.
#[derive(Clone, Default)]
pub(super) struct Recorder {
    refusals: Arc<Mutex<HashMap<EventId, (u32, SinkErrorKind)>>>,
    seen: Arc<Mutex<Vec<(EventId, Headers)>>>,
}

impl Recorder {
    pub(super) fn refuse(&self, event: &Event, times: u32, kind: SinkErrorKind) {
        self.refusals
            .lock()
            .unwrap()
            .insert(event.id.clone(), (times, kind));
    }

    /// The headers of each attempt at an event.
    pub(super) fn headers(&self, event: &Event) -> Vec<Headers> {
        let seen = self.seen.lock().unwrap();
        let of_event = seen.iter().filter(|(id, _)| *id == event.id);
        of_event.map(|(_, headers)| headers.clone()).collect()
    }
}

#[async_trait]
impl Sink for Recorder {
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    async fn check(&self) -> Result<(), SinkError> {
        Ok(())
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Outcome> {
        let outcome = |outgoing: &Outgoing| {
            let event = &outgoing.event.event;
            self.seen
                .lock()
                .unwrap()
                .push((event.id.clone(), event.headers.clone()));
            match self.refusals.lock().unwrap().get_mut(&event.id) {
                Some((left, kind)) if *left > 0 => {
                    *left -= 1;
                    Outcome::Failed(SinkError::new(*kind, "not like this"))
                }
                _ => Outcome::Delivered,
            }
        };
        batch.iter().map(outcome).collect()
    }
}

pub(super) struct Scene {
    pub(super) sink: Recorder,
    store: OpenStore,
    url: String,
    _folder: TempDir,
}

impl Scene {
    pub(super) async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite:{}", folder.path().join("outbox.db").display());
        let store = connect::store(&DatabaseOptions::new(&url)).unwrap();
        store.admin.migrate().await.unwrap();
        Self {
            sink: Recorder::default(),
            store,
            url,
            _folder: folder,
        }
    }

    pub(super) async fn enqueue(&self, events: &[Event]) {
        self.store
            .admin
            .enqueue(&Limits::default(), events)
            .await
            .unwrap();
    }

    /// Starts a relay for the topics `t.>`. `collector`: the address of its collector.
    pub(super) fn relay(&self, collector: Option<&str>, sample_ratio: f64) -> Handle {
        let traces = collector.map(|url| {
            let secret = ("authorization".to_owned(), "Bearer x".to_owned());
            let mut options = trace::Options::new(url, [(&secret.0, &secret.1)]).unwrap();
            options.sample_ratio = sample_ratio;
            options.relay = "relay-1".into();
            options.systems = [("events".into(), "nats")].into();
            Arc::new(Traces::new(options).unwrap())
        });
        let sink: Arc<dyn Sink> = Arc::new(self.sink.clone());
        Relay {
            store: connect::store(&DatabaseOptions::new(&self.url)).unwrap(),
            sinks: [("events".into(), sink)].into(),
            routes: Routes::new(vec![Route {
                topic: Pattern::new("t.>").unwrap(),
                sink: "events".into(),
                stream: None,
                envelope: Envelope::default(),
                after_death: AfterDeath::default(),
                event_log: false,
            }]),
            options: Options {
                engine: engine::Options {
                    traces,
                    retry: RetryPolicy {
                        base_delay: Duration::from_millis(20),
                        ..RetryPolicy::default()
                    },
                    ..engine::Options::default()
                },
                ..Options::default()
            },
        }
        .start()
    }
}

pub(super) fn event(key: &str) -> Event {
    Event::to("t.placed")
        .event_type("Placed")
        .aggregate("order", key)
        .payload(format!("\"{PRIVATE}\""))
}

/// An event of this trace, which its producer sampled or not.
pub(super) fn traced(key: &str, traceparent: &str) -> Event {
    event(key)
        .header("traceparent", traceparent)
        .header("tracestate", "vendor=value")
}
