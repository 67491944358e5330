//! The `pillarbox` command. It reads its arguments and its configuration, and `pillarbox-relay` does the
//! work.
//!
//! Data goes to stdout and everything else to stderr. It exits 0 when done, 1 when the answer is no, 2 on an error.

mod cli;
mod command;
mod config;
mod demo;
mod http;
mod logging;
mod output;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    cli::{Cli, Command},
    output::{Answer, Context},
};

/// Events are created on one thread and dropped on another, with thirty small allocations each. The system's
/// allocator took a third of a relay's processor time in a drain.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let context = Context::new(cli.global);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::failed(&anyhow::anyhow!("can't start: {error}")),
    };
    raise_file_limit();
    let result = runtime.block_on(dispatch(cli.command, &context));
    // The runtime ends with the process. A blocked read of stdin must not keep the process alive, and a
    // client whose tasks are dropped one by one may panic (MongoDB's does).
    std::mem::forget(runtime);
    match result {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::from(1),
        Err(error) => output::failed(&error),
    }
}

/// Each client of the stream takes a file descriptor, and the usual soft limit is 1,024. The hard limit is what the
/// system allows.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // Without it, fewer clients can connect.
    let _ = setrlimit(Resource::Nofile, raised);
}

async fn dispatch(command: Command, context: &Context) -> anyhow::Result<Answer> {
    match command {
        Command::Demo(args) => demo::run(args, context).await,
        Command::Run(args) => command::run::run(args, context).await,
        Command::Migrate(args) => command::migrate::run(args, context).await,
        Command::Adopt(args) => command::adopt::run(args, context).await,
        Command::Enqueue(args) => command::enqueue::run(*args, context).await,
        Command::Check(args) => command::check::run(args, context).await,
        Command::Dead(args) => command::dead::run(*args, context).await,
        Command::Status(args) => command::status::run(args, context).await,
        Command::Health(args) => command::health::run(args, context).await,
        Command::Events(args) => command::events::run(args, context).await,
        Command::Tail(args) => command::tail::run(args, context).await,
        Command::Catalog(args) => command::catalog::run(args, context).await,
        Command::Streams(args) => command::streams::run(args, context).await,
        Command::Token(args) => command::token::run(args, context),
        Command::Openapi(args) => command::openapi::run(args, context),
        Command::Config(args) => command::config::run(args, context),
        Command::Bench(args) => command::bench::run(args, context).await,
        Command::Completions(args) => command::completions::run(args),
    }
}
