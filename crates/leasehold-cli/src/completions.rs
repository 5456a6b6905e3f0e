//! `leasehold completions`: scripts that complete our commands in a shell.

use std::io::Write as _;

use clap::Command;
use clap_complete::Shell;

use crate::failure::{Answer, Failure};

/// Print the completion script of a shell.
///
/// For this session: `source <(leasehold completions bash)`. To stay: write it to the folder that
/// your shell reads, such as `~/.local/share/bash-completion/completions/leasehold`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Which shell.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> Result<Answer, Failure> {
    let mut command = without_hidden(&crate::arguments::command());
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "leasehold", &mut script);
    let mut out = std::io::stdout().lock();
    out.write_all(&script)?;
    out.flush()?;
    Ok(Answer::Yes)
}

/// The commands that are meant for people: a script would offer the hidden ones as well.
fn without_hidden(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set());
    Command::new("leasehold")
        .version(env!("CARGO_PKG_VERSION"))
        .args(command.get_arguments())
        .subcommands(shown)
}
