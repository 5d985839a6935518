//! The deprecated HTTP+SSE transport: one stream for all answers, and its end.

use std::net::SocketAddr;
use std::time::Duration;

use pontoon_tests::client::{Exchange, Request, Response};
use pontoon_tests::rig::{Rig, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{fixture, plan, rig};

/// Streams that one client may have open.
const MAX_PER_CLIENT: usize = 64;
/// Answers that may wait on one stream.
const MAX_ANSWERS: usize = 256;

/// A client of the older transport.
struct Sse {
    address: SocketAddr,
    stream: Exchange,
    /// Where messages are posted.
    target: String,
}

impl Sse {
    /// An open stream, and nothing said on it.
    fn connect(rig: &Rig, server: &str) -> Self {
        let request = Request::new("GET", &format!("/sse/{server}"));
        let mut stream =
            request.header("Accept", "text/event-stream").begin(rig.address()).unwrap();
        assert_eq!((stream.head.status, stream.head.is_stream()), (200, true));
        let hello = stream.next_event().unwrap().expect("the stream begins with an event");
        assert_eq!(hello.name.as_deref(), Some("endpoint"));
        assert!(hello.data.starts_with(&format!("/sse/{server}/messages?session=")));
        Self { address: rig.address(), stream, target: hello.data }
    }

    /// A session of a client that can be asked.
    fn open(rig: &Rig, server: &str) -> Self {
        let mut client = Self::connect(rig, server);
        let answer = client.ask(0, "initialize", &hello());
        assert_eq!(answer["result"]["protocolVersion"], "2024-11-05", "{answer}");
        client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn post(&self, message: &Value) -> Response {
        let request = Request::post(&self.target, message.to_string()).without("Accept");
        request.send(self.address).unwrap()
    }

    /// Posts a message that has to be taken.
    fn say(&self, message: &Value) {
        let response = self.post(message);
        assert_eq!((response.status(), response.body.len()), (202, 0), "{message}");
    }

    fn request(&self, id: impl Into<Value>, method: &str, params: &Value) {
        self.say(&json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}));
    }

    fn call(&self, id: impl Into<Value>, tool: &str, arguments: &Value) {
        self.request(id, "tools/call", &json!({"name": tool, "arguments": arguments}));
    }

    /// The next message on the stream.
    fn next(&mut self) -> Value {
        let event = self.stream.next_event().unwrap().expect("the stream goes on");
        assert_eq!(event.name.as_deref(), Some("message"));
        serde_json::from_str(&event.data).unwrap()
    }

    /// Asks, and takes what comes next for the answer.
    fn ask(&mut self, id: i64, method: &str, params: &Value) -> Value {
        self.request(id, method, params);
        let answer = self.next();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }
}

fn hello() -> Value {
    json!({
        "protocolVersion": "2024-11-05",
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "old", "version": "1"},
    })
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn an_old_client_finds_links_in_its_answers_because_they_have_no_head() {
    for files in ["append", "header", "off"] {
        let rig = rig([fixture("stateless").with("files", files)]);
        let mut client = Sse::open(&rig, "fixture");
        let params = json!({"name": "write_file", "arguments": {"name": "a.txt", "text": "x"}});
        let answer = client.ask(1, "tools/call", &params);
        assert_eq!(answer.to_string().contains("/a.txt"), files != "off", "{files}: {answer}");
        drop(client);
        rig.stop();
    }
}

#[test]
fn an_old_client_lists_and_calls_tools() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        let mut client = Sse::open(&rig, "fixture");
        let tools = client.ask(1, "tools/list", &json!({}));
        assert!(tools["result"]["tools"].to_string().contains("\"echo\""), "{tools}");
        for (id, said) in [(2, "plain"), (3, "桟橋\n\"quoted\"")] {
            let params = json!({"name": "echo", "arguments": {"text": said}});
            assert_eq!(text(&client.ask(id, "tools/call", &params)), said);
        }
        let params = json!({"name": "big", "arguments": {"bytes": 3_000_000}});
        assert_eq!(text(&client.ask(4, "tools/call", &params)).len(), 3_000_000);
        drop(client);
        rig.stop();
    }
}

