//! A call over a WebSocket that is kept.
//!
//! The floor is a server that speaks MCP over WebSocket by itself: the same answers, and no bridge and no child. Where each
//! client has a child, the least that a bridge can be is measured, too.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::Plan;
use crate::bridge::Bridge;
use crate::client::{Caller, INITIALIZED, PipeCaller, initialize};
use crate::load::{Side, median, order, zip};
use crate::native;
use crate::pooled::{KEPT, Kept};
use crate::process::{self, Running};
use crate::server::Server;
use crate::table::{Goal, Table, a_second, micros};

/// Measures this many clients at once, in front of each server.
pub(crate) fn measure(plan: &Plan, kept: &Kept, clients: usize, table: &mut Table) {
    for server in &plan.servers {
        measure_with(plan, kept, server, clients, table);
    }
}

fn measure_with(plan: &Plan, kept: &Kept, server: &Server, clients: usize, table: &mut Table) {
    let start = |build| Bridge::start(build, kept.mode, server);
    let bridges: Vec<_> = plan.builds.iter().map(|build| start(build)).collect();
    let all_of = |bridge: &Bridge| {
        (0..clients).map(|_| SocketCaller::to_bridge(bridge, &server.call)).collect()
    };
    let mut ours: Vec<Vec<_>> = bridges.iter().map(all_of).collect();
    let answers: Vec<_> = ours.iter_mut().flatten().map(SocketCaller::answer).collect();
    assert!(answers.iter().all(|answer| answer.contains(server.answer)), "{answers:?}");
    let (native_server, address) = native::start(&["--be-websocket-server"]);
    let mut native: Vec<_> =
        (0..clients).map(|_| SocketCaller::open(address, "/", &server.call)).collect();
    assert_eq!(native[0].answer(), answers[0], "the native server answers the same");
    let pipe = |_| PipeCaller::start(&mut server.command(), &server.call);
    let mut pipes: Vec<_> = (0..clients).map(pipe).collect();

    let mut relay = (kept.mode == KEPT.mode).then(|| Relay::start(server, clients));

    let pids: Vec<_> = bridges.iter().map(|bridge| [vec![bridge.id()], bridge.servers()]).collect();
    let native_pids = [vec![native_server.id()]];
    let mut sides: Vec<Side> = bridges.iter().map(|_| Side::default()).collect();
    let [mut on_pipe, mut on_native]: [Side; 2] = Default::default();
    let (rounds, length) = plan.rounds();
    for round in 0..rounds {
        for at in order(sides.len(), round) {
            sides[at].counted_turn(&mut ours[at], length, &pids[at]);
        }
        on_pipe.turn(&mut pipes, length);
        on_native.counted_turn(&mut native, length, &native_pids);
        if let Some(relay) = &mut relay {
            relay.side.counted_turn(&mut relay.callers, length, &relay.pids);
        }
    }
    sides.iter_mut().zip(&pids).for_each(|(side, pids)| side.read(pids));
    on_native.read(&native_pids);

    let name = server.row(&format!("websocket, {}", kept.name), clients);
    let ours: Vec<_> = sides.iter().map(|side| side.quantiles(0.5)).collect();
    table.compare(&format!("{name}: p50"), &ours, &on_native.quantiles(0.5), micros, Goal::None);
    let ours: Vec<_> = sides.iter().map(Side::rates).collect();
    let goal = server.goal(Goal::AtLeast(0.6));
    table.compare(&format!("{name}: calls"), &ours, &on_native.rates(), a_second, goal);
    // One after the other, two things take the sum of their times.
    let join = |native: f64, pipe: f64| 1.0 / (1.0 / native + 1.0 / pipe);
    let floor = zip(&on_native.rates(), &on_pipe.rates(), join);
    let what = format!("{name}: calls, beside that and the pipes");
    table.compare(&what, &ours, &floor, a_second, Goal::None);
    let parts: [(&str, &[usize]); 2] = [("bridge", &[0]), ("with child", &[0, 1])];
    for (part, groups) in parts {
        let ours: Vec<_> = sides.iter().map(|side| side.used(groups)).collect();
        let what = format!("{name}: CPU a call, {part}");
        table.compare(&what, &ours, &on_native.used(&[0]), micros, Goal::None);
    }
    if let Some(relay) = relay {
        relay.tell(&name, &sides, &on_native, table);
    }
}

/// A bare relay, its clients, and what they did.
struct Relay {
    callers: Vec<SocketCaller>,
    side: Side,
    pids: [Vec<u32>; 2],
    _running: Running,
}

impl Relay {
    fn start(server: &Server, clients: usize) -> Self {
        let program = server.program.display().to_string();
        let options = ["--be-websocket-relay", &program];
        let (running, address) = native::start(&[&options, &server.args[..]].concat());
        let open = |_| SocketCaller::open(address, "/", &server.call);
        let mut callers: Vec<_> = (0..clients).map(open).collect();
        assert!(callers.iter_mut().all(|it| it.answer().contains(server.answer)));
        let pids = [vec![running.id()], process::below(running.id())];
        Self { callers, side: Side::default(), pids, _running: running }
    }

