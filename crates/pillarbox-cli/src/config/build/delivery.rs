//! Where events go: sinks, routes and streams.

use std::{sync::Arc, time::Duration};

use pillarbox_relay::{
    connect::SinkOptions,
    driver::{self, Provisions, SinkDriver},
    envelope::{Envelope, Mode},
    route::{AfterDeath, Pattern, Route, Routes},
    sink::{self, StreamSpec, TopicSpec},
};

use super::{DAY_MS, NamedSink, Problems, check_address, shape, webhook, within};
use crate::config::{schema, show::word, unknown::nearest};

pub(super) fn sinks(outbox: &schema::Outbox, problems: &mut Problems) -> Vec<NamedSink> {
    let mut sinks = Vec::new();
    for (name, sink) in &outbox.sinks {
        let key = |field: &str| format!("outbox.sinks.{name}.{field}");
        let known = driver::SINKS.iter().map(|driver| &driver.about);
        if let Err(problem) = check_address(&sink.url, known) {
            let examples = driver::sink_examples();
            problems.push((key("url"), format!("{problem}. Use {examples}")));
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
                webhook: webhook::options(sink, &key("webhook"), problems),
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
            let event_log = outbox.event_log.enabled || serves_event_log(only);
            return Some(Routes::to_one(&only.name).event_log(event_log));
        }
        problems.push((
            "outbox.routes".into(),
            format!(
                "there are {} sinks and no routes: add routes, for example {{ topic: \">\", sink: {} }}",
                sinks.len(),
                word(&sinks[0].name)
            ),
        ));
        return None;
    }
    let mut routes = Vec::new();
    for (index, route) in outbox.routes.iter().enumerate() {
        let key = |field: &str| format!("outbox.routes.{index}.{field}");
        known_sink(sinks, &route.sink, key("sink"), problems);
        let serves_log = sinks
            .iter()
            .any(|sink| *sink.name == *route.sink && serves_event_log(sink));
        if serves_log && route.event_log == Some(false) {
            problems.push((
                key("event_log"),
                "this sink serves the event log, so its events must be in it: leave this out".into(),
            ));
        }
        match Pattern::new(&route.topic) {
            Ok(topic) => routes.push(Route {
                topic,
                sink: route.sink.as_str().into(),
                stream: route.stream.as_deref().map(Arc::from),
                envelope: match &route.shape {
                    None => envelope(route, key("source"), problems),
                    Some(_) if route.envelope != schema::Envelope::Raw || route.source.is_some() => {
                        problems.push((
                            key("shape"),
                            "a shape replaces the envelope: leave out `envelope` and `source`, or the shape"
                                .into(),
                        ));
                        continue;
                    }
                    Some(shape) => Envelope::Shape(Arc::new(shape::shape(shape, &key("shape"), problems))),
                },
                after_death: match route.after_death {
                    schema::AfterDeath::Skip => AfterDeath::Skip,
                    schema::AfterDeath::Block => AfterDeath::Block,
                    schema::AfterDeath::Latest => AfterDeath::Latest,
                },
                event_log: serves_log || route.event_log.unwrap_or(outbox.event_log.enabled),
            }),
            Err(error) => problems.push((key("topic"), quoting(&route.topic, &error))),
        }
    }
    Some(Routes::new(routes).event_log(outbox.event_log.enabled))
}

/// Whether it delivers its events by way of the event log.
fn serves_event_log(sink: &NamedSink) -> bool {
    driver::sink(&sink.options.url).is_some_and(|driver| driver.about.kind == "http-stream")
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
                "only CloudEvents have a source: set `envelope: cloudevents`, or leave this out".into(),
            ));
        } else if source.is_empty() || source.len() > 1000 || !source.bytes().all(|b| b.is_ascii_graphic()) {
            problems.push((key, format!("{} is not a URI: write one such as /shop/orders or https://shop.example/orders, up to 1,000 characters without spaces", word(source))));
        }
    }
    envelope
}

/// Assigns each stream to its sink.
pub(super) fn streams(outbox: &schema::Outbox, sinks: &mut [NamedSink], problems: &mut Problems) {
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
            problems.push((key("subjects"), "a stream needs at least one subject".into()));
        }
        for subject in &stream.subjects {
            if let Err(error) = Pattern::new(subject) {
                problems.push((key("subjects"), quoting(subject, &error)));
            }
        }
        let Some(sink) = owner(sinks, stream.sink.as_deref(), Provisions::Streams, key, problems) else {
            continue;
        };
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

/// Assigns each topic to its sink.
pub(super) fn topics(outbox: &schema::Outbox, sinks: &mut [NamedSink], problems: &mut Problems) {
    for (index, topic) in outbox.topics.iter().enumerate() {
        let key = |field: &str| format!("outbox.topics.{index}.{field}");
        if let Some(partitions) = topic.partitions {
            within(problems, key("partitions"), partitions, 100_000);
        }
        if let Some(replication) = topic.replication {
            within(problems, key("replication"), replication, 100);
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if topic.name.is_empty() || topic.name.len() > 249 || !topic.name.bytes().all(plain) {
            problems.push((
                key("name"),
                "a Kafka topic has up to 249 letters, digits, `.`, `_` and `-`".into(),
            ));
        }
        let Some(sink) = owner(sinks, topic.sink.as_deref(), Provisions::Topics, key, problems) else {
            continue;
        };
        let setting = |(name, value): (&String, &schema::TopicSetting)| (name.clone(), value.to_string());
        sink.options.topics.push(TopicSpec {
            name: topic.name.clone(),
            partitions: topic.partitions,
            replication: topic.replication,
            settings: topic.settings.iter().map(setting).collect(),
        });
    }
}

/// The sink of a stream or topic: the one it names, or the only possible one.
fn owner<'a>(
    sinks: &'a mut [NamedSink],
    named: Option<&str>,
    what: Provisions,
    key: impl Fn(&str) -> String,
    problems: &mut Problems,
) -> Option<&'a mut NamedSink> {
    let things = what.as_str();
    let of_this_kind = |driver: &SinkDriver| driver.provisions == Some(what);
    let can = |url: &str| driver::sink(url).is_some_and(of_this_kind);
    let at: Vec<&str> = driver::SINKS
        .iter()
        .filter(|driver| of_this_kind(driver))
        .map(|driver| driver.about.name)
        .collect();
    let at = at.join(" or ");
    if let Some(name) = named {
        known_sink(sinks, name, key("sink"), problems);
        let sink = sinks.iter_mut().find(|sink| &*sink.name == name)?;
        if !can(&sink.options.url) {
            problems.push((
                key("sink"),
                format!("`{}` has no {things}: only a {at} sink has", word(name)),
            ));
        }
        return Some(sink);
    }
    let mut able = sinks.iter_mut().filter(|sink| can(&sink.options.url));
    let only = able.next();
    let problem = match (&only, able.next()) {
        (Some(_), None) => return only,
        (None, _) => format!("no sink has {things}: only a {at} sink has"),
        (Some(_), Some(_)) => format!("several sinks have {things}: choose one with `sink`"),
    };
    problems.push((key("name"), problem));
    None
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

/// The text of an error that quotes the input.
fn quoting(written: &str, error: &impl ToString) -> String {
    error.to_string().replacen(written, &word(written), 1)
}
