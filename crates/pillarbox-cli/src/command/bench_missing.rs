//! `pillarbox bench` of a build without it: names the command that builds it.

use anyhow::{Result, bail};

use crate::output::{Answer, Context};

/// Measure how fast events are delivered (this build can't)
#[derive(clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// The arguments of a measurement; not used in this build
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _rest: Vec<String>,
}

#[expect(clippy::unused_async, reason = "the command it stands for is async")]
pub(crate) async fn run(_: Args, _: &Context) -> Result<Answer> {
    bail!("this build has no bench. Build one that has: cargo build --release --features bench")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[tokio::test]
    async fn whatever_is_to_be_measured_the_answer_names_the_command_that_builds_it() {
        for words in ["bench", "bench drain --events 5", "bench --json idle"] {
            let cli = Cli::try_parse_from(["pillarbox"].into_iter().chain(words.split(' '))).unwrap();
            let Command::Bench(args) = cli.command else {
                panic!("`{words}` is another command");
            };
            let error = run(args, &Context::new(cli.global)).await.unwrap_err();
            assert!(error.to_string().contains("--features bench"), "{words}: {error}");
        }
    }
}
