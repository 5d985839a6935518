//! Other bridges: how each is started in front of the same server, and how it is called.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::client::{Http, HttpCaller, tool_call};
use crate::process::{self, Running};
use crate::websocket::SocketCaller;

/// Another bridge that can be measured.
#[derive(Debug)]
pub(crate) struct Kind {
    /// How it is called in the table.
    pub(crate) name: &'static str,
    start: fn(&Start) -> (PathBuf, Vec<String>),
    /// Where it speaks MCP, and what it calls the server's tool `echo`.
    path: &'static str,
    tool: &'static str,
}

/// One shared child.
pub(crate) const MCP_PROXY: Kind = Kind {
    name: "crate mcp-proxy 0.6",
    start: |start| {
        let config = start.directory.join("proxy.toml");
        let text = format!(
            "[proxy]\nname = \"bench\"\nseparator = \"_\"\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {}\n\
             [[backends]]\nname = \"bench\"\ntransport = \"stdio\"\ncommand = {:?}\nargs = []\n",
            start.port, start.server
        );
        std::fs::write(&config, text).expect("a file in our own directory");
        let args = vec!["--config".to_owned(), config.display().to_string()];
        (start.installed.join("mcp-proxy/bin/mcp-proxy"), args)
    },
    path: "/",
    tool: "bench_echo",
};

/// One shared child, and a path for each tool.
pub(crate) const MCPO: Kind = Kind {
    name: "mcpo 0.0.20",
    start: |start| {
        let port = start.port.to_string();
        let args = ["--host", "127.0.0.1", "--port", &port, "--log-level", "ERROR", "--"];
        let mut args: Vec<_> = args.map(str::to_owned).into();
        args.push(start.server.display().to_string());
        (start.installed.join("mcpo/bin/mcpo"), args)
    },
    // No MCP: the path is the tool's own, and the body are its arguments.
    path: "",
    tool: "/echo",
};

/// A child for each session.
pub(crate) const SUPERGATEWAY_STATEFUL: Kind = Kind {
    name: "supergateway 4.0 --stateful",
    start: |start| supergateway(start, &["streamableHttp", "--stateful"]),
    path: "/mcp",
    tool: "echo",
};

/// A child for each request.
pub(crate) const SUPERGATEWAY_STATELESS: Kind = Kind {
    name: "supergateway 4.0",
    start: |start| supergateway(start, &["streamableHttp"]),
    path: "/mcp",
    tool: "echo",
};

/// One shared child, behind WebSockets.
pub(crate) const SUPERGATEWAY_WEBSOCKET: Kind = Kind {
    name: "supergateway 4.0 --outputTransport ws",
    start: |start| supergateway(start, &["ws"]),
    path: "/message",
    tool: "echo",
};

/// It listens everywhere; here it may only on loopback.
const ON_LOOPBACK: &str = "data:text/javascript,import net from 'node:net';\
     const listen = net.Server.prototype.listen;\
     net.Server.prototype.listen = function (port, ...rest) {\
     return listen.call(this, port, '127.0.0.1', ...rest.filter((it) => typeof it === 'function')); };";

fn supergateway(start: &Start, transport: &[&str]) -> (PathBuf, Vec<String>) {
    let script = start.installed.join("supergateway/node_modules/supergateway/dist/index.js");
    let (script, port) = (script.display().to_string(), start.port.to_string());
    let server = start.server.display().to_string();
    let args = ["--import", ON_LOOPBACK, &script, "--stdio", &server, "--port", &port];
    let mut args: Vec<_> = args.map(str::to_owned).into();
    args.extend(["--logLevel", "none", "--outputTransport"].map(str::to_owned));
    args.extend(transport.iter().map(|word| (*word).to_owned()));
    (PathBuf::from("node"), args)
}

/// What is needed to start one.
struct Start<'s> {
    installed: &'s Path,
    server: &'s Path,
    directory: &'s Path,
    port: u16,
}

/// Another bridge that runs, and is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) kind: &'static Kind,
    running: Running,
    address: SocketAddr,
    _directory: TempDir,
}

impl Peer {
    /// Starts it in front of `server` and waits until it listens.
    pub(crate) fn start(kind: &'static Kind, installed: &Path, server: &Path) -> Self {
        let directory = process::directory();
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        let start = Start { installed, server, directory: directory.path(), port: address.port() };
        let (program, args) = (kind.start)(&start);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        let mut command = process::command(&program, &args);
        // What it logs is not read.
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let mut running = Running::start(&mut command);
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = running.0.try_wait().expect("a child of ours");
            assert!(ended.is_none(), "{} ended: {ended:?}: {command:?}", kind.name);
            assert!(began.elapsed() < Duration::from_secs(60), "{} does not listen", kind.name);
            thread::sleep(Duration::from_millis(20));
        }
        Self { kind, running, address, _directory: directory }
    }

    /// A client that calls `echo` with this text.
    pub(crate) fn client(&self, text: &str) -> HttpCaller {
        self.caller(self.kind.tool, &format!("{{\"text\":\"{text}\"}}"))
    }

    /// A client that asks for a result of this many bytes.
    pub(crate) fn big_client(&self, bytes: usize) -> HttpCaller {
        let tool = self.kind.tool.replace("echo", "big");
        self.caller(&tool, &format!("{{\"bytes\":{bytes}}}"))
    }

    /// A client that makes this call over a WebSocket.
    pub(crate) fn socket_client(&self, call: &str) -> SocketCaller {
        SocketCaller::open(self.address, self.kind.path, call)
    }

    fn caller(&self, tool: &str, arguments: &str) -> HttpCaller {
        if self.kind.path.is_empty() {
            return HttpCaller::new(Http::connect(self.address), tool, arguments);
        }
        let http = Http::open(self.address, self.kind.path);
        HttpCaller::new(http, self.kind.path, &tool_call(tool, arguments))
    }

    /// Its processes now: its own, then its children.
    pub(crate) fn processes(&self) -> Vec<u32> {
        [vec![self.running.id()], process::below(self.running.id())].concat()
    }
}
