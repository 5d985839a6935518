//! A whole bridge to an application, in memory and with the clock stopped: how long its client waits, and what becomes of one
//! that does not read.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pontoon_supervise::Support;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::task::JoinHandle;

use super::*;
use crate::back::pair::result;
use crate::back::remote::test_app::{AppEnd, TestPlace};
use crate::config::{AppOptions, Environment, Server};

/// How much lies between the bridge and its client that neither holds.
const PIPE: usize = 64 * 1024;

/// How soon a client is answered that shakes hands, whatever the application does.
const AT_ONCE: Duration = Duration::from_millis(100);

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;

const DISCOVER: &str = r#"{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}}}}"#;

/// A bridge that runs, and both ends of its client.
struct Client {
    input: DuplexStream,
    output: BufReader<DuplexStream>,
    bridge: Arc<LiveBridge>,
    serving: JoinHandle<()>,
}

impl Client {
    fn of(options: AppOptions) -> Self {
        let server = Server::of_app("app".parse().unwrap(), options);
        let config = Config::of_app(server, &Environment::default());
        let secrets = Secrets::default();
        let messages = Arc::new(MessageRing::new(false, secrets.clone()));
        let records = AppRecords { secrets, messages, troubles: Arc::default() };
        let starter = Starter::Nothing(Support::default());
        let bridge = LiveBridge::new(&config, None, &Arc::default(), starter, records).unwrap();
        bridge.begin();
        let bridge = Arc::new(bridge);
        let ((input, its_input), (output, its_output)) =
            (tokio::io::duplex(PIPE), tokio::io::duplex(PIPE));
        let front = bridge.front();
        let serving = tokio::spawn(async move {
            front.serve(its_input, its_output).await;
        });
        Self { input, output: BufReader::new(output), bridge, serving }
    }

    /// The next message that it hears.
    async fn next(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).await.unwrap();
        serde_json::from_str(&line).unwrap_or_else(|why| panic!("{why}: {line:?}"))
    }

    /// The answer to a request, and how long it took.
    async fn ask(&mut self, request: &str) -> (Value, Duration) {
        let asked = tokio::time::Instant::now();
        self.input.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        loop {
            let message = self.next().await;
            if message["id"] == 1 {
                return (message, asked.elapsed());
            }
        }
    }

    async fn end(self) {
        drop((self.input, self.output));
        self.serving.await.unwrap();
        self.bridge.close().await;
    }
}

