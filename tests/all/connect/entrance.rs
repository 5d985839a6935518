//! An application that comes to the bridge by itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use pontoon_tests::live_app::{ComingApp, Deeds, Manner};
use pontoon_tests::rig::wait_until;
use pontoon_tests::stdio::StdioServer;
use serde_json::json;
use tungstenite::Error;

use super::{Home, SOON, text, tools, tools_changed};

/// A port that was free just now.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A bridge that waits at this port, and the token that it made.
fn waiting(home: &Home, port: u16, options: &[&str]) -> (StdioServer, String) {
    let port = port.to_string();
    let mut client = home.client("--listen", &[&[port.as_str()], options].concat());
    assert!(tools(&mut client, "nothing yet").is_empty());
    let file = home.0.path().join(".local/state/pontoon/listen-token");
    (client, std::fs::read_to_string(file).unwrap_or_default())
}

/// Comes as soon as the bridge listens.
pub(super) fn come(port: u16, headers: &[(&str, &str)], deeds: &Deeds) -> Result<ComingApp, Error> {
    come_as(&Manner::default(), port, headers, deeds)
}

fn come_as(
    manner: &Manner,
    port: u16,
    headers: &[(&str, &str)],
    deeds: &Deeds,
) -> Result<ComingApp, Error> {
    let mut came = None;
    wait_until("the bridge listens", SOON, || {
        came = Some(ComingApp::come(port, headers, manner.clone(), deeds));
        !matches!(came, Some(Err(Error::Io(_))))
    });
    came.unwrap()
}

/// The status that one is refused with.
fn refusal(came: Result<ComingApp, Error>) -> u16 {
    match came {
        Err(Error::Http(response)) => response.status().as_u16(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_application_that_comes_with_the_token_is_used_and_may_come_again() {
    let (home, deeds, port) = (Home::new(), Deeds::default(), free_port());
    let (mut client, token) = waiting(&home, port, &["--connect-wait", "30s"]);
    assert_eq!(token.len(), 64);
    client.send_call(1, "echo", json!({"text": "early"}));
    let bearer = format!("Bearer {token}");
    let app = come(port, &[("authorization", &bearer)], &deeds).unwrap();
    tools_changed(&mut client);
    assert_eq!(text(&client.answer(1)["result"]), "early");
    app.go();
    client.send_call(2, "echo", json!({"text": "again"}));
    // A page cannot set headers, and says it so.
    let protocols = format!("mcp, bearer.{token}");
    let again = come(port, &[("sec-websocket-protocol", &protocols)], &deeds).unwrap();
    assert_eq!(text(&client.answer(2)["result"]), "again");
    home.finish(client);
    assert_eq!(again.sent_away(), Some(1005), "it hears that this was on purpose");
}

#[test]
fn an_application_of_the_other_era_is_understood_on_the_connection_that_it_made() {
    let (home, deeds, port) = (Home::new(), Deeds::default(), free_port());
    let (mut client, token) = waiting(&home, port, &[]);
    let bearer = format!("Bearer {token}");
    let manner = Manner { is_modern: true, ..Manner::default() };
    let app = come_as(&manner, port, &[("authorization", &bearer)], &deeds).unwrap();
    tools_changed(&mut client);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "modern"}))), "modern");
    app.go();
    home.finish(client);
}

#[test]
fn strangers_are_refused_and_do_not_keep_the_application_out() {
    let (home, deeds, port) = (Home::new(), Deeds::default(), free_port());
    let options = ["--allow-origin", "https://good.example"];
    let (mut client, token) = waiting(&home, port, &options);
    let bearer = format!("Bearer {token}");
    let shown = ("authorization", bearer.as_str());
    let long = "x".repeat(64);
    let protocols = format!("mcp, bearer.{long}");
    for (headers, status) in [
        (&[][..], 401),
        (&[("authorization", "Bearer wrong")], 403),
        (&[("authorization", &*format!("Bearer {long}"))], 403),
        (&[("sec-websocket-protocol", &*protocols)], 403),
        (&[shown, ("origin", "https://evil.example")], 403),
        (&[shown, ("origin", "null")], 403),
        (&[("origin", "https://good.example")], 401),
        (&[shown, ("host", "evil.example:80")], 403),
        (&[shown, ("host", "127.0.0.1.evil.example")], 403),
    ] {
        assert_eq!(refusal(come(port, headers, &deeds)), status, "{headers:?}");
    }
    let app = come(port, &[shown, ("origin", "https://good.example")], &deeds).unwrap();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "in"}))), "in");
    // There is room for one.
    let second = come(port, &[shown], &deeds).unwrap();
    assert_eq!(second.sent_away(), Some(1013));
    assert_eq!(text(&client.call(2, "echo", json!({"text": "still"}))), "still");
    app.go();
    home.finish(client);
}

