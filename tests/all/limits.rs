//! Limits: each is reached, told as its era wants, counted, and given back however the call ends.

use std::io;
use std::time::{Duration, Instant};

use pontoon_tests::client::{
    Client, Connection, ERAS, Endpoint, Era, Request, Response, Speaker, send_bytes,
};
use pontoon_tests::rig::{Rig, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{fixture, fixture_of, plan, rig, shell};

const SOON: Duration = Duration::from_secs(5);
/// What no test waits for.
const LONG: u64 = 60_000;

const BUSY: i64 = -31429;
const SERVER_FAILED: i64 = -31502;

fn with_limit(limit: u32) -> Rig {
    let server = fixture("stateless").with("timeout", 2);
    plan([server]).variable("MCPO_MAX_CONCURRENT", &limit.to_string()).start()
}

/// One number of `/metrics` that counts something.
pub(crate) fn metric(rig: &Rig, sample: &str) -> u64 {
    rig.metric(sample).to_string().parse().expect("a whole number")
}

/// How many requests this limit has refused.
pub(crate) fn refused(rig: &Rig, limit: &str) -> u64 {
    metric(rig, &format!("pontoon_refused_total{{limit=\"{limit}\"}}"))
}

/// What a refusal has to say.
pub(crate) struct Refusal<'a> {
    pub(crate) status: u64,
    pub(crate) code: i64,
    pub(crate) retry_after: Option<u64>,
    pub(crate) text: &'a str,
}

/// The whole of a refusal, as each era wants it: a status of HTTP would end a legacy session.
#[track_caller]
pub(crate) fn check(response: &Response, era: Era, id: u64, refusal: &Refusal<'_>) {
    let mut data = json!({"httpStatus": refusal.status});
    let mut text = refusal.text.to_owned();
    if let Some(seconds) = refusal.retry_after {
        data["retryAfter"] = json!(seconds);
        text += &format!("; try again in {seconds} s");
    }
    let error = json!({"code": refusal.code, "message": text, "data": data});
    assert_eq!(response.answer(), json!({"jsonrpc": "2.0", "id": id, "error": error}), "{era:?}");
    let header = response.head.header("retry-after").map(|it| it.parse().unwrap());
    let told = (u64::from(response.status()), header);
    let expected = match era {
        Era::Modern => (refusal.status, refusal.retry_after),
        Era::Legacy => (200, refusal.retry_after),
    };
    assert_eq!(told, expected, "{era:?}");
}

fn whole(connection: Connection) -> Response {
    connection.begin().unwrap().finish().unwrap().0
}

#[test]
fn a_call_too_many_is_refused_at_once() {
    for era in ERAS {
        let rig = plan([fixture("stateless")]).variable("MCPO_MAX_CONCURRENT", "2").start();
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        let open: Vec<_> =
            (1..=2).map(|id| (id, client.send_call(id, "wait", json!({"ms": LONG})))).collect();
        rig.wait_for_gauge("permits_in_use", 2);
        let begun = Instant::now();
        let response = client.call(3, "echo", json!({"text": "x"}));
        assert!(begun.elapsed() < Duration::from_secs(2), "took {:?}", begun.elapsed());
        let text = "busy: all 2 calls that may run at once are running";
        check(&response, era, 3, &Refusal { status: 429, code: BUSY, retry_after: Some(5), text });
        assert_eq!((rig.gauge("permits_in_use"), refused(&rig, "concurrent")), (2, 1));
        // The session of a legacy client goes on.
        for method in ["tools/list", "prompts/list"] {
            let response = client.ask(4, method, json!({}));
            assert!(response.answer().get("result").is_some(), "{method}: {}", response.text());
        }
        open.into_iter().for_each(|(id, connection)| client.give_up(id, connection));
        rig.wait_for_gauge("permits_in_use", 0);
        let response = client.call(5, "echo", json!({"text": "again"}));
        assert_eq!(response.tool_text().as_deref(), Some("again"), "{}", response.text());
        client.end();
        rig.stop();
    }
}

fn with_queue(seconds: &str) -> Rig {
    plan([fixture("stateless")])
        .variable("MCPO_MAX_CONCURRENT", "1")
        .variable("MCPO_QUEUE_WAIT", seconds)
        .start()
}

fn wait_for_waiting(rig: &Rig, count: u64) {
    wait_until(&format!("{count} calls wait"), SOON, || {
        metric(rig, "pontoon_waiting_calls") == count
    });
}

