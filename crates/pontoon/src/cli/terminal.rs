//! Printing for people, and the ways a command can fail.
//!
//! A reader that stops reading (`pontoon tools | head`) is no error.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use pontoon_supervise::{Ladder, Spawner, Starting, give_memory_back, harden_worker, plain_text};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::waiting::WaitingLine;
use crate::app::Single;
use crate::colour;
use crate::config::{
    Config, ConfigSource, Environment, Options, Remarks, Server, nearest, own_variable,
};
use crate::errors::chain;

/// Prints a line to standard output.
pub fn say(line: &str) {
    drop(writeln!(io::stdout().lock(), "{line}"));
}

/// Prints a text that others chose to standard output: to a terminal without what would steer it, else as it is.
pub fn say_text(text: &str) {
    if !io::stdout().is_terminal() {
        return say(text);
    }
    text.split('\n').for_each(|line| say(&plain_text(line.to_owned())));
}

/// Prints lines to standard error. What they say of errors and warnings has its colour at a terminal.
pub fn tell(lines: &str) {
    let lines = match has_colour(&io::stderr()) {
        true => painted(lines),
        false => lines.to_owned(),
    };
    drop(writeln!(io::stderr().lock(), "{lines}"));
}

/// Whether what is printed there has colours.
pub fn has_colour(stream: &impl IsTerminal) -> bool {
    colour::is_wanted(stream.is_terminal(), own_variable)
}

/// The words by which lines begin that are to be seen, with their colours.
const MARKS: [(&str, &str); 4] =
    [("error:", "31"), ("warning:", "33"), ("note:", "36"), ("hint:", "36")];

/// The lines with colours: marks at their beginnings, and headings that count mistakes or warnings.
fn painted(lines: &str) -> String {
    let paint = |line: &str| {
        let text = line.trim_start();
        let (indent, mark) = (
            &line[..line.len() - text.len()],
            MARKS.iter().find(|(mark, _)| text.starts_with(mark)),
        );
        if let Some((mark, colour)) = mark {
            return format!("{indent}\u{1b}[1;{colour}m{mark}\u{1b}[0m{}", &text[mark.len()..]);
        }
        match line.rsplit_once(": ").filter(|(_, count)| is_count(count)) {
            Some((place, count)) if count.contains("mistake") => {
                format!("\u{1b}[1m{place}:\u{1b}[0m \u{1b}[1;31m{count}\u{1b}[0m")
            }
            Some((place, count)) => {
                format!("\u{1b}[1m{place}:\u{1b}[0m \u{1b}[1;33m{count}\u{1b}[0m")
            }
            None => line.to_owned(),
        }
    };
    lines.split('\n').map(paint).collect::<Vec<_>>().join("\n")
}

/// Whether this is such as `1 mistake, 2 warnings`.
fn is_count(text: &str) -> bool {
    text.split(", ").all(|part| {
        let words = part.split_once(' ');
        words.is_some_and(|(count, noun)| {
            count.bytes().all(|byte| byte.is_ascii_digit())
                && matches!(noun, "mistake" | "mistakes" | "warning" | "warnings")
        })
    })
}

/// How many letters a line of the terminal has; 80 where there is none.
pub fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout());
    size.map_or(80, |size| usize::from(size.ws_col)).max(1)
}

/// Prints why a command failed.
pub fn fail(why: &str) -> ExitCode {
    tell(&format!("error: {why}"));
    ExitCode::FAILURE
}

/// The configuration, its warnings told; mistakes end the command.
pub fn load(options: &Options) -> Result<Config, ExitCode> {
    told(Config::load(options, &Environment::of_process()), options.is_quiet)
}

/// What was loaded, its warnings told unless `is_quiet`; mistakes end the command.
pub fn told<T>(loaded: Result<(T, Remarks), Remarks>, is_quiet: bool) -> Result<T, ExitCode> {
    match loaded {
        Ok((loaded, remarks)) => {
            if !remarks.is_empty() && !is_quiet {
                tell(&remarks.to_string());
            }
            Ok(loaded)
        }
        Err(remarks) => {
            tell(&remarks.to_string());
            Err(ExitCode::FAILURE)
        }
    }
}

/// What is to be said of a server whose processes differ by who calls.
pub fn learnt_with(server: &Server) -> &'static str {
    match server.is_personal() {
        true => ", learnt with each person's values",
        false => "",
    }
}

/// Where the configuration came from, in words.
pub fn source(config: &Config) -> String {
    match &config.source {
        ConfigSource::File(path) => path.display().to_string(),
        ConfigSource::CommandLine => "the command line".to_owned(),
        ConfigSource::Demo { .. } => "the built-in demo server (no configuration file)".to_owned(),
    }
}

/// The configuration, and the process that starts children: forked before any thread exists.
pub fn begin(options: &Options) -> Result<(Config, Starting), ExitCode> {
    harden_worker();
    give_memory_back();
    let config = load(options)?;
    let starting = Spawner::start();
    let starting =
        starting.map_err(|error| fail(&format!("cannot start the helper process: {error}")))?;
    Ok((config, starting))
}

/// A wish to end the command, noticed from now on.
pub(super) struct Interruption([Signal; 3]);

impl Interruption {
    pub(super) fn begin() -> io::Result<Self> {
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let [interrupt, terminate, hangup] = kinds.map(signal);
        Ok(Self([interrupt?, terminate?, hangup?]))
    }

