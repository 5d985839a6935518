//! What a client can do with the tools of an application.

use std::sync::Arc;
use std::sync::mpsc;

use super::*;
use crate::{Pump, ToolCall};

#[tokio::test]
async fn versions_are_negotiated_and_both_eras_are_spoken() {
    let server = start(&echo());
    let mut client = Client::connect(&server).await;
    let opened = client.initialize().await;
    assert_eq!(opened["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(opened["result"]["serverInfo"]["name"], "tested");
    assert_eq!(opened["result"]["capabilities"], json!({"tools": {"listChanged": true}}));
    let unknown = client.ask(1, "initialize", json!({"protocolVersion": "1999-01-01"})).await;
    assert_eq!(unknown["result"]["protocolVersion"], "2025-11-25");
    let list = client.ask("list", "tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"][0]["name"], "echo");
    assert_eq!(list["result"]["tools"][0]["inputSchema"]["type"], "object");
    let modern = json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}});
    let found = client.ask(2, "server/discover", modern).await;
    assert_eq!(found["result"]["supportedVersions"], json!(["2026-07-28"]));
}

#[tokio::test]
async fn nothing_is_sent_for_notifications() {
    let server = start(&echo());
    let mut client = Client::connect(&server).await;
    client.initialize().await;
    for silent in [
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 9}}),
        json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}),
        json!({"jsonrpc": "2.0", "method": "no/such/thing"}),
        json!({"jsonrpc": "2.0", "id": 77, "result": {}}),
    ] {
        client.send(silent).await;
    }
    client.send_frame(Frame::text("")).await.unwrap();
    client.send_frame(Frame::text(" \n")).await.unwrap();
    // Answers come in order, and this is the first.
    assert_eq!(client.ask("next", "ping", json!({})).await["result"], json!({}));
    let server = tokio::task::spawn_blocking(move || server.stop());
    assert_eq!(client.close_code().await, 1001);
    server.await.unwrap();
}

