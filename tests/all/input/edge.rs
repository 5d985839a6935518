//! The edge of HTTP: framing that two readers could read in two ways, sizes, and slow clients.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use pontoon_tests::client::{Connection, Legacy, Modern, Request, Speaker, send_bytes};
use serde_json::json;

use crate::{fixture, rig};

const BODY: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
const MEGABYTE: usize = 1 << 20;

#[test]
fn framing_that_can_be_read_in_two_ways_is_refused_and_the_connection_closed() {
    let rig = rig([fixture("stateful")]);
    let start = "POST /mcp/fixture HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                 Accept: application/json, text/event-stream\r\n";
    let length = BODY.len();
    let mut wrong = Vec::new();
    for (name, rest) in [
        (
            "length and chunks",
            format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ),
        ("two lengths", format!("Content-Length: {length}\r\nContent-Length: 5\r\n\r\n{BODY}")),
        ("length with a sign", format!("Content-Length: +{length}\r\n\r\n{BODY}")),
        ("folded header", format!("X-Folded: a\r\n b\r\nContent-Length: {length}\r\n\r\n{BODY}")),
        ("space before the colon", format!("Content-Length : {length}\r\n\r\n{BODY}")),
        ("NUL in a header", format!("X-Nul: a\0b\r\nContent-Length: {length}\r\n\r\n{BODY}")),
        ("chunks twice", String::from("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n")),
        ("chunks inside out", String::from("Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n")),
    ] {
        match send_bytes(rig.address(), format!("{start}{rest}").as_bytes()) {
            Ok(response) if (400..500).contains(&response.status()) || response.status() == 501 => {
                let connection = response.head.header("connection").unwrap_or_default();
                if !connection.eq_ignore_ascii_case("close") {
                    wrong.push(format!("{name}: {} and kept open", response.status()));
                }
            }
            Ok(response) => wrong.push(format!("{name}: {}", response.status())),
            // Closed without an answer: as safe as a refusal.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    rig.stop();
}

/// In TCP that looks like a client that left, whose call must not go on.
#[test]
fn a_client_that_closes_its_sending_side_has_left() {
    let rig = rig([fixture("stateless")]);
    let modern = Modern::new(&rig.endpoint("fixture"));
    let params = json!({"name": "wait", "arguments": {"ms": 60_000}});
    let request: Request = modern.request(&modern.message(&json!(1), "tools/call", params));
    let mut stream = TcpStream::connect(rig.address()).unwrap();
    stream.write_all(&request.bytes()).unwrap();
    rig.wait_for_gauge("running", 1);
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "", "the connection is closed");
    rig.wait_for_gauge("running", 0);
    rig.wait_for_gauge("permits_in_use", 0);
    drop(modern);
    rig.stop();
}

#[test]
fn headers_have_a_limit() {
    let rig = rig([fixture("stateful")]);
    let good = Request::post("/mcp/fixture", BODY);
    let mut many = good.clone();
    for number in 0..200 {
        many = many.header(&format!("X-{number}"), "x");
    }
    let long = good.header("X-Long", &"x".repeat(100_000));
    let target = Request::post(&format!("/mcp/{}", "x".repeat(100_000)), BODY);
    for (name, request, wanted) in
        [("many", many, 431), ("long", long, 431), ("target", target, 414)]
    {
        let status = request.send(rig.address()).unwrap().status();
        assert!(status == wanted || status == 431, "{name}: {status}");
    }
    rig.stop();
}

#[test]
fn a_body_of_100_megabytes_is_refused_before_it_is_read() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let request = session.request(&json!({})).body("").with("Content-Length", "104857600");
    let begun = Instant::now();
    let mut connection = Connection::open(rig.address()).unwrap();
    connection.send(&request.bytes()).unwrap();
    let response = connection.begin().unwrap().finish().unwrap().0;
    assert_eq!(response.status(), 413, "{}", response.text());
    assert!(response.error_code().is_some(), "{}", response.text());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    session.end();
    rig.stop();
}

#[test]
fn a_body_without_a_length_is_refused_when_it_gets_too_long() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let before = rig.peak_resident_bytes();
    let request = session
        .request(&json!({}))
        .body("")
        .without("Content-Length")
        .header("Transfer-Encoding", "chunked");
    let mut connection = Connection::open(rig.address()).unwrap();
    connection.send(&request.bytes()).unwrap();
    let chunk = format!("{MEGABYTE:x}\r\n{}\r\n", " ".repeat(MEGABYTE));
    let sent = (0..100).take_while(|_| connection.send(chunk.as_bytes()).is_ok()).count();
    assert!(sent < 100, "100 MB were read");
    // The answer may be lost when the connection was closed under what we sent; if it is there,
    // it is the right one.
    if let Ok(exchange) = connection.begin() {
        assert_eq!(exchange.head.status, 413);
    }
    let grown = rig.peak_resident_bytes().saturating_sub(before);
    assert!(grown < 48 * MEGABYTE as u64, "{grown} bytes more");
    session.end();
    rig.stop();
}

#[test]
fn many_large_bodies_at_once_stay_within_bounds() {
    let rig = rig([fixture("stateful")]);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let before = rig.peak_resident_bytes();
    // Eight unfinished bodies of 9 MB each: they may be held, but not more than once.
    let body = vec![b' '; 9 * MEGABYTE];
    let open: Vec<_> = (0..8)
        .map(|_| {
            let request = session.request(&json!({})).body("").with("Content-Length", "10000000");
            let mut connection = Connection::open(rig.address()).unwrap();
            connection.send(&request.bytes()).unwrap();
            connection.send(&body).unwrap();
            connection
        })
        .collect();
    let grown = rig.peak_resident_bytes().saturating_sub(before);
    assert!(grown < 200 * MEGABYTE as u64, "{grown} bytes more");
    drop(open);
    session.end();
    rig.stop();
}
