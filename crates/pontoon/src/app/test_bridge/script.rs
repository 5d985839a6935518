//! A server of a test that says, to each method, just the lines that the test wants: healthy ones or others.

use std::collections::HashMap;
use std::sync::Arc;

use pontoon_wire::{Message, Slot, json, method, string_value};

use crate::back::child::in_memory::{InMemoryServers, ServerEnd};

/// Stands in a line for the id of the request that is answered.
const ID: &str = "ID";

/// In place of a line: the process ends, without reading its input to the end.
pub(crate) const END: &str = "END";

/// In place of a method: a process whose input has ended says this, and does not end.
pub(crate) const DEAF: &str = "DEAF";

/// What a server says to requests and notifications of each method, such as `ping`, or `initialize 2024-11-05` for one
/// version. Other requests it does not know, and to other notifications it says nothing.
#[derive(Clone)]
pub(crate) struct ScriptedServer {
    lines: Arc<HashMap<String, Vec<String>>>,
}

impl ScriptedServer {
    /// One with a healthy handshake and the tool `t`, but for what `lines` say.
    pub(crate) fn new(lines: &[(&str, &[&str])]) -> Self {
        let healthy: [(&str, &[&str]); 3] = [
            (
                method::INITIALIZE,
                &[
                    r#"{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#,
                ],
            ),
            (
                method::LIST_TOOLS,
                &[
                    r#"{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}"#,
                ],
            ),
            (method::CALL_TOOL, &[r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}"#]),
        ];
        let all = healthy.iter().chain(lines);
        let owned = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let lines = all.map(|(method, lines)| ((*method).to_owned(), owned(lines))).collect();
        Self { lines: Arc::new(lines) }
    }

    /// Its processes.
    pub(crate) fn servers(&self) -> InMemoryServers {
        let server = self.clone();
        InMemoryServers::new(move |end| server.clone().serve(end))
    }

    async fn serve(self, mut end: ServerEnd) {
        while let Some(line) = end.next_line().await {
            let message = Message::parse(line.as_bytes()).unwrap();
            let method = message.method();
            // An answer to a question of its own.
            if method.is_empty() {
                continue;
            }
            let id = String::from_utf8_lossy(message.raw(Slot::Id).unwrap_or_default());
            let unknown = vec![
                r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"unknown method"}}"#
                    .to_owned(),
            ];
            let params = message.raw(Slot::Params).unwrap_or_default();
            let version = json::find(params, "protocolVersion").and_then(string_value);
            let versioned = version.map(|version| format!("{method} {version}"));
            let said = versioned.and_then(|it| self.lines.get(&it)).or(self.lines.get(&*method));
            let said = match said {
                Some(lines) => lines,
                None if id.is_empty() => continue,
                None => &unknown,
            };
            for line in said {
                match line.as_str() {
                    END => return,
                    line => end.say(&line.replace(ID, &id)).await,
                }
            }
        }
        if let Some(lines) = self.lines.get(DEAF) {
            for line in lines {
                end.say(line).await;
            }
            std::future::pending().await
        }
    }
}