/// A client of each era is answered at once by a bridge to this application.
async fn check_greeting(options: &AppOptions) {
    for (request, member) in [(INITIALIZE, "protocolVersion"), (DISCOVER, "supportedVersions")] {
        let mut client = Client::of(options.clone());
        let (answer, took) = client.ask(request).await;
        assert!(answer["result"].get(member).is_some(), "{answer}");
        assert!(took <= AT_ONCE, "{took:?}: {answer}");
        client.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_is_greeted_at_once_though_the_application_is_away() {
    let place = TestPlace::with_lines(async |_: AppEnd| {});
    let options = place.options.clone();
    drop(place);
    check_greeting(&options).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_is_greeted_at_once_though_the_application_takes_connections_and_says_nothing() {
    let place = TestPlace::with_lines(async |end: AppEnd| {
        let _end = end;
        pending().await
    });
    check_greeting(&place.options).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_is_greeted_at_once_though_the_application_is_slow_to_list_its_tools() {
    let place = TestPlace::with_lines(async |mut end: AppEnd| {
        while let Some((message, id)) = end.next().await {
            match message.method().as_ref() {
                method::INITIALIZE => {
                    let hello =
                        json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}});
                    end.say(&result(&id, &hello.to_string())).await;
                }
                _ => pending().await,
            }
        }
    });
    check_greeting(&place.options).await;
}

/// An application whose one tool gives this text, and that counts its calls.
fn answering(text: &str, made: &Arc<AtomicUsize>) -> TestPlace {
    let (content, made) = (json!({"content": [{"type": "text", "text": text}]}), Arc::clone(made));
    TestPlace::with_lines(move |mut end: AppEnd| {
        let (content, made) = (content.to_string(), Arc::clone(&made));
        async move {
            while let Some((message, id)) = end.next().await {
                let answer = match message.method().as_ref() {
                    method::INITIALIZE => {
                        r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}"#
                    }
                    method::LIST_TOOLS => {
                        r#"{"tools":[{"name":"tell","inputSchema":{"type":"object"}}]}"#
                    }
                    method::CALL_TOOL => {
                        made.fetch_add(1, Ordering::SeqCst);
                        &content
                    }
                    _ => continue,
                };
                end.say(&result(&id, answer)).await;
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_owed_no_more_than_some_answers_and_loses_none_once_it_reads()
 {
    const CALLS: usize = 2000;
    let (text, made) = ("x".repeat(4096), Arc::<AtomicUsize>::default());
    let place = answering(&text, &made);
    let mut client = Client::of(place.options.clone());
    client.ask(INITIALIZE).await;
    let (mut input, unused) = tokio::io::duplex(1);
    std::mem::swap(&mut input, &mut client.input);
    drop(unused);
    let written = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&written);
    let writing = tokio::spawn(async move {
        for id in 0..CALLS {
            let call = json!({
                "jsonrpc": "2.0", "id": format!("call {id}"), "method": "tools/call",
                "params": {"name": "tell", "arguments": {}},
            });
            input.write_all(format!("{call}\n").as_bytes()).await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
        }
        input
    });
    // Nothing happens any more by then: the clock goes on when all wait for something else.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let (made_unread, written_unread) =
        (made.load(Ordering::SeqCst), written.load(Ordering::SeqCst));
    // As many answers are owed as there may be, beside those that lie in the pipe.
    assert!((1..=256 + PIPE / text.len()).contains(&made_unread), "{made_unread}");
    assert!(written_unread < CALLS, "it is read no further: {written_unread}");
    let (mut answers, mut refused) = (HashMap::new(), 0);
    while answers.values().sum::<usize>() < CALLS {
        let message = client.next().await;
        let Some(id) = message["id"].as_str() else { continue };
        *answers.entry(id.to_owned()).or_default() += 1;
        match message["error"]["message"].as_str() {
            Some(why) => {
                assert!(why.contains("read them") || why.contains("try again"), "{message}");
                refused += 1;
            }
            None => assert_eq!(message["result"]["content"][0]["text"], text, "{message}"),
        }
    }
    assert_eq!(answers.len(), CALLS, "each is answered once");
    assert_eq!(made.load(Ordering::SeqCst) + refused, CALLS, "what was refused was not made");
    client.input = writing.await.unwrap();
    client.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_tools_of_an_application_keep_their_order_over_connections_though_it_changes_them() {
    let connections = Arc::<AtomicUsize>::default();
    let lost = Arc::new(tokio::sync::Notify::new());
    let (counted, loses) = (Arc::clone(&connections), Arc::clone(&lost));
    let place = TestPlace::with_lines(move |mut end: AppEnd| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        let loses = Arc::clone(&loses);
        async move {
            let mut tools = ["a", "b", "c"].map(
                |name| json!({"name": name, "inputSchema": {"type": "object", "properties": {}}}),
            );
            tools.rotate_left(number % 3);
            loop {
                let heard = tokio::select! {
                    heard = end.next() => heard,
                    () = loses.notified() => return,
                };
                let Some((message, id)) = heard else { return };
                let answer = match message.method().as_ref() {
                    method::INITIALIZE => {
                        json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})
                    }
                    method::LIST_TOOLS => json!({"tools": tools}),
                    _ => continue,
                };
                end.say(&result(&id, &answer.to_string())).await;
            }
        }
    });
    let mut client = Client::of(place.options.clone());
    client.ask(INITIALIZE).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    let (first, _) = client.ask(&list).await;
    assert_eq!(first["result"]["tools"].as_array().map(Vec::len), Some(3), "{first}");
    for _ in 0..3 {
        lost.notify_one();
        // It is found again, and learnt, by then: nothing else happens.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let (again, _) = client.ask(&list).await;
        assert_eq!(again, first);
    }
    assert!(connections.load(Ordering::SeqCst) > 3, "or it was not lost");
    client.end().await;
}
