//! Where events go: sinks, the routes to them, the streams there.

use std::{sync::Arc, time::Duration};

use pillarbox_relay::{
    connect::SinkOptions,
    envelope::{Envelope, Mode},
    route::{AfterDeath, Pattern, Route, Routes},
    sink::{self, StreamSpec},
};

use super::{DAY_MS, NamedSink, Problems, scheme, within};
use crate::config::{schema, show::word, unknown::nearest};

const SINKS: &[&str] = &["nats", "tls", "http-stream", "stdout", "null"];

pub(super) fn sinks(outbox: &schema::Outbox, problems: &mut Problems) -> Vec<NamedSink> {
    let mut sinks = Vec::new();
    for (name, sink) in &outbox.sinks {
        let key = |field: &str| format!("outbox.sinks.{name}.{field}");
        if let Err(problem) = scheme(&sink.url, SINKS) {
            problems.push((
                key("url"),
                format!("{problem}. Use nats://host:port, http-stream:, stdout: or null:"),
            ));
        }
        within(
            problems,
            key("publish_timeout_ms"),
            sink.publish_timeout_ms,
            DAY_MS,
        );
        sinks.push(NamedSink {
            name: name.as_str().into(),
            options: SinkOptions {
                publish_timeout: Duration::from_millis(sink.publish_timeout_ms),
                ..SinkOptions::new(sink.url.clone())
            },
        });
    }
    sinks
}

pub(super) fn routes(
    outbox: &schema::Outbox,
    sinks: &[NamedSink],
    problems: &mut Problems,
) -> Option<Routes> {
    if outbox.routes.is_empty() {
        if let [only] = sinks {
            return Some(Routes::to_one(&only.name));
        }
        problems.push((
            "outbox.routes".into(),
            format!("there are {} sinks and no routes: say which topics go where, for example {{ topic: \">\", sink: {} }}", sinks.len(), word(&sinks[0].name)),
        ));
        return None;
    }
    let mut routes = Vec::new();
    for (index, route) in outbox.routes.iter().enumerate() {
        let key = |field: &str| format!("outbox.routes.{index}.{field}");
        known_sink(sinks, &route.sink, key("sink"), problems);
        match Pattern::new(&route.topic) {
            Ok(topic) => routes.push(Route {
                topic,
                sink: route.sink.as_str().into(),
                stream: route.stream.as_deref().map(Arc::from),
                envelope: envelope(route, key("source"), problems),
                after_death: match route.after_death {
                    schema::AfterDeath::Skip => AfterDeath::Skip,
                    schema::AfterDeath::Block => AfterDeath::Block,
                    schema::AfterDeath::Latest => AfterDeath::Latest,
                },
            }),
            Err(error) => problems.push((key("topic"), quoting(&route.topic, &error))),
        }
    }
    Some(Routes::new(routes))
}

fn envelope(route: &schema::Route, key: String, problems: &mut Problems) -> Envelope {
    let cloud_events = |mode| Envelope::CloudEvents {
        mode,
        source: route.source.as_deref().map(Arc::from),
    };
    let envelope = match route.envelope {
        schema::Envelope::Raw => Envelope::Raw,
        schema::Envelope::CloudEvents => cloud_events(Mode::Binary),
        schema::Envelope::CloudEventsStructured => cloud_events(Mode::Structured),
        schema::Envelope::Pillarbox => Envelope::Pillarbox,
        schema::Envelope::Debezium => Envelope::Debezium,
    };
    if let Some(source) = &route.source {
        if !matches!(envelope, Envelope::CloudEvents { .. }) {
            problems.push((
                key,
                "only an envelope of CloudEvents has a source: say `envelope: cloudevents`, or leave it out"
                    .into(),
            ));
        } else if source.is_empty() || source.len() > 1000 || !source.bytes().all(|b| b.is_ascii_graphic()) {
            problems.push((key, format!("{} is no URI: write one such as /shop/orders or https://shop.example/orders, up to 1,000 characters without spaces", word(source))));
        }
    }
    envelope
}

/// Gives each stream to its sink.
pub(super) fn streams(outbox: &schema::Outbox, sinks: &mut [NamedSink], problems: &mut Problems) {
    let with_streams: Vec<Arc<str>> = sinks
        .iter()
        .filter(|sink| has_streams(&sink.options.url))
        .map(|sink| sink.name.clone())
        .collect();
    for (index, stream) in outbox.streams.iter().enumerate() {
        let key = |field: &str| format!("outbox.streams.{index}.{field}");
        within(problems, key("replicas"), stream.replicas, 100);
        within(
            problems,
            key("duplicate_window_seconds"),
            stream.duplicate_window_seconds,
            365 * 86_400,
        );
        if stream.subjects.is_empty() {
            problems.push((key("subjects"), "a stream takes at least one subject".into()));
        }
        for subject in &stream.subjects {
            if let Err(error) = Pattern::new(subject) {
                problems.push((key("subjects"), quoting(subject, &error)));
            }
        }
        let owner = match (&stream.sink, with_streams.as_slice()) {
            (Some(name), _) => {
                known_sink(sinks, name, key("sink"), problems);
                name.as_str().into()
            }
            (None, [only]) => only.clone(),
            (None, []) => {
                problems.push((key("name"), "no sink has streams: only a nats:// one does".into()));
                continue;
            }
            (None, _) => {
                problems.push((
                    key("name"),
                    "several sinks have streams: say which by `sink`".into(),
                ));
                continue;
            }
        };
        let Some(sink) = sinks.iter_mut().find(|sink| sink.name == owner) else {
            continue;
        };
        if !has_streams(&sink.options.url) {
            problems.push((
                key("sink"),
                format!("`{}` has no streams: only a nats:// sink does", word(&owner)),
            ));
        }
        sink.options.streams.push(StreamSpec {
            name: stream.name.clone(),
            subjects: stream.subjects.clone(),
            replicas: stream.replicas as usize,
            storage: match stream.storage {
                schema::Storage::File => sink::Storage::File,
                schema::Storage::Memory => sink::Storage::Memory,
            },
            duplicate_window: Duration::from_secs(stream.duplicate_window_seconds),
        });
    }
}

fn known_sink(sinks: &[NamedSink], name: &str, key: String, problems: &mut Problems) {
    if sinks.iter().any(|sink| &*sink.name == name) {
        return;
    }
    let hint = match nearest(name, sinks.iter().map(|sink| &*sink.name)) {
        Some(near) => format!("Did you mean `{}`?", word(near)),
        None => format!(
            "There are: {}.",
            sinks
                .iter()
                .map(|sink| word(&sink.name))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    };
    problems.push((key, format!("there is no sink `{}`. {hint}", word(name))));
}

/// The message of an error that quotes what was written.
fn quoting(written: &str, error: &impl ToString) -> String {
    error.to_string().replacen(written, &word(written), 1)
}

fn has_streams(url: &str) -> bool {
    url.starts_with("nats:") || url.starts_with("tls:")
}
