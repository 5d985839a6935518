//! `pontoon completions SHELL`: the script by which a shell completes what is typed after `pontoon`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

use super::terminal::fail;

/// What stands below the help.
pub const EXAMPLES: &str = "\
Examples:
  source <(pontoon completions bash)         for this bash alone
  pontoon completions bash > ~/.local/share/bash-completion/completions/pontoon
  pontoon completions zsh > ~/.zfunc/_pontoon
  pontoon completions fish > ~/.config/fish/completions/pontoon.fish
  pontoon completions powershell >> $PROFILE

For zsh, `fpath+=~/.zfunc` stands in ~/.zshrc before `compinit`. The Debian package brings these \
files along.";

/// For which shell.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell that reads the script.
    shell: Shell,
}

/// Prints the script for `command`.
pub fn run(arguments: &CompletionsArgs, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "pontoon", &mut script);
    match io::stdout().lock().write_all(&script) {
        // Half a script in a file would break a shell that reads it later; `| head` wants no more.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&format!("the script could not be written: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}
