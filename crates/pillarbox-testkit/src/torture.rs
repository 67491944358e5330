//! The parameters of a torture campaign: its duration and its seed.
//!
//! A campaign is a test named `torture_…` in a crate's `tests/it`, or next to the code if it needs no server.
//! As a normal test it has the same seed and the same number of rounds every time. `cargo xtask torture`
//! gives it minutes and a new seed or, if asked, the seed of an earlier run.

use std::env;
use std::io::Write;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

const SHORT: Duration = Duration::from_secs(5);

/// Held by a campaign while it runs. If the campaign fails, it prints how to repeat the run.
#[derive(Debug)]
pub struct Campaign {
    name: &'static str,
    seed: u64,
    started: Instant,
    budget: Duration,
}

impl Campaign {
    /// `name` is the test's name without `torture_`.
    ///
    /// # Panics
    /// If PILLARBOX_SEED or PILLARBOX_TORTURE_SECONDS is not a number.
    pub fn begin(name: &'static str) -> Self {
        let seconds = number("PILLARBOX_TORTURE_SECONDS");
        let budget = seconds.map_or(SHORT, Duration::from_secs);
        // A normal test run decides the same every time, so that a failure comes from a change. New seeds are
        // for runs that ask for time.
        let usual = || match seconds {
            None => fixed_seed(name),
            Some(_) => rand::random(),
        };
        let seed = number("PILLARBOX_SEED").unwrap_or_else(usual);
        Self {
            name,
            seed,
            started: Instant::now(),
            budget,
        }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// For one of several campaigns that got the same seed and should not all do the same.
    pub fn own_seed(&self) -> u64 {
        self.seed ^ fixed_seed(self.name)
    }

    /// The source of all randomness in the campaign.
    pub fn rng(&self) -> StdRng {
        StdRng::seed_from_u64(self.seed)
    }

    pub fn budget(&self) -> Duration {
        self.budget
    }

    /// Whether it runs as one test among many, on a machine that also does other work.
    pub fn is_short(&self) -> bool {
        self.budget <= SHORT
    }

    /// Whether to do another round. As one test among many it does exactly `rounds`, so that a slow machine
    /// tries the same as a fast one. With its own time it continues until that is over.
    pub fn goes_on(&self, done: u64, rounds: u64) -> bool {
        done < rounds || (!self.is_short() && self.started.elapsed() < self.budget)
    }
}

impl Drop for Campaign {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (name, seed, seconds) = (self.name, self.seed, self.budget.as_secs());
            let repeat = format!("repeat it: cargo xtask torture {name} --seed {seed} --seconds {seconds}\n");
            let _ = std::io::stderr().write_all(repeat.as_bytes());
        }
    }
}

/// Differs between campaigns.
fn fixed_seed(name: &str) -> u64 {
    name.bytes().fold(7, |seed: u64, byte| {
        seed.wrapping_mul(31).wrapping_add(u64::from(byte))
    })
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={value}: a whole number is expected")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_an_ordinary_run_is_always_the_same_and_differs_between_campaigns() {
        assert_eq!(fixed_seed("one"), fixed_seed("one"));
        assert_ne!(fixed_seed("one"), fixed_seed("another"));
    }

    #[test]
    fn an_ordinary_run_does_so_many_rounds_and_a_long_one_takes_its_time() {
        let campaign = |budget| Campaign {
            name: "one",
            seed: 7,
            started: Instant::now(),
            budget,
        };
        let (short, long) = (campaign(SHORT), campaign(Duration::from_secs(3_600)));
        assert!(short.goes_on(9, 10) && !short.goes_on(10, 10));
        assert!(long.goes_on(9, 10) && long.goes_on(1_000_000, 10));
        let over = campaign(Duration::ZERO);
        assert!(over.goes_on(9, 10) && !over.goes_on(10, 10));
    }
}
