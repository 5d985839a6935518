//! The application of seed 003: a C++ program with a WebSocket server of its own, as it was before it was mended.
//!
//! It answers notifications with `{"jsonrpc":"2.0","id":null}`, has one version whatever it is asked for, writes
//! `properties: null` and `items: ["type","number"]` into its schemas, gives bare results, and takes every 4 KiB that
//! it receives for a message. It has one thread for all of that, so it answers no ping while a tool is at work. Each
//! fault can be left out, to see what that one costs.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tungstenite::Message;
use tungstenite::handshake::server::{Request, Response};

/// How much it receives at once.
const RECEIVE_BUFFER: usize = 4096;

/// Its tools.
pub const TOOLS: [&str; 11] = [
    "get_console_log",
    "list_active_patches",
    "add_max_object",
    "remove_max_object",
    "connect_max_objects",
    "disconnect_max_objects",
    "set_object_attribute",
    "get_patch_info",
    "get_objects_in_patch",
    "get_frontmost_patch",
    "get_avoid_rect",
];

/// What it gets wrong.
#[derive(Debug, Clone)]
pub struct Faults {
    /// It answers notifications.
    pub answers_notifications: bool,
    /// It has one version.
    pub fixed_version: bool,
    /// Its tools without arguments have `properties: null`.
    pub null_properties: bool,
    /// A list of numbers has `items: ["type","number"]`.
    pub flat_items: bool,
    /// What a tool gives is its whole result.
    pub bare_results: bool,
    /// It spreads its messages over lines.
    pub spread_messages: bool,
}

impl Faults {
    /// All that the seed tells of.
    pub const ALL: Self = Self {
        answers_notifications: true,
        fixed_version: true,
        null_properties: true,
        flat_items: true,
        bare_results: true,
        spread_messages: false,
    };

    /// The application as it was mended.
    pub const NONE: Self = Self {
        answers_notifications: false,
        fixed_version: false,
        null_properties: false,
        flat_items: false,
        bare_results: false,
        spread_messages: false,
    };
}

/// An application that runs.
#[derive(Debug)]
pub struct SeedApp {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    faults: Faults,
    is_closed: AtomicBool,
    connections: Mutex<Vec<TcpStream>>,
    calls: Mutex<Vec<Value>>,
    accepted: AtomicUsize,
    pings: AtomicUsize,
}

impl SeedApp {
    /// Starts one at a port of its own.
    ///
    /// # Panics
    ///
    /// When it cannot listen.
    pub fn start(faults: Faults) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            faults,
            is_closed: AtomicBool::new(false),
            connections: Mutex::default(),
            calls: Mutex::default(),
            accepted: AtomicUsize::new(0),
            pings: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        let listening = thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                serving.accepted.fetch_add(1, Ordering::SeqCst);
                let copy = stream.try_clone().expect("a descriptor");
                serving.connections.lock().expect("no thread panics with it").push(copy);
                let serving = Arc::clone(&serving);
                thread::spawn(move || serving.serve(stream));
            }
        });
        Self { port, shared, listening: Some(listening) }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.port)
    }

    /// How many connections it took.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many pings it has read. It answers one when it reads on.
    pub fn pings(&self) -> usize {
        self.shared.pings.load(Ordering::SeqCst)
    }

    /// The calls that it carried out: names and arguments, in their order.
    pub fn calls(&self) -> Vec<Value> {
        self.shared.calls.lock().expect("no thread panics with it").clone()
    }
}

