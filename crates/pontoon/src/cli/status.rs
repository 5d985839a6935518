//! `pontoon status`: the bridges of this user that run, and how each of them is.
//!
//! This file finds and asks them; what is printed is put together in `report` and `messages`.

mod messages;
mod replicas;
mod report;

use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

use super::terminal::{fail, has_colour, say, tell};
use super::user_folders::UserFolders;
use crate::config::Environment;
use crate::front::status::StatusLook;
use crate::observe::running::{RunningBridge, find};

/// How long a bridge may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often it is looked again at a bridge that cannot be reached, and with which pause: it may begin or end just now, or
/// be gone while another process removes its files.
const LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// More than this is no status.
const MAX_ANSWER: u64 = 8 << 20;

/// The status that shells expect of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// How often the table is made anew.
const REFRESH: Duration = Duration::from_secs(1);

/// Which bridges are looked at, and how much is shown.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Only the bridge with this process.
    #[arg(value_parser = process_id, conflicts_with = "url")]
    pid: Option<u32>,
    /// Look at the `serve` at this address in place of those of this user; may be given several times, for replicas.
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    /// The variable with the key to show at these addresses [default: MCPO_API_KEY or MCPO_API_KEY_FILE].
    #[arg(long, value_name = "NAME", requires = "url")]
    token_env: Option<String>,
    /// Show the last messages between each bridge and its application, too (`connect`). How they begin is there for a
    /// bridge that was started with --record-messages.
    #[arg(long, conflicts_with = "url")]
    messages: bool,
    /// Go on showing it, every second, until Ctrl-C.
    #[arg(long, conflicts_with = "json")]
    watch: bool,
    /// Print everything as JSON: a list with one object for each bridge.
    #[arg(long)]
    json: bool,
}

fn process_id(word: &str) -> Result<u32, &'static str> {
    word.parse()
        .map_err(|_| "it is no number of a process; `pontoon status` shows those of bridges")
}

/// Looks at the bridges that run. Exit code 0 if each of them answers, 1 if one does not or the one that was named is not
/// there.
pub fn run(arguments: &StatusArgs) -> ExitCode {
    let environment = Environment::of_process();
    if !arguments.url.is_empty() {
        return run_remote(arguments, &environment);
    }
    let folders = UserFolders::of(&environment, None).status();
    if folders.is_empty() {
        tell(
            "error: there is no home to look in: set HOME, or ask a `serve` with `pontoon health --url`",
        );
        return ExitCode::FAILURE;
    }
    let is_terminal = io::stdout().is_terminal();
    let has_colour = has_colour(&io::stdout());
    let look = if arguments.messages { StatusLook::Messages } else { StatusLook::Status };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    runtime.block_on(async {
        // From now on, so that none is missed between two looks.
        let mut interrupt = arguments.watch.then(|| signal(SignalKind::interrupt()).ok()).flatten();
        loop {
            let (bridges, faults) = tokio::select! {
                found = look_at(&folders, arguments.pid, look) => found,
                _ = interrupted(&mut interrupt) => return left(is_terminal),
            };
            let is_well =
                faults.is_empty() && bridges.iter().all(|it| it["answers"] == json!(true));
            let is_missed = arguments.pid.is_some() && bridges.is_empty();
            let text = match arguments.json {
                true => serde_json::to_string_pretty(&bridges).unwrap_or_default(),
                false => {
                    let mut text = match arguments.pid.filter(|_| is_missed) {
                        Some(pid) => format!(
                            "no bridge of this user runs as process {pid}; `pontoon status` shows those that do\n"
                        ),
                        None => report::report(&bridges, has_colour, SystemTime::now()),
                    };
                    if arguments.messages {
                        text += &messages::messages(&bridges, has_colour);
                    }
                    text
                }
            };
            match arguments.watch && is_terminal {
                true => drop(repaint(&text)),
                false => say(text.trim_end()),
            }
            faults.iter().for_each(|fault| tell(&format!("error: {fault}")));
            if !arguments.watch {
                return ExitCode::from(u8::from(!is_well || is_missed));
            }
            tokio::select! {
                () = tokio::time::sleep(REFRESH) => {}
                _ = interrupted(&mut interrupt) => return left(is_terminal),
            }
        }
    })
}

/// Ends a look that was to go on, below what it showed.
fn left(is_terminal: bool) -> ExitCode {
    if is_terminal {
        say("");
    }
    ExitCode::from(INTERRUPTED)
}

/// Looks at the replicas that were named. Exit code 0 if each of them works.
fn run_remote(arguments: &StatusArgs, environment: &Environment) -> ExitCode {
    let key = match &arguments.token_env {
        None => None,
        Some(name) => match environment.get(name).and_then(|value| value.to_str()) {
            Some(key) if !key.trim().is_empty() => Some(key.trim()),
            _ => return fail(&format!("the variable {name} of --token-env is not set, or empty")),
        },
    };
    loop {
        let replicas = replicas::ask(&arguments.url, key);
        let text = match arguments.json {
            true => serde_json::to_string_pretty(&replicas).unwrap_or_default(),
            false => replicas::table(&replicas, has_colour(&io::stdout())),
        };
        match arguments.watch && io::stdout().is_terminal() {
            true => drop(repaint(&text)),
            false => say(text.trim_end()),
        }
        if !arguments.watch {
            return ExitCode::from(u8::from(!replicas::are_well(&replicas)));
        }
        // Ctrl-C ends the process: nothing is held.
        std::thread::sleep(REFRESH);
    }
}

