//! Host tools: functions of this test's own process, called through `pontoon ipc` as a client would.

mod calls;
mod executable;
mod faults;
#[cfg(target_os = "linux")]
mod flood;
mod frames;
#[cfg(target_os = "linux")]
pub(crate) mod kills;
mod other_parents;
mod session;
mod signals;
#[cfg(target_os = "linux")]
mod waits;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pontoon_host::{Content, Json, Session, Tool, ToolError, ToolOutput, Toolset};
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::Barrier;

use crate::binaries;

pub(crate) const SOON: Duration = Duration::from_secs(30);

/// This process as a program with tools, in a temporary directory of its own.
pub(crate) struct Program {
    session: Option<Session>,
    tools: Toolset,
    place: tempfile::TempDir,
    runtime: Runtime,
}

impl Program {
    pub(crate) fn start(tools: &Toolset) -> Self {
        let runtime = Runtime::new().unwrap();
        // Short enough for the path of a socket.
        let place = tempfile::Builder::new().prefix("ph").tempdir_in("/tmp").unwrap();
        let session = {
            let _runtime = runtime.enter();
            Session::start_in(&[place.path().to_owned()], std::slice::from_ref(tools)).unwrap()
        };
        Self { session: Some(session), tools: tools.clone(), place, runtime }
    }

    pub(crate) fn session(&self) -> &Session {
        self.session.as_ref().expect("it has not ended")
    }

    /// A client that has started the bridge.
    fn bridge(&self) -> StdioServer {
        bridge(self.session().socket_path(), self.session().schema_path())
    }

    /// Ends the session.
    pub(crate) fn end(&mut self) {
        let session = self.session.take().expect("it has not ended");
        self.runtime.block_on(session.stop());
    }

    /// What is left in its directory.
    pub(crate) fn files(&self) -> usize {
        std::fs::read_dir(self.place.path()).unwrap().count()
    }
}

#[expect(clippy::disallowed_methods, reason = "it is a client's to start the bridge")]
fn bridge_command(socket: &Path, schema: &Path) -> Command {
    let mut command = Command::new(binaries().pontoon);
    command.arg("ipc").args([socket, schema]);
    command
}

fn bridge(socket: &Path, schema: &Path) -> StdioServer {
    StdioServer::start(&mut bridge_command(socket, schema))
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Size {
    bytes: usize,
}

/// Tools of every kind.
pub(crate) fn tools() -> Toolset {
    let together = Arc::new(Barrier::new(2));
    let tools = [
        Tool::new("echo", |Text { text }, _| async move { text }).description("Says it again."),
        Tool::blocking("shout", |Text { text }, _| text.to_uppercase()),
        Tool::new("fails", |(), _| async { Err::<(), _>("the disk is full") }),
        Tool::new("own_error", |(), _| async {
            Err::<(), _>(ToolError::of_kind("NotFoundError", "no such row"))
        }),
        Tool::new("panics", |(), _| async {
            if true {
                panic!("oh no")
            }
        }),
        Tool::new("error_result", |(), _| async {
            ToolOutput {
                content: vec![Content::text("bad")],
                is_error: true,
                ..ToolOutput::default()
            }
        }),
        Tool::new("picture", |(), _| async { Content::image(b"\x89PNG", "image/png") }),
        Tool::new("facts", |(), _| async { Json(json!({"n": 1})) }),
        Tool::new("big", |Size { bytes }, _| async move { "x".repeat(bytes) }),
        Tool::new("waits", |(), _| std::future::pending::<()>()),
        Tool::new("sleeps", |(), _| std::future::pending::<()>())
            .timeout(Duration::from_millis(50)),
        Tool::with_context("meet", &together, |together, (), _| async move {
            together.wait().await;
            "met"
        })
        .read_only(true)
        .title("Meet another")
        .meta("anthropic/maxResultSizeChars", 400_000),
        Tool::new("whoami", |(), call| async move { call.id().map(str::to_owned) }),
        Tool::new("counts", |(), call| async move {
            (1..=3).for_each(|n| call.progress(f64::from(n), Some(3.0), Some("counting")));
            "done"
        }),
    ];
    tools.into_iter().fold(Toolset::new(), |set, tool| set.with(tool).unwrap())
}

/// The text of a result.
fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {result}"))
}

/// The text of a result that says that something failed.
fn failure(result: &Value) -> &str {
    assert_eq!(result["isError"], true, "{result}");
    text(result)
}
