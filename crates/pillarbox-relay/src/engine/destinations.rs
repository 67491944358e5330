//! The destinations of events, by number, and their health.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use tokio::time::Instant;

use super::health::DestinationHealth;
use crate::log::PauseLog;
use crate::sink::DestinationName;

/// Unique within this relay. The numbers are small, because the window has a queue for each.
pub(super) type DestinationId = usize;

/// The limit for each sink. There can be as many topics as customers; all destinations beyond the limit share one.
const PER_SINK_MAX: usize = 1_000;

pub(super) struct Destination {
    pub(super) sink: usize,
    /// `sink/stream topic[partition]`.
    pub(super) label: Arc<str>,
    pub(super) health: DestinationHealth,
    pub(super) pauses: PauseLog,
    /// When it last accepted an event, or refused one because of the event itself.
    pub(super) answered_at: Option<Instant>,
}

#[derive(Default)]
pub(super) struct Destinations {
    list: Vec<Destination>,
    /// By sink and hash of the name. Two names with the same hash would only share their health.
    numbers: HashMap<(usize, u64), DestinationId>,
    by_sink: Vec<Vec<DestinationId>>,
    hasher: RandomState,
}

impl Destinations {
    /// The number of a destination. An unknown one gets a new number.
    pub(super) fn number(
        &mut self,
        sink: usize,
        sink_name: &str,
        name: DestinationName<'_>,
    ) -> DestinationId {
        let hash = self.hasher.hash_one(name);
        if let Some(&known) = self.numbers.get(&(sink, hash)) {
            return known;
        }
        if self.of_sink(sink).len() >= PER_SINK_MAX {
            // All destinations beyond the limit share this one.
            return *self.numbers.entry((sink, u64::MAX)).or_insert_with(|| {
                add(
                    &mut self.list,
                    &mut self.by_sink,
                    sink,
                    format!("{sink_name}/others"),
                )
            });
        }
        let label = match name == DestinationName::default() {
            true => sink_name.to_owned(),
            false => format!("{sink_name}/{name}"),
        };
        let number = add(&mut self.list, &mut self.by_sink, sink, label);
        self.numbers.insert((sink, hash), number);
        number
    }

    pub(super) fn of_sink(&self, sink: usize) -> &[DestinationId] {
        self.by_sink.get(sink).map_or(&[], Vec::as_slice)
    }

    pub(super) fn get(&self, number: DestinationId) -> &Destination {
        &self.list[number]
    }

    pub(super) fn get_mut(&mut self, number: DestinationId) -> &mut Destination {
        &mut self.list[number]
    }

    pub(super) fn paused(&self) -> impl Iterator<Item = (DestinationId, &Destination)> {
        let all = self.list.iter().enumerate();
        all.filter(|(_, destination)| destination.health.is_paused())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (DestinationId, &Destination)> {
        self.list.iter().enumerate()
    }
}

fn add(
    list: &mut Vec<Destination>,
    by_sink: &mut Vec<Vec<DestinationId>>,
    sink: usize,
    label: String,
) -> DestinationId {
    let number = list.len();
    list.push(Destination {
        sink,
        label: label.into(),
        health: DestinationHealth::default(),
        pauses: PauseLog::default(),
        answered_at: None,
    });
    if by_sink.len() <= sink {
        by_sink.resize_with(sink + 1, Vec::new);
    }
    by_sink[sink].push(number);
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> DestinationName<'_> {
        DestinationName {
            topic: Some(name),
            ..DestinationName::default()
        }
    }

    #[test]
    fn each_name_has_its_number_and_those_beyond_the_limit_share_one() {
        let mut destinations = Destinations::default();
        let first = destinations.number(0, "events", topic("a"));
        assert_eq!(destinations.number(0, "events", topic("a")), first);
        assert_ne!(destinations.number(1, "far", topic("a")), first);
        let partition = DestinationName {
            partition: Some(3),
            ..topic("a")
        };
        let second = destinations.number(0, "events", partition);
        assert_ne!(second, first);
        assert_eq!(&*destinations.get(second).label, "events/a[3]");
        for n in 0..PER_SINK_MAX {
            destinations.number(0, "events", topic(&n.to_string()));
        }
        let beyond = destinations.number(0, "events", topic("x"));
        assert_eq!(destinations.number(0, "events", topic("y")), beyond);
        assert_eq!(destinations.number(0, "events", topic("a")), first);
        assert_eq!(destinations.of_sink(0).len(), PER_SINK_MAX + 1);
    }
}
