//! A conversation over HTTP with a server that is a task of the test, and answers as each test says.

mod lost_sessions;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use pontoon_supervise::Support;
use pontoon_wire::heal::HealMode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::TaskTracker;
use tracing::Span;

use self::lost_sessions::forgetful;
use super::session::{HttpManner, open};
use crate::back::child::process::Starter;
use crate::back::conversation::link::{Link, LinkOptions};
use crate::back::conversation::{Conversation, NoResult};
use crate::back::remote::dial::Dialer;
use crate::back::remote::token::TokenReader;
use crate::config::{AppHeaders, AppTarget, Environment, Silence, TlsFiles};
use crate::held_bytes::HeldBytes;
use crate::lock::Lock;
use crate::observe::heals::HealLog;
use crate::observe::log::Secrets;

/// One request: its head in lower case, and its body.
#[derive(Debug, Clone)]
struct Asked {
    head: String,
    body: String,
}

impl Asked {
    fn id(&self) -> String {
        let message: serde_json::Value = serde_json::from_str(&self.body).unwrap_or_default();
        message["id"].to_string()
    }
}

/// A server, and what it was asked.
struct HttpTestServer {
    conversation: Conversation,
    asked: Arc<Lock<Vec<Asked>>>,
    manners: Arc<Lock<BTreeSet<HttpManner>>>,
    heals: Arc<HealLog>,
    endings: TaskTracker,
}

impl HttpTestServer {
    /// One that answers like this: the request and how many came before it give the whole response.
    async fn start(answer: fn(&Asked, usize) -> String) -> Self {
        Self::start_healed(HealMode::Repair, answer).await
    }

    /// The same, with this done about what it strays from.
    async fn start_healed(heal: HealMode, answer: fn(&Asked, usize) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = listener.local_addr().unwrap();
        let asked: Arc<Lock<Vec<Asked>>> = Arc::default();
        let all = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answer, Arc::clone(&all)));
            }
        });
        let target = AppTarget {
            endpoint: format!("ws://{place}/mcp").parse().unwrap(),
            token: None,
            headers: AppHeaders::default(),
            tls: TlsFiles::default(),
            silence: Silence::USUAL,
        };
        let starter = Starter::Nothing(Support::default());
        let (environment, secrets) = (Environment::default(), Secrets::default());
        let dialer = Dialer::new(TokenReader { starter, environment, secrets });
        let (manners, endings) = (Arc::default(), TaskTracker::new());
        let heals = Arc::new(HealLog::with_modes("test", heal.into()));
        let (noted, counted) = (Arc::clone(&manners), Arc::clone(&heals));
        let carrier = open(target, dialer, 1 << 20, noted, counted, &endings);
        let options = LinkOptions {
            heal: heal.into(),
            writes_frames: false,
            max_message: 1 << 20,
            held: HeldBytes::new(1 << 20),
            one_client: true,
            heals: Arc::clone(&heals),
            messages: None,
            span: Span::none(),
        };
        let mut conversation = Conversation::new(Link::start(carrier, &options), &Arc::default());
        conversation.era = pontoon_wire::Era::Legacy;
        Self { conversation, asked, manners, heals, endings }
    }

    /// How many requests for this method came.
    fn count(&self, method: &str) -> usize {
        let named = format!("\"{method}\"");
        self.asked.lock().iter().filter(|asked| asked.body.contains(&named)).count()
    }

    async fn ask(&self, method: &str) -> Result<String, NoResult> {
        let params = r#"{"protocolVersion":"2025-06-18"}"#;
        let answer = self.conversation.result_of(method, params, Duration::from_secs(10)).await?;
        Ok(String::from_utf8(answer.text().to_vec()).unwrap())
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: fn(&Asked, usize) -> String,
    all: Arc<Lock<Vec<Asked>>>,
) {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1);
            let length = length.and_then(|it| it.lines().next()).and_then(|it| it.parse().ok());
            let length: usize = length.unwrap_or(0);
            if rest.len() >= length {
                let asked = Asked { head, body: rest[..length].to_owned() };
                read = rest.as_bytes()[length..].to_vec();
                let before = all.lock().len();
                let response = answer(&asked, before);
                all.lock().push(asked);
                if stream.write_all(response.as_bytes()).await.is_err() {
                    return;
                }
                continue;
            }
        }
        if !matches!(stream.read_buf(&mut read).await, Ok(1..)) {
            return;
        }
    }
}

fn response(status: &str, kind: &str, body: &str) -> String {
    response_in("s-1", status, kind, body)
}

/// The same in the session of this name.
fn response_in(session: &str, status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nmcp-session-id: {session}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn result(asked: &Asked) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"protocolVersion":"2025-06-18"}}}}"#,
        asked.id()
    )
}

