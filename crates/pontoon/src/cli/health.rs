//! `pontoon health`: asks a running bridge how it is, so that an image needs no other program.
//!
//! Exit code 0 for ok and degraded, 1 for down, nobody there, or a key that is not the bridge's. The configuration is not read: a
//! mistake in the file says nothing about the bridge that runs.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use pontoon_supervise::plain_text;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use super::terminal::{fail, say};
use super::waiting::WaitingLine;
use crate::back::remote::tls::{Tls, TlsError};
use crate::config::{BridgeSettings, Environment, TlsFiles, parse_listen};
use crate::plain_file::{FileKind, read_text};

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// More than this is no health.
const MAX_ANSWER: u64 = 4 << 20;

/// More than this is no key.
const LONGEST_KEY: u64 = 64 << 10;

/// Asks the bridge at `url`, or at the one this environment configures, and prints what it says.
pub fn run(url: Option<&str>, authorities: Option<&Path>, as_json: bool) -> ExitCode {
    let environment = Environment::of_process();
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    let is_secure = variable("MCPO_TLS_CERT").is_some();
    let asked = target(url, variable("MCPO_LISTEN"), is_secure).and_then(|target| {
        let key = api_key(variable).map_err(HealthError::Key)?;
        let (status, health) = ask(&target, key.as_deref(), authorities, PATIENCE)?;
        // Whoever is known is told of the servers.
        match key.is_some() && health["servers"].is_null() {
            true => Err(HealthError::Refused(target.authority)),
            false => Ok((status, health)),
        }
    });
    let (status, health) = match asked {
        Ok(answer) => answer,
        Err(why) => return fail(&crate::errors::chain(&why)),
    };
    match as_json {
        true => say(&serde_json::to_string_pretty(&health).unwrap_or_default()),
        false => say(describe(&health).trim_end()),
    }
    let is_up = status == 200 && matches!(health["status"].as_str(), Some("ok" | "degraded"));
    if is_up { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a bridge says of itself.
#[derive(Debug)]
pub(super) struct Seen {
    /// Its health.
    pub(super) health: Value,
    /// Its numbers, as Prometheus reads them; empty where it gave none.
    pub(super) metrics: String,
}

/// Asks the bridge at `url` how it is, and for its numbers. Where no key is given, that of the environment is shown.
pub(super) fn look(url: &str, key: Option<&str>) -> Result<Seen, HealthError> {
    let environment = Environment::of_process();
    let variable = |name: &str| environment.get(name).filter(|value| !value.is_empty());
    let own = api_key(variable).map_err(HealthError::Key)?;
    let key = key.or(own.as_deref());
    let mut target = target(Some(url), None, false)?;
    let (_, health) = ask(&target, key, None, PATIENCE)?;
    if key.is_some() && health["servers"].is_null() {
        return Err(HealthError::Refused(target.authority));
    }
    target.path =
        target.path.strip_suffix("health").map(|it| format!("{it}metrics")).unwrap_or_default();
    let tls = (target.by != AskedBy::Http).then(|| Tls::load(&TlsFiles::default()).ok()).flatten();
    let can_be_asked = !target.path.is_empty() && (tls.is_some() || target.by == AskedBy::Http);
    let metrics = match can_be_asked.then(|| exchange(&target, key, tls, PATIENCE)) {
        Some(Ok(answer)) => String::from_utf8_lossy(&answer).into_owned(),
        _ => String::new(),
    };
    Ok(Seen { health, metrics })
}

/// Why nobody said how the bridge is.
#[derive(Debug, thiserror::Error)]
pub(super) enum HealthError {
    #[error("{0:?} cannot be asked: write an address such as http://127.0.0.1:8080")]
    Url(String),
    #[error("MCPO_LISTEN names no address that can be asked: say --url http://ADDRESS:PORT")]
    Listen,
    #[error("the key of MCPO_API_KEY_FILE cannot be read")]
    Key(#[source] io::Error),
    #[error(
        "the bridge at {0} does not know the key of MCPO_API_KEY or MCPO_API_KEY_FILE: set the \
         one it has, or none"
    )]
    Refused(String),
    #[error("no bridge answers at {0}")]
    Unreachable(String, #[source] io::Error),
    #[error("no TLS connection to the bridge at {url}: {}", .why.advice())]
    Tls {
        url: String,
        #[source]
        why: TlsError,
    },
    #[error(
        "the bridge at {0} speaks TLS: say --url https://HOST:PORT, or set MCPO_TLS_CERT as the bridge has it"
    )]
    NeedsTls(String),
    #[error("what answers at {0} is no bridge: it said {1:?}")]
    Stranger(String, String),
}

