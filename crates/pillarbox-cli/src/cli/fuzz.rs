//! Random command lines.

use clap::error::ErrorKind;
use pillarbox_testkit::{
    fuzz::{self, Fuzz, assert_says_something},
    torture::Campaign,
};

use super::*;

const EXAMPLES: &[&str] = &[
    "--database sqlite:x.db --sink nats://127.0.0.1:4222 run --listen 127.0.0.1:7420",
    "--json dead list --topic shop.> --reason poison_message --since 7d",
    "dead replay 0197a1b2-11aa-7000-8000-0123456789ab --fingerprint 1f0c9a44be21 --as-new --yes --by me",
    "dead discard --all --why because --event-type X --key k --dry-run",
    "enqueue --topic a.b --type X --aggregate-type order --aggregate-id 1 --payload {} --header a=b --delay 30s --max-attempts 3",
    "enqueue --ndjson -",
    "bench drain --events 100 --keys 10 --payload-bytes 300 --relays 2 --hold-snapshot",
    "bench poison --events 100 --pairs 2 --one-in 1000",
    "config check --log-format json --log pillarbox_relay=debug",
    "migrate --print",
    "completions bash",
];

fn input(fuzz: &mut Fuzz) -> Vec<String> {
    let mut words: Vec<String> = fuzz.pick(EXAMPLES).split(' ').map(str::to_owned).collect();
    for _ in 0..1 + fuzz.below(3) {
        let at = fuzz.below(words.len());
        match fuzz.below(5) {
            0 => words[at] = fuzz.text(),
            1 => words[at] = fuzz.number().to_owned(),
            2 => drop(words.remove(at)),
            3 => words.insert(at, words[at].clone()),
            _ => words[at] = fuzz.mutated_text(&words[at]),
        }
        if words.is_empty() {
            words.push(fuzz.text());
        }
    }
    words.insert(0, "pillarbox".into());
    words
}

/// Mutated command lines: each is accepted, or refused with a message.
#[test]
fn torture_fuzz_arguments() {
    let campaign = Campaign::begin("fuzz_arguments");
    fuzz::each(&campaign, input, |words| {
        let Err(error) = Cli::try_parse_from(words) else {
            return;
        };
        if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            assert_says_something(&error.to_string());
        }
    });
}
