//! Who is let in to an application, and what others hear.

use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use super::*;

#[tokio::test]
async fn a_client_with_the_token_is_let_in_and_mcp_is_all_that_is_agreed_to() {
    let server = start(&echo());
    let mut client = Client::connect(&server).await;
    assert_eq!(client.head["sec-websocket-protocol"], "mcp");
    client.echoes("hello").await;
    // A web page of an origin that may.
    let page = [
        ("Origin", "http://allowed.example"),
        ("Sec-WebSocket-Protocol", "bearer.a-token-for-tests-only, mcp"),
    ];
    let mut client = Client::try_connect(&server, &page).await.expect("it may");
    assert_eq!(client.head["sec-websocket-protocol"], "mcp");
    assert!(!format!("{:?}", client.head).contains(TOKEN));
    client.echoes("hello").await;
}

#[tokio::test]
async fn the_others_are_refused() {
    let server = start(&echo());
    let (right, wrong) = (format!("Bearer {TOKEN}"), "Bearer a-token-for-tests-onlY");
    let check = async |headers: &[(&'static str, &str)], status| {
        assert_eq!(Client::try_connect(&server, headers).await.err(), Some(status), "{headers:?}");
    };
    check(&[], 401).await;
    check(&[("Authorization", wrong)], 401).await;
    check(&[("Origin", "http://allowed.example")], 401).await;
    check(&[("Origin", "http://foreign.example"), ("Authorization", &right)], 403).await;
    check(&[("Origin", "null"), ("Authorization", &right)], 403).await;
}

#[tokio::test]
async fn a_refusal_says_what_to_do_and_never_the_token() {
    let server = start(&echo());
    let check = async |bytes: &str, status: &str, words: &str| {
        let answer = raw(&server, bytes.as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(words),
            "{answer}"
        );
        assert!(!answer.contains(TOKEN), "{answer}");
    };
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    // A name of a page's own that means this machine now.
    check(&request(&format!("Host: evil.example:7400\r\n{token}")), "403", "the Host").await;
    check(&request(&token), "403", "the Host").await;
    check(&request("Host: localhost\r\n"), "401", "a token is needed").await;
    check(
        &request("Host: localhost\r\nAuthorization: Bearer nonsense\r\n"),
        "401",
        "not the right one",
    )
    .await;
    check("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "426", "pontoon connect").await;
    check("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", "400", "WebSocket")
        .await;
    check("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n", "400", "WebSocket").await;
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(20_000));
    check(&long, "431", "16 KiB").await;
    check(&request(&format!("Host: localhost\r\n{token}")), "101", "Upgrade").await;
}

#[tokio::test]
async fn both_loopback_addresses_are_listened_on_and_no_other() {
    let server = start(&echo());
    let port = server.port();
    if TcpListener::bind("[::1]:0").await.is_ok() {
        TcpStream::connect(("::1", port)).await.unwrap();
    }
    TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    // All of 127.0.0.0/8 is this machine, and would answer if every address were listened on.
    TcpStream::connect(("127.0.0.2", port)).await.unwrap_err();
}

#[tokio::test]
async fn without_a_token_only_where_the_application_says_so() {
    let open = WebSocketOptions { token: AppToken::NotNeeded, ..options() };
    let server = WebSocketServer::start("open", &[echo()], open).unwrap();
    assert_eq!(server.token(), None);
    Client::try_connect(&server, &[]).await.expect("it may").echoes("hello").await;
    let foreign = Client::try_connect(&server, &[("Origin", "http://foreign.example")]).await;
    assert_eq!(foreign.err(), Some(403));
    let random = WebSocketOptions { token: AppToken::Random, ..options() };
    let server = WebSocketServer::start("random", &[echo()], random).unwrap();
    assert_eq!(Client::try_connect(&server, &[]).await.err(), Some(401));
    let shown = format!("Bearer {}", server.token().unwrap());
    Client::try_connect(&server, &[("Authorization", &shown)])
        .await
        .ok()
        .unwrap()
        .echoes("x")
        .await;
}

#[tokio::test]
async fn only_so_many_clients_are_served_at_once() {
    let few = WebSocketOptions { max_clients: 2, ..options() };
    let server = WebSocketServer::start("few", &[echo()], few).unwrap();
    let (mut one, two) = (Client::connect(&server).await, Client::connect(&server).await);
    let right = format!("Bearer {TOKEN}");
    let third = async || Client::try_connect(&server, &[("Authorization", &right)]).await;
    assert_eq!(third().await.err(), Some(503));
    drop(two);
    let mut third = loop {
        if let Ok(client) = third().await {
            break client;
        }
    };
    third.echoes("third").await;
    one.echoes("first").await;
}

#[tokio::test]
async fn half_requests_take_no_place_of_a_client() {
    let server = start(&echo());
    let mut client = Client::connect(&server).await;
    let mut halves = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        halves.push(stream);
    }
    client.echoes("still here").await;
    // One more is cut off at once.
    let mut more = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    assert_eq!(more.read(&mut [0; 16]).await.unwrap_or(0), 0);
    drop(halves);
    let opening = request(&format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"));
    while !raw(&server, opening.as_bytes()).await.starts_with("HTTP/1.1 101") {}
}

#[tokio::test(start_paused = true)]
async fn an_opening_has_only_so_much_time() {
    let reception = super::super::server::Reception::for_test(&echo());
    let (mut near, far) = pair().await;
    near.write_all(b"GET / HTTP/1.1\r\nHost: loc").await.unwrap();
    let opening = Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().unwrap();
    let before = tokio::time::Instant::now();
    // The clock goes on as nothing else happens.
    reception.serve(far, opening).await;
    assert!(before.elapsed() >= Duration::from_secs(5), "{:?}", before.elapsed());
    assert_eq!(near.read(&mut [0; 16]).await.unwrap_or(0), 0);
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}
