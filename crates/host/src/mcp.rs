//! MCP served by the program itself: messages in, messages out, the tools called in between.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use pontoon_wire::Message;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::framing::lines::Lines;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::conversation::{Conversation, ServerOffer, Step, ToolRequest, failure, id_in};
use crate::ipc::Outbox;
use crate::protocol::MAX_MESSAGE_SIZE;
use crate::running::{GRACE, Running, Wanted, to_json};
use crate::schema_file::SchemaFile;
use crate::tools::{Progress, ToolValidationError, Tools, Toolset};

/// The longest line that a client may send, and that it is sent: Claude Code ends at 16 MiB.
const MAX_LINE_BYTES: usize = 16 * 1024 * 1024 - 1024;

/// Where messages go.
#[derive(Debug, Clone)]
pub(crate) enum Out {
    /// A socket.
    Socket(Arc<Outbox>),
    /// A task that writes them.
    Writer(mpsc::Sender<Bytes>),
    /// The control protocol of a CLI.
    #[cfg(feature = "model")]
    Control(crate::model::ControlOut),
    /// The frames of a WebSocket.
    #[cfg(feature = "websocket")]
    Frames(Arc<crate::websocket::FrameQueue>),
}

impl Out {
    async fn send(&self, line: Bytes) {
        match self {
            Self::Socket(outbox) => outbox.push(line),
            // Without a writer no client is left.
            Self::Writer(writer) => drop(writer.send(line).await),
            #[cfg(feature = "model")]
            Self::Control(control) => control.send(&line),
            #[cfg(feature = "websocket")]
            Self::Frames(queue) => queue.push(without_newline(line)),
        }
    }

    /// Sends what is not worth waiting for.
    fn send_if_idle(&self, line: Bytes) {
        match self {
            Self::Socket(outbox) => outbox.push_if_idle(line),
            Self::Writer(writer) => drop(writer.try_send(line)),
            #[cfg(feature = "model")]
            Self::Control(control) => control.send_if_idle(&line),
            #[cfg(feature = "websocket")]
            Self::Frames(queue) => queue.push_if_idle(without_newline(line)),
        }
    }

    /// How long a message may be.
    fn max_bytes(&self) -> usize {
        match self {
            #[cfg(feature = "websocket")]
            Self::Frames(_) => crate::websocket::MAX_MESSAGE_BYTES,
            _ => MAX_LINE_BYTES,
        }
    }
}

/// A client that speaks MCP.
#[derive(Debug)]
pub(crate) struct McpClient {
    tools: Tools,
    out: Out,
    name: String,
    conversation: Mutex<Conversation>,
    running: Arc<Running>,
}

impl McpClient {
    pub(crate) fn new(tools: &Tools, out: Out, name: &str, stop: CancellationToken) -> Self {
        Self::with(tools, out, name, Running::new(tools.clone(), stop))
    }

    /// The same with these calls.
    pub(crate) fn with(tools: &Tools, out: Out, name: &str, running: Arc<Running>) -> Self {
        let (tools, name) = (tools.clone(), name.to_owned());
        Self { tools, out, name, conversation: Mutex::default(), running }
    }

    /// Handles a line of the client's.
    pub(crate) async fn take(&self, line: BytesMut) {
        if !line.iter().all(u8::is_ascii_whitespace) {
            self.answer(line, &self.out).await;
        }
    }

    /// Handles a message of the client's, and sends its answer there. False if it has none.
    pub(crate) async fn answer(&self, line: BytesMut, to: &Out) -> bool {
        let message = match Message::parse_or_return(line) {
            Ok(message) => message,
            Err((error, line)) => {
                let id = id_in(&line).unwrap_or("null".to_owned());
                let error =
                    ErrorObject::new(code::PARSE, format!("not a JSON-RPC message: {error}"));
                to.send(to_line(error.answer(&id).into())).await;
                return true;
            }
        };
        let step = {
            let offer = ServerOffer { name: &self.name, tools: &|| self.list() };
            let mut conversation = self.conversation.lock().unwrap_or_else(PoisonError::into_inner);
            conversation.take(message, &offer)
        };
        match step {
            Step::Answer(answer) => to.send(to_line(answer.into())).await,
            Step::Call(request) => self.call(&request, to.clone()),
            Step::Cancel(id) => {
                self.running.cancel(&id);
                return false;
            }
            Step::Nothing => return false,
        }
        true
    }

    /// Waits for a moment until no call is under way any more.
    pub(crate) async fn finish(&self) {
        self.running.finish().await;
    }

    /// Tells the client that the tools are others now.
    pub(crate) async fn tell_changed(&self) {
        let news = self.conversation.lock().unwrap_or_else(PoisonError::into_inner).changed();
        for note in news {
            self.out.send(to_line(note.into())).await;
        }
    }

    fn list(&self) -> String {
        let entries = serde_json::to_vec(&self.tools.entries()).expect("schemas are JSON");
        SchemaFile::parse(&entries).expect("tools are checked as they are added").tools
    }