#[test]
fn a_call_that_may_wait_is_served_in_its_turn() {
    for era in ERAS {
        let rig = with_queue("20");
        let client = Client::new(era, &rig.endpoint("fixture"));
        let first = client.send_call(1, "wait", json!({"ms": 300}));
        rig.wait_for_gauge("permits_in_use", 1);
        let next: Vec<_> = (2..5)
            .map(|id| {
                let connection = client.send_call(id, "echo", json!({"text": id.to_string()}));
                wait_for_waiting(&rig, id - 1);
                connection
            })
            .collect();
        assert_eq!(whole(first).tool_text().as_deref(), Some("waited 300 ms"));
        for (id, connection) in (2..5).zip(next) {
            assert_eq!(whole(connection).tool_text(), Some(id.to_string()), "{era:?}");
        }
        assert_eq!((metric(&rig, "pontoon_waiting_calls"), refused(&rig, "concurrent")), (0, 0));
        client.end();
        rig.stop();
    }
}

#[test]
fn a_call_given_up_while_it_waits_leaves_nothing() {
    for era in ERAS {
        let rig = with_queue("60");
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        let first = client.send_call(1, "wait", json!({"ms": LONG}));
        rig.wait_for_gauge("permits_in_use", 1);
        let starts = || metric(&rig, r#"pontoon_child_starts_total{server="fixture"}"#);
        // Two were started to learn what the server offers.
        wait_until("the first child works", SOON, || starts() == 3);
        let second = client.send_call(2, "echo", json!({"text": "x"}));
        wait_for_waiting(&rig, 1);
        client.give_up(2, second);
        wait_for_waiting(&rig, 0);
        client.give_up(1, first);
        rig.wait_for_gauge("permits_in_use", 0);
        assert_eq!(starts(), 3, "{era:?}: a child was started for nobody");
        assert_eq!(client.call(3, "echo", json!({"text": "x"})).tool_text().as_deref(), Some("x"));
        client.end();
        rig.stop();
    }
}

/// How a call can end.
#[derive(Debug, Clone, Copy)]
enum End {
    Success,
    Error,
    Deadline,
    GivenUp,
    Crash,
    Kill,
}

/// Makes a call end like this.
fn end(how: End, rig: &Rig, client: &mut Client) {
    let open = |client: &Client| {
        let connection = client.send_call(1, "wait", json!({"ms": LONG}));
        rig.wait_for_gauge("permits_in_use", 1);
        rig.wait_for_gauge("running", 1);
        connection
    };
    let told = match how {
        End::Success => client.call(1, "echo", json!({"text": "x"})),
        End::Error => client.call(1, "no_such_tool", json!({})),
        End::Deadline => client.call(1, "wait", json!({"ms": LONG})),
        End::Crash => client.call(1, "crash", json!({})),
        End::GivenUp => {
            let connection = open(client);
            return client.give_up(1, connection);
        }
        End::Kill => {
            let connection = open(client);
            wait_until("the child works", SOON, || !rig.children().is_empty());
            for child in rig.children() {
                // It may be gone by itself: a server is also started to be learnt.
                let _ = send_signal(child.pid, Signal::KILL);
            }
            whole(connection)
        }
    };
    let expected: &[u64] = match how {
        End::Success => &[200],
        End::Error => &[200, 400],
        End::Deadline => &[504],
        End::Crash | End::Kill => &[502],
        End::GivenUp => &[],
    };
    assert!(expected.contains(&told.told_status()), "{how:?}: {}", told.text());
}

/// With one permit in all, a call that ends like this has to give it back.
fn check_comes_back(how: End) {
    for era in ERAS {
        let rig = with_limit(1);
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        end(how, &rig, &mut client);
        wait_until(&format!("the permit after {how:?}"), SOON, || rig.gauge("permits_in_use") == 0);
        for id in 0..3 {
            let response = client.call(id, "echo", json!({"text": "x"}));
            assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
            rig.wait_for_gauge("permits_in_use", 0);
        }
        client.end();
        rig.stop();
    }
}

#[test]
fn a_permit_comes_back_after_success() {
    check_comes_back(End::Success);
}

#[test]
fn a_permit_comes_back_after_an_error() {
    check_comes_back(End::Error);
}

#[test]
fn a_permit_comes_back_after_the_deadline() {
    check_comes_back(End::Deadline);
}

#[test]
fn a_permit_comes_back_after_the_call_was_given_up() {
    check_comes_back(End::GivenUp);
}

#[test]
fn a_permit_comes_back_after_a_crash() {
    check_comes_back(End::Crash);
}

#[test]
fn a_permit_comes_back_after_a_killed_child() {
    check_comes_back(End::Kill);
}

/// With one call at once on one child, a call that ends like this has to leave its place.
#[test]
fn a_place_on_a_kept_child_comes_back_however_a_call_ends() {
    for era in ERAS {
        let server = fixture("stateful").with("max_in_flight", 1).with("timeout", 2);
        let rig = rig([server]);
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        for how in [End::Success, End::Error, End::Deadline, End::GivenUp, End::Crash, End::Kill] {
            end(how, &rig, &mut client);
            wait_until(&format!("the place after {how:?}"), SOON, || {
                let response = client.call(2, "echo", json!({"text": "x"}));
                response.tool_text().as_deref() == Some("x")
            });
            rig.wait_for_gauge("permits_in_use", 0);
        }
        client.end();
        rig.stop();
    }
}

#[test]
fn a_kept_child_takes_so_many_calls_at_once() {
    for era in ERAS {
        let rig = rig([fixture("stateful").with("max_in_flight", 2)]);
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        let open: Vec<_> =
            (1..=2).map(|id| (id, client.send_call(id, "wait", json!({"ms": LONG})))).collect();
        rig.wait_for_gauge("running", 2);
        wait_until("both are with the child", SOON, || rig.children().len() == 1);
        let response = client.call(3, "echo", json!({"text": "x"}));
        let text = "busy: 2 calls are under way in this conversation with the server `fixture` \
                    (max_in_flight)";
        check(&response, era, 3, &Refusal { status: 429, code: BUSY, retry_after: Some(5), text });
        assert_eq!(refused(&rig, "in_flight"), 1);
        open.into_iter().for_each(|(id, connection)| client.give_up(id, connection));
        client.end();
        rig.stop();
    }
}

#[test]
fn a_call_waits_for_its_place_on_a_kept_child() {
    for era in ERAS {
        let server = fixture("stateful").with("max_in_flight", 1);
        let rig = plan([server]).variable("MCPO_QUEUE_WAIT", "20").start();
        let mut client = Client::new(era, &rig.endpoint("fixture"));
        let open: Vec<_> =
            (1..=3).map(|id| client.send_call(id, "wait", json!({"ms": 200}))).collect();
        let last = client.call(4, "echo", json!({"text": "x"}));
        assert_eq!(last.tool_text().as_deref(), Some("x"), "{}", last.text());
        for connection in open {
            assert_eq!(whole(connection).tool_text().as_deref(), Some("waited 200 ms"));
        }
        assert_eq!(refused(&rig, "in_flight"), 0);
        client.end();
        rig.stop();
    }
}

#[test]
fn calls_on_kept_children_are_limited_in_all() {
    let rig = rig([fixture("stateful").with("max_in_flight", 2000)]);
    let mut client = Client::new(Era::Modern, &rig.endpoint("fixture"));
    let open: Vec<_> =
        (1..=1024).map(|id| client.send_call(id, "wait", json!({"ms": LONG}))).collect();
    rig.wait_for_gauge("permits_in_use", 1024);
    let response = client.call(2000, "echo", json!({"text": "x"}));
    let text = "busy: all 1024 calls that may run at once are running";
    let refusal = Refusal { status: 429, code: BUSY, retry_after: Some(5), text };
    check(&response, Era::Modern, 2000, &refusal);
    assert_eq!(refused(&rig, "kept_calls"), 1);
    drop(open);
    rig.wait_for_gauge("permits_in_use", 0);
    client.end();
    rig.stop();
}

#[test]
fn so_many_calls_wait_for_a_person_and_no_more() {
    let server = fixture_of("legacy", "stateful");
    let rig = plan([server]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.1").start();
    let ask = |user: usize, id: u64| {
        let mut client = Client::new(Era::Modern, &rig.endpoint("fixture"))
            .with_header("X-OpenWebUI-User-Id", &format!("u{user}"));
        client.call(id, "ask", json!({"question": "which?"}))
    };
    for user in 0..8 {
        for id in 0..32 {
            let response = ask(user, id);
            assert_eq!(
                response.answer()["result"]["resultType"],
                "input_required",
                "{user} {id}: {}",
                response.text()
            );
        }
    }
    let response = ask(8, 1);
    let text = "too many calls wait for an answer of a person";
    let refusal = Refusal { status: 429, code: BUSY, retry_after: Some(30), text };
    check(&response, Era::Modern, 1, &refusal);
    assert_eq!(refused(&rig, "waiting"), 1);
    rig.stop();
}

#[test]
fn one_client_has_so_many_streams_of_the_older_transport() {
    let rig = rig([fixture("stateless")]);
    let open = || {
        let request = Request::new("GET", "/sse/fixture").header("Accept", "text/event-stream");
        request.begin(rig.address()).unwrap()
    };
    let streams: Vec<_> = (0..64).map(|_| open()).collect();
    assert!(streams.iter().all(|stream| stream.head.status == 200));
    let refusal = open().finish().unwrap().0;
    assert_eq!((refusal.status(), refusal.head.header("retry-after")), (429, Some("10")));
    let text = "all 64 streams of this client are open; try again in 10 s";
    assert_eq!(refusal.error_text(), text);
    assert_eq!(refused(&rig, "streams"), 1);
    drop(streams);
    wait_until("room for a stream", SOON, || open().head.status == 200);
    rig.stop();
}

#[test]
fn a_body_may_be_as_long_as_said_and_no_longer() {
    let rig = plan([fixture("stateful")]).variable("MCPO_MAX_BODY", "2000").start();
    let endpoint = rig.endpoint("fixture");
    for (era, number) in ERAS.into_iter().zip(0..) {
        let client = Client::new(era, &endpoint);
        let message = |text: &str| {
            let params = json!({"name": "echo", "arguments": {"text": text}});
            client.message(&json!(1), "tools/call", params)
        };
        let exact = |length: usize| {
            let text = "x".repeat(length - message("").to_string().len());
            client.request(&message(&text))
        };
        let fits = exact(2000).send(endpoint.address).unwrap();
        assert_eq!(fits.status(), 200, "{}", fits.text());
        // Nobody has read whose answer it would be, so the refusal is of HTTP in both eras.
        for over in [send(&exact(2001), &endpoint), send_chunked(&exact(9000), &endpoint)] {
            let refused = over.unwrap();
            assert_eq!((refused.status(), refused.head.header("connection")), (413, Some("close")));
            assert_eq!(refused.error_text(), "the body is larger than 2000 bytes (MCPO_MAX_BODY)");
            assert_eq!(refused.answer()["id"], Value::Null);
        }
        assert_eq!(refused(&rig, "body"), 2 * (number + 1));
        client.end();
    }
    rig.stop();
}

fn send(request: &Request, endpoint: &Endpoint) -> io::Result<Response> {
    request.send(endpoint.address)
}

/// Sends a body whose length is told only piece by piece.
fn send_chunked(request: &Request, endpoint: &Endpoint) -> io::Result<Response> {
    let bytes = request.clone().without("Content-Length").header("Transfer-Encoding", "chunked");
    let bytes = String::from_utf8(bytes.bytes()).unwrap();
    let (head, body) = bytes.split_once("\r\n\r\n").unwrap();
    let mut text = format!("{head}\r\n\r\n");
    for piece in body.as_bytes().chunks(512) {
        let piece = std::str::from_utf8(piece).unwrap();
        text += &format!("{:x}\r\n{piece}\r\n", piece.len());
    }
    send_bytes(endpoint.address, format!("{text}0\r\n\r\n").as_bytes())
}

#[test]
fn an_answer_may_be_as_long_as_said_and_no_longer() {
    for mode in ["stateless", "stateful"] {
        let rig = plan([fixture(mode)]).variable("MCPO_MAX_MESSAGE", "100000").start();
        for (era, number) in ERAS.into_iter().zip(1..) {
            let mut client = Client::new(era, &rig.endpoint("fixture"));
            let fits = client.call(1, "big", json!({"bytes": 90_000}));
            assert_eq!(fits.tool_text().map(|text| text.len()), Some(90_000), "{mode} {era:?}");
            let response = client.call(2, "big", json!({"bytes": 100_001}));
            let text = "an answer of the server `fixture` was dropped because a line is longer \
                        than 100000 bytes (MCPO_MAX_MESSAGE); it may have been this call's, so its \
                        outcome is unknown";
            let refusal = Refusal { status: 502, code: SERVER_FAILED, retry_after: None, text };
            check(&response, era, 2, &refusal);
            assert_eq!(refused(&rig, "message"), number, "{mode} {era:?}");
            client.end();
        }
        rig.stop();
    }
}

#[test]
fn a_start_that_fails_is_told_and_counted() {
    let place = tempfile::tempdir().unwrap();
    let flag = place.path().join("broken");
    let script = format!(
        "[ -e {} ] && {{ echo no licence >&2; exit 7; }}; exec FIXTURE --era legacy",
        flag.display()
    );
    let rig = rig([shell(&script, "stateless")]);
    std::fs::write(&flag, "").unwrap();
    let failures = || metric(&rig, r#"pontoon_child_start_failures_total{server="shell"}"#);
    for (era, number) in ERAS.into_iter().zip(1..) {
        let mut client = Client::new(era, &rig.endpoint("shell"));
        let response = client.call(1, "echo", json!({"text": "x"}));
        assert_eq!(response.told_status(), 502, "{}", response.text());
        let text = response.error_text();
        assert!(text.contains("`shell`") && text.contains("no licence"), "{text}");
        assert_eq!(failures(), number, "{era:?}");
        client.end();
    }
    rig.stop();
}