    /// Waits for it. Gives the status that shells expect of a program that a signal ended, and what happened.
    pub(super) async fn heard(&mut self) -> (u8, &'static str) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => (130, "interrupted"),
            _ = terminate.recv() => (143, "terminated"),
            _ = hangup.recv() => (129, "the terminal is gone"),
        }
    }
}

/// How long tasks that block may go on when a command is done: one may wait for a disk, or for a process
/// that is stopped.
const LAST: Duration = Duration::from_secs(2);

/// Runs `work` with a spawner. What it leaves running is killed by the helper process when this one ends.
pub fn with_spawner<F>(starting: Starting, work: impl FnOnce(Spawner) -> F) -> ExitCode
where
    F: Future<Output = ExitCode>,
{
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start threads: {error}")),
    };
    let code = runtime.block_on(async {
        match starting.attach() {
            Ok(spawner) => work(spawner).await,
            Err(error) => fail(&format!("cannot reach the helper process: {error}")),
        }
    });
    runtime.shutdown_timeout(LAST);
    code
}

/// Runs `work` with one server of the configuration, until it is done or the command is interrupted. An interruption ends it
/// soon, whatever the server does.
pub fn with_server(
    name: &str,
    options: &Options,
    work: impl AsyncFnOnce(&Single) -> Result<ExitCode, String>,
) -> ExitCode {
    let options = Options { only: vec![name.to_owned()], ..options.clone() };
    let (config, starting) = match begin(&options) {
        Ok(begun) => begun,
        Err(code) => return code,
    };
    with_spawner(starting, async |spawner| {
        let interruption = match Interruption::begin() {
            Ok(interruption) => interruption,
            Err(error) => return fail(&error.to_string()),
        };
        match Single::new(&config, name, &spawner) {
            Ok(Some(single)) => use_once(single, interruption, options.is_quiet, work).await,
            Ok(None) => fail(&no_server(name, &config)),
            Err(error) => fail(&chain(&error)),
        }
    })
}

/// Runs `work` with a server and ends it, until that is done or the command is interrupted.
pub(super) async fn use_once(
    single: Single,
    mut interruption: Interruption,
    is_quiet: bool,
    work: impl AsyncFnOnce(&Single) -> Result<ExitCode, String>,
) -> ExitCode {
    let done = tokio::select! {
        done = work(&single) => Ok(done),
        (code, what) = interruption.heard() => Err((code, what)),
    };
    let code = match done {
        Ok(done) => done.unwrap_or_else(|why| fail(&why)),
        Err((code, what)) => {
            tell(&format!("error: {what}; the server was told to stop"));
            // One more ends it at once: the helper process kills what is left.
            tokio::select! {
                () = single.end(&HASTY) => {}
                _ = interruption.heard() => {}
            }
            return ExitCode::from(code);
        }
    };
    let what = format!("waiting for {:?} to end", single.entry.back.server.name.as_str());
    let closing = async {
        let _line = WaitingLine::begin(what, is_quiet);
        single.end(&Ladder::default()).await;
    };
    tokio::select! {
        () = closing => code,
        (code, _) = interruption.heard() => ExitCode::from(code),
    }
}

/// How a server is ended that nobody waits for any more.
pub(super) const HASTY: Ladder =
    Ladder { after_close: Duration::from_millis(100), after_terminate: Duration::from_millis(500) };

/// That there is no such server, and which there are.
pub(super) fn no_server(name: &str, config: &Config) -> String {
    let names: Vec<_> = config.servers.iter().map(|it| it.name.as_str()).collect();
    let text = format!("there is no server {name:?} in {}", source(config));
    format!("{text}; {}", there_are(name, &names))
}

/// What there is in place of a name that is not known, and which of them it was meant to be.
pub(super) fn there_are(name: &str, known: &[&str]) -> String {
    let all = match known {
        [] => return "there are none".to_owned(),
        [only] => format!("there is {only}"),
        all => format!("there are: {}", all.join(", ")),
    };
    let all = plain_text(all);
    match nearest(name, known.iter().copied()) {
        Some(meant) => format!("{all}; did you mean {meant:?}?"),
        None => all,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_warnings_are_marked_and_nothing_else_is() {
        for (plain, expected) in [
            ("error: no", "\u{1b}[1;31merror:\u{1b}[0m no"),
            ("  warning: line 5: x", "  \u{1b}[1;33mwarning:\u{1b}[0m line 5: x"),
            ("f: 1 mistake\n  a", "\u{1b}[1mf:\u{1b}[0m \u{1b}[1;31m1 mistake\u{1b}[0m\n  a"),
            ("f: 2 warnings", "\u{1b}[1mf:\u{1b}[0m \u{1b}[1;33m2 warnings\u{1b}[0m"),
            ("saved error: x", "saved error: x"),
            ("it says: a mistake", "it says: a mistake"),
        ] {
            assert_eq!(painted(plain), expected);
        }
    }

    #[test]
    fn a_name_that_is_not_known_finds_the_one_that_was_meant() {
        assert_eq!(there_are("dmo", &["demo"]), "there is demo; did you mean \"demo\"?");
        assert_eq!(there_are("x", &["demo", "time"]), "there are: demo, time");
        assert_eq!(there_are("x", &[]), "there are none");
    }
}
