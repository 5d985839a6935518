//! One call through the bridge, beside one trip over a pipe and one over a Unix socket, between processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, ExitCode};
use std::time::{Duration, Instant};

use pontoon_host::{Session, Tool, Toolset};

use crate::{Plan, Times, median, own, row, start};

/// How long each side has its turn.
const TURN: Duration = Duration::from_millis(60);

/// A call as a client writes it, and as many bytes as its answer has.
const CALL: &[u8] =
    b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"tools/call\",\"params\":{\"name\":\"nothing\",\"arguments\":{}}}\n";

/// Measures, and gives the 99th percentile of a call.
pub(crate) fn measure(plan: &Plan) -> Duration {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let mut pipe = Pipe::new(start(&own(), &["be-pipe"]));
    let mut socket = Socket::new(place.path());
    let mut way = bare_way(place.path());
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let session = {
        let _one = one.enter();
        Session::start_in(&[place.path().to_owned()], &[tools()]).unwrap()
    };
    let config = session.mcp_server_config(&plan.pontoon);
    let args: Vec<String> = serde_json::from_value(config["args"].clone()).unwrap();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (socket_path, schema_path) = (args[1].to_owned(), args[2].to_owned());
    let mut bridge = Pipe::new(start(&plan.pontoon, &args));
    // The program has one thread for its tools, and this one is the client.
    std::thread::spawn(move || one.block_on(std::future::pending::<()>()));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/bridge/python_bridge.py");
    let mut python = Pipe::new(start(&"python3".into(), &[script, &socket_path, &schema_path]));

    for pipe in [&mut bridge, &mut python] {
        assert!(pipe.trip(CALL).contains("\"done\""), "not an answer");
    }
    let mut all = [(); 5].map(|()| Times::default());
    let [mut ratios, mut beside_way, mut beside_python] = [const { Vec::new() }; 3];
    for _ in 0..plan.turns {
        let turns = [
            turn(|| _ = pipe.trip(CALL)),
            turn(|| socket.trip(CALL)),
            turn(|| _ = bridge.trip(CALL)),
            turn(|| _ = python.trip(CALL)),
            turn(|| _ = way.trip(CALL)),
        ];
        let [over_pipe, over_socket, call, by_python, over_way] =
            [0, 1, 2, 3, 4].map(|side| turns[side].at(0.5).as_secs_f64());
        ratios.push(call / (over_pipe + over_socket));
        beside_way.push(call / over_way);
        beside_python.push(by_python / call);
        all.iter_mut().zip(turns).for_each(|(all, turn)| all.add(turn));
    }
    let [over_pipe, over_socket, call, by_python, over_way] = &all;
    let floor = |share| Some(over_pipe.at(share) + over_socket.at(share));
    row("a call: p50", call.at(0.5), floor(0.5), Some(median(ratios)), "<= 2");
    row("a call: p99", call.at(0.99), floor(0.99), None, "< 1 ms");
    let bare = Some(over_way.at(0.5));
    row("a call, beside the bare way: p50", call.at(0.5), bare, Some(median(beside_way)), "");
    let faster = format!("Python's over ours: {:.1}", median(beside_python));
    row("a call through the Python bridge: p50", by_python.at(0.5), None, None, &faster);
    row("a call through the Python bridge: p99", by_python.at(0.99), None, None, "");
    drop(session);
    call.at(0.99)
}

fn tools() -> Toolset {
    let nothing = Tool::new("nothing", |(), _| async { "done" });
    Toolset::new().with(nothing).unwrap()
}

fn turn(mut trip: impl FnMut()) -> Times {
    let mut times = Times::default();
    let began = Instant::now();
    while began.elapsed() < TURN {
        times.take(&mut trip);
    }
    times
}

/// A process that answers each line with a line.
struct Pipe {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
}

impl Pipe {
    fn new(mut child: Child) -> Self {
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output, line: String::new() }
    }

    fn trip(&mut self, line: &[u8]) -> &str {
        self.input.write_all(line).unwrap();
        self.line.clear();
        self.output.read_line(&mut self.line).unwrap();
        &self.line
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that sends back what comes over a socket.
struct Socket {
    child: Child,
    stream: UnixStream,
}

impl Socket {
    fn new(place: &Path) -> Self {
        let path = place.join("floor.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let child = start(&own(), &["be-socket", path.to_str().unwrap()]);
        Self { child, stream: listener.accept().unwrap().0 }
    }

    fn trip(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        let mut back = [0; CALL.len()];
        self.stream.read_exact(&mut back).unwrap();
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The way of a call with nothing on it: a process between this one and a thread of this one.
fn bare_way(place: &Path) -> Pipe {
    let path = place.join("way.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let between = Pipe::new(start(&own(), &["be-between", path.to_str().unwrap()]));
    let stream = listener.accept().unwrap().0;
    std::thread::spawn(move || echo(stream.try_clone().unwrap(), stream));
    between
}

/// The process on the [`bare_way`].
pub(crate) fn pass_on(path: &str) -> ExitCode {
    let mut stream = UnixStream::connect(path).unwrap();
    let (mut from, mut to) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut bytes = [0; 4096];
    while let Ok(size @ 1..) = from.read(&mut bytes) {
        stream.write_all(&bytes[..size]).unwrap();
        stream.read_exact(&mut bytes[..size]).unwrap();
        to.write_all(&bytes[..size]).and_then(|()| to.flush()).unwrap();
    }
    ExitCode::SUCCESS
}

/// The other end of [`Pipe`], in a process of its own.
pub(crate) fn echo_stdio() -> ExitCode {
    echo(std::io::stdin().lock(), std::io::stdout().lock())
}

/// The other end of [`Socket`], in a process of its own.
pub(crate) fn echo_socket(path: &str) -> ExitCode {
    let stream = UnixStream::connect(path).unwrap();
    echo(stream.try_clone().unwrap(), stream)
}

fn echo(mut from: impl Read, mut to: impl Write) -> ExitCode {
    let mut bytes = [0; 4096];
    while let Ok(size @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..size]).and_then(|()| to.flush()).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}