#[test]
fn answers_come_as_they_are_ready_each_under_its_id() {
    let rig = rig([fixture("stateful")]);
    let mut client = Sse::open(&rig, "fixture");
    client.call("slow", "wait", &json!({"ms": 700}));
    for id in 0..20 {
        client.call(id, "echo", &json!({"text": format!("call {id}")}));
    }
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..21 {
        let answer = client.next();
        seen.insert(answer["id"].to_string(), (seen.len(), text(&answer).to_owned()));
    }
    assert_eq!(seen["\"slow\""], (20, "waited 700 ms".to_owned()));
    for id in 0..20 {
        assert_eq!(seen[&id.to_string()].1, format!("call {id}"));
    }
    drop(client);
    rig.stop();
}

#[test]
fn progress_comes_before_the_answer_and_a_question_in_the_middle() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        let mut client = Sse::open(&rig, "fixture");
        let meta = json!({"progressToken": "t"});
        let arguments = json!({"steps": 3, "delay_ms": 20});
        let params = json!({"name": "count", "arguments": arguments, "_meta": meta});
        client.request(1, "tools/call", &params);
        for step in 1..=3 {
            let note = client.next();
            assert_eq!(note["method"], "notifications/progress", "{note}");
            assert_eq!(note["params"]["progress"], step, "{note}");
        }
        assert_eq!(client.next()["id"], 1);
        client.call(2, "ask", &json!({"question": "Which colour?"}));
        let question = client.next();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let content = json!({"action": "accept", "content": {"answer": "blue"}});
        client.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": content}));
        assert_eq!(text(&client.next()), "accept:blue");
        drop(client);
        rig.stop();
    }
}

#[test]
fn the_session_ends_with_its_stream() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        let client = Sse::open(&rig, "fixture");
        client.call(1, "wait", &json!({"ms": 60_000}));
        rig.wait_for_gauge("running", 1);
        let (target, message) = (client.target.clone(), json!({"jsonrpc": "2.0", "method": "x"}));
        drop(client);
        rig.wait_for_gauge("running", 0);
        rig.wait_for_gauge("sessions", 0);
        rig.wait_for_children(0);
        wait_until("the stream is unknown", Duration::from_secs(5), || {
            let request = Request::post(&target, message.to_string());
            request.send(rig.address()).unwrap().status() == 404
        });
        rig.stop();
    }
}

#[test]
fn a_cancelled_call_gets_no_answer() {
    let rig = rig([fixture("stateful")]);
    let mut client = Sse::open(&rig, "fixture");
    client.call("c", "wait", &json!({"ms": 60_000}));
    rig.wait_for_gauge("running", 1);
    let params = json!({"requestId": "c"});
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    rig.wait_for_gauge("running", 0);
    // The ping is answered next: nothing came in between.
    assert_eq!(client.ask(1, "ping", &json!({}))["result"], json!({}));
    drop(client);
    rig.stop();
}

#[test]
fn a_session_is_opened_first_and_once() {
    let rig = rig([fixture("stateful")]);
    let mut client = Sse::connect(&rig, "fixture");
    client.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let early = client.ask(1, "tools/list", &json!({}));
    assert!(early["error"]["message"].as_str().unwrap().contains("initialize"), "{early}");
    assert!(client.ask(2, "initialize", &hello())["result"].is_object());
    let again = client.ask(3, "initialize", &hello());
    assert!(again["error"]["message"].as_str().unwrap().contains("already"), "{again}");
    assert_eq!(rig.gauge("sessions"), 1);
    let modern = client.ask(4, "server/discover", &json!({}));
    assert_eq!(modern["error"]["code"], -32601, "{modern}");
    drop(client);
    rig.stop();
}

