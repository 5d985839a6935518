//! The rmcp SDK as a client: the checks of `../python/checks.py`, in the same order and words.
//!
//! Eras: `legacy` is plain `serve`, which sends `initialize` with the version string 2026-07-28;
//! `modern` is the lifecycle `Discover`, which does not fall back.

use std::{
    env,
    future::Future,
    process::ExitCode,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use futures::future::join_all;
use rmcp::{
    ClientHandler, ErrorData, RoleClient, ServiceExt as _,
    model::{
        CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
        ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
        Implementation, ProgressNotificationParam, ProtocolVersion,
    },
    service::{
        ClientLifecycleMode, ClientServiceExt as _, NotificationContext, PeerRequestOptions,
        RequestContext, RunningService,
    },
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::time::timeout;

const JAPANESE: &str = "桟橋は水に浮かぶ 🌊 — ﾎﾟﾝﾂｰﾝ";
const STEPS: usize = 5;
const BIG_BYTES: usize = 2 * 1024 * 1024;
const PARALLEL: usize = 20;
/// A check that takes longer has hung: the slowest needs about a second.
const DEADLINE: Duration = Duration::from_secs(30);
const CANCEL_AFTER: Duration = Duration::from_millis(500);

// One thread: the SDK spawns a task per notification, and only one thread keeps them in order.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let Some(options) = Options::parse(env::args().skip(1)) else {
        eprintln!("usage: client URL [--era legacy|modern] [--server-note NOTE]");
        return ExitCode::from(2);
    };
    println!(
        "{}",
        format!("# {} {:?} {}", options.url, options.era, options.server_note).trim_end()
    );
    let report = run(&options).await;
    println!("{} passed, {} failed", report.passed, report.failed);
    ExitCode::from(u8::from(report.failed > 0))
}

#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(non_camel_case_types, reason = "printed as the user typed it")]
enum Era {
    legacy,
    modern,
}

struct Options {
    url: String,
    era: Era,
    server_note: String,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let (mut url, mut era, mut server_note) = (None, Era::legacy, String::new());
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--era" => {
                    era = match arguments.next()?.as_str() {
                        "legacy" => Era::legacy,
                        "modern" => Era::modern,
                        _ => return None,
                    };
                }
                "--server-note" => server_note = arguments.next()?,
                _ if url.is_none() => url = Some(argument),
                _ => return None,
            }
        }
        Some(Self { url: url?, era, server_note })
    }
}

async fn run(options: &Options) -> Report {
    let mut report = Report::default();
    let Some(client) = report.check("connect", connect(options)).await else {
        return report;
    };
    report.check("list tools", lists_tools(&client)).await;
    report.check("echo", echoes(&client)).await;
    report.check("progress", reports_progress(&client)).await;
    report.check("cancel", cancels(&client)).await;
    report.check("cancel by drop", cancels_by_drop(&client)).await;
    report.check("elicitation", elicits(&client)).await;
    report.check("big answer", carries_big_answers(&client)).await;
    report.check("parallel calls", keeps_parallel_calls_apart(&client)).await;
    let closes = async { client.cancel().await.map(drop).context("the client did not end") };
    report.check("close", closes).await;
    report
}

/// Counts and prints one line per check.
#[derive(Default)]
struct Report {
    passed: usize,
    failed: usize,
}

impl Report {
    async fn check<T>(
        &mut self,
        name: &str,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> Option<T> {
        let start = Instant::now();
        let ended = timeout(DEADLINE, work).await;
        match ended.unwrap_or_else(|_| Err(anyhow!("no end after {DEADLINE:?}"))) {
            Ok(value) => {
                self.passed += 1;
                println!("ok   {name} ({:.2} s)", start.elapsed().as_secs_f64());
                Some(value)
            }
            Err(error) => {
                self.failed += 1;
                let reason = format!("{error:#}").replace('\n', " ");
                let reason: String = reason.chars().take(500).collect();
                println!("FAIL {name}: {reason}");
                None
            }
        }
    }
}

type Client = RunningService<RoleClient, Handler>;

/// Answers `ask` and keeps the progress it hears.
#[derive(Clone, Default)]
struct Handler {
    progress: Arc<Mutex<Vec<f64>>>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::default());
        ClientConfig::new(capabilities, Implementation::new("interop-rmcp", "1.0.0"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        match request {
            ElicitRequestParams::FormElicitationParams { message, .. }
                if message.contains("colour") =>
            {
                let content = json!({ "answer": "blue" });
                Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
            }
            _ => Ok(ElicitResult::new(ElicitationAction::Decline)),
        }
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.progress.lock().expect("no one panics holding it").push(params.progress);
    }
}

async fn connect(options: &Options) -> anyhow::Result<Client> {
    let transport = StreamableHttpClientTransport::from_uri(options.url.as_str());
    let client = match options.era {
        Era::legacy => Handler::default().serve(transport).await?,
        Era::modern => {
            let lifecycle = ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            };
            Handler::default().serve_with_lifecycle(transport, lifecycle).await?
        }
    };
    let version =
        &client.peer_info().context("the server did not introduce itself")?.protocol_version;
    let is_modern = version.as_str() >= "2026-07-28";
    ensure!(is_modern == (options.era == Era::modern), "{:?} speaks {version}", options.era);
    Ok(client)
}

