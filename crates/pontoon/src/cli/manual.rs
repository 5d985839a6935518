//! `pontoon man DIR --date DAY`: the manual pages, one for each command. For those who make packages, so no help lists it.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command};
use clap_mangen::Man;

use super::terminal::{fail, say};

/// Where the pages go.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// The folder for the pages; it is made if it is not there.
    directory: PathBuf,
    /// The day that the pages tell, such as 2026-11-19: that of the release.
    #[arg(long, value_name = "DAY")]
    date: String,
}

/// Writes a page for `command` and for each command below it.
pub fn run(arguments: &ManualArgs, command: Command) -> ExitCode {
    let directory = &arguments.directory;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    match fs::create_dir_all(directory).and_then(|()| write_pages(arguments, &command)) {
        Ok(count) => {
            say(&format!("{count} pages in {}", directory.display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            fail(&format!("the manual pages cannot be written to {}: {error}", directory.display()))
        }
    }
}

/// How many pages were written.
fn write_pages(arguments: &ManualArgs, command: &Command) -> io::Result<usize> {
    // `pontoon jobs show` has the page `pontoon-jobs-show`, as git's commands have.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    fs::write(arguments.directory.join(format!("{name}.1")), page(command, &arguments.date)?)?;
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| write_pages(arguments, command)).sum::<io::Result<usize>>().map(|it| it + 1)
}

fn page(command: &Command, date: &str) -> io::Result<Vec<u8>> {
    let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_commands = command.get_subcommands().any(|command| !command.is_hide_set());
    let source = format!("Pontoon {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).manual("Pontoon").date(date).source(source);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    page.write_all(sections_below(&below).as_bytes())?;
    Ok(page)
}

/// What stands below a help, as sections of a page. Its lines stay lines: they are examples and short texts.
fn sections_below(text: &str) -> String {
    let (examples, notes) = match text.strip_prefix("Examples:\n") {
        Some(rest) => rest.split_once("\n\n").unwrap_or((rest, "")),
        None => ("", text),
    };
    let titled = [("EXAMPLES", examples), ("NOTES", notes)];
    let there = titled.iter().filter(|(_, lines)| !lines.is_empty());
    there.map(|(title, lines)| format!(".SH {title}\n.nf\n{}.fi\n", verbatim(lines))).collect()
}

/// Lines that roff shows as they are: `\` begins its requests, and so do `.` and `'` at the beginning; a plain `-` is a
/// hyphen, which nobody can paste into a shell.
fn verbatim(lines: &str) -> String {
    let plain = lines.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    plain.lines().map(|line| format!("\\&{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_shown_as_they_were_typed() {
        let below = sections_below("Examples:\n  a --b 'c\\d'\n.x\n\nExit codes: 0.");
        let examples = ".SH EXAMPLES\n.nf\n\\&  a \\-\\-b \\(aqc\\ed\\(aq\n\\&.x\n.fi\n";
        assert_eq!(below, format!("{examples}.SH NOTES\n.nf\n\\&Exit codes: 0.\n.fi\n"));
    }

    #[test]
    fn what_has_no_examples_is_a_note() {
        assert_eq!(sections_below("Exit codes: 0."), ".SH NOTES\n.nf\n\\&Exit codes: 0.\n.fi\n");
        assert_eq!(sections_below(""), "");
    }
}
