//! Applications behind a proxy, which only a proxy can reach.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;

use pontoon_tests::certificates::Authority;
use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::proxy::ConnectProxy;
use pontoon_tests::stdio::StdioServer;
use serde_json::json;

use super::{Home, app, text};

/// `me:open sesame`, as the header has it.
const CREDENTIALS: &str = "Basic bWU6b3BlbiBzZXNhbWU=";

fn port(app: &LiveApp) -> u16 {
    match app.place() {
        Place::WebSocket(port) | Place::WebSocketTls(port, _) => port,
        place => panic!("{place:?} has no port"),
    }
}

/// The address of something that is no proxy.
fn no_proxy() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n");
            let _ = stream.read(&mut [0; 1024]);
        }
    });
    address
}

/// What a call says, and the log.
fn called(home: &Home, command: &mut Command) -> (String, String) {
    let told = home.0.path().join("told");
    command.args(["--log-level", "trace"]).stderr(fs::File::create(&told).unwrap());
    let mut client = StdioServer::start(command);
    client.initialize();
    let said = text(&client.call(1, "echo", json!({"text": "through"}))).to_owned();
    home.finish(client);
    (said, fs::read_to_string(&told).unwrap())
}

#[test]
fn an_application_elsewhere_is_reached_through_the_proxy_that_the_environment_names() {
    let (home, authority) = (Home::new(), Authority::default());
    let file = authority.write(home.0.path(), "ca.pem");
    let place = Place::WebSocketTls(0, authority.sign(&["studio.test"]).server(None));
    let secure = LiveApp::start(&place, Manner::default(), &Deeds::default());
    let plain = app(&Deeds::default());
    for (variable, url, app) in [
        ("HTTPS_PROXY", "wss://studio.test/mcp", &secure),
        ("http_proxy", "ws://studio.test/mcp", &plain),
        ("ALL_PROXY", "ws://10.1.2.3:9", &plain),
        ("all_proxy", "ws://[fd00::1]:9", &plain),
    ] {
        let proxy = ConnectProxy::start(port(app), Some(CREDENTIALS));
        let address = proxy.url().replace("http://", "http://me:open%20sesame@");
        let mut command = home.command(url, &["--connect-wait", "20s"]);
        if url.starts_with("wss") {
            command.arg("--ca-file").arg(&file);
        }
        let (said, log) =
            called(&home, command.env(variable, address).env("NO_PROXY", "other.test"));
        assert_eq!(said, "through");
        let asked = proxy.asked();
        let host = match url {
            "wss://studio.test/mcp" => "studio.test:443",
            "ws://studio.test/mcp" => "studio.test:80",
            url => &url[5..],
        };
        assert_eq!(asked, [host]);
        assert!(log.contains("through a proxy") && !log.contains("sesame"), "{log}");
        assert!(!log.contains("bWU6"), "{log}");
    }
}

#[test]
fn a_proxy_that_stands_in_the_way_is_named_with_what_to_do() {
    let (home, app) = (Home::new(), app(&Deeds::default()));
    let guarded = ConnectProxy::start(port(&app), Some(CREDENTIALS));
    let gone = ConnectProxy::start(1, None);
    for (proxy, says) in [
        (guarded.url(), "407 Proxy Authentication Required"),
        (guarded.url().replace("//", "//me:wrong-secret@"), "http://USER:PASSWORD@HOST:PORT"),
        (gone.url(), "refused: 502 Bad Gateway): so this call was not made: start the application"),
        (
            "http://me:wrong-secret@127.0.0.1:1".to_owned(),
            "127.0.0.1:1, which HTTP_PROXY names, cannot be reached",
        ),
        (no_proxy(), "does not answer as a proxy does"),
        ("socks5h://me:wrong-secret@127.0.0.1:1".to_owned(), "speaks socks5h, but only http://"),
        (
            "http://me:wrong-secret@:x".to_owned(),
            "HTTP_PROXY names no proxy: it has to be http://HOST:PORT",
        ),
    ] {
        let mut command = home.command("ws://studio.test:9", &["--connect-wait", "1s"]);
        let (said, log) = called(&home, command.env("HTTP_PROXY", &proxy));
        let says = says.replace("): so", "), so");
        assert!(said.contains(&says), "{proxy}: {said}");
        assert!(!said.contains("secret") && !log.contains("secret"), "{said}\n{log}");
    }
}

#[test]
fn what_is_on_this_machine_or_named_in_no_proxy_goes_by_no_proxy() {
    let (home, app) = (Home::new(), app(&Deeds::default()));
    let proxy = ConnectProxy::start(1, None);
    for url in [app.url(), app.url().replace("127.0.0.1", "localhost")] {
        let mut command = home.command(&url, &[]);
        let (said, _) = called(&home, command.env("ALL_PROXY", proxy.url()));
        assert_eq!(said, "through");
    }
    // A name that no machine has: it is looked for here, and not by the proxy.
    for url in ["ws://studio.invalid:9", "tcp://studio.invalid:9"] {
        let mut command = home.command(url, &["--connect-wait", "1s"]);
        command.env("ALL_PROXY", proxy.url()).env("no_proxy", ".invalid");
        let (said, _) = called(&home, &mut command);
        assert!(said.contains("nothing answers there"), "{said}");
    }
    assert!(proxy.asked().is_empty(), "{:?}", proxy.asked());
}
