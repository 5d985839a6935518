//! More than can be taken: of calls, of what an application says, and of what a client does not read.

use std::net::TcpListener;
use std::thread;

use pontoon_tests::live_app::Deeds;
use pontoon_tests::rig::wait_until;
use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use super::{Home, SOON, app, text, tools};

/// The memory of a process, in kB.
fn memory(pid: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_client_with_very_many_calls_is_heard_all_the_while() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut client = home.client(&app.url(), &[]);
    tools(&mut client, "there");
    client.send_call("hangs", "silent", json!({"text": "hangs"}));
    for number in 0..400 {
        client.send_call(number, "echo", json!({"text": number.to_string()}));
    }
    assert_eq!(client.ask("ping", "ping", &json!({}))["result"], json!({}));
    client.notify("notifications/cancelled", &json!({"requestId": "hangs"}));
    let (mut made, mut refused) = (0, 0);
    for number in 0..400 {
        let answer = client.answer(number);
        match answer["error"]["message"].as_str() {
            None => {
                assert_eq!(text(&answer["result"]), number.to_string());
                made += 1;
            }
            Some(why) => {
                assert!(why.contains("try again"), "{answer}");
                refused += 1;
            }
        }
    }
    assert_eq!((made, refused), (255, 145));
    home.finish(client);
}

/// An application of one connection that opens it, and then does as it likes.
fn rude_app(then: impl Fn(&mut WebSocket<std::net::TcpStream>) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut socket) = tungstenite::accept(stream.unwrap()) else { continue };
            while let Ok(Message::Text(heard)) = socket.read() {
                let heard: Value = serde_json::from_str(&heard).unwrap();
                let result = match heard["method"].as_str() {
                    Some("initialize") => json!({
                        "protocolVersion": "2025-11-25",
                        "capabilities": {"tools": {}, "resources": {}},
                    }),
                    Some("tools/list") => json!({"tools": []}),
                    Some("tools/call") => {
                        then(&mut socket);
                        break;
                    }
                    _ => json!({"resources": [], "resourceTemplates": []}),
                };
                if !heard["id"].is_null() {
                    let answer = json!({"jsonrpc": "2.0", "id": heard["id"], "result": result});
                    socket.send(Message::text(answer.to_string())).unwrap();
                }
            }
        }
    });
    url
}

#[test]
fn an_application_that_asks_and_does_not_read_costs_little_memory() {
    let home = Home::new();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let is_done = std::sync::Mutex::new(is_done);
    let (asked, has_asked) = std::sync::mpsc::channel();
    let url = rude_app(move |socket| {
        let long = "x".repeat(20_000);
        for number in 0..5_000 {
            let id = format!("{number}-{long}");
            let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
            // The bridge may stop reading, too: then this is as much as it takes.
            if socket.send(Message::text(ping.to_string())).is_err() {
                break;
            }
        }
        asked.send(()).unwrap();
        let _ = is_done.lock().unwrap().recv();
    });
    let mut client = home.client(&url, &[]);
    let before = memory(client.pid());
    client.send_call(1, "x", json!({}));
    has_asked.recv_timeout(SOON).unwrap();
    assert_eq!(client.ask("alive", "ping", &json!({}))["result"], json!({}));
    let after = memory(client.pid());
    assert!(after < before + 40 * 1024, "{before} -> {after} kB");
    drop(done);
    drop(client.answer(1));
    home.finish(client);
}

#[test]
fn what_belongs_to_no_call_does_not_keep_answers_waiting() {
    let home = Home::new();
    let url = rude_app(|socket| {
        let note = json!({
            "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:y"},
        });
        // Until the bridge is gone.
        while socket.send(Message::text(note.to_string())).is_ok() {}
    });
    let mut client = home.client(&url, &[]);
    client.send_call(1, "x", json!({}));
    let noted = |message: &Value| message["method"] == "notifications/resources/updated";
    client.wait_for("a note", noted);
    for number in 2..20 {
        let answer = client.ask(number, "ping", &json!({}));
        assert_eq!(answer["result"], json!({}));
    }
    let pid = client.pid();
    client.kill();
    wait_until("it is gone", SOON, || !std::path::Path::new(&format!("/proc/{pid}")).exists());
}
