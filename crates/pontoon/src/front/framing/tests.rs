//! Framing, alone and before hyper: what is served is what hyper alone would serve, or nothing.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

const POST: &str = "POST /a HTTP/1.1\r\nHost: x\r\n";

/// What is found in these bytes, whichever way they come.
fn check(text: &str, expected: Result<FramePart, Ambiguous>) {
    for size in [1, 2, 3, 7, 50, text.len().max(1)] {
        let (mut framing, mut bytes) = (Framing::default(), text.as_bytes().to_vec());
        let checked = bytes.chunks_mut(size).try_for_each(|part| framing.check(part));
        assert_eq!(checked.map(|()| framing.part), expected, "{text:?} by {size}");
    }
}

#[test]
fn the_end_of_a_request_is_found() {
    check("", Ok(FramePart::Start));
    check("\r\nGET / HTTP/1.1\r\n\r\n", Ok(FramePart::Start));
    check("GET / HTTP/1.1\r\nHost: x", Ok(FramePart::Headers));
    check(&format!("{POST}content-LENGTH: \t5 \r\n\r\nhel"), Ok(FramePart::Body(2)));
    check(&format!("{POST}Content-Length: 5\r\n\r\nhelloGET"), Ok(FramePart::Start));
    check(
        &format!("{POST}Content-Length: 5\r\n\r\nhe\n\nlGET / HTTP/1.1\r\n"),
        Ok(FramePart::Headers),
    );
    let chunked = format!("{POST}Transfer-Encoding: Chunked\r\n\r\n");
    check(&format!("{chunked}A\r\n123"), Ok(FramePart::Chunk(7)));
    check(&format!("{chunked}5 ;a=\"b\"\r\nhel\n\n\r\n0\r\n"), Ok(FramePart::Trailers));
    check(&format!("{chunked}5\r\nhello\r\n0\r\nX: y\r\n\r\n"), Ok(FramePart::Start));
    check(&format!("{chunked}5;{}\r\nhel", "x".repeat(3 * KEPT)), Ok(FramePart::Chunk(2)));
    check(&format!("{POST}X-Long: {}\r\n\r\n", "x".repeat(3 * KEPT)), Ok(FramePart::Start));
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    use Ambiguous::{BareLf, Chunk, Coding, Folded, Length};
    for (rest, why) in [
        ("X: y\n", BareLf),
        ("\n", BareLf),
        (" folded\r\n", Folded),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", Length),
        ("Content-Length: +5\r\n", Length),
        ("Content-Length: 5 5\r\n", Length),
        ("Content-Length: 5, 5\r\n", Length),
        ("Content-Length: 0x5\r\n", Length),
        ("Content-Length:\r\n", Length),
        ("Content-Length: 99999999999999999999\r\n", Length),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Length),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Coding),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Coding),
        ("Transfer-Encoding: xchunked\r\n", Coding),
        ("Transfer-Encoding: chunked, identity\r\n", Coding),
        ("Transfer-Encoding: identity\r\n", Coding),
        ("Transfer-Encoding: chunked\r\n\r\n5\nhello", BareLf),
        ("Transfer-Encoding: chunked\r\n\r\n5;a=b\nhello", BareLf),
        ("Transfer-Encoding: chunked\r\n\r\n0x5\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n\r\n-5\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n\r\n\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n", Chunk),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\n", BareLf),
        ("Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\n", BareLf),
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\n", BareLf),
    ] {
        check(&format!("{POST}{rest}"), Err(why));
        check(&format!("{POST}Content-Length: 5\r\n\r\nhello{POST}{rest}"), Err(why));
        check(&format!("GET / HTTP/1.1\r\n\r\n{POST}{rest}"), Err(why));
    }
    let long = format!("Content-Length: {}5\r\n", "0".repeat(3 * KEPT));
    let mut framing = Framing::default();
    let mut bytes = format!("{POST}{long}").into_bytes();
    let checked = bytes.chunks_mut(64).try_for_each(|part| framing.check(part));
    assert_eq!(checked, Err(Length), "its end is not known when it is there");
}