async fn lists_tools(client: &Client) -> anyhow::Result<()> {
    let tools = client.list_all_tools().await?;
    ensure!(tools.iter().any(|tool| tool.name == "echo"), "no echo in {tools:?}");
    Ok(())
}

async fn echoes(client: &Client) -> anyhow::Result<()> {
    for text in ["plain", JAPANESE, "quotes \" and \\ and\nnewlines", ""] {
        let answer = call(client, "echo", json!({ "text": text })).await?;
        ensure!(answer == text, "{answer:?} came back for {text:?}");
    }
    Ok(())
}

async fn reports_progress(client: &Client) -> anyhow::Result<()> {
    client.service().progress.lock().expect("no one panics holding it").clear();
    // The SDK gives every request a progress token of its own accord.
    call(client, "count", json!({ "steps": STEPS, "delay_ms": 20 })).await?;
    let seen = client.service().progress.lock().expect("no one panics holding it").clone();
    ensure!(seen.len() == STEPS, "{seen:?} before the answer");
    ensure!(seen.is_sorted_by(|earlier, later| earlier < later), "out of order: {seen:?}");
    Ok(())
}

/// By the handle: legacy posts `notifications/cancelled`, modern closes the response stream.
async fn cancels(client: &Client) -> anyhow::Result<()> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params(
        "wait",
        json!({ "ms": 60_000 }),
    )));
    let mut handle =
        client.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
    if let Ok(answer) = timeout(CANCEL_AFTER, &mut handle.rx).await {
        bail!("ended before it was cancelled: {answer:?}");
    }
    handle.cancel(Some("no longer wanted".to_owned())).await?;
    echoes_soon(client).await
}

/// By dropping the future, which is how Rust callers stop waiting.
async fn cancels_by_drop(client: &Client) -> anyhow::Result<()> {
    if let Ok(answer) = timeout(CANCEL_AFTER, call(client, "wait", json!({ "ms": 60_000 }))).await {
        bail!("ended before it was cancelled: {answer:?}");
    }
    echoes_soon(client).await
}

async fn echoes_soon(client: &Client) -> anyhow::Result<()> {
    let text = "after the cancel";
    let answer =
        timeout(Duration::from_secs(5), call(client, "echo", json!({ "text": text }))).await;
    let answer = answer.context("no answer after the cancel")??;
    ensure!(answer == text, "{answer:?}");
    Ok(())
}

async fn elicits(client: &Client) -> anyhow::Result<()> {
    let answer = call(client, "ask", json!({ "question": "Which colour?" })).await?;
    ensure!(answer == "accept:blue", "{answer:?}");
    Ok(())
}

async fn carries_big_answers(client: &Client) -> anyhow::Result<()> {
    let answer = call(client, "big", json!({ "bytes": BIG_BYTES })).await?;
    ensure!(answer.len() == BIG_BYTES, "{} bytes", answer.len());
    ensure!(answer == "x".repeat(BIG_BYTES), "the content differs");
    Ok(())
}

async fn keeps_parallel_calls_apart(client: &Client) -> anyhow::Result<()> {
    let texts: Vec<String> = (0..PARALLEL).map(|n| format!("call {n} {JAPANESE}")).collect();
    let calls = texts.iter().map(|text| call(client, "echo", json!({ "text": text })));
    for (text, answer) in texts.iter().zip(join_all(calls).await) {
        let answer = answer?;
        ensure!(&answer == text, "{answer:?} came back for {text:?}");
    }
    Ok(())
}

/// The text of the tool's answer.
async fn call(client: &Client, tool: &'static str, arguments: Value) -> anyhow::Result<String> {
    let result = client.call_tool(params(tool, arguments)).await?;
    let text: String =
        result.content.iter().filter_map(|block| Some(block.as_text()?.text.as_str())).collect();
    if result.is_error == Some(true) {
        return Err(anyhow!("{tool} failed: {text}"));
    }
    Ok(text)
}

fn params(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else {
        unreachable!("every call site writes an object")
    };
    CallToolRequestParams::new(tool).with_arguments(arguments)
}
