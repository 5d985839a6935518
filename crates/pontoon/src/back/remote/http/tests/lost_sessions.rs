//! Sessions over HTTP that the server has lost: which are opened anew, and what is sent again.

use super::*;

#[tokio::test]
async fn a_lost_session_is_opened_once_more_and_the_message_sent_again() {
    let server = HttpTestServer::start(|asked, at| match at {
        2 => response("404 Not Found", "text/plain", "no such session"),
        _ if asked.id() == "null" => response("202 Accepted", "text/plain", ""),
        _ => response("200 OK", "application/json", &result(asked)),
    })
    .await;
    assert!(server.ask("initialize").await.is_ok());
    assert!(server.ask("tools/list").await.is_ok());
    assert!(server.ask("tools/list").await.is_ok());
    let methods: Vec<_> = server
        .asked
        .lock()
        .iter()
        .map(|asked| {
            let message: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
            message["method"].as_str().unwrap().to_owned()
        })
        .collect();
    let again = ["tools/list", "initialize", "notifications/initialized", "tools/list"];
    assert_eq!(methods[2..], again, "{methods:?}");
    assert!(server.manners.lock().contains(&HttpManner::LostSession));
}

#[tokio::test]
async fn a_session_that_is_lost_at_once_again_is_an_error() {
    let server = HttpTestServer::start(|asked, _| match asked.body.contains("tools/list") {
        true => response("404 Not Found", "text/plain", ""),
        false => response("200 OK", "application/json", &result(asked)),
    })
    .await;
    assert!(server.ask("initialize").await.is_ok());
    let refused = server.ask("tools/list").await.unwrap_err();
    assert!(
        matches!(&refused, NoResult::Refused(why) if why.contains("does not know the session")),
        "{refused:?}"
    );
}

#[tokio::test]
async fn an_error_of_a_call_is_no_lost_session_and_the_call_is_made_once() {
    for (status, part) in [("200 OK", "Request timed out"), ("500 Oh", "Request timed out")] {
        let answer: fn(&Asked, usize) -> String = match status.starts_with("200") {
            true => |asked, _| timed_out(asked, "200 OK"),
            false => |asked, _| timed_out(asked, "500 Oh"),
        };
        let server = HttpTestServer::start(answer).await;
        assert!(server.ask("initialize").await.is_ok());
        expect_refused(&server.ask("tools/call").await, part);
        assert_eq!((server.count("tools/call"), server.count("initialize")), (1, 1), "{status}");
        assert!(server.manners.lock().is_empty());
    }
}

/// The TypeScript SDK's own error for a request that took too long has the code of a lost session.
fn timed_out(asked: &Asked, status: &str) -> String {
    match asked.body.contains("tools/call") {
        false => response("200 OK", "application/json", &result(asked)),
        true => {
            let error = r#"{"code":-32001,"message":"MCP error -32001: Request timed out"}"#;
            let body = format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, asked.id());
            response(status, "application/json", &body)
        }
    }
}

#[tokio::test]
async fn a_refusal_that_says_the_session_is_unknown_is_a_lost_session() {
    let server = HttpTestServer::start(|asked, at| match at {
        1 => response(
            "400 Bad Request",
            "application/json",
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}"#,
        ),
        _ if asked.id() == "null" => response("202 Accepted", "text/plain", ""),
        _ => response("200 OK", "application/json", &result(asked)),
    })
    .await;
    assert!(server.ask("initialize").await.is_ok());
    assert!(server.ask("tools/list").await.is_ok());
    assert_eq!((server.count("tools/list"), server.count("initialize")), (2, 2));
}

/// The first call is refused like this.
fn refusing(asked: &Asked, at: usize, status: &str, body: &str) -> String {
    match at {
        1 => response(status, "application/json", &body.replace("REQUEST", &asked.id())),
        _ if asked.id() == "null" => response("202 Accepted", "text/plain", ""),
        _ => response("200 OK", "application/json", &result(asked)),
    }
}

