//! What carries messages to an application, and how it is opened.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, TcpListener};

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place, socket_in};
use pontoon_tests::stdio::StdioServer;
use serde_json::json;

use super::{Home, app, text, tools, unasked};

/// Makes a small and a large call.
fn check(client: &mut StdioServer) {
    assert_eq!(text(&client.call(1, "echo", json!({"text": "桟橋"}))), "桟橋");
    let large = "x".repeat(3 << 20);
    assert_eq!(text(&client.call(2, "echo", json!({"text": large}))), large);
}

#[test]
fn every_kind_of_address_is_spoken() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let socket = socket_in(home.0.path());
    for place in [
        Place::WebSocket(0),
        Place::WebSocketUnix(socket.clone()),
        Place::Tcp(0),
        Place::Unix(socket.clone()),
    ] {
        let app = LiveApp::start(&place, Manner::default(), &deeds);
        let mut client = home.client(&app.url(), &[]);
        assert_eq!(tools(&mut client, "tools")[0], "echo", "{place:?}");
        check(&mut client);
        home.finish(client);
    }
}

/// An application at `::1`, where nothing can listen at `127.0.0.1` under its port as long as the other is kept.
fn app_of_v6_alone(deeds: &Deeds) -> (LiveApp, rustix::fd::OwnedFd) {
    use rustix::net::{AddressFamily, SocketType, bind, socket};
    for _ in 0..100 {
        let app = LiveApp::start(&Place::WebSocketV6(0), Manner::default(), deeds);
        let Place::WebSocketV6(port) = app.place() else { unreachable!("it was made so") };
        let taken = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        if bind(&taken, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).is_ok() {
            return (app, taken);
        }
    }
    panic!("no port is free at both");
}

#[test]
fn an_application_that_listens_at_the_other_localhost_alone_is_found() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return println!("this machine has no ::1, so nothing is seen here");
    }
    let (home, deeds) = (Home::new(), Deeds::default());
    let (app, _taken) = app_of_v6_alone(&deeds);
    let mut client = home.client(&app.url(), &[]);
    check(&mut client);
    home.finish(client);
}

#[test]
fn an_application_that_knows_no_sub_protocol_is_spoken_to_without() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let manner = Manner { knows_subprotocol: false, ..Manner::default() };
    let app = LiveApp::start(&Place::WebSocket(0), manner, &deeds);
    let mut client = home.client(&app.url(), &[]);
    check(&mut client);
    assert_eq!(app.accepted(), 2, "with the sub-protocol, then without");
    home.finish(client);
}

#[test]
fn frames_of_bytes_and_frames_that_say_nothing_are_taken() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let manner = Manner { answers_notifications: true, sends_bytes: true, ..Manner::default() };
    let app = LiveApp::start(&Place::WebSocket(0), manner, &deeds);
    let mut client = home.client(&app.url(), &[]);
    check(&mut client);
    assert_eq!(unasked(&mut client), Vec::<serde_json::Value>::new());
    home.finish(client);
}

#[test]
fn a_token_is_shown_and_never_told() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let manner = Manner { token: Some("open-sesame".to_owned()), ..Manner::default() };
    let app = LiveApp::start(&Place::WebSocket(0), manner, &deeds);
    let file = home.0.path().join("token");
    // None, a wrong one, and then the right one in the same file: it is read for each connection.
    let mut client = home.client(&app.url(), &["--connect-wait", "100ms"]);
    let refused = client.call(1, "echo", json!({"text": "x"}));
    assert!(
        text(&refused).contains("HTTP 401") && text(&refused).contains("--token-env"),
        "{refused}"
    );
    home.finish(client);
    std::fs::write(&file, "wrong\n").unwrap();
    let options = ["--token-file", file.to_str().unwrap(), "--connect-wait", "20s"];
    let mut command = home.command(&app.url(), &options);
    let told = std::fs::File::create(home.0.path().join("told")).unwrap();
    command.env("DEBUG", "1").stderr(told);
    let mut client = StdioServer::start(&mut command);
    client.initialize();
    client.send_call(1, "echo", json!({"text": "x"}));
    std::fs::write(&file, "open-sesame\n").unwrap();
    assert_eq!(text(&client.answer(1)["result"]), "x");
    home.finish(client);
    let told = std::fs::read_to_string(home.0.path().join("told")).unwrap();
    assert!(told.contains("HTTP 401") && !told.contains("sesame"), "{told}");
}

#[test]
fn an_application_that_closes_as_soon_as_it_is_spoken_to_says_why_and_is_left_alone_for_a_while() {
    use tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let (taken, connections) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // The sub-protocol is not chosen, so each try comes twice at first.
            let Ok(mut socket) = tungstenite::accept(stream.unwrap()) else { continue };
            taken.send(()).unwrap();
            let _ = socket.read();
            let frame = CloseFrame { code: CloseCode::Library(4401), reason: "bad token".into() };
            let _ = socket.close(Some(frame));
            while socket.read().is_ok() {}
        }
    });
    let mut client = home.client(&url, &["--connect-wait", "1s"]);
    let away = client.call(1, "echo", json!({"text": "x"}));
    assert!(text(&away).contains("4401: bad token"), "{away}");
    let tries = connections.try_iter().count();
    assert!(tries <= 2, "{tries} connections in a second");
    home.finish(client);
}

#[test]
fn what_speaks_no_mcp_is_told_so() {
    use std::io::{Read, Write};
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    let url = format!("ws://127.0.0.1:{port}");
    let mut client = home.client(&url, &["--connect-wait", "100ms"]);
    let away = client.call(1, "echo", json!({"text": "x"}));
    assert!(text(&away).contains("speaks no WebSocket: it answered HTTP 200"), "{away}");
    home.finish(client);
    // It takes the connection, and understands nothing.
    let deeds = Deeds::default();
    let app = app(&deeds);
    let tcp = app.url().replace("ws://", "tcp://");
    let mut client = home.client(&tcp, &["--connect-wait", "100ms"]);
    let away = client.call(1, "echo", json!({"text": "x"}));
    assert!(text(&away).contains("cannot be reached"), "{away}");
    home.finish(client);
}
