//! `pillarbox completions`

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::{cli::Cli, output::Answer};

/// Print completions for a shell
///
///   pillarbox completions bash > ~/.local/share/bash-completion/completions/pillarbox
///   pillarbox completions zsh > ~/.zfunc/_pillarbox
///   pillarbox completions fish > ~/.config/fish/completions/pillarbox.fish
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: Args) -> Result<Answer> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pillarbox", &mut script);
    // Write it ourselves instead of through clap, which panics on a closed pipe.
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
    Ok(Answer::Yes)
}
