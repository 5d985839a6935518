//! Questions of a server outside of its calls, or that outlive them: what the client answers reaches
//! the process that asked.

use std::time::Duration;

use pontoon_tests::client::{Legacy, Modern, Speaker};
use pontoon_tests::rig::{Rig, Server, wait_until};
use serde_json::{Value, json};

use crate::{plan, rude};

const SOON: Duration = Duration::from_secs(10);

const USER: &str = "X-OpenWebUI-User-Id";
const CHAT: &str = "X-OpenWebUI-Chat-Id";
const ADA: &[(&str, &str)] = &[(USER, "ada"), (CHAT, "c1")];
const BEN: &[(&str, &str)] = &[(USER, "ben"), (CHAT, "c1")];

fn start(server: Server) -> Rig {
    plan([server]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8").start()
}

fn roots() -> Value {
    json!([{"uri": "file:///home/ada/project", "name": "project"}])
}

/// A client with roots.
enum WithRoots {
    Legacy(Legacy),
    Modern(Modern),
}

impl WithRoots {
    fn both(rig: &Rig) -> [Self; 2] {
        [Self::legacy(rig), Self::modern(rig)]
    }

    fn legacy(rig: &Rig) -> Self {
        let able = json!({"roots": {}});
        Self::Legacy(Legacy::open_able_with(&rig.endpoint("rude"), &able, ADA))
    }

    fn modern(rig: &Rig) -> Self {
        let mut modern = Modern::with(&rig.endpoint("rude"), BEN);
        modern.capabilities = json!({"roots": {}});
        Self::Modern(modern)
    }

    /// Calls `roots`, and gives what the server knows and how often it asked.
    fn call(&mut self, is_late: bool) -> (String, usize) {
        match self {
            Self::Legacy(client) => call_legacy(client, is_late),
            Self::Modern(client) => call_modern(client),
        }
    }

    fn end(self) {
        if let Self::Legacy(client) = self {
            client.end();
        }
    }
}

/// As a legacy client answers: at once, or when it has the answer to its call.
fn call_legacy(client: &mut Legacy, is_late: bool) -> (String, usize) {
    let connection = client.send_call(1, "roots", json!({}));
    let mut exchange = connection.begin().unwrap();
    let (mut questions, mut answer) = (Vec::new(), None);
    let mut reply = |question: &Value| {
        let answer = json!({"jsonrpc": "2.0", "id": question, "result": {"roots": roots()}});
        assert_eq!(client.post(&answer).unwrap().status(), 202);
    };
    if !exchange.head.is_stream() {
        answer = Some(exchange.finish().unwrap().0.answer());
    } else {
        while let Some(message) = exchange.next_message().unwrap() {
            if message["method"] == "roots/list" {
                questions.push(message["id"].clone());
                if !is_late {
                    reply(&message["id"]);
                }
            } else if message["id"] == 1 {
                answer = Some(message);
                break;
            }
        }
    }
    if is_late {
        questions.iter().for_each(reply);
    }
    let answer = answer.expect("an answer");
    (text_of(&answer["result"]), questions.len())
}

/// As a modern client answers: it sends its request again.
fn call_modern(client: &mut Modern) -> (String, usize) {
    let mut params = json!({"name": "roots", "arguments": {}});
    for asked in 0..3 {
        let result = client.ask(1, "tools/call", params.clone()).answer()["result"].clone();
        if result["resultType"] != "input_required" {
            return (text_of(&result), asked);
        }
        let requests = result["inputRequests"].as_object().unwrap();
        assert!(requests.values().all(|request| request["method"] == "roots/list"), "{result}");
        let responses = requests.keys().map(|key| (key.clone(), json!({"roots": roots()})));
        params["inputResponses"] = Value::Object(responses.collect());
        params["requestState"] = result["requestState"].clone();
    }
    panic!("asked again and again");
}

fn text_of(result: &Value) -> String {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

#[test]
fn a_server_that_asks_as_it_starts_is_told_before_its_first_call() {
    for mode in ["stateful", "stateless"] {
        let rig = start(rude("asks-roots", mode));
        for mut client in WithRoots::both(&rig) {
            assert_eq!(client.call(false), (roots().to_string(), 1), "{mode}");
            let again = usize::from(mode == "stateless");
            assert_eq!(client.call(false), (roots().to_string(), again), "{mode}");
            client.end();
        }
        rig.stop();
    }
}

#[test]
fn a_spare_that_asked_before_it_had_a_client_is_told_by_its_client() {
    let rig = start(rude("asks-roots", "stateless").with("warm", 1));
    let mut client = WithRoots::modern(&rig);
    // The first call tells what clients here can answer.
    assert_eq!(client.call(false), (roots().to_string(), 1));
    let ready = || rig.health()["servers"]["rude"]["spares"].as_u64() >= Some(1);
    wait_until("a spare for such clients is ready", SOON, ready);
    assert_eq!(client.call(false), (roots().to_string(), 1));
    drop(client);
    rig.stop();
}

#[test]
fn an_answer_that_comes_after_the_call_reaches_the_process_that_asked() {
    let rig = start(rude("asks-roots-in-call", "stateful"));
    let mut client = WithRoots::legacy(&rig);
    assert_eq!(client.call(true), ("untold".to_owned(), 1));
    wait_until("the answer arrives", SOON, || client.call(true) == (roots().to_string(), 0));
    client.end();
    rig.stop();
}

#[test]
fn a_modern_client_is_asked_with_its_next_call_what_the_last_one_left_open() {
    let rig = start(rude("asks-roots-in-call", "stateful"));
    let mut client = WithRoots::modern(&rig);
    let (told, first) = client.call(false);
    assert_eq!(told, "untold");
    let (told, second) = client.call(false);
    assert_eq!((told, first + second), (roots().to_string(), 1));
    assert_eq!(client.call(false), (roots().to_string(), 0));
    drop(client);
    rig.stop();
}

#[test]
fn a_client_without_roots_is_asked_nothing() {
    let rig = start(rude("asks-roots", "stateful"));
    let mut client = Modern::with(&rig.endpoint("rude"), ADA);
    client.capabilities = json!({"elicitation": {}});
    assert_eq!(call_modern(&mut client).1, 0);
    drop(client);
    rig.stop();
}