/// Waits for Ctrl-C, where it is heard.
async fn interrupted(interrupt: &mut Option<Signal>) -> Option<()> {
    match interrupt {
        Some(interrupt) => interrupt.recv().await,
        None => std::future::pending().await,
    }
}

/// Puts the text in place of the one before, without a moment in which there is none.
fn repaint(text: &str) -> io::Result<()> {
    let mut screen = String::from("\u{1b}[H");
    text.lines().for_each(|line| screen.extend([line, "\u{1b}[K\n"]));
    screen.push_str("\u{1b}[J");
    let mut output = io::stdout().lock();
    output.write_all(screen.as_bytes())?;
    output.flush()
}

/// The bridges that run, with all that each says of itself, and why some could not be looked for.
async fn look_at(
    folders: &[PathBuf],
    pid: Option<u32>,
    look: StatusLook,
) -> (Vec<Value>, Vec<String>) {
    let (mut asked, mut faults, mut seen) = (JoinSet::new(), Vec::new(), HashSet::new());
    for folder in folders {
        match find(folder) {
            Ok(found) => {
                let wanted = found.into_iter().filter(|it| pid.is_none_or(|pid| pid == it.pid));
                for (at, bridge) in wanted.enumerate() {
                    // Two folders may be one.
                    if seen.insert(bridge.socket.file_name().map(ToOwned::to_owned)) {
                        let folder = faults.len() + at;
                        asked.spawn(async move { Some((folder, one(bridge, look).await?)) });
                    }
                }
            }
            Err(error) => faults.push(format!("{}: {error}", folder.display())),
        }
    }
    let mut bridges: Vec<_> = asked.join_all().await.into_iter().flatten().collect();
    bridges.sort_by_cached_key(|(at, it)| (it["started"].as_str().map(str::to_owned), *at));
    (bridges.into_iter().map(|(_, bridge)| bridge).collect(), faults)
}

/// All that is known of one bridge; `None` if it has ended.
async fn one(mut bridge: RunningBridge, look: StatusLook) -> Option<Value> {
    let mut answer = tokio::time::timeout(PATIENCE, ask(&bridge, look)).await;
    for _ in 0..LOOKS {
        let Ok(Err(error)) = &answer else { break };
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        bridge = bridge.again()?;
        answer = tokio::time::timeout(PATIENCE, ask(&bridge, look)).await;
    }
    let (answer, silence) = match answer {
        Ok(Ok(answer)) => (Some(answer), None),
        Ok(Err(error)) => (None, Some(error.to_string())),
        Err(_) => {
            (None, Some(format!("no answer within {} s: it may be stopped", PATIENCE.as_secs())))
        }
    };
    let mut told = json!({ "pid": bridge.pid, "answers": answer.is_some(), "silence": silence });
    if let Some(facts) = &bridge.facts {
        let program = facts.program.as_ref();
        told["kind"] = json!(facts.kind);
        told["address"] = json!(facts.address);
        told["started"] = json!(facts.started);
        told["version"] = json!(facts.version);
        told["program"] = json!({
            "path": program.map(|program| program.path()),
            "on_disk": program.map(|program| program.on_disk().name()),
        });
    }
    if let (Some(Value::Object(answer)), Value::Object(told)) = (answer, &mut told) {
        told.extend(answer.into_iter().filter(|(name, _)| name != "pid"));
    }
    Some(told)
}

async fn ask(bridge: &RunningBridge, look: StatusLook) -> io::Result<Value> {
    let unsaid = || io::Error::new(io::ErrorKind::NotFound, "its lock has no word to ask it with");
    let word = bridge.word.as_ref().ok_or_else(unsaid)?;
    let mut stream = UnixStream::connect(&bridge.socket).await?;
    stream.write_all(&[word.as_bytes(), &[look.letter()]].concat()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    Ok(serde_json::from_slice(&answer)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::private_folder::{LockTry, try_lock};

    #[tokio::test]
    async fn a_lock_that_another_process_looks_at_for_a_moment_is_no_bridge() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
        for has_socket in [true, false] {
            let lock = folder.join("99-0123abcd.lock");
            fs::write(&lock, "{}").unwrap();
            if has_socket {
                drop(std::os::unix::net::UnixListener::bind(lock.with_extension("sock")).unwrap());
            }
            let Ok(LockTry::Ours(held)) = try_lock(&lock) else { panic!("it is held by none") };
            let found = find(folder).unwrap().pop().unwrap();
            // A lock that stays taken belongs to a process that lives.
            let told = one(find(folder).unwrap().pop().unwrap(), StatusLook::Status).await;
            assert_eq!(told.unwrap()["answers"], json!(false));
            drop(held);
            assert_eq!(one(found, StatusLook::Status).await, None);
            assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "what it left is removed");
        }
    }
}
