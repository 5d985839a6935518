//! `pontoon init`: a configuration file to begin with, which is right from the first line on.
//!
//! Here is which servers are meant; `known` has those that can be named, `found` reads the files of other clients,
//! `secrets` knows what of those is not copied, and `written` makes a text of them.

mod found;
mod known;
mod secrets;
mod written;

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pontoon_supervise::plain_text;

use self::found::FoundServer;
use self::known::KNOWN;
use self::written::{NewServer, text_of};
use super::connect::wrong;
use super::terminal::{fail, say, tell};
use crate::config::{Environment, ServerName, is_program_name, nearest};
use crate::doctor::patient::names_file;
use crate::plain_file::write_whole;

/// What stands below the help.
pub(super) const EXAMPLES: &str = "\
Examples:
  pontoon init                               what Claude, VS Code and Cursor have, else a sample
  pontoon init time excel                    these servers, in versions that are known to work
  pontoon init -- uvx my-server --flag       a server of your own
  pontoon init --list                        the servers that can be named

It writes mcp-servers.json into the current folder, where `pontoon serve` finds it, and overwrites no file without \
--force. What looks like a secret in the file of another client is not copied: a variable stands in its place.

Exit codes: 0 written, 1 not written, 2 typed wrongly.";

/// Where it is written, unless told otherwise.
const FILE: &str = "mcp-servers.json";

/// What the new file holds.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Servers that are known to work, or that another client on this machine has.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// A command line that starts a server on standard input and output.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
    /// The file to write.
    #[arg(long, short, value_name = "FILE", default_value = FILE)]
    output: PathBuf,
    /// Overwrite the file if it is there.
    #[arg(long)]
    force: bool,
    /// List the servers that can be named, and write nothing.
    #[arg(long, conflicts_with_all = ["command", "force", "names"])]
    list: bool,
}

/// Writes the file, and says what to type next.
pub fn run(arguments: &InitArgs) -> ExitCode {
    let environment = Environment::of_process();
    let here = match std::env::current_dir() {
        Ok(here) => here,
        Err(error) => return fail(&format!("there is no current folder: {error}")),
    };
    let (found, notes) = found::all(&environment, &here);
    if arguments.list {
        list(&found);
        return ExitCode::SUCCESS;
    }
    let mut servers = Vec::new();
    for name in &arguments.names {
        match named(name, &found) {
            Ok(server) if servers.iter().any(|it: &NewServer| it.name == server.name) => {}
            Ok(server) => servers.push(server),
            Err(why) => return wrong(&why),
        }
    }
    if let [command, rest @ ..] = arguments.command.as_slice() {
        servers.push(of_command(command, rest, &here));
    }
    let is_search = servers.is_empty();
    if is_search {
        notes.iter().for_each(|note| tell(&plain_text(format!("note: {note}"))));
        servers.extend(found.into_iter().map(|it| it.server));
    }
    let is_sample = servers.is_empty();
    if is_sample {
        servers.push(known::demo());
    }
    if let Err(error) = write(arguments, &text_of(&servers, is_sample)) {
        let file = arguments.output.display();
        return match error.kind() {
            ErrorKind::AlreadyExists => fail(&format!(
                "{file} is there already: say --force to overwrite it, or --output FILE for another"
            )),
            _ => fail(&format!("{file} cannot be written: {error}")),
        };
    }
    tell_next(arguments, &servers, &environment, is_search && !is_sample);
    ExitCode::SUCCESS
}

/// The server that is called so: one that another client here has, else a known one.
fn named(name: &str, found: &[FoundServer]) -> Result<NewServer, String> {
    if let Some(found) = found.iter().find(|it| it.server.name == name) {
        return Ok(found.server.clone());
    }
    if let Some(known) = KNOWN.iter().find(|it| it.name == name) {
        return Ok(known.server());
    }
    let known = || KNOWN.iter().map(|it| it.name).chain(found.iter().map(|it| &*it.server.name));
    let meant = nearest(name, known()).map(|meant| format!(", did you mean {meant}?"));
    Err(format!(
        "no server {name:?} is known{} There are: {}. Any other is written with its command: pontoon init -- COMMAND",
        meant.as_deref().unwrap_or("."),
        known().collect::<Vec<_>>().join(", ")
    ))
}

