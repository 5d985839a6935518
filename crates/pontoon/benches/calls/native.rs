//! The floor as a process of its own: an HTTP server, plain and with MCP.

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::LazyLock;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};

use crate::process::{self, Running};

/// Starts the HTTP server of the floor, and gives its address.
pub(crate) fn start_http() -> (Running, SocketAddr) {
    start(&["--be-http-server"])
}

/// Starts this program as the server that these options mean, and gives its address.
pub(crate) fn start(options: &[&str]) -> (Running, SocketAddr) {
    let program = std::env::current_exe().expect("this program has a file");
    let mut running = Running::start(&mut process::command(&program, options));
    let mut line = String::new();
    let stdout = running.0.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut line).expect("an address");
    (running, line.trim().parse().expect("an address"))
}

/// What the HTTP server answers with: the beginning of this.
static WHOLE: LazyLock<Bytes> = LazyLock::new(|| WRITTEN.clone().into());
static WRITTEN: LazyLock<String> = LazyLock::new(|| text(16 * 1024 * 1024));

/// A plain HTTP server: reads each body and answers with as many bytes as its path `/N` says. At
/// `/mcp` it is a native server of MCP: the tools of the servers behind the bridge, and no bridge.
pub(crate) fn serve_http() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let serving = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound just above");
        writeln!(io::stdout(), "{address}").expect("the bench reads it");
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            tokio::spawn(serve_connection(stream));
        }
    };
    // In a task, like the bridge's: the thread of `block_on` costs another hop.
    runtime.block_on(async { tokio::spawn(serving).await.expect("it serves until it is killed") })
}

async fn serve_connection(stream: TcpStream) {
    stream.set_nodelay(true).expect("a TCP socket");
    let service = service_fn(|request: Request<Incoming>| async move {
        let length: Option<usize> = request.uri().path()[1..].parse().ok();
        let body = request.into_body().collect().await?.to_bytes();
        let answer = length.map_or_else(|| answer_natively(&body), |length| WHOLE.slice(..length));
        let mut response = Response::new(Full::new(answer));
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        Ok::<_, hyper::Error>(response)
    });
    let http = hyper::server::conn::http1::Builder::new();
    drop(http.serve_connection(TokioIo::new(stream), service).await);
}

/// What the native server tells at length: the same text before JSON escapes it.
static LONG: LazyLock<String> = LazyLock::new(|| WRITTEN.replace("\\n", "\n"));

/// Answers a call of `greet` like the demo server does, and of `echo` and `big` like the cheap one.
pub(crate) fn answer_natively(body: &[u8]) -> Bytes {
    #[derive(serde::Serialize)]
    struct Content<'t> {
        r#type: &'static str,
        text: &'t str,
    }
    #[derive(serde::Serialize)]
    struct ToolResult<'t> {
        content: [Content<'t>; 1],
    }
    #[derive(serde::Serialize)]
    struct Response<'t> {
        jsonrpc: &'static str,
        id: &'t Value,
        result: ToolResult<'t>,
    }
    let message: Value = serde_json::from_slice(body).unwrap_or_default();
    let arguments = &message["params"]["arguments"];
    let hello = format!("Hello, {}!", arguments["name"].as_str().unwrap_or_default());
    let text = match arguments["bytes"].as_u64() {
        // Written as JSON it is longer: each line has an escape of two bytes for one.
        Some(bytes) => &LONG[..usize::try_from(bytes).unwrap_or(0) / LINE * (LINE - 1)],
        None => arguments["text"].as_str().unwrap_or(&hello),
    };
    let result = ToolResult { content: [Content { r#type: "text", text }] };
    let response = Response { jsonrpc: "2.0", id: &message["id"], result };
    serde_json::to_vec(&response).expect("plain text").into()
}

/// Text like that of tools: lines, with their ends escaped as JSON wants it. `length` bytes, in whole lines.
fn text(length: usize) -> String {
    let line = "a line of words as tools write them, with its end escaped.....\\n";
    assert_eq!(line.len(), LINE, "a whole number of lines is asked for");
    line.repeat(length / LINE)
}

/// How long a line of [`text`] is.
const LINE: usize = 64;