impl Drop for SeedApp {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(listening) = self.listening.take() {
            let _ = listening.join();
        }
        let connections = self.shared.connections.lock().expect("no thread panics with it");
        connections.iter().for_each(|connection| drop(connection.shutdown(Shutdown::Both)));
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        #[expect(clippy::result_large_err, reason = "the library wants it so")]
        let greet = |request: &Request, mut response: Response| {
            if request.headers().get("sec-websocket-protocol").is_some_and(|it| it == "mcp") {
                let name = "sec-websocket-protocol";
                response.headers_mut().insert(name, "mcp".parse().expect("a word"));
            }
            Ok(response)
        };
        let Ok(mut socket) = tungstenite::accept_hdr(stream, greet) else { return };
        while let Ok(frame) = socket.read() {
            self.pings.fetch_add(usize::from(frame.is_ping()), Ordering::SeqCst);
            let Message::Text(text) = frame else { continue };
            for piece in text.as_bytes().chunks(RECEIVE_BUFFER) {
                let Some(answer) = self.answer(&String::from_utf8_lossy(piece)) else { continue };
                let answer = match self.faults.spread_messages {
                    true => serde_json::to_string_pretty(&answer).expect("it is JSON"),
                    false => answer.to_string(),
                };
                if socket.send(Message::text(answer)).is_err() {
                    return;
                }
            }
        }
    }

    fn answer(&self, piece: &str) -> Option<Value> {
        let Ok(message) = serde_json::from_str::<Value>(piece) else {
            let error = json!({"code": -32700, "message": "Parse error"});
            return Some(json!({"jsonrpc": "2.0", "id": null, "error": error}));
        };
        let method = message["method"].as_str().unwrap_or_default();
        if method.starts_with("notifications/") {
            let answer = json!({"jsonrpc": "2.0", "id": null});
            return self.faults.answers_notifications.then_some(answer);
        }
        let id = &message["id"];
        let result = match method {
            "initialize" => json!({
                "protocolVersion": self.version(&message["params"]["protocolVersion"]),
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "maxmcp", "version": "0.2.0"},
            }),
            "tools/list" => json!({"tools": TOOLS.map(|name| self.tool(name))}),
            "tools/call" => self.call(&message["params"]),
            _ => {
                let error = json!({"code": -32601, "message": "Method not found"});
                return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        };
        Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
    }

    fn version(&self, asked: &Value) -> Value {
        let knows = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
        let is_known = asked.as_str().is_some_and(|asked| knows.contains(&asked));
        match self.faults.fixed_version || !is_known {
            true => json!("2024-11-05"),
            false => asked.clone(),
        }
    }

    fn tool(&self, name: &str) -> Value {
        let numbers = match self.faults.flat_items {
            true => json!(["type", "number"]),
            false => json!({"type": "number"}),
        };
        let text = json!({"type": "string"});
        let schema = match name {
            "get_console_log" => json!({
                "type": "object",
                "properties": {"lines": {"type": "number", "description": "How many lines"}},
            }),
            "add_max_object" => json!({
                "type": "object",
                "properties": {
                    "patch_id": text,
                    "obj_type": text,
                    "position": {"type": "array", "items": numbers, "description": "Position [x, y] in patch"},
                },
                "required": ["patch_id", "obj_type", "position"],
            }),
            "list_active_patches" | "get_frontmost_patch" => {
                let none = if self.faults.null_properties { Value::Null } else { json!({}) };
                json!({"type": "object", "properties": none})
            }
            _ => {
                json!({"type": "object", "properties": {"patch_id": text}, "required": ["patch_id"]})
            }
        };
        json!({"name": name, "description": format!("{name} of Max"), "inputSchema": schema})
    }

    fn call(&self, params: &Value) -> Value {
        self.calls.lock().expect("no thread panics with it").push(params.clone());
        let arguments = &params["arguments"];
        let result = match params["name"].as_str().unwrap_or_default() {
            "get_console_log" => {
                let lines = arguments["lines"].as_u64().unwrap_or(10).min(100);
                let log: Vec<_> = (1..=lines).map(|line| format!("console line {line}")).collect();
                json!({"lines": log})
            }
            "list_active_patches" => json!({"count": 0, "patches": []}),
            "add_max_object" => json!({"status": "success", "position": arguments["position"]}),
            // The main thread is at work, and with it the thread of the socket.
            "get_objects_in_patch" => {
                thread::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap_or(0)));
                json!({"objects": []})
            }
            name => json!({"status": "success", "tool": name}),
        };
        match self.faults.bare_results {
            true => result,
            false => json!({"content": [{"type": "text", "text": result.to_string()}]}),
        }
    }
}