/// The server that a command line starts. Arguments that name files here are made absolute: it works in a folder of
/// its own.
fn of_command(command: &str, arguments: &[String], here: &Path) -> NewServer {
    let absolute = |word: &String| match names_file(word, here) {
        true => here.join(word).display().to_string(),
        false => word.clone(),
    };
    let command = absolute(&command.to_owned());
    let args: Vec<_> = arguments.iter().map(absolute).collect();
    let name = ServerName::of_command(&command, &args).to_string();
    let why = "As it was typed. It works in an empty folder for each request: \"workspace\" and \"mode\" are for others.";
    NewServer { name, why: why.to_owned(), command, args, ..NewServer::default() }
}

fn list(found: &[FoundServer]) {
    for known in KNOWN {
        say(&format!("{:<12} {}", known.name, known.what));
    }
    for FoundServer { server, file } in found {
        say(&plain_text(format!("{:<12} as in {}", server.name, file.display())));
    }
}

/// Writes the file for its owner alone, and over none unless that is wanted. What a link leads to stays as it is.
fn write(arguments: &InitArgs, text: &str) -> std::io::Result<()> {
    let output = &arguments.output;
    if !arguments.force {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(output)?;
        return file.write_all(text.as_bytes());
    }
    if output.metadata().is_ok_and(|it| !it.is_file()) {
        return Err(Error::other("it is there, and is not a file"));
    }
    let name = output.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::other("its name is no name of a file"))?;
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")))?;
    write_whole(&folder, name, |file| file.write_all(text.as_bytes()))
}

/// Says what was written, what is missing still, and what to type next.
fn tell_next(
    arguments: &InitArgs,
    servers: &[NewServer],
    environment: &Environment,
    is_found: bool,
) {
    let names: Vec<_> = servers.iter().map(|server| server.name.as_str()).collect();
    let file = arguments.output.display();
    say(&format!("wrote {file}: {}", names.join(", ")));
    for server in servers {
        if let Some(from) = server.from.as_deref().filter(|_| is_found) {
            say(&plain_text(format!("  {} is from {from}", server.name)));
        }
    }
    tell_variables(servers, environment);
    if servers.iter().any(|server| server.from.is_some()) {
        say(&format!(
            "look through {file} before you share it: what looks like a secret was left out"
        ));
    }
    let is_missing = |server: &&NewServer| !is_program_name(&server.command, environment);
    let mut missing: Vec<_> = servers.iter().filter(is_missing).map(installed).collect();
    missing.sort_unstable();
    missing.dedup();
    missing.iter().for_each(|line| say(line));
    let config = match arguments.output.as_os_str() == FILE {
        true => String::new(),
        false => format!(" --config {file}"),
    };
    say("next:");
    say(&format!(
        "  pontoon check --start{config}    starts each server once, and tells what is wrong"
    ));
    say(&format!(
        "  pontoon serve{config}            serves them, and says how to add them to a client"
    ));
}

/// Says which variables are to be set, and to what.
fn tell_variables(servers: &[NewServer], environment: &Environment) {
    let needed = servers.iter().flat_map(|server| {
        let from = server.from.as_deref().unwrap_or_default();
        server.variables.iter().map(move |variable| (variable, from))
    });
    let mut needed: Vec<_> =
        needed.filter(|(variable, _)| environment.get(&variable.name).is_none()).collect();
    needed.sort_unstable();
    needed.dedup_by(|(a, _), (b, _)| a.name == b.name);
    if !needed.is_empty() {
        say("set these variables first:");
    }
    for (variable, from) in needed {
        let line = match variable.what.as_str() {
            "" => format!("  {}", variable.name),
            what => format!("  {:<24} {what}, in {from}", variable.name),
        };
        say(&plain_text(line));
    }
}

/// What to install for a server whose program is not here. A command that is more than a program is not shown: it is of a
/// foreign file, and may hold anything.
fn installed(server: &NewServer) -> String {
    let program = server.command.as_str();
    let is_one = !program.contains(|c: char| c.is_whitespace() || c == '=' || c.is_control());
    match is_one {
        true => plain_text(format!("install {program} first{}", comes_with(program))),
        false => {
            format!("install the program of {} first: `command` is the program alone", server.name)
        }
    }
}

/// Where a program comes from that many servers are started by.
fn comes_with(program: &str) -> &'static str {
    match program {
        "uvx" | "uv" => ": it is a part of uv, which `pip install uv` installs",
        "npx" | "node" => ": it is a part of Node.js",
        _ => "",
    }
}
