//! The bridge process, `pontoon ipc SOCKET SCHEMA`: an MCP server on standard input and output whose tools
//! live in another program, behind a Unix socket.
//!
//! It lists the tools from the schema file and connects with the first call. One thread does all of it: it waits
//! until the client or the program says something or takes what is sent to it, and never for one of them alone.
//! It ends when its input ends, by a signal, or with its parent, and never because of the program behind the
//! socket.

mod arguments;
mod client;
mod connection;
mod console;
mod executable;
mod host;
mod shown;
mod translate;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::{Message, method};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::conversation::{Step, id_in};
use crate::schema_file::SchemaFile;
use arguments::{BridgeArguments, Showing};
use client::Client;
use connection::GONE;
use console::complain;
#[cfg(feature = "spawner")]
use executable::SPAWNER;
#[cfg(feature = "model")]
pub(crate) use executable::check as is_executable;
pub use executable::find;
#[cfg(feature = "spawner")]
pub use executable::start_spawner;
use host::Host;

const USAGE: &str = "usage: pontoon ipc [OPTIONS] SOCKET SCHEMA

Serves the tools of a running program as an MCP server on standard input and output.
Made to be started by Claude Code or another MCP client:

  SOCKET  the Unix socket of the program
  SCHEMA  its schema file: a JSON array of {\"name\", \"description\", \"input_schema\"}

Options:
  --profile NAME           the client that tools are shown for: common is what most take, none shapes nothing; others
                           are named after a client, such as claude-code (docs/codes.md) [default: common]
  --heal MODE|CODE=MODE    what is done about schemas that clients refuse: repair, warn or off, or CODE=MODE for one
                           kind, such as S004=off; may be given several times [default: repair]

Example:
  claude mcp add mytools -- pontoon ipc /run/user/1000/mytools.sock /run/user/1000/mytools.json";

/// How often is looked whether the parent is still there.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the bridge if the program was started as one, `PROGRAM ipc SOCKET SCHEMA`, and gives its exit code.
/// To be called first in `main` by a program that is its own bridge.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     if let Some(exit) = pontoon_host::bridge::dispatch() {
///         return exit;
///     }
///     // The program itself.
///     std::process::ExitCode::SUCCESS
/// }
/// ```
pub fn dispatch() -> Option<ExitCode> {
    executable::note_dispatch();
    let mut args = std::env::args_os().skip(1);
    (args.next()? == "ipc").then(|| main(args))
}

/// Runs the bridge with these arguments, the words after `ipc`, and gives its exit code: 2 for wrong
/// arguments, 1 for a schema file that cannot be used, 0 when the client is done.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<_> = args.collect();
    if let [help] = args.as_slice()
        && (help == "--help" || help == "-h")
    {
        let _ = writeln!(io::stdout(), "{USAGE}");
        return ExitCode::SUCCESS;
    }
    #[cfg(feature = "spawner")]
    if let [word] = args.as_slice()
        && word == SPAWNER
    {
        let Err(error) = pontoon_supervise::serve_stdin();
        // Its program is gone already.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return ExitCode::SUCCESS;
        }
        complain(&format!("`ipc {SPAWNER}` is for programs that use pontoon-host: {error}"));
        return ExitCode::from(2);
    }
    let BridgeArguments { socket, schema, showing } = match BridgeArguments::read(args) {
        Ok(arguments) => arguments,
        Err(why) => {
            complain(&format!("{why}; try `pontoon ipc --help`"));
            return ExitCode::from(2);
        }
    };
    match run(&socket, &schema, showing) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(socket: &Path, schema: &Path, showing: Showing) -> Result<(), String> {
    // Before anything that takes time: if the parent ends meanwhile, another process takes its place.
    let (parent, mut looked_at) = (rustix::process::getppid(), Instant::now());
    let first = SchemaFile::read(schema)
        .map_err(|error| format!("the schema file {} {error}", schema.display()))?;
    let mut client = Client::new(&first, showing);
    let mut host = Host::new(socket, schema, first.answers_by_id);
    loop {
        let events = wait(&client, &host);
        // First: a connection that has ended takes no more calls.
        if !events.program.is_empty() {
            host.hear(&mut client);
        }
        if !events.input.is_empty() {
            client
                .hear(events.input)
                .map_err(|error| format!("the client cannot be read: {error}"))?;
        }
        while let Some(line) = client.next_line() {
            handle(line, &mut client, &mut host);
        }
        host.send(&mut client);
        if client.flush().is_err() || events.output.intersects(GONE) {
            return Ok(());
        }
        if let Some(end) = client.gives_up_at()
            && (client.is_done() && !host.is_busy() || Instant::now() >= end)
        {
            return Ok(());
        }
        // The end of the input says so too, unless another process has the other end of the pipe.
        if looked_at.elapsed() >= LOOK {
            looked_at = Instant::now();
            if rustix::process::getppid() != parent {
                return Ok(());
            }
        }
    }
}

/// What can be done without waiting.
struct Events {
    input: PollFlags,
    output: PollFlags,
    program: PollFlags,
}

/// Waits until something can be done, or it is time to look around.
fn wait(client: &Client, host: &Host) -> Events {
    let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    let wanted = [
        client.input_events().map(|events| (stdin, events)),
        client.output_events().map(|events| (stdout, events)),
        host.events(client),
    ];
    let fds = wanted.iter().flatten().map(|(fd, events)| PollFd::from_borrowed_fd(*fd, *events));
    let mut fds: Vec<_> = fds.collect();
    let time = match client.gives_up_at() {
        _ if client.has_lines() => Duration::ZERO,
        Some(end) => end.saturating_duration_since(Instant::now()).min(LOOK),
        None => LOOK,
    };
    let time = Timespec::try_from(time).expect("it is short");
    // A signal that ends nothing only ends the wait, and a system without memory for this may have it soon. Nothing
    // is seen then.
    if let Err(error) = poll(&mut fds, Some(&time))
        && error != Errno::INTR
    {
        std::thread::sleep(LOOK / 100);
    }
    let mut seen = fds.iter().map(PollFd::revents);
    let [input, output, program] =
        wanted.map(|wanted| wanted.and_then(|_| seen.next()).unwrap_or(PollFlags::empty()));
    Events { input, output, program }
}

fn handle(line: BytesMut, client: &mut Client, host: &mut Host) {
    if line.iter().all(u8::is_ascii_whitespace) {
        return;
    }
    let message = match Message::parse_or_return(line) {
        Ok(message) => message,
        Err((error, line)) => {
            let error = ErrorObject::new(code::PARSE, format!("not a JSON-RPC message: {error}"));
            let id = id_in(&line).unwrap_or("null".to_owned());
            return client.send(error.answer(&id));
        }
    };
    if message.method() == method::LIST_TOOLS {
        host.read_schema(client);
    }
    match client.take(message) {
        Step::Answer(answer) => client.send(answer),
        Step::Call(request) => host.call(&request, client),
        Step::Cancel(id) => host.cancel(&id, client),
        Step::Nothing => {}
    }
}
