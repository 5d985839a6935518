//! The bridge process, `pontoon ipc SOCKET SCHEMA`: an MCP server on standard input and output whose tools
//! live in another program, behind a Unix socket.
//!
//! It lists the tools from the schema file and connects with the first call. It is plain blocking code: one
//! thread reads the client, one the program, and a third one notices that the client is gone; a fourth one is
//! there while the program does not take what is sent to it. It ends when
//! its input ends, by a signal, or with its parent, and never because of the program behind the socket.

mod client;
mod connection;
mod executable;
mod host;
mod sending;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::framing::lines::Lines;
use pontoon_wire::{Message, method};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::conversation::{Step, id_in};
use crate::schema_file::SchemaFile;
use client::Client;
#[cfg(feature = "model")]
pub(crate) use executable::check as is_executable;
pub use executable::find;
#[cfg(feature = "spawner")]
pub use executable::start_spawner;
use host::Host;

const USAGE: &str = "usage: pontoon ipc SOCKET SCHEMA

Serves the tools of a running program as an MCP server on standard input and output.
Made to be started by Claude Code or another MCP client:

  SOCKET  the Unix socket of the program
  SCHEMA  its schema file: a JSON array of {\"name\", \"description\", \"input_schema\"}

Example:
  claude mcp add mytools -- pontoon ipc /run/user/1000/mytools.sock /run/user/1000/mytools.json";

/// The word after `ipc` by which a program starts the spawner of its children, and no bridge.
#[cfg(feature = "spawner")]
const SPAWNER: &str = "--spawner";

/// The longest line that is read from the client. What may be passed on is shorter.
const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

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
    let [socket, schema] = args.as_slice() else {
        let count = args.len();
        complain(&format!(
            "two arguments are needed, SOCKET and SCHEMA, not {count}; try `pontoon ipc --help`"
        ));
        return ExitCode::from(2);
    };
    match run(Path::new(socket), Path::new(schema)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// One line on standard error; the client shows it in its log.
fn complain(what: &str) {
    let _ = writeln!(io::stderr(), "pontoon ipc: {what}");
}

fn run(socket: &Path, schema: &Path) -> Result<(), String> {
    let read = || {
        SchemaFile::read(schema)
            .map_err(|error| format!("the schema file {} {error}", schema.display()))
    };
    let first = read()?;
    let client = Arc::new(Client::new(&first));
    let host = Host::new(PathBuf::from(socket), first.answers_by_id, Arc::clone(&client), schema);
    // Before anything that takes time: if the parent ends meanwhile, another process takes its place.
    let (parent, mut is_watched) = (rustix::process::getppid(), false);
    let mut lines = Lines::new(MAX_LINE_BYTES);
    loop {
        match read_some(lines.buffer()) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(format!("the client cannot be read: {error}")),
        }
        while let Some(line) = lines.next_line() {
            match line {
                Ok(line) => handle(line, &client, &host),
                Err(too_long) => {
                    complain(&format!("a message of the client's was dropped: {too_long}"));
                }
            }
        }
        // Not before the first answer, which the client waits for.
        if !is_watched {
            is_watched = true;
            watch(parent)?;
        }
    }
    if let Some(line) = lines.finish() {
        handle(line, &client, &host);
    }
    host.finish();
    Ok(())
}

/// Reads what there is from standard input.
fn read_some(buffer: &mut BytesMut) -> io::Result<usize> {
    let start = buffer.len();
    // Little while little comes, more while a long line grows.
    let more = start.clamp(16 * 1024, 1024 * 1024);
    buffer.resize(start + more, 0);
    let read = loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer[start..]) {
            Err(Errno::INTR) => {}
            // A client may have made its pipe non-blocking for both ends.
            Err(Errno::AGAIN) => wait_until_readable(),
            read => break read,
        }
    };
    buffer.truncate(start + *read.as_ref().unwrap_or(&0));
    Ok(read?)
}

fn wait_until_readable() {
    use rustix::event::{PollFd, PollFlags, poll};
    let stdin = rustix::stdio::stdin();
    let _ = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None);
}

fn handle(line: BytesMut, client: &Client, host: &Arc<Host>) {
    if line.iter().all(u8::is_ascii_whitespace) {
        return;
    }
    let message = match Message::parse_or_return(line) {
        Ok(message) => message,
        Err((error, line)) => {
            let error = ErrorObject::new(code::PARSE, format!("not a JSON-RPC message: {error}"));
            let id = id_in(&line).unwrap_or("null".to_owned());
            return client.send(error.answer(&id).as_bytes());
        }
    };
    if message.method() == method::LIST_TOOLS {
        host.read_schema();
    }
    match client.take(message) {
        Step::Answer(answer) => client.send(answer.as_bytes()),
        Step::Call(request) => host.call(&request),
        Step::Cancel(id) => host.cancel(&id),
        Step::Nothing => {}
    }
}

/// Ends this process when its parent has ended. The end of the input says so too, unless another process
/// has the other end of the pipe.
fn watch(parent: Option<Pid>) -> Result<(), String> {
    let watch = move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            if rustix::process::getppid() != parent {
                std::process::exit(0);
            }
        }
    };
    let started = std::thread::Builder::new().stack_size(64 * 1024).spawn(watch);
    started.map(drop).map_err(|error| format!("no thread can be started: {error}"))
}
