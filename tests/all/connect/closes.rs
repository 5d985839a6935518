//! Applications that close connections in order, and why.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::rig::wait_until;
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};
use tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};

use super::{Home, SOON, text};

/// A server that closes each connection with this code as soon as it is spoken to, and tells of each.
fn closing(code: u16) -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let (taken, connections) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // The sub-protocol is not chosen, so the first try comes twice.
            let Ok(mut socket) = tungstenite::accept(stream.unwrap()) else { continue };
            taken.send(()).unwrap();
            let _ = socket.read();
            let frame = CloseFrame { code: CloseCode::Library(code), reason: "play mode".into() };
            let _ = socket.close(Some(frame));
            while socket.read().is_ok() {}
        }
    });
    (url, connections)
}

#[test]
fn an_application_is_left_alone_for_as_long_as_its_code_was_said_to_mean() {
    let home = Home::new();
    for (pause, is_many) in [("4001=1h", false), ("4001=10ms", true)] {
        let (url, connections) = closing(4001);
        let mut client = home.client(&url, &["--close-code", pause, "--connect-wait", "2s"]);
        let away = client.call(1, "echo", json!({"text": "x"}));
        assert!(text(&away).contains("4001: play mode"), "{away}");
        let tries = connections.try_iter().count();
        assert!(if is_many { tries > 10 } else { tries <= 2 }, "{pause}: {tries}");
        home.finish(client);
    }
}

/// An application that takes each other connection, answers once and hangs up; the others it does not take. It tells of
/// each that it took.
fn flapping() -> (String, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let (taken, connections) = channel();
    std::thread::spawn(move || {
        for (stream, takes) in listener.incoming().zip([true, false].into_iter().cycle()) {
            let mut stream = stream.unwrap();
            let mut line = String::new();
            if !takes || BufReader::new(&stream).read_line(&mut line).is_err() {
                continue;
            }
            let asked: Value = serde_json::from_str(&line).unwrap();
            let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
            let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": hello});
            // The bridge may have gone meanwhile, at the end of the test.
            if writeln!(stream, "{answer}").is_err() || taken.send(()).is_err() {
                return;
            }
        }
    });
    (url, connections)
}

#[test]
fn an_application_that_comes_and_goes_quickly_does_not_fill_the_log() {
    let home = Home::new();
    let (url, connections) = flapping();
    let told = home.0.path().join("told");
    let mut command = home.command(&url, &["--log-level", "info", "--no-share"]);
    let mut client = StdioServer::start(command.stderr(fs::File::create(&told).unwrap()));
    client.initialize();
    for _ in 0..10 {
        connections.recv_timeout(SOON).unwrap();
    }
    home.finish(client);
    let told = fs::read_to_string(&told).unwrap();
    let count = |words: &str| told.matches(words).count();
    for (words, times) in [
        ("application connected", 3),
        ("application gone", 3),
        ("no connection; it is tried again and again", 1),
        ("comes and goes quickly", 1),
    ] {
        assert_eq!(count(words), times, "{words}: {told}");
    }
}

#[test]
fn two_bridges_that_take_each_other_s_place_notice_and_leave_it_to_the_other_for_a_while() {
    let (homes, deeds) = ([Home::new(), Home::new()], Deeds::default());
    let manner = Manner { is_single: true, ..Manner::default() };
    let app = LiveApp::start(&Place::WebSocket(0), manner, &deeds);
    let told = |home: &Home| home.0.path().join("told");
    let clients = homes.each_ref().map(|home| {
        let mut command = home.command(&app.url(), &["--connect-wait", "100ms"]);
        command.stderr(fs::File::create(told(home)).unwrap());
        let mut client = StdioServer::start(&mut command);
        client.initialize();
        client
    });
    let says_so = |home: &Home| {
        fs::read_to_string(told(home)).unwrap().contains("as if another client took our place")
    };
    wait_until("one of them gives way", SOON, || homes.iter().any(says_so));
    let accepted = app.accepted();
    assert!(accepted < 20, "{accepted} connections");
    for (home, client) in homes.iter().zip(clients) {
        home.finish(client);
    }
}