/// How a bridge is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskedBy {
    /// HTTP.
    Http,
    /// HTTPS at the address of the own bridge. Its certificate is for the names by which others call, and may be changing
    /// just now, so it proves nothing; who answers is as sure as it is with HTTP.
    OwnHttps,
    /// HTTPS at an address that was named, where the certificate has to be for that.
    Https,
}

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HealthTarget {
    /// By what.
    by: AskedBy,
    /// The host and port, as they are named.
    authority: String,
    /// What is asked for.
    path: String,
}

/// Whom to ask.
fn target(
    url: Option<&str>,
    listen: Option<&OsStr>,
    is_secure: bool,
) -> Result<HealthTarget, HealthError> {
    let Some(url) = url else {
        let addresses = match listen {
            None => BridgeSettings::unset().listen,
            Some(text) => parse_listen(text.to_str().ok_or(HealthError::Listen)?)
                .map_err(|_| HealthError::Listen)?,
        };
        let address = addresses.into_iter().find(|address| address.port() != 0);
        let authority = reachable(address.ok_or(HealthError::Listen)?).to_string();
        let by = if is_secure { AskedBy::OwnHttps } else { AskedBy::Http };
        return Ok(HealthTarget { by, authority, path: "/health".to_owned() });
    };
    let wrong = || HealthError::Url(url.to_owned());
    let (by, port, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
        (Some(rest), _) => (AskedBy::Http, ":80", rest),
        (_, Some(rest)) => (AskedBy::Https, ":443", rest),
        _ => return Err(wrong()),
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'@' | b'?' | b'#');
    if authority.is_empty() || !rest.bytes().all(is_plain) {
        return Err(wrong());
    }
    let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
    let port = if has_port { "" } else { port };
    let path = if path.len() > 1 { path } else { "/health" };
    Ok(HealthTarget { by, authority: format!("{authority}{port}"), path: path.to_owned() })
}

/// Where a bridge that listens everywhere can be reached from here.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The key to show, if one is configured; with it the bridge tells more.
fn api_key<'e>(variable: impl Fn(&str) -> Option<&'e OsStr>) -> io::Result<Option<String>> {
    let key = match (variable("MCPO_API_KEY"), variable("MCPO_API_KEY_FILE")) {
        (Some(key), _) => key.to_str().unwrap_or_default().to_owned(),
        (None, Some(file)) => read_text(file.as_ref(), FileKind::Named, LONGEST_KEY)?,
        (None, None) => return Ok(None),
    };
    let key = key.trim();
    // What cannot stand in a header is no key.
    let is_fit = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    Ok(is_fit.then(|| key.to_owned()))
}

/// The status and the body of the answer.
fn ask(
    target: &HealthTarget,
    key: Option<&str>,
    authorities: Option<&Path>,
    patience: Duration,
) -> Result<(u16, Value), HealthError> {
    let scheme = if target.by == AskedBy::Http { "http" } else { "https" };
    let url = format!("{scheme}://{}{}", target.authority, target.path);
    let unproved = |why| HealthError::Tls { url: url.clone(), why };
    let tls = match target.by {
        AskedBy::Http => None,
        AskedBy::OwnHttps => Some(Tls::without_proof()),
        AskedBy::Https => {
            let files = TlsFiles { authorities: authorities.map(Path::to_owned), own: None };
            Some(Tls::load(&files).map_err(unproved)?)
        }
    };
    let answer = exchange(target, key, tls, patience);
    let answer = answer.map_err(|why| match why.downcast::<TlsError>() {
        Ok(why) => unproved(why),
        Err(why) => HealthError::Unreachable(url.clone(), why),
    })?;
    let read = || {
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&answer[..end]).ok()?;
        let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
        let body: Value = serde_json::from_slice(&answer[end + 4..]).ok()?;
        body["status"].is_string().then_some((status, body))
    };
    let begin = || String::from_utf8_lossy(&answer[..answer.len().min(60)]).into_owned();
    let is_asked_for_tls = || memchr::memmem::find(&answer, b"write https://").is_some();
    read().ok_or_else(|| match target.by == AskedBy::Http && is_asked_for_tls() {
        true => HealthError::NeedsTls(target.authority.clone()),
        false => HealthError::Stranger(url.clone(), begin()),
    })
}

