//! MCP over WebSocket, `/ws/{server}`, on real sockets: many clients at once, clients that break, and the end of the bridge.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use pontoon_tests::rig::{Rig, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use tungstenite::handshake::client::generate_key;
use tungstenite::http::Request;
use tungstenite::{Message, WebSocket};

use crate::{fixture, plan, rig};

const SOON: Duration = Duration::from_secs(60);

/// A client with a session.
struct Client {
    socket: WebSocket<TcpStream>,
}

impl Client {
    fn connect(rig: &Rig, headers: &[(&str, &str)]) -> tungstenite::Result<Self> {
        let address = rig.address();
        let mut request = Request::builder()
            .uri(format!("ws://{address}/ws/fixture"))
            .header("Host", address.to_string())
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", generate_key())
            .header("Sec-WebSocket-Protocol", "mcp");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(SOON))?;
        match tungstenite::client(request.body(()).unwrap(), stream) {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(tungstenite::HandshakeError::Failure(error)) => Err(error),
            Err(error) => panic!("{error}"),
        }
    }

    fn open(rig: &Rig) -> Self {
        let mut client = Self::connect(rig, &[]).unwrap();
        client.initialize();
        client
    }

    fn initialize(&mut self) {
        let info = json!({"name": "ws", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        self.say(
            &json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params}),
        );
        assert_eq!(self.next()["id"], "hello");
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    fn say(&mut self, message: &Value) {
        self.socket.send(Message::text(message.to_string())).unwrap();
    }

    fn call(&mut self, id: impl Into<Value>, tool: &str, arguments: &Value) {
        let params = json!({"name": tool, "arguments": arguments});
        self.say(
            &json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": params}),
        );
    }

    fn next(&mut self) -> Value {
        loop {
            match self.socket.read().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn closed(&mut self) -> (u16, String) {
        match self.socket.read().unwrap() {
            Message::Close(Some(close)) => (close.code.into(), close.reason.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn clients_with_equal_ids_get_their_own_answers_and_large_ones_whole() {
    for mode in ["stateful", "shared"] {
        let rig = rig([fixture(mode)]);
        std::thread::scope(|scope| {
            for number in 0..16 {
                let rig = &rig;
                scope.spawn(move || {
                    let mut client = Client::open(rig);
                    for round in 0..20 {
                        for id in 0..4 {
                            let said = format!("client {number}, round {round}, call {id} 桟橋");
                            client.call(id, "echo", &json!({"text": said}));
                        }
                        let mut ids = BTreeSet::new();
                        for _ in 0..4 {
                            let answer = client.next();
                            let id = answer["id"].as_u64().unwrap();
                            let said = format!("client {number}, round {round}, call {id} 桟橋");
                            assert_eq!(text(&answer), said);
                            assert!(ids.insert(id), "answered twice: {answer}");
                        }
                    }
                    client.call(9, "big", &json!({"bytes": 3_000_000}));
                    assert_eq!(text(&client.next()).len(), 3_000_000);
                });
            }
        });
        rig.stop();
    }
}

#[test]
fn a_page_of_another_site_and_a_client_without_the_key_are_refused_and_the_key_is_not_logged() {
    let rig = plan([fixture("stateful")])
        .variable("MCPO_API_KEYS", "bob=the-key-of-bob")
        .variable("MCPO_ALLOWED_ORIGINS", "https://chat.example")
        .argument("--log-level=trace")
        .start();
    let refused = |headers: &[(&str, &str)]| match Client::connect(&rig, headers) {
        Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
        Err(error) => panic!("{error}"),
        Ok(_) => 101,
    };
    let bearer = ("Sec-WebSocket-Protocol", "bearer.the-key-of-bob");
    assert_eq!(refused(&[]), 401);
    assert_eq!(refused(&[("Sec-WebSocket-Protocol", "bearer.another-key")]), 403);
    assert_eq!(refused(&[bearer, ("Origin", "https://evil.example")]), 403);
    assert_eq!(refused(&[bearer, ("Origin", "null")]), 403);
    let mut client = Client::connect(&rig, &[bearer, ("Origin", "https://chat.example")]).unwrap();
    client.initialize();
    client.call(1, "echo", &json!({"text": "x"}));
    assert_eq!(text(&client.next()), "x");
    drop(client);
    let log = rig.log();
    assert!(log.contains("\"area\":\"ws\"") && log.contains("is foreign"), "{log}");
    assert!(!log.contains("the-key-of-bob") && !log.contains("another-key"), "{log}");
    rig.stop();
}

#[test]
fn a_client_that_is_cut_off_takes_its_process_along() {
    let rig = rig([fixture("stateful")]);
    let mut client = Client::open(&rig);
    client.call(1, "pid", &json!({}));
    client.next();
    client.call(2, "wait", &json!({"ms": 600_000}));
    wait_until("its call runs", SOON, || rig.health()["running"] == 1);
    assert_eq!(rig.health()["websockets"], 1);
    client.socket.get_ref().shutdown(Shutdown::Both).unwrap();
    wait_until("all of it is gone", SOON, || {
        let health = rig.health();
        health["running"] == 0 && health["websockets"] == 0 && health["sessions"] == 0
    });
    rig.stop();
}

#[test]
fn a_client_that_reads_nothing_does_not_keep_another_waiting() {
    let rig = rig([fixture("stateful")]);
    let mut deaf = Client::open(&rig);
    // More than sockets hold: the answers stay with the bridge, and are counted there.
    for id in 0..20 {
        deaf.call(id, "big", &json!({"bytes": 2_000_000}));
    }
    let mut other = Client::open(&rig);
    for id in 0..50 {
        other.call(id, "echo", &json!({"text": "still here"}));
        assert_eq!(text(&other.next()), "still here");
    }
    for _ in 0..20 {
        assert_eq!(text(&deaf.next()).len(), 2_000_000);
    }
    drop((deaf, other));
    rig.stop();
}

#[test]
fn the_bridge_says_goodbye_when_it_stops_and_gives_the_last_answers() {
    let mut rig = rig([fixture("stateful")]);
    let mut idle = Client::open(&rig);
    let mut busy = Client::open(&rig);
    busy.call(1, "wait", &json!({"ms": 500}));
    wait_until("its call runs", SOON, || rig.health()["running"] == 1);
    rig.signal(Signal::TERM);
    let expected = (1001, "the bridge is stopping: connect again".to_owned());
    assert_eq!(idle.closed(), expected);
    assert_eq!(text(&busy.next()), "waited 500 ms");
    assert_eq!(busy.closed(), expected);
    drop((idle, busy));
    assert!(rig.wait_for_exit(SOON).success());
    rig.expect_nothing_left();
}

#[test]
fn frames_that_were_sent_before_the_answer_to_the_request_are_taken() {
    let rig = rig([fixture("stateless")]);
    let mut stream = TcpStream::connect(rig.address()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let mut sent = format!(
        "GET /ws/fixture HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n\r\n",
        rig.address(),
        generate_key()
    )
    .into_bytes();
    sent.extend_from_slice(&[0x81, 0x80 | u8::try_from(ping.len()).unwrap(), 0, 0, 0, 0]);
    sent.extend_from_slice(ping);
    stream.write_all(&sent).unwrap();
    let (mut read, mut buffer) = (String::new(), [0; 1024]);
    while !read.ends_with("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}") {
        let more = stream.read(&mut buffer).unwrap();
        assert!(more > 0, "closed after {read:?}");
        read += &String::from_utf8_lossy(&buffer[..more]);
    }
    drop(stream);
    rig.stop();
}