#[test]
fn those_who_knock_and_say_nothing_do_not_keep_the_application_out() {
    let (home, deeds, port) = (Home::new(), Deeds::default(), free_port());
    let (mut client, token) = waiting(&home, port, &["--connect-wait", "60s"]);
    let bearer = format!("Bearer {token}");
    let silent: Vec<_> = (0..80)
        .map(|_| {
            let mut stream = None;
            wait_until("the bridge listens", SOON, || {
                stream = TcpStream::connect(("127.0.0.1", port)).ok();
                stream.is_some()
            });
            stream
        })
        .collect();
    let app = come(port, &[("authorization", &bearer)], &deeds).unwrap();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "in"}))), "in");
    drop(silent);
    app.go();
    home.finish(client);
}

#[test]
fn a_port_that_is_in_use_is_told_and_taken_when_it_is_free() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let (mut client, token) = waiting(&home, port, &["--connect-wait", "300ms"]);
    let away = client.call(1, "echo", json!({"text": "x"}));
    assert!(text(&away).contains(&format!("port {port} cannot be listened on")), "{away}");
    drop(other);
    let bearer = format!("Bearer {token}");
    let app = come(port, &[("authorization", &bearer)], &deeds).unwrap();
    tools_changed(&mut client);
    assert_eq!(text(&client.call(2, "echo", json!({"text": "in"}))), "in");
    app.go();
    home.finish(client);
}

#[test]
fn several_bridges_wait_at_one_port_together() {
    let (home, deeds, port) = (Home::new(), Deeds::default(), free_port());
    let (mut first, token) = waiting(&home, port, &["--connect-wait", "30s"]);
    let (mut second, _) = waiting(&home, port, &["--connect-wait", "30s"]);
    let bearer = format!("Bearer {token}");
    let app = come(port, &[("authorization", &bearer)], &deeds).unwrap();
    for client in [&mut first, &mut second] {
        assert_eq!(text(&client.call(1, "echo", json!({"text": "shared"}))), "shared");
    }
    assert_eq!(deeds.count("shared"), 2);
    first.kill();
    // The application comes again, as they do.
    assert_eq!(app.sent_away(), None);
    second.send_call(2, "echo", json!({"text": "after"}));
    let app = come(port, &[("authorization", &bearer)], &deeds).unwrap();
    assert_eq!(text(&second.answer(2)["result"]), "after");
    app.go();
    assert!(second.finish().success());
}

#[test]
fn without_a_token_it_has_to_be_said_and_pages_are_refused_all_the_same() {
    let (home, deeds, port) = (Home::new(), Deeds::default(), free_port());
    let (mut client, token) = waiting(&home, port, &["--no-token"]);
    assert_eq!(token, "");
    assert_eq!(refusal(come(port, &[("origin", "https://evil.example")], &deeds)), 403);
    let app = come(port, &[], &deeds).unwrap();
    tools_changed(&mut client);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "in"}))), "in");
    app.go();
    home.finish(client);
    for (options, says) in [
        (&["--listen", "0"][..], "1..=65535"),
        (&["--listen", "1", "--token-command", "x"], "for applications that are dialled"),
        (&["--allow-origin", "x", "ws://localhost:1"], "cannot be used with"),
        (&["--listen", "1", "ws://localhost:1"], "cannot be used with"),
    ] {
        let output = home.command(options[0], &options[1..]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && told.contains(says), "{options:?}: {told}");
    }
}

/// What one hears that says this at the entrance, as soon as that is open.
fn answer_to(port: u16, said: &str) -> String {
    let mut stream = None;
    wait_until("the bridge listens", SOON, || {
        stream = TcpStream::connect(("127.0.0.1", port)).ok();
        stream.is_some()
    });
    let mut stream = stream.unwrap();
    stream.write_all(said.as_bytes()).unwrap();
    let mut heard = Vec::new();
    // Its end may be a reset, which changes nothing about what was heard.
    let _ = stream.read_to_end(&mut heard);
    String::from_utf8(heard).unwrap()
}

#[test]
fn what_is_no_application_hears_why_it_is_sent_away() {
    let (home, port) = (Home::new(), free_port());
    let (client, _) = waiting(&home, port, &[]);
    let host = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n";
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (said, status, why) in [
        (format!("{host}\r\n"), "400 Bad Request", "opens a WebSocket here"),
        ("hello\r\n\r\n".to_owned(), "400 Bad Request", "opens a WebSocket here"),
        (host.to_owned(), "408 Request Timeout", "longer than two seconds"),
        (format!("{host}{upgrade}\r\n"), "401 Unauthorized", "a token is needed"),
        (
            format!("{host}{upgrade}Origin: https://x.example\r\n\r\n"),
            "403 Forbidden",
            "--allow-origin",
        ),
    ] {
        let heard = answer_to(port, &said);
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{said}: {heard}");
        assert!(heard.contains(why), "{said}: {heard}");
    }
    // The first of too many makes room.
    let mut first = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let _others: Vec<_> =
        (0..64).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let mut heard = String::new();
    first.read_to_string(&mut heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 503 ") && heard.contains("try again"), "{heard}");
    home.finish(client);
}