    /// Ours beside it, and how far it is from a native server by itself.
    fn tell(mut self, name: &str, ours: &[Side], native: &Side, table: &mut Table) {
        self.side.read(&self.pids);
        let rates: Vec<_> = ours.iter().map(Side::rates).collect();
        let relay = self.side.rates();
        let what = format!("{name}: calls, beside a bare relay");
        table.compare(&what, &rates, &relay, a_second, Goal::None);
        for (part, groups) in [("bridge", &[0][..]), ("with child", &[0, 1])] {
            let used: Vec<_> = ours.iter().map(|side| side.used(groups)).collect();
            let what = format!("{name}: CPU a call, {part}, beside a bare relay");
            table.compare(&what, &used, &self.side.used(groups), micros, Goal::None);
        }
        let ratio = median(&zip(&relay, &native.rates(), |relay, native| relay / native));
        table.note(
            &format!("{name}: a bare relay's calls, of a native server's"),
            format!("{ratio:.2}"),
        );
    }
}

/// Calls over a WebSocket.
#[derive(Debug)]
pub(crate) struct SocketCaller {
    stream: TcpStream,
    request: Vec<u8>,
    buffer: Vec<u8>,
}

impl SocketCaller {
    /// The same to the server of a bridge of ours.
    pub(crate) fn to_bridge(bridge: &Bridge, call: &str) -> Self {
        Self::open(bridge.address(), &bridge.path().replace("/mcp/", "/ws/"), call)
    }

    /// Connects, opens a session, and makes this call from then on.
    pub(crate) fn open(address: SocketAddr, path: &str, call: &str) -> Self {
        let stream = TcpStream::connect(address).expect("the other side listens");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("not zero");
        let mut caller = Self { stream, request: frame(call), buffer: vec![0; 64 * 1024] };
        let hello = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             Sec-WebSocket-Protocol: mcp\r\n\r\n"
        );
        caller.stream.write_all(hello.as_bytes()).expect("the other side reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            caller.stream.read_exact(&mut byte).expect("the other side answers");
            head.extend_from_slice(&byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        caller.stream.write_all(&frame(&initialize())).expect("the other side reads");
        caller.read();
        caller.stream.write_all(&frame(INITIALIZED)).expect("the other side reads");
        caller
    }

    /// Calls once, and gives the answer.
    pub(crate) fn answer(&mut self) -> String {
        let (start, end) = self.exchange();
        String::from_utf8_lossy(&self.buffer[start..end]).into_owned()
    }

    fn exchange(&mut self) -> (usize, usize) {
        self.stream.write_all(&self.request).expect("the other side reads");
        self.read()
    }

    /// Reads one frame, and gives where its text is in the buffer. Nothing comes behind it.
    fn read(&mut self) -> (usize, usize) {
        let mut read = 0;
        loop {
            let more = self.stream.read(&mut self.buffer[read..]).expect("the other side answers");
            assert!(more > 0, "closed");
            read += more;
            let (head, length) = match (read, self.buffer[1]) {
                (2.., length @ 0..=125) => (2, usize::from(length)),
                (4.., 126) => {
                    (4, usize::from(u16::from_be_bytes([self.buffer[2], self.buffer[3]])))
                }
                (2.., 127) => panic!("a short answer is expected"),
                _ => continue,
            };
            if read >= head + length {
                assert_eq!((self.buffer[0], read), (0x81, head + length), "one text frame");
                return (head, head + length);
            }
        }
    }
}

impl Caller for SocketCaller {
    fn call(&mut self) -> usize {
        let (start, end) = self.exchange();
        end - start
    }
}

/// A text frame of a client, under a mask as each must have.
fn frame(text: &str) -> Vec<u8> {
    let mask = [0x12, 0x34, 0x56, 0x78];
    let mut frame = vec![0x81];
    match u8::try_from(text.len()) {
        Ok(length @ 0..=125) => frame.push(0x80 | length),
        _ => {
            frame.push(0x80 | 126);
            let length = u16::try_from(text.len()).expect("a short request");
            frame.extend_from_slice(&length.to_be_bytes());
        }
    }
    frame.extend_from_slice(&mask);
    frame.extend(text.bytes().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// A server that speaks MCP over WebSocket: the tools of the servers behind the bridge, and no bridge.
pub(crate) fn serve() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let serving = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound just above");
        writeln!(io::stdout(), "{address}").expect("the bench reads it");
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a TCP socket");
            tokio::spawn(serve_connection(stream));
        }
    };
    // In a task, like the bridge's: the thread of `block_on` costs another hop.
    runtime.block_on(async { tokio::spawn(serving).await.expect("it serves until it is killed") })
}

/// A call is answered as by the servers behind the bridge; a bridge that connects here wants to know more.
fn answer(text: &str) -> Vec<u8> {
    if text.contains("\"tools/call\"") {
        return native::answer_natively(text.as_bytes()).to_vec();
    }
    let message: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let echo = serde_json::json!({"name": "echo", "inputSchema": {"type": "object"}});
    let result = match message["method"].as_str() {
        Some("tools/list") => serde_json::json!({"tools": [echo]}),
        _ => serde_json::json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "native", "version": "1"},
        }),
    };
    let answer = serde_json::json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    answer.to_string().into_bytes()
}

async fn serve_connection(stream: tokio::net::TcpStream) {
    let config = WebSocketConfig::default().read_buffer_size(8 * 1024);
    let accepted = tokio_tungstenite::accept_async_with_config(stream, Some(config)).await;
    let Ok(mut socket) = accepted else { return };
    while let Some(Ok(frame)) = socket.next().await {
        let Frame::Text(text) = frame else { continue };
        // Of a notification nothing is said.
        if text.contains("\"id\"") {
            let answer = Frame::text(String::from_utf8(answer(&text)).expect("JSON"));
            if socket.send(answer).await.is_err() {
                return;
            }
        }
    }
}