#[tokio::test]
async fn a_call_is_sent_again_only_if_it_surely_was_not_taken() {
    const BY_CODE: &str =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}"#;
    const BY_WORDS: &str = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}"#;
    const OF_CALL: &str = r#"{"jsonrpc":"2.0","id":REQUEST,"error":{"code":-32001,"message":"login: session expired"}}"#;
    let by_status: fn(&Asked, usize) -> String =
        |asked, at| refusing(asked, at, "404 Not Found", "");
    let by_code: fn(&Asked, usize) -> String =
        |asked, at| refusing(asked, at, "400 Bad Request", BY_CODE);
    let by_words: fn(&Asked, usize) -> String =
        |asked, at| refusing(asked, at, "400 Bad Request", BY_WORDS);
    let as_text: fn(&Asked, usize) -> String =
        |asked, at| refusing(asked, at, "400 Bad Request", "login: session expired");
    let of_call: fn(&Asked, usize) -> String =
        |asked, at| refusing(asked, at, "400 Bad Request", OF_CALL);
    for (answer, told, calls, sessions) in [
        (by_status, None, 2, 2),
        (by_code, None, 2, 2),
        (by_words, Some("No valid session ID provided"), 1, 2),
        (as_text, Some("it may have been carried out"), 1, 2),
        (of_call, Some("login: session expired"), 1, 1),
    ] {
        let server = HttpTestServer::start(answer).await;
        assert!(server.ask("initialize").await.is_ok());
        let answered = server.ask("tools/call").await;
        match told {
            None => assert!(answered.is_ok(), "{answered:?}"),
            Some(told) => expect_refused(&answered, told),
        }
        let counts = (server.count("tools/call"), server.count("initialize"));
        assert_eq!(counts, (calls, sessions), "{told:?}");
        assert!(server.ask("tools/call").await.is_ok(), "and it goes on: {told:?}");
    }
    for (answer, sessions) in [(by_words, 2), (as_text, 2), (of_call, 2)] {
        let server = HttpTestServer::start(answer).await;
        assert!(server.ask("initialize").await.is_ok());
        assert!(server.ask("tools/list").await.is_ok(), "a list does no harm");
        assert_eq!((server.count("tools/list"), server.count("initialize")), (2, sessions));
    }
}

/// A server that has forgotten its first session, and knows the second.
pub(super) fn forgetful(asked: &Asked, at: usize) -> String {
    match asked.head.contains("mcp-session-id: s-1") {
        true => response("404 Not Found", "text/plain", "no such session"),
        _ if asked.id() == "null" => response_in("s-2", "202 Accepted", "text/plain", ""),
        _ => {
            let session = if at == 0 { "s-1" } else { "s-2" };
            response_in(session, "200 OK", "application/json", &result(asked))
        }
    }
}

#[tokio::test]
async fn messages_that_find_the_session_lost_together_open_one() {
    let server = HttpTestServer::start(forgetful).await;
    assert!(server.ask("initialize").await.is_ok());
    let all = futures_util::future::join_all((0..8).map(|_| server.ask("tools/list"))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(server.count("initialize"), 2, "the first and one in its place");
}

#[tokio::test]
async fn a_session_that_cannot_be_opened_again_is_told_with_the_reason() {
    let server = HttpTestServer::start(|asked, at| match at {
        0 => response("200 OK", "application/json", &result(asked)),
        _ if asked.body.contains("\"initialize\"") => {
            response("503 Service Unavailable", "text/plain", "too many sessions")
        }
        _ => response("404 Not Found", "text/plain", ""),
    })
    .await;
    assert!(server.ask("initialize").await.is_ok());
    let all = futures_util::future::join_all((0..8).map(|_| server.ask("tools/list"))).await;
    for refused in &all {
        expect_refused(refused, "HTTP 503: too many sessions");
    }
    assert_eq!(server.count("notifications/initialized"), 0);
    // Those that found out together had one try; the next message has another.
    let tries = server.count("initialize");
    expect_refused(&server.ask("tools/list").await, "HTTP 503");
    assert_eq!((tries, server.count("initialize")), (2, 3));
}
