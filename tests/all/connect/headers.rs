//! Headers of the user's own, for the opening of a WebSocket.

use std::fs;

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::stdio::StdioServer;
use serde_json::json;

use super::{Home, app, text};

/// The headers of these names that the application was shown last, as `name: value`.
fn shown(app: &LiveApp, names: &[&str]) -> Vec<String> {
    let headers = app.shown();
    let of = |name: &&str| Some(format!("{name}: {}", headers.get(*name)?.to_str().ok()?));
    names.iter().filter_map(of).collect()
}

#[test]
fn headers_are_sent_at_each_opening_and_their_values_are_in_no_log() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let (file, told) = (home.0.path().join("headers"), home.0.path().join("told"));
    fs::write(&file, "# for the studio\nCookie: sesame-one\n").unwrap();
    let options = [
        "--header",
        "X-Project: open-field",
        "--header-file",
        file.to_str().unwrap(),
        "--no-share",
    ];
    let mut command = home.command(&app.url(), &options);
    command.env("PONTOON_TOKEN", "the-token").args(["--log-level", "trace"]);
    let mut client = StdioServer::start(command.stderr(fs::File::create(&told).unwrap()));
    client.initialize();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    let names = ["x-project", "cookie", "authorization", "sec-websocket-protocol"];
    let expected = |cookie: &str| {
        let mut lines = vec![
            "authorization: Bearer the-token".to_owned(),
            format!("cookie: {cookie}"),
            "sec-websocket-protocol: mcp".to_owned(),
            "x-project: open-field".to_owned(),
        ];
        lines.sort();
        lines
    };
    let sorted = || {
        let mut lines = shown(&app, &names);
        lines.sort();
        lines
    };
    assert_eq!(sorted(), expected("sesame-one"));
    fs::write(&file, "Cookie: sesame-two\n").unwrap();
    app.drop_connections();
    assert_eq!(text(&client.call(2, "read", json!({"text": "y"}))), "y");
    assert_eq!(sorted(), expected("sesame-two"));
    // A file that cannot be read any more is told, with what to do.
    fs::write(&file, "Host: sesame-three\n").unwrap();
    app.drop_connections();
    let options = ["--connect-wait", "300ms", "--header-file", file.to_str().unwrap()];
    let refused = home.command(&app.url(), &options).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    home.finish(client);
    let log = fs::read_to_string(&told).unwrap() + &String::from_utf8_lossy(&refused.stderr);
    assert!(log.contains("line 1 of the file of headers"), "{log}");
    assert!(log.contains("application connected") && !log.contains("sesame"), "{log}");
    assert!(!log.contains("open-field"), "{log}");
}

#[test]
fn bridges_with_other_headers_have_their_own_connections() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let mut clients = ["X-Project: one", "X-Project: two", "X-Project: two"]
        .map(|header| home.client(&app.url(), &["--header", header]));
    for client in &mut clients {
        assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    }
    assert_eq!(app.accepted(), 2);
    clients.into_iter().for_each(|client| assert!(client.finish().success()));
}