#[test]
fn what_cannot_be_taken_is_refused_at_once() {
    let other = pontoon_tests::rig::Server { name: "other".to_owned(), ..fixture("stateful") };
    let rig = rig([fixture("stateful"), other]);
    let client = Sse::open(&rig, "fixture");
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let check = |request: Request, status: u16| {
        let response = request.send(rig.address()).unwrap();
        assert_eq!(response.status(), status, "{}", response.text());
    };
    check(Request::post(&client.target.replace("fixture", "other"), ping.clone()), 404);
    check(Request::post("/sse/fixture/messages", ping.clone()), 404);
    check(Request::post("/sse/fixture/messages?session=guess", ping.clone()), 404);
    check(Request::post("/sse/nobody/messages?session=guess", ping.clone()), 404);
    let form = Request::post(&client.target, ping.clone()).with("Content-Type", "text/plain");
    check(form, 415);
    check(Request::post(&client.target, "{"), 400);
    check(Request::post(&client.target, format!("[{ping}]")), 400);
    check(Request::post(&client.target, r#"{"jsonrpc":"2.0","id":1}"#), 400);
    check(Request::new("GET", &client.target), 405);
    check(Request::post("/sse/fixture", ping), 405);
    check(Request::new("GET", "/sse/nobody").header("Accept", "text/event-stream"), 404);
    check(Request::new("GET", "/sse/fixture").header("Accept", "application/json"), 406);
    drop(client);
    rig.stop();
}

#[test]
fn a_stream_is_for_the_user_who_opened_it() {
    let rig = plan([fixture("stateful")]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.1").start();
    let user = "X-OpenWebUI-User-Id";
    let request = Request::new("GET", "/sse/fixture").header(user, "u1");
    let mut stream = request.begin(rig.address()).unwrap();
    let target = stream.next_event().unwrap().unwrap().data;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    let post = |request: Request| request.send(rig.address()).unwrap().status();
    assert_eq!(post(Request::post(&target, ping.clone()).header(user, "u2")), 404);
    assert_eq!(post(Request::post(&target, ping.clone())), 404);
    assert_eq!(post(Request::post(&target, ping).header(user, "u1")), 202);
    drop(stream);
    rig.stop();
}

#[test]
fn one_client_has_only_so_many_streams() {
    let rig = rig([fixture("stateful")]);
    let mut open: Vec<_> = (0..MAX_PER_CLIENT).map(|_| Sse::connect(&rig, "fixture")).collect();
    let request = Request::new("GET", "/sse/fixture").header("Accept", "text/event-stream");
    let refused = request.send(rig.address()).unwrap();
    assert_eq!(refused.status(), 429, "{}", refused.text());
    assert!(refused.head.header("retry-after").is_some());
    open.pop();
    wait_until("the place is free again", Duration::from_secs(5), || {
        request.begin(rig.address()).unwrap().head.status == 200
    });
    drop(open);
    rig.stop();
}

#[test]
fn answers_that_nobody_reads_are_bounded_and_none_is_lost() {
    let rig = rig([fixture("stateful")]);
    let mut client = Sse::open(&rig, "fixture");
    // More than any buffer on the way holds, so that the rest waits in the bridge.
    let mut expected: Vec<_> = (0..9).map(|number| format!("\"big {number}\"")).collect();
    for number in 0..9 {
        client.call(format!("big {number}"), "big", &json!({"bytes": 1_000_000}));
    }
    rig.wait_for_gauge("running", 0);
    let mut taken = 0;
    let refused = loop {
        let ping = json!({"jsonrpc": "2.0", "id": taken, "method": "ping"});
        let response = client.post(&ping);
        if response.status() != 202 {
            break response;
        }
        taken += 1;
        assert!(taken <= MAX_ANSWERS, "there is no limit");
    };
    assert_eq!(refused.status(), 429, "{}", refused.text());
    assert_eq!(refused.head.header("retry-after"), Some("1"));
    expected.extend((0..taken).map(|id| id.to_string()));
    expected.sort();
    let mut ids: Vec<_> = expected.iter().map(|_| client.next()["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, expected);
    assert_eq!(client.ask(9999, "ping", &json!({}))["result"], json!({}), "there is room again");
    drop(client);
    rig.stop();
}

#[test]
fn a_stopping_bridge_answers_what_is_open_and_ends_every_stream() {
    let mut rig = rig([fixture("stateful")]);
    let mut client = Sse::open(&rig, "fixture");
    let mut silent = Sse::connect(&rig, "fixture");
    client.call(1, "wait", &json!({"ms": 1000}));
    rig.wait_for_gauge("running", 1);
    rig.signal(Signal::TERM);
    assert_eq!(text(&client.next()), "waited 1000 ms");
    assert!(client.stream.next_event().unwrap().is_none(), "the stream ends");
    assert!(silent.stream.next_event().unwrap().is_none(), "the silent one, too");
    assert!(rig.wait_for_exit(Duration::from_secs(5)).success(), "{}", rig.stderr());
    rig.expect_nothing_left();
}
