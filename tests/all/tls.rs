//! A bridge with a certificate, and real clients of it: what they are shown, when that changes, and who is sent away.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use pontoon_tests::certificates::{Authority, Signed};
use pontoon_tests::client::{Legacy, Modern, PATIENCE, Request, Speaker, send_bytes};
use pontoon_tests::rig::{Rig, Server, bridge_command, wait_until};
use pontoon_tests::tls::TlsClient;
use rustix::process::Signal;
use rustls::version::{TLS12, TLS13};
use serde_json::json;
use tempfile::TempDir;
use tungstenite::Message;

use crate::{binaries, fixture, plan};

const SOON: Duration = Duration::from_secs(30);
const READY: &[u8] = b"GET /ready HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

/// An authority, and where the bridge has its certificate and key.
struct Identity {
    authority: Authority,
    folder: TempDir,
    files: (PathBuf, PathBuf),
}

impl Identity {
    fn new() -> (Self, Signed) {
        let (authority, folder) = (Authority::default(), tempfile::tempdir().unwrap());
        let signed = authority.sign(&["localhost"]);
        let files = signed.write(folder.path(), "tls");
        (Self { authority, folder, files }, signed)
    }

    /// A bridge with this certificate.
    fn rig(&self, servers: impl IntoIterator<Item = Server>) -> Rig {
        plan(servers).secured(&self.files, self.authority.client(&[])).start()
    }

    fn open(&self, rig: &Rig) -> TlsClient {
        TlsClient::open(rig.bound(), &self.authority.client(&[])).unwrap()
    }

    /// Puts another pair in the place of the one that was there, as certbot does.
    fn renew(&self) -> Signed {
        let signed = self.authority.sign(&["localhost"]);
        let (certificate, key) = signed.write(self.folder.path(), "new");
        std::fs::rename(certificate, &self.files.0).unwrap();
        std::fs::rename(key, &self.files.1).unwrap();
        signed
    }
}

/// What the bridge's own commands say here.
fn pontoon(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> (i32, String) {
    let mut command = bridge_command(&binaries().pontoon, folder);
    let output = command.envs(variables.iter().copied()).args(arguments).output().unwrap();
    let Output { status, stdout, stderr } = output;
    let said = [stdout, stderr].concat();
    (status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn everything_goes_over_tls_and_knows_its_address() {
    let (identity, _) = Identity::new();
    let rig = identity.rig([fixture("stateless")]);
    let (bound, address) = (rig.bound(), rig.address());
    for said in [
        format!("listening on https://{bound}"),
        format!("https://{bound}/mcp/fixture  ("),
        format!("claude mcp add --transport http fixture https://{bound}/mcp/fixture"),
        format!("https://{bound}/mcpo/fixture/openapi.json"),
    ] {
        wait_until(&said, SOON, || rig.stderr().contains(&said));
    }
    assert!(!rig.stderr().contains("http://"), "{}", rig.stderr());
    let large = "桟橋".repeat(500_000);
    let mut modern = Modern::new(&rig.endpoint("fixture"));
    let answer = modern.call(1, "echo", json!({"text": large}));
    assert!(answer.tool_text() == Some(large), "{}", answer.status());
    let mut legacy = Legacy::open(&rig.endpoint("fixture"));
    let answer = legacy.call(1, "write_file", json!({"name": "a.txt", "text": "x"}));
    let link = answer.text();
    assert!(link.contains("https://127.0.0.1/files/"), "{link}");
    legacy.end();
    // A WebSocket, by wss.
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut socket, _) =
        tungstenite::client(format!("ws://{address}/ws/fixture"), stream).unwrap();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "ws", "version": "1"}});
    let first = json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params});
    socket.send(Message::text(first.to_string())).unwrap();
    assert!(socket.read().unwrap().to_text().unwrap().contains("\"hello\""));
    socket.close(None).unwrap();
    while socket.read().is_ok() {}
    drop(socket);
    rig.stop();
}

/// `pontoon mcpo` has the same under its own names.
#[test]
fn the_command_line_of_mcpo_has_a_certificate_too() {
    let (identity, _) = Identity::new();
    let folder = identity.folder.path();
    let certificate = identity.files.0.to_str().unwrap();
    let (code, said) =
        pontoon(folder, &[], &["mcpo", "--port=0", "--ssl-certfile", certificate, "--", "cat"]);
    assert!(code == 1 && said.contains("--ssl-certfile: the key is missing"), "{code} {said}");
}