/// The requests that hyper serves of these bytes, each with its whole body, and the last status.
async fn served(text: &[u8], is_framed: bool) -> (Vec<(String, Bytes)>, Option<String>) {
    let (mut client, server) = tokio::io::duplex(1 << 16);
    let requests: Arc<Mutex<Vec<_>>> = Arc::default();
    let seen = Arc::clone(&requests);
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let what = format!("{} {}", request.method(), request.uri());
            let body = request.into_body().collect().await;
            let status = if body.is_ok() { 200 } else { 400 };
            if let Ok(body) = body {
                seen.lock().unwrap().push((what, body.to_bytes()));
            }
            let mut response = Response::new(Full::new(Bytes::new()));
            *response.status_mut() = status.try_into().unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http1::Builder::new();
    builder.half_close(true);
    client.write_all(text).await.unwrap();
    client.shutdown().await.unwrap();
    let serving = async {
        match is_framed {
            true => builder.serve_connection(TokioIo::new(Framed::new(server)), service).await,
            false => builder.serve_connection(TokioIo::new(server), service).await,
        }
    };
    let reading = async {
        let mut answers = Vec::new();
        client.read_to_end(&mut answers).await.unwrap();
        String::from_utf8(answers).unwrap()
    };
    // How it ends is told by what was answered.
    let (_ended, answers) = tokio::join!(serving, reading);
    let last = answers.rsplit("HTTP/1.1 ").next().and_then(|it| it.get(..3)).map(str::to_owned);
    let requests = requests.lock().unwrap().clone();
    (requests, last)
}

/// Pieces of requests, good and bad.
const PIECES: [&str; 34] = [
    "POST /a HTTP/1.1\r\nHost: x\r\n",
    "POST /b HTTP/1.1\r\n",
    "POST /c HTTP/1.1\n",
    "GET /d HTTP/1.1\r\n\r\n",
    "GET /e HTTP/1.1\r\nHost: x\n\n",
    "Content-Length: 5\r\n",
    "Content-Length: 3\r\n",
    "content-length:0\r\n",
    "Content-Length: +5\r\n",
    "Content-Length : 5\r\n",
    "Content-Length: 5\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: xchunked\r\n",
    "Transfer-Encoding: chunked\n",
    "Transfer-Encoding:\tchunked\r\n",
    "Expect: 100-continue\r\n",
    "Connection: close\r\n",
    "X: y\r\n",
    "X: y\n",
    " z\r\n",
    "\r\n",
    "\r\n",
    "\r\n",
    "\n",
    "\r",
    "hello",
    "5\r\nhello\r\n",
    "5;a=b\r\nhello\r\n",
    "5;a=b\n",
    "2;\nxx\r\n",
    "5\nhello\r\n",
    "0\r\n\r\n",
    "0\r\nX: y\r\n\r\n",
    "0\r\nX: y\n\r\n",
];

#[tokio::test]
async fn nothing_is_served_that_hyper_alone_would_not_serve_and_nothing_else_is_lost() {
    let mut seed = 7_u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let (mut refused, mut whole) = (0, 0);
    for _ in 0..20_000 {
        let text: String = (0..=next(9)).map(|_| PIECES[next(PIECES.len())]).collect();
        let (plain, _) = served(text.as_bytes(), false).await;
        let (framed, last) = served(text.as_bytes(), true).await;
        assert!(plain.starts_with(&framed), "{text:?}: {framed:?}, but {plain:?}");
        let mut framing = Framing::default();
        match framing.check(&mut text.as_bytes().to_vec()) {
            Ok(()) => assert_eq!(plain, framed, "{text:?}"),
            // One that asked for the end before has its answer already.
            Err(_) if text.contains("close") => {}
            Err(why) => assert_eq!(last.as_deref(), Some("400"), "{text:?}: {why}"),
        }
        refused += usize::from(plain.len() > framed.len());
        whole += usize::from(!framed.is_empty());
    }
    assert!(refused > 100 && whole > 100, "{refused} refused, {whole} served: too few to tell");
}

/// Whoever takes a bare LF as the end of the line sees one request here, and hyper alone none.
#[tokio::test]
async fn nothing_behind_a_broken_extension_is_served() {
    let chunked = format!("{POST}Transfer-Encoding: chunked\r\n\r\n");
    let hidden = "4c\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\nX";
    for line in ["2;\nxx\r\n", "2;a=b\nxx\r\n", "2 ; \nxx\r\n"] {
        let text = format!("{chunked}{line}{hidden}");
        let (framed, last) = served(text.as_bytes(), true).await;
        assert!(framed.is_empty(), "{text:?}: {framed:?}");
        assert_ne!(last.as_deref(), Some("200"), "{text:?}");
    }
}

#[test]
fn a_size_of_more_digits_than_are_kept_is_refused() {
    let chunked = format!("{POST}Transfer-Encoding: chunked\r\n\r\n");
    let text = format!("{chunked}{}5\r\nhello", "0".repeat(KEPT));
    let (mut framing, mut bytes) = (Framing::default(), text.into_bytes());
    let split = bytes.len() - 9;
    let (first, second) = bytes.split_at_mut(split);
    assert_eq!(framing.check(first).and_then(|()| framing.check(second)), Err(Ambiguous::Chunk));
}
