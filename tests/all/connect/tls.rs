//! Applications behind TLS: whom the bridge trusts, what it shows, and what it says when that does not do.

use std::path::Path;
use std::process::Command;

use pontoon_tests::certificates::Authority;
use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::stdio::StdioServer;
use rcgen::date_time_ymd;
use serde_json::json;

use super::{Home, text};

/// An application with this certificate.
fn secure_app(config: std::sync::Arc<rustls::ServerConfig>) -> LiveApp {
    LiveApp::start(&Place::WebSocketTls(0, config), Manner::default(), &Deeds::default())
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The address of a server without TLS, which does not understand what TLS begins with.
fn plain_server() -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    url
}

/// What the model hears of an application that cannot be used, and what standard error does.
fn refused(home: &Home, command: &mut Command) -> (String, String) {
    let told = home.0.path().join("told");
    command.stderr(std::fs::File::create(&told).unwrap());
    let mut client = StdioServer::start(command);
    client.initialize();
    let away = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(away["_meta"]["pontoon/outcome"], "not made", "{away}");
    home.finish(client);
    (text(&away).to_owned(), std::fs::read_to_string(&told).unwrap())
}

#[test]
fn an_application_behind_tls_is_used_as_any_other_by_name_and_by_address() {
    let (home, authority) = (Home::new(), Authority::default());
    let file = authority.write(home.0.path(), "ca.pem");
    let app = secure_app(authority.sign(&["localhost", "127.0.0.1"]).server(None));
    for url in [app.url(), app.url().replace("localhost", "127.0.0.1")] {
        let mut client = home.client(&url, &["--ca-file", shown(&file)]);
        let large = "x".repeat(3 << 20);
        assert_eq!(text(&client.call(1, "echo", json!({"text": large}))), large);
        let lost = client.call(2, "die", json!({"text": url}));
        assert_eq!(lost["_meta"]["pontoon/outcome"], "unknown", "{lost}");
        assert_eq!(text(&client.call(3, "echo", json!({"text": "again"}))), "again");
        home.finish(client);
    }
}

#[test]
fn an_authority_of_the_machine_is_trusted_without_a_word() {
    let (home, authority) = (Home::new(), Authority::default());
    let file = authority.write(home.0.path(), "machine.pem");
    let app = secure_app(authority.sign(&["localhost"]).server(None));
    let mut command = home.command(&app.url(), &[]);
    let mut client = StdioServer::start(command.env("SSL_CERT_FILE", &file));
    client.initialize();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "trusted"}))), "trusted");
    home.finish(client);
    // A machine without any trusts those of the web, and an authority that is named.
    let mut command = home.command(&app.url(), &["--connect-wait", "300ms"]);
    let (said, _) = refused(&home, command.env("SSL_CERT_FILE", "/dev/null"));
    assert!(said.contains("authority that is not known here"), "{said}");
    let mut command = home.command(&app.url(), &["--ca-file", shown(&file)]);
    let mut client = StdioServer::start(command.env("SSL_CERT_FILE", "/dev/null"));
    client.initialize();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "named"}))), "named");
    home.finish(client);
}

#[test]
fn an_application_that_wants_to_know_its_clients_is_shown_a_certificate() {
    let (home, authority, other) = (Home::new(), Authority::default(), Authority::default());
    let file = authority.write(home.0.path(), "ca.pem");
    let app = secure_app(authority.sign(&["localhost"]).server(Some(&authority)));
    let trust = ["--ca-file", shown(&file)];
    let with = |own: &(std::path::PathBuf, std::path::PathBuf)| {
        let mut command = home.command(&app.url(), &trust);
        command.arg("--client-cert").arg(&own.0).arg("--client-key").arg(&own.1);
        command
    };
    let own = authority.sign(&["ada"]).write(home.0.path(), "ada");
    let mut client = StdioServer::start(&mut with(&own));
    client.initialize();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "ada"}))), "ada");
    home.finish(client);
    let (said, _) = refused(&home, home.command(&app.url(), &trust).arg("--connect-wait=2s"));
    assert!(
        said.contains("wants a certificate of ours") && said.contains("--client-cert"),
        "{said}"
    );
    let foreign = other.sign(&["eve"]).write(home.0.path(), "eve");
    let (said, _) = refused(&home, with(&foreign).arg("--connect-wait=2s"));
    assert!(said.contains("does not accept our certificate"), "{said}");
    // The key of another certificate is noticed at once.
    let output = with(&(own.0.clone(), foreign.1)).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
    assert!(told.contains("it is not the key of"), "{told}");
}

#[test]
fn what_is_wrong_with_a_certificate_is_told_in_one_line_with_what_to_do() {
    let (home, authority) = (Home::new(), Authority::default());
    let file = authority.write(home.0.path(), "ca.pem");
    let trust = ["--ca-file", shown(&file)];
    let old = authority.sign_so(&["localhost"], |it| it.not_after = date_time_ymd(2020, 1, 1));
    let unknown = Authority::default().sign(&["localhost"]).server(None);
    let plain_url = plain_server().replace("http://", "wss://");
    let early = authority.sign_so(&["localhost"], |it| it.not_before = date_time_ymd(2090, 1, 1));
    let [unknown, other_name, old, early, good] = [
        unknown,
        authority.sign(&["max.example"]).server(None),
        old.server(None),
        early.server(None),
        authority.sign(&["localhost"]).server(None),
    ]
    .map(secure_app);
    let insecure_url = good.url().replace("wss://", "ws://");
    for (url, options, says, advice) in [
        (unknown.url(), &trust[..], "an authority that is not known here", "with --ca-file FILE"),
        (other_name.url(), &trust, "not for localhost, but for", "in the address"),
        (old.url(), &trust, "its certificate has expired", "renew its certificate"),
        (early.url(), &trust, "its certificate is not valid yet", "clock of this machine"),
        (plain_url, &trust, "speaks no TLS", "write the address without TLS"),
        (insecure_url, &[], "its answer is no HTTP", "write wss://"),
    ] {
        let mut command = home.command(&url, options);
        let (said, told) = refused(&home, command.arg("--connect-wait=2s"));
        assert!(said.contains(says) && said.contains(advice), "{url}: {said}");
        assert!(told.contains(says) && told.lines().count() == 1, "{url}: {told}");
    }
}