#[tokio::test]
async fn answers_come_as_json_as_events_and_by_another_name() {
    let server = HttpTestServer::start(|asked, at| match at {
        0 => response("200 OK", "application/json; charset=utf-8", &result(asked)),
        1 => {
            let result = result(asked);
            // Between two members, where JSON may be broken.
            let (first, rest) = result.split_at(17);
            let data = format!(
                ": hello\n\nid: 7\ndata:\n\nevent: message\ndata: {first}\ndata: {rest}\n\n"
            );
            response("200 OK", "text/event-stream", &data)
        }
        _ => response("200 OK", "text/plain", &result(asked)),
    })
    .await;
    assert!(server.ask("initialize").await.is_ok());
    assert!(server.ask("tools/list").await.is_ok());
    assert!(server.manners.lock().is_empty());
    assert!(server.ask("tools/list").await.is_ok());
    assert_eq!(*server.manners.lock(), BTreeSet::from([HttpManner::OtherType]));
    let asked = server.asked.lock().clone();
    assert!(!asked[0].head.contains("mcp-session-id"), "{}", asked[0].head);
    for header in [
        "mcp-session-id: s-1",
        "mcp-protocol-version: 2025-06-18",
        "accept: application/json, text/event-stream",
    ] {
        assert!(asked[1].head.contains(header), "{header}: {}", asked[1].head);
    }
    server.conversation.link.close_input();
    server.endings.close();
    server.endings.wait().await;
    let last = server.asked.lock().last().cloned().unwrap();
    assert!(
        last.head.starts_with("delete /mcp ") && last.head.contains("mcp-session-id: s-1"),
        "{}",
        last.head
    );
}

#[tokio::test]
async fn what_is_no_answer_becomes_an_error_of_its_request() {
    let server = HttpTestServer::start(|asked, at| match at {
        0 => response(
            "401 Unauthorized",
            "application/json",
            r#"{"error":{"message":"who are you"}}"#,
        ),
        1 => response("500 Internal Server Error", "text/html", "<h1>Oh no</h1>"),
        2 => response("200 OK", "application/json", ""),
        3 => response(
            "200 OK",
            "text/event-stream",
            "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n",
        ),
        4 => response(
            "400 Bad Request",
            "application/json",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"odd"}}"#,
        ),
        _ => response("200 OK", "application/json", &result(asked)),
    })
    .await;
    for part in [
        "HTTP 401: who are you",
        "HTTP 500: <h1>Oh no</h1>",
        "HTTP 200: it answered nothing",
        "ended without an answer",
        "odd",
    ] {
        let refused = server.ask("tools/list").await.unwrap_err();
        assert!(
            matches!(&refused, NoResult::Refused(why) if why.contains(part)),
            "{part}: {refused:?}"
        );
    }
    assert!(server.ask("tools/list").await.is_ok(), "and it goes on");
}

#[track_caller]
fn expect_refused(refused: &Result<String, NoResult>, part: &str) {
    assert!(
        matches!(refused, Err(NoResult::Refused(why)) if why.contains(part)),
        "{part}: {refused:?}"
    );
}

#[tokio::test]
async fn an_empty_answer_to_a_notification_and_a_redirection_are_manners() {
    let server = HttpTestServer::start(|asked, at| match at {
        0 => response("200 OK", "application/json", &result(asked)),
        1 => response("200 OK", "text/plain", ""),
        _ => response("307 Temporary Redirect", "text/plain", ""),
    })
    .await;
    assert!(server.ask("initialize").await.is_ok());
    let note = crate::call::plain_notification("notifications/initialized");
    server.conversation.link.say(note);
    expect_refused(&server.ask("tools/list").await, "HTTP 307: it said nothing");
    let manners = server.manners.lock().clone();
    assert_eq!(manners, BTreeSet::from([HttpManner::EmptyAnswer, HttpManner::Moved]));
}

#[tokio::test]
async fn what_it_strays_from_is_counted_and_healed_as_the_server_is_to_be() {
    let answer: fn(&Asked, usize) -> String = |asked, at| match at {
        0 => response("200 OK", "application/json", &result(asked)),
        1 => response("200 OK", "text/plain", &result(asked)),
        _ => forgetful(asked, at),
    };
    for (heal, count) in [(HealMode::Repair, 2), (HealMode::Warn, 2), (HealMode::Off, 0)] {
        let server = HttpTestServer::start_healed(heal, answer).await;
        assert!(server.ask("initialize").await.is_ok());
        let [other_type, lost] = [server.ask("tools/list").await, server.ask("tools/list").await];
        match heal {
            HealMode::Repair => assert!(other_type.is_ok() && lost.is_ok(), "{lost:?}"),
            HealMode::Warn | HealMode::Off => {
                expect_refused(&other_type, "not application/json");
                expect_refused(&lost, "it does not know the session");
            }
        }
        let counts = server.heals.counts();
        let counted = counts.iter().find(|(code, _)| *code == "H29").map_or(0, |(_, it)| *it);
        assert_eq!(counted, count, "{heal:?}");
    }
}