    fn call(&self, request: &ToolRequest, to: Out) {
        let asker = request.asker.clone();
        let progress: Option<Progress> = asker.progress_token.as_ref().map(|_| {
            let (asker, out) = (asker.clone(), self.out.clone());
            let tell = move |members: &str| {
                let note = asker.progress(members);
                note.into_iter().for_each(|note| out.send_if_idle(to_line(note.into())));
            };
            Arc::new(tell) as _
        });
        let wanted = Wanted {
            id: asker.id.clone(),
            name: request.name(),
            arguments: Bytes::copy_from_slice(request.arguments()),
            meta: request.meta().map(Bytes::copy_from_slice),
            progress,
        };
        self.running.begin(wanted, move |outcome| {
            let result = match outcome {
                Ok(output) => to_json(&output),
                Err(error) => failure(&error.kind, &error.message).into_bytes(),
            };
            let mut answer = asker.answer(&result);
            let (length, longest) = (answer.len(), to.max_bytes());
            if length > longest {
                let what = format!("the result has {length} bytes, and {longest} are the most");
                answer = asker.fail("IPCMessageSizeError", &what);
            }
            async move { to.send(to_line(answer)).await }
        });
    }
}

fn to_line(mut message: Vec<u8>) -> Bytes {
    message.push(b'\n');
    message.into()
}

#[cfg(feature = "websocket")]
fn without_newline(mut line: Bytes) -> Bytes {
    line.truncate(line.len().saturating_sub(1));
    line
}

/// Why tools could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The tools do not go together.
    #[error(transparent)]
    Tools(#[from] ToolValidationError),
    /// The client cannot be read.
    #[error("the client cannot be read")]
    Read(#[source] io::Error),
}

/// Serves toolsets as an MCP server on standard input and output, until the input ends.
///
/// ```no_run
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// use pontoon_host::{Tool, Toolset, serve_stdio};
///
/// let hello = Tool::new("hello", |(), _| async { "Hello!" }).description("Says hello.");
/// serve_stdio("greeter", &[Toolset::new().with(hello)?]).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ServeError`] when two toolsets have a tool of the same name, or the input cannot be read.
pub async fn serve_stdio(name: &str, toolsets: &[Toolset]) -> Result<(), ServeError> {
    serve(name, toolsets, tokio::io::stdin(), tokio::io::stdout()).await
}

/// Serves toolsets as an MCP server on any stream of lines, until the input ends.
///
/// # Errors
///
/// As [`serve_stdio`].
pub async fn serve(
    name: &str,
    toolsets: &[Toolset],
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Send + Unpin + 'static,
) -> Result<(), ServeError> {
    let tools = Tools::new(toolsets)?;
    let mut changes = tools.changes();
    let (sender, mut lines_out) = mpsc::channel::<Bytes>(256);
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let client = McpClient::new(&tools, Out::Writer(sender), name, stop.clone());
    let writing = tokio::spawn(async move {
        while let Some(line) = lines_out.recv().await {
            if output.write_all(&line).await.is_err() || output.flush().await.is_err() {
                return;
            }
        }
    });
    let mut lines = Lines::new(2 * MAX_MESSAGE_SIZE);
    loop {
        tokio::select! {
            read = input.read_buf(lines.buffer()) => match read.map_err(ServeError::Read)? {
                0 => break,
                _ => while let Some(line) = lines.next_line() {
                    match line {
                        Ok(line) => client.take(line).await,
                        Err(too_long) => tracing::warn!(%too_long, "a message of the client's was dropped"),
                    }
                },
            },
            Ok(()) = changes.changed() => client.tell_changed().await,
        }
    }
    if let Some(line) = lines.finish() {
        client.take(line).await;
    }
    client.finish().await;
    // What is still under way is given up, and with it go the last that could write.
    stop.cancel();
    drop(client);
    let _ = tokio::time::timeout(GRACE, writing).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tool;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, BufReader, duplex, split};

    /// What a client hears that sends these messages and closes its input.
    async fn check(messages: &[Value], expected: &[Value]) {
        let slow = Tool::new("slow", |(), call: crate::ToolCall| async move {
            call.progress(1.0, None, None);
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            "done"
        });
        let tools = Toolset::new().with(slow).expect("it is a tool");
        let (near, far) = duplex(1024);
        let (input, output) = split(far);
        let serving = tokio::spawn(async move { serve("here", &[tools], input, output).await });
        let (reader, mut writer) = split(near);
        for message in messages {
            writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        }
        writer.shutdown().await.unwrap();
        let mut lines = BufReader::new(reader).lines();
        let mut heard = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            heard.push(serde_json::from_str::<Value>(&line).unwrap());
        }
        assert_eq!(heard, expected);
        serving.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_program_is_an_mcp_server_and_answers_what_it_was_asked_before_it_ends() {
        let params = json!({"name": "slow", "_meta": {"progressToken": "t"}});
        check(
            &[
                json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}),
                json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}),
            ],
            &[
                json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
                json!({"jsonrpc": "2.0", "method": "notifications/progress",
                       "params": {"progressToken": "t", "progress": 1}}),
                json!({"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "done"}]}}),
            ],
        )
        .await;
    }

    #[tokio::test]
    async fn a_call_that_never_ends_keeps_no_program() {
        let stuck = Tool::new("stuck", |(), _| std::future::pending::<()>());
        let tools = Toolset::new().with(stuck).expect("it is a tool");
        let call = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"stuck"}}"#;
        serve("here", &[tools], call.as_slice(), tokio::io::sink()).await.unwrap();
    }

    #[tokio::test]
    async fn tools_are_listed_as_the_schema_file_has_them() {
        let tool = json!({"name": "slow", "description": "", "inputSchema": {"type": "object", "properties": {}}});
        check(
            &[json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})],
            &[json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": [tool]}})],
        )
        .await;
    }
}
