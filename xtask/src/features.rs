//! The combinations of features that people build. The other steps build the whole workspace with everything, where a
//! missing `#[cfg]` or a missing dependency never shows.

use crate::steps::{Steps, cargo};

/// A package with these features, without its default ones unless they are named. With everything it is in the other steps.
/// A broker's consumer needs a database; each has another one here.
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
    ("pillarbox-cli", &["kafka"]),
    ("pillarbox-cli", &["mongodb"]),
];

/// Clippy is `cargo check` that can fail for warnings without building every dependency again.
///
/// Other features of a package are other features of its dependencies, and most of the time went into building `syn` and
/// all derive macros for each combination. With xtask selected as well, `syn` has the same features everywhere:
/// `pillarbox` without features takes 8 s of CPU time instead of 27, with `sqlite` 26 instead of 71.
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
