//! Requests whose end two readers could see in two places, each with a second request behind it: no such request is served, and
//! never the one behind.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pontoon_tests::rig::Rig;

use crate::{fixture, rig};

/// A body that the bridge takes with 202, and its size.
const BODY: &str = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
const SIZE: usize = BODY.len();

/// What stands before a request, and what hides behind it.
const BEFORE: &str = "GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n";
const HIDDEN: &str = "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// The statuses of all that is answered to these bytes, until the connection is closed.
fn answers(rig: &Rig, bytes: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(rig.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut answers = Vec::new();
    // A reset is an end, too: what was sent behind the end was not read.
    let _ended = stream.read_to_end(&mut answers);
    let text = String::from_utf8_lossy(&answers);
    text.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].to_owned()).collect()
}

/// A request with these headers and what follows them.
fn post(rest: &str) -> String {
    format!(
        "POST /mcp/fixture HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{rest}"
    )
}

#[test]
fn a_request_that_may_end_elsewhere_is_not_served_and_nothing_behind_it() {
    let rig = rig([fixture("stateless")]);
    let length = format!("Content-Length: {SIZE}\r\n");
    let chunk = format!("{SIZE:x}\r\n{BODY}\r\n");
    let chunked = "Transfer-Encoding: chunked\r\n";
    let mut wrong = Vec::new();
    for (name, request) in [
        ("length, then chunks", post(&format!("{length}{chunked}\r\n{chunk}0\r\n\r\n"))),
        ("chunks, then length", post(&format!("{chunked}{length}\r\n{chunk}0\r\n\r\n"))),
        ("request line by LF", post(&format!("{length}\r\n{BODY}")).replacen("\r\n", "\n", 1)),
        ("header by LF", post(&format!("X: y\n{length}\r\n{BODY}"))),
        ("length by LF", post(&format!("Content-Length: {SIZE}\n\r\n{BODY}"))),
        ("head by LF", post(&format!("{length}\n{BODY}"))),
        ("all by LF", post(&format!("{length}\r\n{BODY}")).replace("\r\n", "\n")),
        ("folded", post(&format!("X: y\r\n z\r\n{length}\r\n{BODY}"))),
        ("space before colon", post(&format!("Content-Length : {SIZE}\r\n\r\n{BODY}"))),
        ("two lengths", post(&format!("{length}Content-Length: 3\r\n\r\n{BODY}"))),
        ("lengths in a list", post(&format!("Content-Length: {SIZE}, {SIZE}\r\n\r\n{BODY}"))),
        ("length with sign", post(&format!("Content-Length: +{SIZE}\r\n\r\n{BODY}"))),
        ("length with space", post(&format!("Content-Length: {SIZE} 1\r\n\r\n{BODY}"))),
        ("no length", post(&format!("Content-Length:\r\n\r\n{BODY}"))),
        ("identity", post(&format!("Transfer-Encoding: identity\r\n{length}\r\n{BODY}"))),
        ("xchunked", post(&format!("Transfer-Encoding: xchunked\r\n\r\n{chunk}0\r\n\r\n"))),
        (
            "in a list",
            post(&format!("Transfer-Encoding: chunked, identity\r\n\r\n{chunk}0\r\n\r\n")),
        ),
        ("chunked twice", post(&format!("{chunked}{chunked}\r\n{chunk}0\r\n\r\n"))),
        ("size by LF", post(&format!("{chunked}\r\n{SIZE:x}\n{BODY}\r\n0\r\n\r\n"))),
        ("extension by LF", post(&format!("{chunked}\r\n{SIZE:x};a\n{BODY}\r\n0\r\n\r\n"))),
        ("chunk by LF", post(&format!("{chunked}\r\n{SIZE:x}\r\n{BODY}\n0\r\n\r\n"))),
        (
            "size over",
            post(&format!("{chunked}\r\n1000000000000000{SIZE:x}\r\n{BODY}\r\n0\r\n\r\n")),
        ),
        ("size 0x", post(&format!("{chunked}\r\n0x{SIZE:x}\r\n{BODY}\r\n0\r\n\r\n"))),
        ("trailer by LF", post(&format!("{chunked}\r\n{chunk}0\r\nX: y\n\r\n"))),
        ("end by LF", post(&format!("{chunked}\r\n{chunk}0\r\n\n"))),
    ] {
        for (place, bytes) in [
            ("first", format!("{request}{HIDDEN}")),
            ("second", format!("{BEFORE}{request}{HIDDEN}")),
        ] {
            let mut got = answers(&rig, &bytes);
            if place == "second" {
                assert_eq!(got.first().map(String::as_str), Some("200"), "{name}: {got:?}");
                got.remove(0);
            }
            if got != ["400"] {
                wrong.push(format!("{name}, {place}: {got:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    rig.stop();
}

#[test]
fn requests_with_one_end_are_all_served() {
    let rig = rig([fixture("stateless")]);
    let sized = post(&format!("Content-Length: {SIZE}\r\n\r\n{BODY}"));
    let chunked = "transfer-encoding:\tCHUNKED \r\n";
    let (some, rest) = BODY.split_at(7);
    for request in [
        sized.clone(),
        format!("\r\n{sized}"),
        post(&format!("{chunked}\r\n{SIZE:X}\r\n{BODY}\r\n0\r\n\r\n")),
        post(&format!(
            "{chunked}\r\n7;a=b\r\n{some}\r\n{:x} ; c\r\n{rest}\r\n000\r\nX: y\r\n\r\n",
            rest.len()
        )),
    ] {
        let got = answers(&rig, &format!("{request}{BEFORE}{sized}{HIDDEN}"));
        assert_eq!(got, ["202", "200", "202", "200"], "{request:?}");
    }
    rig.stop();
}
