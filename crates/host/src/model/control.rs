//! The CLI's control protocol, over its standard input and output: what it asks us beside its messages, and how
//! that is answered. A server of the kind `sdk` is spoken to this way.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::control_out::{ControlOut, send, success};
use super::message::{ControlRequest, read_json};
use super::permission::PermissionCallback;
use crate::mcp::{McpClient, Out};
use crate::tools::Tools;

/// A line that says that a request of the CLI's cannot be answered.
fn refusal(request: &str, why: &str) -> String {
    let response = json!({"subtype": "error", "request_id": request, "error": why});
    format!("{}\n", json!({"type": "control_response", "response": response}))
}

/// Answers what the CLI asks.
#[derive(Debug)]
pub(super) struct Control {
    to_cli: mpsc::Sender<Bytes>,
    server: Option<SdkServer>,
    permission: Option<PermissionCallback>,
    /// The program is being asked for a permission.
    asking: HashMap<String, AbortOnDropHandle<()>>,
}

/// The program's tools as an MCP server of the kind `sdk`.
#[derive(Debug)]
pub(super) struct SdkServer {
    name: Arc<str>,
    client: Arc<McpClient>,
    /// Tells of changes of the tools.
    _telling: AbortOnDropHandle<()>,
    /// Calls are given up when this is dropped.
    _stop: DropGuard,
}

impl SdkServer {
    pub(super) fn new(name: &str, tools: &Tools, to_cli: &mpsc::Sender<Bytes>) -> Self {
        let (name, stop) = (Arc::<str>::from(name), CancellationToken::new());
        let notes = ControlOut { to_cli: to_cli.clone(), server: Arc::clone(&name), request: None };
        let mut changes = tools.changes();
        let client = Arc::new(McpClient::new(tools, Out::Control(notes), &name, stop.clone()));
        let told = Arc::clone(&client);
        let telling = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                told.tell_changed().await;
            }
        });
        let _telling = AbortOnDropHandle::new(telling);
        Self { name, client, _telling, _stop: stop.drop_guard() }
    }
}

impl Control {
    pub(super) fn new(
        to_cli: mpsc::Sender<Bytes>,
        server: Option<SdkServer>,
        permission: Option<PermissionCallback>,
    ) -> Self {
        Self { to_cli, server, permission, asking: HashMap::new() }
    }

    /// Answers a request, sooner or later.
    pub(super) async fn answer(&mut self, id: &str, request: &RawValue) {
        let Ok(asked) = serde_json::from_str::<ControlRequest<'_>>(request.get()) else {
            return self.send(refusal(id, "the request cannot be read"));
        };
        match asked.subtype.as_str() {
            "mcp_message" => self.pass(id, &asked).await,
            "can_use_tool" => self.ask(id, request),
            other => self.send(refusal(id, &format!("`{other}` is not known here"))),
        }
    }

    /// Gives up what is being answered, and waits until it is.
    pub(super) async fn stop(&mut self) {
        self.asking.clear();
        if let Some(SdkServer { client, _stop, _telling, .. }) = self.server.take() {
            drop((_stop, _telling));
            client.finish().await;
        }
    }

    /// Forgets a request that the CLI takes back.
    pub(super) fn withdraw(&mut self, id: &str) {
        self.asking.remove(id);
    }

    /// A message for the tools.
    async fn pass(&self, id: &str, asked: &ControlRequest<'_>) {
        let named = asked.server_name.as_deref();
        let server = self.server.as_ref().filter(|server| named == Some(&*server.name));
        let (Some(server), Some(message)) = (server, asked.message) else {
            return self.send(refusal(id, "there is no such server here"));
        };
        let to = ControlOut {
            to_cli: self.to_cli.clone(),
            server: Arc::clone(&server.name),
            request: Some(id.into()),
        };
        let message = BytesMut::from(message.get().as_bytes());
        if !server.client.answer(message, &Out::Control(to.clone())).await {
            // Also a notification wants an answer here, and it has no id of its own.
            to.send(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{}}");
        }
    }

    /// A question for the program. It may take its time, so others are not kept waiting.
    fn ask(&mut self, id: &str, request: &RawValue) {
        let Some(permission) = self.permission.clone() else {
            return self.send(refusal(id, "no permission callback is set"));
        };
        let Some(question) = read_json(request.get().as_bytes()) else {
            return self.send(refusal(id, "the question cannot be read"));
        };
        let (id, to_cli) = (id.to_owned(), self.to_cli.clone());
        self.asking.retain(|_, asking| !asking.is_finished());
        let answered = id.clone();
        let answer = tokio::spawn(async move { permission.answer(question).await });
        let answer = AbortOnDropHandle::new(answer);
        let asking = tokio::spawn(async move {
            let panicked = || json!({"behavior": "deny", "message": "the program's permission callback panicked"});
            let answer = answer.await.unwrap_or_else(|_| panicked());
            send(&to_cli, success(&answered, &answer.to_string()).into());
        });
        self.asking.insert(id, AbortOnDropHandle::new(asking));
    }

    fn send(&self, line: String) {
        send(&self.to_cli, line.into());
    }
}