#[test]
fn both_versions_are_spoken_and_only_http_1_1_inside() {
    let (identity, signed) = Identity::new();
    let rig = identity.rig([fixture("stateless")]);
    for (version, expected) in
        [(&TLS12, rustls::ProtocolVersion::TLSv1_2), (&TLS13, rustls::ProtocolVersion::TLSv1_3)]
    {
        let mut config = Arc::unwrap_or_clone(identity.authority.client(&[version]));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut client = TlsClient::open(rig.bound(), &Arc::new(config.clone())).unwrap();
        assert_eq!(client.connection().protocol_version(), Some(expected));
        assert_eq!(client.connection().alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(client.seen(), signed.der());
        assert!(client.exchange(READY).unwrap().starts_with("HTTP/1.1 200"));
        config.alpn_protocols = vec![b"h2".to_vec()];
        assert!(TlsClient::open(rig.bound(), &Arc::new(config)).is_err());
    }
    // One that does not trust the authority leaves, and costs nobody else anything.
    let stranger = Authority::default().client(&[]);
    assert!(TlsClient::open(rig.bound(), &stranger).is_err());
    identity.open(&rig);
    rig.stop();
}

#[test]
fn a_new_certificate_is_for_new_connections_and_a_broken_one_is_told() {
    let (identity, first) = Identity::new();
    let rig = identity.rig([fixture("stateless")]);
    let mut old = identity.open(&rig);
    let mut long = Modern::new(&rig.endpoint("fixture"));
    let call = long.send_call(9, "wait", json!({"ms": 4000}));
    let second = identity.renew();
    wait_until("the new one is shown", SOON, || identity.open(&rig).seen() == second.der());
    assert_eq!(old.seen(), first.der());
    assert!(old.exchange(READY).unwrap().starts_with("HTTP/1.1 200"));
    let answer = call.begin().unwrap().finish().unwrap().0;
    assert_eq!(answer.tool_text().as_deref(), Some("waited 4000 ms"));
    // The key of another certificate.
    let other = identity.authority.sign(&["localhost"]).write(identity.folder.path(), "other");
    std::fs::copy(&other.1, &identity.files.1).unwrap();
    let told = "the new certificate cannot be used; the old one is shown on";
    wait_until("it is told", SOON, || rig.stderr().contains(told));
    let health = rig.health();
    assert_eq!(health["status"], "degraded", "{health}");
    assert!(health["reasons"][0].as_str().unwrap().contains("it is not the key of"), "{health}");
    assert_eq!(identity.open(&rig).seen(), second.der());
    // It is read again at a signal, and told once.
    let reloads = rig.metric(r#"pontoon_config_reloads_total{result="ok"}"#);
    rig.signal(Signal::HUP);
    let reloaded = || rig.metric(r#"pontoon_config_reloads_total{result="ok"}"#) > reloads;
    wait_until("the servers are taken over all the same", SOON, reloaded);
    assert_eq!(rig.stderr().matches(told).count(), 1, "{}", rig.stderr());
    let third = identity.renew();
    rig.signal(Signal::HUP);
    wait_until("it is mended", SOON, || identity.open(&rig).seen() == third.der());
    wait_until("it is well", SOON, || !rig.health()["reasons"].to_string().contains("certificate"));
    assert!(long.call(1, "echo", json!({"text": "x"})).tool_text().as_deref() == Some("x"));
    rig.stop();
}

#[test]
fn mute_and_plain_clients_are_in_nobodys_way() {
    let (identity, _) = Identity::new();
    let rig = identity.rig([fixture("stateless")]);
    let mute: Vec<_> = (0..50).map(|_| TcpStream::connect(rig.bound()).unwrap()).collect();
    let mut client = identity.open(&rig);
    assert!(client.exchange(READY).unwrap().starts_with("HTTP/1.1 200"));
    let plain = Request::new("GET", "/health").send(rig.bound()).unwrap();
    assert_eq!(plain.status(), 400);
    assert!(plain.text().contains("write https://"), "{}", plain.text());
    assert!(send_bytes(rig.bound(), b"\x16\x03\x01\x00\x02no").is_err());
    drop(mute);
    rig.stop();
}

#[test]
fn a_bridge_that_ends_answers_what_is_under_way_over_tls() {
    let (identity, _) = Identity::new();
    let mut rig = identity.rig([fixture("stateless")]);
    let calls: Vec<_> = (0..4)
        .map(|id| {
            let client = Modern::new(&rig.endpoint("fixture"));
            client.send_call(id, "wait", json!({"ms": 1500}))
        })
        .collect();
    rig.wait_for_gauge("running", 4);
    let idle = identity.open(&rig);
    rig.signal(Signal::TERM);
    for call in calls {
        let answer = call.begin().unwrap().finish().unwrap().0;
        assert_eq!(answer.tool_text().as_deref(), Some("waited 1500 ms"), "{}", answer.text());
    }
    drop(idle);
    assert!(rig.wait_for_exit(SOON).success(), "{}", rig.stderr());
    rig.expect_nothing_left();
}

#[test]
fn a_pair_that_cannot_be_used_is_a_mistake_before_anything_listens() {
    let (identity, _) = Identity::new();
    let folder = identity.folder.path();
    let other = identity.authority.sign(&["localhost"]).write(folder, "other");
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    let (certificate, key, wrong) =
        (path(&identity.files.0), path(&identity.files.1), path(&other.1));
    for command in ["check", "serve"] {
        let listen = ("MCPO_LISTEN", "127.0.0.1:0");
        let cert_set = ("MCPO_TLS_CERT", certificate.as_str());
        for (variables, options, says) in [
            (&[cert_set][..], &[][..], "MCPO_TLS_CERT: the key is missing"),
            (&[cert_set, ("MCPO_TLS_KEY", &wrong)], &[], "MCPO_TLS_KEY: `"),
            (&[cert_set], &["--tls-key", &wrong], "--tls-key: `"),
            (
                &[("MCPO_TLS_KEY", &key)],
                &["--tls-cert", "/gone-7"],
                "--tls-cert: `/gone-7`: it cannot",
            ),
            (&[cert_set, ("MCPO_TLS_KEY", &certificate)], &[], "no key in PEM form"),
        ] {
            if command == "check" && !options.is_empty() {
                continue;
            }
            let variables = [&[listen], variables].concat();
            let (code, said) = pontoon(folder, &variables, &[&[command], options].concat());
            assert!(code == 1 && said.contains(says), "{command} {variables:?}: {code} {said}");
        }
    }
    let both = [("MCPO_TLS_CERT", certificate.as_str()), ("MCPO_TLS_KEY", &key)];
    let (code, said) = pontoon(folder, &both, &["check"]);
    assert_eq!(code, 0, "{said}");
    // Where nothing listens the files do not matter.
    let (code, said) = pontoon(folder, &[("MCPO_TLS_CERT", "/gone-7")], &["tools", "demo"]);
    assert!(code == 0 && said.contains("greet"), "{said}");
}

#[test]
fn a_bridge_is_asked_how_it_is_by_https() {
    let (identity, _) = Identity::new();
    let rig = identity.rig([fixture("stateless")]);
    let folder = identity.folder.path();
    let authority = identity.authority.write(folder, "ca.pem");
    let (bound, port) = (rig.bound().to_string(), rig.bound().port());
    let health = |variables: &[(&str, &str)], arguments: &[&str]| {
        pontoon(folder, variables, &[&["health"], arguments].concat())
    };
    // By the settings that it has itself, whomever its certificate is for, and whatever became of it.
    let listen = ("MCPO_LISTEN", bound.as_str());
    let (code, said) = health(&[listen, ("MCPO_TLS_CERT", "/gone-7")], &[]);
    assert!(code == 0 && said.contains("fixture: ready"), "{said}");
    let url = format!("https://localhost:{port}");
    let ca_file = ["--url", &url, "--ca-file", authority.to_str().unwrap()];
    let (code, said) = health(&[], &ca_file);
    assert!(code == 0 && said.contains("fixture: ready"), "{said}");
    for (variables, arguments, says) in [
        (&[][..], &["--url", &url][..], "an authority that is not known here"),
        (&[], &["--url", &format!("https://{bound}"), ca_file[2], ca_file[3]], "not for 127.0.0.1"),
        (&[listen], &[], "speaks TLS: say --url https://"),
    ] {
        let (code, said) = health(variables, arguments);
        assert!(code == 1 && said.contains(says), "{arguments:?}: {said}");
    }
    let (code, said) = health(&[listen], &["--ca-file", "x"]);
    assert_eq!(code, 2, "{said}");
    rig.stop();
}
