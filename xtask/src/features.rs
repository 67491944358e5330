//! The combinations of features that people build. The other steps build the whole workspace with everything, where a
//! missing `#[cfg]` or a missing dependency never shows.

use crate::steps::{Steps, cargo};

/// A package with these features, without its default ones unless they are named. A broker's consumer needs a database;
/// each has another one here.
///
/// Left out: the binary with only `kafka` or only `mongodb`. Its default build has neither, the other steps have both, and
/// these two took 78 s of 336.
const COMBINATIONS: &[(&str, &[&str])] = &[
    ("pillarbox", &[]),
    ("pillarbox", &["postgres"]),
    ("pillarbox", &["sqlite"]),
    ("pillarbox", &["mongodb"]),
    ("pillarbox", &["tokio-postgres"]),
    ("pillarbox", &["diesel"]),
    ("pillarbox", &["trace"]),
    ("pillarbox", &["testing"]),
    ("pillarbox", &["nats", "postgres"]),
    ("pillarbox", &["kafka", "mongodb"]),
    ("pillarbox-relay", &[]),
    ("pillarbox-cli", &["default"]),
];

/// Clippy is `cargo check` that can fail for warnings without building every dependency again.
///
/// Other features of a package are other features of its dependencies, and most of the time went into building `syn` and
/// all derive macros for each combination. With xtask selected as well, `syn` has the same features everywhere. CPU time
/// after the other steps, in this order: `pillarbox` without features 9 s instead of 27, then `trace` 1 instead of 24, then
/// `sqlite` 32 instead of 71.
pub(crate) fn run(steps: &mut Steps) {
    for (package, features) in COMBINATIONS {
        let name = match features {
            [] => format!("{package} without features"),
            features => format!("{package} with {}", features.join(" and ")),
        };
        let features: Vec<String> = features
            .iter()
            .map(|feature| format!("{package}/{feature}"))
            .collect();
        let features = features.join(",");
        let mut arguments = vec!["clippy", "--package", "xtask", "--package", package];
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
