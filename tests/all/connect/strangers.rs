//! What answers at an address and is no application: one clear line each, for people and for the model.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use pontoon_tests::stdio::StdioServer;
use serde_json::json;

use super::{Home, text};

/// The address of a server that does this with each connection.
fn stranger(scheme: &str, serve: impl Fn(TcpStream) + Send + Sync + Copy + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("{scheme}://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || serve(stream));
        }
    });
    url
}

/// What the model hears of it, and standard error, which says it in one line.
#[track_caller]
fn check(url: &str, wait: &str, says: &str, advice: &str) {
    let home = Home::new();
    let told = home.0.path().join("told");
    let mut command = home.command(url, &["--connect-wait", wait]);
    command.stderr(fs::File::create(&told).unwrap());
    let mut client = StdioServer::start(&mut command);
    client.initialize();
    let away = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(away["_meta"]["pontoon/outcome"], "not made", "{away}");
    let said = text(&away);
    assert!(said.contains(says) && said.contains(advice), "{url}: {said}");
    home.finish(client);
    let told = fs::read_to_string(&told).unwrap().replace('\\', "");
    let lines: Vec<_> = told.lines().filter(|line| line.contains(says)).collect();
    assert_eq!(lines.len(), 1, "{told}");
}

const LOOK: &str = "look whether the address is that of the application";

fn read_some(stream: &mut TcpStream) {
    let _ = stream.read(&mut [0; 4096]);
}

#[test]
fn nothing_at_all() {
    check("ws://127.0.0.1:1", "1s", "the connection was refused", "start the application");
    check("unix:/none/app.sock", "1s", "there is no such socket", "start the application");
}

#[test]
fn a_web_server() {
    let page = |mut stream: TcpStream| {
        read_some(&mut stream);
        let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nhi");
    };
    check(&stranger("ws", page), "1s", "speaks no WebSocket: it answered HTTP 404", LOOK);
    let lines = stranger("tcp", page);
    check(&lines, "1s", "it speaks no MCP: it said \"HTTP/1.1 404 Not Found\"", LOOK);
}

#[test]
fn a_mail_server() {
    let mail = |mut stream: TcpStream| {
        let _ = stream.write_all(b"220 mail.example ESMTP ready\r\n");
        read_some(&mut stream);
        let _ = stream.write_all(b"500 what?\r\n");
        read_some(&mut stream);
    };
    let says = "it said \"220 mail.example ESMTP ready\", which is no MCP";
    check(&stranger("tcp", mail), "5s", says, LOOK);
    check(&stranger("ws", mail), "1s", "its answer is no HTTP", LOOK);
}

#[test]
fn an_echo() {
    let echo = |stream: TcpStream| {
        let Ok(mut socket) = tungstenite::accept(stream) else { return };
        while let Ok(frame) = socket.read() {
            if frame.is_text() && socket.send(frame).is_err() {
                return;
            }
        }
    };
    check(&stranger("ws", echo), "1s", "it sends back what it is sent", LOOK);
    let lines = |mut stream: TcpStream| {
        let mut other = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut stream, &mut other);
    };
    check(&stranger("tcp", lines), "1s", "it sends back what it is sent", LOOK);
}

#[test]
fn one_that_closes_at_once() {
    let websocket = |stream: TcpStream| {
        let Ok(mut socket) = tungstenite::accept(stream) else { return };
        let _ = socket.close(None);
        while socket.read().is_ok() {}
    };
    check(&stranger("ws", websocket), "1s", "it closed the connection as soon as", "start the app");
    check(&stranger("ws", drop), "1s", "it hung up during the handshake", LOOK);
    check(&stranger("tcp", drop), "1s", "it ended during the handshake", LOOK);
}

#[test]
fn one_that_says_nothing() {
    let silent = |stream: TcpStream| {
        let Ok(mut socket) = tungstenite::accept(stream) else { return };
        while socket.read().is_ok() {}
    };
    check(&stranger("ws", silent), "5s", "it has not answered for 3 s", LOOK);
}
