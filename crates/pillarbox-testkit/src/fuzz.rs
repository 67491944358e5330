//! Unusual inputs: noise, and mutated valid examples.
//!
//! A fuzzing campaign is a normal campaign (see [`crate::torture`]): its seed repeats its inputs. It looks
//! for a panic, an input that takes for ever, an error without text, and a secret in an error. Put [`SECRET`]
//! in the place of a password and call [`assert_says_something`].

mod mutate;
mod words;

use std::{
    fmt::Debug,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::torture::Campaign;

/// Stands for a password in inputs. No generated input contains it by chance.
pub const SECRET: &str = "geheimnis7f3a";

/// An input that takes longer hangs. Generous, because other tests may use the processors.
const INPUT_TIME_MAX: Duration = Duration::from_secs(20);
/// Inputs of a campaign without its own time budget.
pub const INPUTS: u64 = 1_000;
/// How much of an input a failure message shows.
const SHOWN_CHARS_MAX: usize = 4_000;

/// Makes one input. The same seed makes the same input.
pub struct Fuzz {
    rng: StdRng,
}

impl Fuzz {
    /// For input number `nth` of a campaign.
    pub fn new(campaign: &Campaign, nth: u64) -> Self {
        Self::seeded(campaign.seed() ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn seeded(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// True once in `times` calls, on average.
    pub fn one_in(&mut self, times: u32) -> bool {
        self.rng.random_range(0..times) == 0
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.rng.random_range(0..end.max(1))
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// Makes and tries inputs while the campaign runs, and reports their number.
///
/// # Panics
/// If an input panics or hangs; the message contains the input.
pub fn each<I: Debug + Clone + Send + 'static>(
    campaign: &Campaign,
    mut make: impl FnMut(&mut Fuzz) -> I,
    mut attempt: impl FnMut(I) + Send + 'static,
) -> u64 {
    let (inputs, given) = mpsc::sync_channel::<I>(0);
    let (done, finished) = mpsc::channel();
    // Not the test's own thread, which could not notice that an input hangs. It has as much stack as the main
    // thread of a program.
    let worker = std::thread::Builder::new()
        .name(format!("inputs-{}", campaign.seed()))
        .stack_size(8 * 1024 * 1024);
    let worker = worker.spawn(move || {
        for input in given {
            attempt(input);
            if done.send(()).is_err() {
                return;
            }
        }
    });
    let worker = worker.unwrap_or_else(|error| panic!("no thread for the inputs: {error}"));
    let mut tried = 0;
    while campaign.goes_on(tried, INPUTS) {
        let input = make(&mut Fuzz::new(campaign, tried));
        let shown = input.clone();
        assert!(inputs.send(input).is_ok(), "the inputs' thread has ended");
        let what = match finished.recv_timeout(INPUT_TIME_MAX) {
            Ok(()) => {
                tried += 1;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => "hangs",
            Err(RecvTimeoutError::Disconnected) => "panics",
        };
        panic!("input {tried} {what}: {}", shortened(&format!("{shown:?}")));
    }
    drop(inputs);
    assert!(worker.join().is_ok(), "the inputs' thread panicked");
    said(campaign, tried);
    tried
}

/// For campaigns with their own loop: the line in which all of them report how much they tried.
pub fn said(campaign: &Campaign, tried: u64) {
    use std::io::Write;
    let line = format!("{tried} inputs tried, seed {}\n", campaign.seed());
    let _ = std::io::stdout().write_all(line.as_bytes());
}

/// Checks that an error is useful: it has text, and contains no secret.
#[track_caller]
pub fn assert_says_something(error: &str) {
    assert!(
        error.chars().filter(|letter| letter.is_alphabetic()).count() > 3,
        "an error without a message: {error:?}"
    );
    assert_no_secret(error);
}

#[track_caller]
pub fn assert_no_secret(shown: &str) {
    assert!(!shown.contains(SECRET), "a secret is shown: {}", shortened(shown));
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push_str(&format!("… ({} bytes)", text.len()));
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn campaign() -> Campaign {
        Campaign::begin("of_a_test")
    }

    #[test]
    fn a_seed_makes_the_same_inputs_again() {
        let inputs = |seed| {
            let mut fuzz = Fuzz::seeded(seed);
            (
                fuzz.text(),
                fuzz.json(),
                fuzz.mutated(b"{\"a\": 1}"),
                fuzz.bytes(),
            )
        };
        assert_eq!(inputs(7), inputs(7));
        assert_ne!(inputs(7), inputs(8));
    }

    #[test]
    #[should_panic(expected = "input 0 panics: \"boom\"")]
    fn an_input_that_panics_is_shown() {
        each(&campaign(), |_| "boom", |input| assert_ne!(input, "boom"));
    }

    #[test]
    #[should_panic(expected = "a secret is shown")]
    fn a_secret_in_an_error_is_found() {
        assert_says_something(&format!("can't connect to app:{SECRET}@host"));
    }

    #[test]
    #[should_panic(expected = "an error without a message")]
    fn an_error_without_a_message_is_found() {
        assert_says_something(": ");
    }
}