/// Sends the request and gives all that comes back.
fn exchange(
    target: &HealthTarget,
    key: Option<&str>,
    tls: Option<Tls>,
    patience: Duration,
) -> io::Result<Vec<u8>> {
    let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    // Version 1.0, so that the answer comes in one piece and ends with the connection.
    let request = format!(
        "GET {} HTTP/1.0\r\nHost: {}\r\nAccept: application/json\r\n{key}\r\n",
        target.path, target.authority
    );
    let exchange = async {
        let stream = TcpStream::connect(&target.authority).await?;
        let Some(tls) = tls else { return talk(stream, request.as_bytes()).await };
        let host = target.authority.rsplit_once(':').map_or("", |(host, _)| host);
        let opened = tls.open(stream, host.trim_matches(['[', ']'])).await;
        talk(opened.map_err(io::Error::other)?, request.as_bytes()).await
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        let line = WaitingLine::begin("", false);
        line.is_for(format!("waiting for the bridge at {}", target.authority), Some(patience));
        tokio::time::timeout(patience, exchange).await
    });
    // Asking for a name may take longer than anyone waits, and cannot be stopped.
    runtime.shutdown_background();
    answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Sends the request by this connection, and gives all that comes back.
async fn talk<S>(mut stream: S, request: &[u8]) -> io::Result<Vec<u8>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(request).await?;
    stream.flush().await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// What the bridge says, for people.
