//! Several backlogs in one arena, one after the other: relays with different settings are compared in one run.

use std::time::Instant;

use anyhow::{Result, ensure};

use super::{
    Host,
    arena::Arena,
    drain::load,
    events::{Check, Maker},
    receive::{self, Receiver},
    relays::{Relays, Setup},
    store_error,
};

pub(super) struct Course<'a> {
    arena: &'a Arena,
    host: &'a dyn Host,
    arrived: u64,
}

/// The result of draining some events.
#[derive(Default)]
pub(super) struct Drained {
    pub(super) events: u64,
    seconds: f64,
    cpu_seconds: Option<f64>,
}

impl Drained {
    /// Of two backlogs.
    pub(super) fn plus(&self, other: &Self) -> Self {
        Self {
            events: self.events + other.events,
            seconds: self.seconds + other.seconds,
            cpu_seconds: self.cpu_seconds.zip(other.cpu_seconds).map(|(a, b)| a + b),
        }
    }

    pub(super) fn rate(&self) -> f64 {
        self.events as f64 / self.seconds
    }

    /// Its rate and cost, for people.
    pub(super) fn shown(&self) -> String {
        let cpu = self.cpu_microseconds();
        let cpu = cpu.map_or("unknown".into(), |cpu| format!("{cpu:.1} µs"));
        format!(
            "{:.0} events/s, {cpu} of the relay's processor time for each",
            self.rate()
        )
    }

    /// The relay's processor time per event.
    pub(super) fn cpu_microseconds(&self) -> Option<f64> {
        Some(self.cpu_seconds? / self.events as f64 * 1e6)
    }
}

impl<'a> Course<'a> {
    pub(super) fn new(arena: &'a Arena, host: &'a dyn Host) -> Self {
        Self {
            arena,
            host,
            arrived: 0,
        }
    }

    /// Writes a backlog and delivers it with one relay.
    pub(super) async fn drain(
        &mut self,
        maker: &mut Maker,
        events: u64,
        name: &str,
        setup: &Setup,
    ) -> Result<Drained> {
        load(self.arena, maker, events as usize, self.host).await?;
        let bar = self.host.progress(name, events);
        let (mut receiver, lines) = Receiver::open(self.arena);
        // A stream keeps its earlier events. The stdout of a relay starts empty.
        let (already, total) = match receiver {
            Receiver::Broker(_) => (self.arrived, self.arrived + events),
            _ => (0, events),
        };
        let began = Instant::now();
        let mut relays = Relays::start_with(self.arena, 1, lines, setup)?;
        let arrived = receiver
            .wait_for(self.arena, total, &mut relays, |arrived| {
                bar.set_position(arrived.saturating_sub(already));
            })
            .await?;
        let used = relays.stop().await?;
        let seconds = began.elapsed().as_secs_f64();
        bar.finish_and_clear();
        ensure!(arrived >= total, "only {arrived} of {total} events arrived");
        self.arrived += events;
        Ok(Drained {
            events,
            seconds,
            cpu_seconds: used.cpu_seconds,
        })
    }

    /// Reads everything back. `None`: this sink can't be read.
    pub(super) async fn check(&self, maker: &Maker) -> Result<Option<Check>> {
        let status = self.arena.store.admin.status().await.map_err(store_error)?;
        ensure!(status.dead == 0, "{} events became dead letters", status.dead);
        self.host.say("Checking what arrived…");
        let (receiver, _) = Receiver::open(self.arena);
        match receiver {
            // The lines on stdout were already checked as they were read.
            Receiver::Stdout(..) => Ok(None),
            receiver => receive::check(receiver, maker.counts()).await,
        }
    }
}