#[tokio::test]
async fn clients_with_equal_ids_have_their_own_answers() {
    let server = start(&echo());
    let clients: Vec<_> = {
        let mut clients = Vec::new();
        for _ in 0..8 {
            clients.push(Client::connect(&server).await);
        }
        clients
    };
    let calls = clients.into_iter().enumerate().map(|(number, mut client)| {
        tokio::spawn(async move {
            for round in 0..50 {
                client.echoes(&format!("{number} {round}")).await;
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
}

#[tokio::test]
async fn pings_and_lists_are_answered_while_tools_run() {
    let (release, released) = mpsc::channel::<()>();
    let (began, mut beginning) = tokio::sync::mpsc::channel(1);
    let released = Arc::new(std::sync::Mutex::new(released));
    // It blocks a thread, which an async function should not.
    let rude = Tool::new("rude", move |(), _| {
        let (released, began) = (Arc::clone(&released), began.clone());
        async move {
            began.try_send(()).unwrap();
            let _ = released.lock().unwrap().recv();
            "done"
        }
    });
    let pump = Pump::<()>::new();
    let waits = pump.tool("waits", |(), (), _| "its turn has come");
    let tools = echo().with(rude).unwrap().with(waits).unwrap();
    let server = start(&tools);
    let mut client = Client::connect(&server).await;
    client.begin_call("rude", "rude", json!({})).await;
    beginning.recv().await.unwrap();
    client.begin_call("waits", "waits", json!({})).await;
    client.is_alive().await;
    client.echoes("meanwhile").await;
    assert_eq!(
        client.ask(3, "tools/list", json!({})).await["result"]["tools"].as_array().unwrap().len(),
        3
    );
    let mut other = Client::connect(&server).await;
    other.is_alive().await;
    other.echoes("me too").await;
    let pumping = tokio::task::spawn_blocking(move || pump.run_within(&mut (), SOON));
    assert_eq!(client.message().await["result"]["content"][0]["text"], "its turn has come");
    assert_eq!(pumping.await.unwrap(), 1);
    release.send(()).unwrap();
    assert_eq!(client.message().await["id"], "rude");
}

#[tokio::test]
async fn clients_hear_of_tools_that_come_and_go() {
    let tools = echo();
    let server = start(&tools);
    let mut client = Client::connect(&server).await;
    client.initialize().await;
    // Answered, so that it counts as opened.
    client.ask(1, "ping", json!({})).await;
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    tools.add(Tool::new("new", |(), _| async { "new" })).unwrap();
    assert_eq!(client.message().await, changed);
    let list = client.ask(2, "tools/list", json!({})).await;
    assert_eq!(list["result"]["tools"][1]["name"], "new");
    assert!(tools.remove("new"));
    assert_eq!(client.message().await, changed);
    client.begin_call(3, "new", json!({})).await;
    let gone = client.message().await;
    assert!(
        gone["result"]["isError"] == true && gone.to_string().contains("there is no tool `new`"),
        "{gone}"
    );
}

/// Tells when it is dropped.
struct Guard(tokio::sync::mpsc::Sender<&'static str>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.try_send("dropped");
    }
}

/// A tool that tells progress, when it begins and when it is given up, and never answers.
fn watched(tell: tokio::sync::mpsc::Sender<&'static str>) -> Tool {
    Tool::new("watched", move |(), call: ToolCall| {
        let guard = Guard(tell.clone());
        async move {
            call.progress(1.0, Some(2.0), Some("half"));
            guard.0.try_send("began").unwrap();
            std::future::pending::<()>().await;
        }
    })
}

#[tokio::test]
async fn progress_and_cancellation_cross_over() {
    let (tell, mut told) = tokio::sync::mpsc::channel(4);
    let server = start(&echo().with(watched(tell)).unwrap());
    let mut client = Client::connect(&server).await;
    let params = json!({"name": "watched", "_meta": {"progressToken": "t"}});
    client.send(json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params})).await;
    let news = client.message().await;
    assert_eq!(
        news["params"],
        json!({"progressToken": "t", "progress": 1, "total": 2, "message": "half"})
    );
    assert_eq!(told.recv().await, Some("began"));
    // Another client's word for an equal id changes nothing.
    let mut other = Client::connect(&server).await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
    other.send(cancel.clone()).await;
    other.echoes("heard").await;
    told.try_recv().unwrap_err();
    client.send(cancel).await;
    assert_eq!(told.recv().await, Some("dropped"));
    // It is not answered.
    client.echoes("next").await;
}

#[tokio::test]
async fn a_client_that_leaves_gives_its_calls_up() {
    let (tell, mut told) = tokio::sync::mpsc::channel(4);
    let server = start(&Toolset::new().with(watched(tell)).unwrap());
    let mut client = Client::connect(&server).await;
    client.begin_call(1, "watched", json!({})).await;
    assert_eq!(told.recv().await, Some("began"));
    drop(client);
    assert_eq!(told.recv().await, Some("dropped"));
}

#[test]
fn an_application_without_a_runtime_serves_from_its_own_loop() {
    let pump = Pump::<Vec<String>>::new();
    let note = pump.tool("note", |notes: &mut Vec<String>, Text { text }, _| {
        notes.push(text);
        notes.len()
    });
    let server = start(&Toolset::new().with(note).unwrap());
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut client = Client::connect(&server).await;
                client.begin_call(1, "note", json!({"text": "hello"})).await;
                assert_eq!(client.message().await["result"]["content"][0]["text"], "1");
            });
        });
        let mut notes = Vec::new();
        assert_eq!(pump.run_within(&mut notes, SOON), 1);
        assert_eq!(notes, ["hello"]);
        client.join().unwrap();
    });
}

#[tokio::test]
async fn an_application_that_closes_answers_what_waits_and_its_port_is_free() {
    let pump = Pump::<()>::new();
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    pump.wake_with(move || tell.try_send(()).unwrap());
    let tools = Toolset::new().with(pump.tool("waits", |(), (), _| "never")).unwrap();
    let server = start(&tools);
    let port = server.port();
    let mut client = Client::connect(&server).await;
    client.begin_call(1, "waits", json!({})).await;
    told.recv().await.unwrap();
    let closing = tokio::task::spawn_blocking(move || {
        drop(pump);
        server.stop();
    });
    let answer = client.message().await;
    assert!(
        answer.to_string().contains("the application is closing: the call was not made"),
        "{answer}"
    );
    assert_eq!(client.close_code().await, 1001);
    drop(client);
    closing.await.unwrap();
    let again = WebSocketServer::start("again", &[echo()], WebSocketOptions { port, ..options() });
    Client::connect(&again.unwrap()).await.echoes("again").await;
}

#[test]
fn a_port_that_is_taken_is_an_error_that_says_so() {
    let server = start(&echo());
    let options = WebSocketOptions { port: server.port(), ..options() };
    let error = WebSocketServer::start("second", &[echo()], options).unwrap_err();
    assert!(
        error.to_string().contains(&format!("port {} cannot be listened on", server.port())),
        "{error}"
    );
}