fn describe(health: &Value) -> String {
    // It goes to a terminal.
    let printable = |text: &str| plain_text(text.to_owned());
    let text = |value: &Value| printable(value.as_str().unwrap_or("?"));
    let mut told = text(&health["status"]);
    let up = health["uptime"].as_u64().unwrap_or_default();
    let (hours, minutes, seconds) = (up / 3600, up / 60 % 60, up % 60);
    let version = text(&health["version"]);
    let mut line = |text: std::fmt::Arguments<'_>| {
        told.write_fmt(text).expect("a string takes everything");
    };
    line(format_args!(" (pontoon {version}, up {hours}h {minutes:02}m {seconds:02}s)\n"));
    for reason in health["reasons"].as_array().into_iter().flatten() {
        line(format_args!("  {}\n", text(reason)));
    }
    for (name, server) in health["servers"].as_object().into_iter().flatten() {
        let (name, state) = (printable(name), text(&server["state"]));
        line(format_args!("  {name}: {state}, {} running\n", server["running"]));
        if let Some(error) = server["error"].as_str() {
            line(format_args!("    {}\n", printable(error)));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use serde_json::json;

    use super::*;

    fn check(url: Option<&str>, listen: Option<&str>, expected: Option<(&str, &str)>) {
        check_by(AskedBy::Http, url, listen, expected);
    }

    fn check_by(
        by: AskedBy,
        url: Option<&str>,
        listen: Option<&str>,
        expected: Option<(&str, &str)>,
    ) {
        let found = target(url, listen.map(OsStr::new), by == AskedBy::OwnHttps).ok();
        let expected = expected.map(|(authority, path)| HealthTarget {
            by,
            authority: authority.to_owned(),
            path: path.to_owned(),
        });
        assert_eq!(found, expected, "{url:?} {listen:?}");
    }

    #[test]
    fn without_an_address_the_own_bridge_is_asked() {
        check(None, None, Some(("127.0.0.1:8080", "/health")));
        check(None, Some("0.0.0.0:9000"), Some(("127.0.0.1:9000", "/health")));
        check(None, Some("[::]:9000"), Some(("[::1]:9000", "/health")));
        check(None, Some("10.1.2.3:1, 127.0.0.1:2"), Some(("10.1.2.3:1", "/health")));
        check(None, Some("127.0.0.1:0"), None);
        check(None, Some("here"), None);
    }

    #[test]
    fn an_address_may_be_named() {
        check(Some("http://a:1"), None, Some(("a:1", "/health")));
        check(Some("http://a:1/"), None, Some(("a:1", "/health")));
        check(Some("http://a/p/health"), Some("b:1"), Some(("a:80", "/p/health")));
        check(Some("http://[::1]"), None, Some(("[::1]:80", "/health")));
        for wrong in [
            "a:1",
            "https://",
            "ftp://a",
            "http://",
            "http://u@a",
            "http://a/\r\nX: y",
            "http://a b",
        ] {
            check(Some(wrong), None, None);
        }
    }

    #[test]
    fn a_bridge_with_a_certificate_is_asked_by_https() {
        check_by(AskedBy::OwnHttps, None, None, Some(("127.0.0.1:8080", "/health")));
        check_by(AskedBy::OwnHttps, None, Some("[::]:9000"), Some(("[::1]:9000", "/health")));
        check_by(AskedBy::Https, Some("https://a"), None, Some(("a:443", "/health")));
        check_by(AskedBy::Https, Some("https://a:1/p"), None, Some(("a:1", "/p")));
    }

    #[test]
    fn a_key_is_shown_only_if_it_fits_into_a_header() {
        let key = |name: &'static str, value: &'static str| {
            api_key(move |it| (it == name).then(|| OsStr::new(value))).unwrap_or(None)
        };
        assert_eq!(key("MCPO_API_KEY", "hunter22").as_deref(), Some("hunter22"));
        assert_eq!(key("MCPO_API_KEY", "a\r\nb"), None);
        assert_eq!(key("OTHER", "x"), None);
        assert!(api_key(|it| (it == "MCPO_API_KEY_FILE").then(|| OsStr::new("/absent"))).is_err());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "from-file\n").unwrap();
        let path = file.path().as_os_str();
        let found = api_key(|it| (it == "MCPO_API_KEY_FILE").then_some(path));
        assert_eq!(found.unwrap().as_deref(), Some("from-file"));
    }

    /// What asking gives when whoever listens says `answer`, and what it was sent.
    fn asked(answer: &'static [u8]) -> (Result<(u16, Value), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut sent, mut piece) = (Vec::new(), [0; 1024]);
            while !sent.ends_with(b"\r\n\r\n") {
                let length = stream.read(&mut piece).unwrap();
                assert_ne!(length, 0, "the request broke off");
                sent.extend_from_slice(&piece[..length]);
            }
            stream.write_all(answer).unwrap();
            // Whoever says nothing keeps the connection until the other goes.
            if answer.is_empty() {
                drop(stream.read(&mut piece));
            }
            String::from_utf8(sent).unwrap()
        });
        let target = HealthTarget { by: AskedBy::Http, authority, path: "/health".to_owned() };
        let patience = Duration::from_millis(if answer.is_empty() { 50 } else { 5000 });
        let asked = ask(&target, Some("hunter22"), None, patience);
        (asked.map_err(|why| crate::errors::chain(&why)), server.join().unwrap())
    }

    #[test]
    fn a_bridge_is_asked_with_the_key() {
        let (answer, sent) = asked(b"HTTP/1.1 503 No\r\nA: b\r\n\r\n{\"status\": \"down\"}");
        assert_eq!(answer, Ok((503, json!({"status": "down"}))));
        assert!(sent.starts_with("GET /health HTTP/1.0\r\nHost: 127.0.0.1:"), "{sent}");
        assert!(sent.contains("\r\nAuthorization: Bearer hunter22\r\n"), "{sent}");
    }

    #[test]
    fn a_stranger_a_silent_one_and_nobody_are_told_apart() {
        let (answer, _) = asked(b"SSH-2.0-OpenSSH\r\n\r\n");
        assert!(answer.unwrap_err().contains("is no bridge: it said \"SSH-2.0"));
        let (answer, _) = asked(b"HTTP/1.1 200 OK\r\n\r\n{}");
        assert!(answer.unwrap_err().contains("is no bridge"));
        let (answer, _) = asked(b"HTTP/1.1 400 No\r\n\r\nwrite https:// there\n");
        assert!(answer.unwrap_err().contains("speaks TLS: say --url https://HOST:PORT"));
        let (answer, _) = asked(b"");
        assert!(answer.unwrap_err().contains("no bridge answers at http://127.0.0.1:"));
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (by, authority) = (AskedBy::Http, gone.to_string());
        let target = HealthTarget { by, authority, path: "/health".to_owned() };
        let why = ask(&target, None, None, Duration::from_secs(5)).unwrap_err();
        assert!(matches!(why, HealthError::Unreachable(..)), "{why}");
    }

    #[test]
    fn people_read_the_reasons_and_nothing_paints_their_terminal() {
        let health = json!({
            "status": "degraded", "version": "1.2.3", "uptime": 3725,
            "reasons": ["the disk is 91 % full"],
            "servers": {"a": {"state": "failed", "running": 0, "error": "no \u{1b}[31mcolour"}},
        });
        let expected = "degraded (pontoon 1.2.3, up 1h 02m 05s)\n  the disk is 91 % full\n  \
                        a: failed, 0 running\n    no colour\n";
        assert_eq!(describe(&health), expected);
    }
}
