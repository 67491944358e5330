//! The combinations of features that people build. The other steps build the whole workspace with all
//! features, which hides a missing `#[cfg]` or a missing dependency.

use crate::steps::{Steps, cargo};

/// Packages, without their default features, and the features of the first of them. A broker's consumer needs a database;
/// each one here uses a different database.
///
/// The binary without `bench` is checked together with the bench as the binary's default build has it.
const COMBINATIONS: &[(&[&str], &[&str])] = &[
    (&["pillarbox"], &[]),
    (&["pillarbox"], &["postgres"]),
    (&["pillarbox"], &["sqlite"]),
    (&["pillarbox"], &["mongodb"]),
    (&["pillarbox"], &["tokio-postgres"]),
    (&["pillarbox"], &["diesel"]),
    (&["pillarbox"], &["log"]),
    (&["pillarbox"], &["follow"]),
    (&["pillarbox"], &["trace"]),
    (&["pillarbox"], &["testing"]),
    (&["pillarbox"], &["nats", "postgres"]),
    (&["pillarbox"], &["kafka", "mongodb"]),
    (&["pillarbox-relay"], &[]),
    (&["pillarbox-cli", "pillarbox-bench"], &[]),
    (&["pillarbox-cli"], &["kafka"]),
    (&["pillarbox-cli"], &["mongodb"]),
];

/// Clippy works like `cargo check`, and can fail on warnings without building every dependency again.
///
/// Other features of a package mean other features of its dependencies. Most of the time went into building
/// `syn` and all derive macros for each combination. If xtask is selected as well, `syn` has the same
/// features everywhere. CPU time after the other steps, in this order: `pillarbox` without features 9 s
/// instead of 27, then `trace` 1 instead of 24, then `sqlite` 32 instead of 71.
pub(crate) fn run(steps: &mut Steps) {
    for (packages, features) in COMBINATIONS {
        let names = packages.join(" and ");
        let name = match features {
            [] => format!("{names} without features"),
            features => format!("{names} with {}", features.join(" and ")),
        };
        let features: Vec<String> = features
            .iter()
            .map(|feature| format!("{}/{feature}", packages[0]))
            .collect();
        let features = features.join(",");
        let mut arguments = vec!["clippy", "--package", "xtask"];
        arguments.extend(packages.iter().flat_map(|package| ["--package", *package]));
        arguments.extend([
            "--no-default-features",
            "--features",
            &features,
            "--",
            "-D",
            "warnings",
        ]);
        steps.run(&name, &mut cargo(&arguments));
    }
}
