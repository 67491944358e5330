//! `cargo xtask example user-cards`: runs an example of the folder `examples`, with everything it needs.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::obtain::{self, Kind, Kit, Servers};
use crate::steps::{Steps, cargo};

#[derive(Args)]
pub(crate) struct Arguments {
    /// The example
    name: Example,
    /// End with a verdict (exit 0: every promise was kept) instead of running until interrupted
    #[arg(long)]
    once: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Example {
    /// Users in MongoDB, their events in Kafka, and cards built from them
    UserCards,
    /// A chat in Python (FastAPI, SQLAlchemy) on PostgreSQL, its events as a stream of NDJSON
    Chat,
    /// Orders in TypeScript (TypeORM and plain pg) on PostgreSQL, their events in NATS JetStream
    Orders,
}

impl Example {
    fn servers(self) -> &'static [Kind] {
        match self {
            Self::UserCards => &[Kind::Mongodb, Kind::Kafka],
            Self::Chat => &[Kind::Postgres],
            Self::Orders => &[Kind::Postgres, Kind::Nats],
        }
    }

    /// What it needs besides servers.
    fn kit(self) -> Option<Kit> {
        match self {
            Self::UserCards => None,
            Self::Chat => Some(Kit::Chat),
            Self::Orders => Some(Kit::Orders),
        }
    }

    /// The program of the workspace that runs its story.
    fn package(self) -> Option<&'static str> {
        match self {
            Self::UserCards => Some("user-cards"),
            Self::Chat | Self::Orders => None,
        }
    }

    /// Appends the command that runs its story. Cargo puts everything it builds into the folder `built`.
    fn story(self, command: &mut Command, built: &Path, obtained: &Servers) -> Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let kit = |kit: Kit| {
            obtained
                .variable(kit.variable())
                .context("the example needs something that could not be obtained")
        };
        match self {
            Self::UserCards => command.arg(built.join("user-cards")).arg("story"),
            Self::Chat => command.arg(kit(Kit::Chat)?).arg(folder.join("chat/story.py")),
            Self::Orders => command
                .arg("node")
                .arg(folder.join("orders/run.mjs"))
                .arg(kit(Kit::Orders)?)
                .arg("story"),
        };
        if self.package().is_none() {
            command.arg("--pillarbox").arg(built.join("pillarbox"));
        }
        Ok(())
    }
}

/// Builds the programs, and runs the example's story next to the testkit's servers.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let example = arguments.name;
    let mut steps = Steps::default();
    let mut obtained = obtain::for_running(&mut steps, example.servers());
    if let Some(kit) = example.kit() {
        kit.add(&mut steps, &mut obtained);
    }
    build(example)?;
    let names: Vec<_> = example.servers().iter().map(|kind| kind.name()).collect();
    // Cargo puts everything it builds into one folder, including this program.
    let here = env::current_exe()?;
    let built = here.parent().context("this program has no folder")?;
    let mut command = Command::new(built.join("servers"));
    command.args(["--with", &names.join(",")]);
    example.story(&mut command, built, &obtained)?;
    if arguments.once {
        command.arg("--once");
    }
    let mut running = command
        .arg("--until-stdin-ends")
        .envs(obtained.variables())
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run the example")?;
    // Held until the end, however it ends.
    let _stdin = running.stdin.take();
    let status = running.wait()?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

fn build(example: Example) -> Result<()> {
    let mut command = cargo(&[
        "build",
        "--quiet",
        "--package",
        "pillarbox-cli",
        "--features",
        "full",
        "--package",
        "pillarbox-testkit",
    ]);
    if let Some(package) = example.package() {
        command.args(["--package", package]);
    }
    let built = command.status().context("cannot run cargo")?;
    ensure!(built.success(), "the example can't be built");
    Ok(())
}
