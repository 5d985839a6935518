//! `pontoon demo`: a small MCP server on standard input and output, for a first try and for tests.
//!
//! It speaks both eras, several calls at a time, and ends when its input ends. It is plain blocking
//! code without a runtime, so that it starts in about a millisecond. This file reads the client's
//! messages and answers what takes no time. `client` is the client as a call sees it, `tools` what the tools do.

mod client;
mod report;
mod tools;

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pontoon_wire::era::with_responses;
use pontoon_wire::error::code;
use pontoon_wire::framing::lines::Lines;
use pontoon_wire::{
    Era, ErrorObject, Kind, Message, Revision, Rewrite, ScanError, Slot, envelope, is_id, method,
};
use serde_json::{Value, json};

use client::{DemoCall, DemoClient, OpenRequest, server_info, value};

const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;

/// How long calls may still run when the input has ended. The client that closed it waits about two
/// seconds before it sends a signal.
const GRACE: Duration = Duration::from_secs(1);

const HINT: &str = "This is an MCP server: it reads JSON-RPC messages, one a line. Ctrl-D ends it.
Try:  {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\
\"params\":{\"name\":\"greet\",\"arguments\":{\"name\":\"Ada\"}}}
";

/// Serves standard input until it ends. Files go to `MCPO_WORKDIR`, or else where we were started.
pub fn run() -> ExitCode {
    let work_dir = std::env::var_os("MCPO_WORKDIR").map_or_else(|| ".".into(), PathBuf::from);
    if io::stdin().is_terminal() {
        // Who sees no hint has lost nothing.
        let _ = io::stderr().write_all(HINT.as_bytes());
    }
    let mut demo = Demo::new(Box::new(io::stdout()), &work_dir);
    match demo.read(io::stdin().lock()) {
        Ok(()) => {
            demo.finish(GRACE);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "pontoon demo: cannot read the input: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The conversation: lines in by [`Demo::take`], lines out through the client.
struct Demo {
    client: Arc<DemoClient>,
    work_dir: Arc<Path>,
    /// Whether a legacy client can ask its user, as it said in `initialize`.
    can_ask: bool,
    last_question: u64,
}

impl Demo {
    fn new(out: Box<dyn Write + Send>, work_dir: &Path) -> Self {
        let client = Arc::new(DemoClient::new(out));
        Self { client, work_dir: work_dir.into(), can_ask: false, last_question: 0 }
    }

    fn read(&mut self, mut input: impl Read) -> io::Result<()> {
        let (mut lines, mut piece) = (Lines::new(MAX_LINE_BYTES), vec![0; 64 * 1024]);
        loop {
            match input.read(&mut piece) {
                Ok(0) => break,
                Ok(length) => lines.buffer().extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            while let Some(line) = lines.next_line() {
                self.take(line.map_err(io::Error::other)?);
            }
        }
        lines.finish().into_iter().for_each(|line| self.take(line));
        Ok(())
    }

    fn take(&mut self, line: BytesMut) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let message = match Message::parse(line) {
            Ok(message) => message,
            Err(error) => {
                let is_json = matches!(error, ScanError::Batch | ScanError::NotObject);
                let code = if is_json { code::INVALID_REQUEST } else { code::PARSE };
                return self.client.refuse(b"null", &ErrorObject::new(code, error.to_string()));
            }
        };
        match (message.kind(), message.copy(Slot::Id).filter(|id| is_id(id))) {
            (Kind::Request, Some(id)) => self.request(&id, message),
            // Of what a client may tell, nothing else is of interest here, and none of it gets an answer.
            (Kind::Notification, _) if message.method() == method::CANCELLED => {
                self.cancel(message.raw(Slot::RequestId).unwrap_or_default());
            }
            (Kind::Notification, _) => {}
            (Kind::Answer, id) => {
                let question: u64 = serde_json::from_slice(&id.unwrap_or_default()).unwrap_or(0);
                self.go_on(message.raw(Slot::Result).unwrap_or(b"null"), |it| it == question);
            }
            (_, id) => {
                let what = "neither a request nor an answer";
                let id = id.as_deref().unwrap_or(b"null");
                self.client.refuse(id, &ErrorObject::new(code::INVALID_REQUEST, what));
            }
        }
    }

    fn request(&mut self, id: &Bytes, message: Message) {
        let method = message.method().into_owned();
        let result = era_of(&message, &method).and_then(|era| match (era, method.as_str()) {
            (_, method::CALL_TOOL) => self.call(id, era, message).map(|()| None),
            (Era::Modern, method::LISTEN) => self.listen(id).map(|()| None),
            _ => self.result(era, &method, &message).map(|result| Some((era, result))),
        });
        match result {
            Ok(Some((era, result))) => self.client.answer(id, era, &method, result),
            Ok(None) => {}
            Err(error) => self.client.refuse(id, &error),
        }
    }

    /// The results that take no time.
    fn result(&mut self, era: Era, method: &str, message: &Message) -> Result<Value, ErrorObject> {
        let capabilities = json!({"tools": {}, "prompts": {}, "resources": {}});
        Ok(match (era, method) {
            (Era::Legacy, method::INITIALIZE) => {
                self.can_ask = value(message, Slot::Capabilities).get("elicitation").is_some();
                let asked = message.string(Slot::ProtocolVersion).unwrap_or_default();
                json!({
                    "protocolVersion": Revision::negotiate(&asked).as_str(),
                    "capabilities": capabilities,
                    "serverInfo": server_info(),
                    "instructions": tools::INSTRUCTIONS,
                })
            }
            (Era::Legacy, method::PING) => json!({}),
            (Era::Modern, method::DISCOVER) => json!({
                "supportedVersions": [Revision::NEWEST_MODERN.as_str()],
                "capabilities": capabilities,
                "instructions": tools::INSTRUCTIONS,
            }),
            (_, method::LIST_TOOLS) => tools::list("tools"),
            (_, method::LIST_PROMPTS) => tools::list("prompts"),
            (_, method::LIST_RESOURCES) => tools::list("resources"),
            (_, method::LIST_TEMPLATES) => tools::list("resourceTemplates"),
            (_, method::GET_PROMPT) => tools::prompt(&value(message, Slot::Params))?,
            (_, method::READ_RESOURCE) => tools::resource(&value(message, Slot::Uri), era)?,
            _ => {
                let what = format!("there is no method `{method}`");
                return Err(ErrorObject::new(code::METHOD_NOT_FOUND, what));
            }
        })
    }

    /// Runs a tool: at once when it takes no time, else on a thread of its own.
    fn call(&mut self, id: &Bytes, era: Era, message: Message) -> Result<(), ErrorObject> {
        let can_ask = match era {
            Era::Legacy => self.can_ask,
            Era::Modern => value(&message, Slot::MetaCapabilities).get("elicitation").is_some(),
        };
        let (client, work_dir) = (Arc::clone(&self.client), Arc::clone(&self.work_dir));
        let (works, stop) = sync_channel(0);
        let call = DemoCall { client, message, era, can_ask, work_dir, stop };
        if tools::is_quick(&call) {
            let result = tools::call(&call)?;
            if era == Era::Legacy && result["resultType"] == "input_required" {
                return self.ask(id, &result, call.message);
            }
            self.client.answer(id, era, method::CALL_TOOL, result);
            return Ok(());
        }
        self.client.open(id, OpenRequest::Works { _until_dropped: works })?;
        let own = id.clone();
        let work = move || {
            let result = tools::call(&call);
            call.client.close(&own, || match result {
                Ok(result) => call.client.answer(&own, era, method::CALL_TOOL, result),
                Err(error) => call.client.refuse(&own, &error),
            });
        };
        let started = std::thread::Builder::new().name("tool".into()).spawn(work);
        started.map(drop).map_err(|error| {
            self.client.close(id, || ());
            ErrorObject::new(code::INTERNAL, format!("no thread for this call: {error}"))
        })
    }

    /// Asks a legacy client in the middle of a call what the result asks a modern one.
    fn ask(&mut self, id: &Bytes, result: &Value, call: Message) -> Result<(), ErrorObject> {
        self.last_question += 1;
        let question = self.last_question;
        self.client.open(id, OpenRequest::Asks(question, Box::new(call)))?;
        let params = &result["inputRequests"][tools::QUESTION]["params"];
        let ask = envelope::request(&question.to_string(), method::ELICIT, &params.to_string());
        self.client.send(&ask);
        Ok(())
    }

    /// Makes the calls again that wait for these questions, with their answer.
    fn go_on(&mut self, answer: &[u8], is_answered: impl Fn(u64) -> bool) {
        let answer = String::from_utf8_lossy(answer).into_owned();
        let responses = [(tools::QUESTION.to_owned(), answer)];
        let waits = self.client.take(|_, request| match request {
            OpenRequest::Asks(question, _) => is_answered(*question),
            _ => false,
        });
        for (id, request) in waits {
            let OpenRequest::Asks(_, call) = request else { continue };
            self.request(
                &id,
                with_responses(&Rewrite::new(*call), &responses, None).into_message(),
            );
        }
    }

    /// A subscription to nothing: our lists never change, but the client may wait all the same.
    fn listen(&self, id: &Bytes) -> Result<(), ErrorObject> {
        self.client.open(id, OpenRequest::Listens)?;
        let params = json!({"_meta": subscription(id), "notifications": {}});
        self.client.notify(method::ACKNOWLEDGED, &params);
        Ok(())
    }

    /// The client gives a request up. A tool at work stops, and a question of its own is taken back.
    fn cancel(&self, request: &[u8]) {
        for (_, request) in self.client.take(|id, _| id == request) {
            if let OpenRequest::Asks(question, _) = request {
                let params = json!({"requestId": question, "reason": "no longer needed"});
                self.client.notify(method::CANCELLED, &params);
            }
        }
    }

    /// Ends the conversation: our questions stay without an answer, and tools at work get a little time.
    fn finish(&mut self, grace: Duration) {
        self.go_on(br#"{"action":"cancel"}"#, |_| true);
        for (id, _) in self.client.take(|_, it| matches!(it, OpenRequest::Listens)) {
            let result = json!({"_meta": subscription(&id)});
            self.client.answer(&id, Era::Modern, method::LISTEN, result);
        }
        self.client.wait(grace);
    }
}

fn subscription(id: &[u8]) -> Value {
    let id: Value = serde_json::from_slice(id).unwrap_or_default();
    json!({Slot::MetaSubscriptionId.name(): id})
}

/// Which era a request belongs to: its `_meta` decides, whatever was said before.
fn era_of(message: &Message, method: &str) -> Result<Era, ErrorObject> {
    let invalid = |what| Err(ErrorObject::new(code::INVALID_PARAMS, what));
    let (version, modern) = (value(message, Slot::MetaVersion), Revision::NEWEST_MODERN.as_str());
    if !message.has(Slot::MetaVersion) {
        return match method {
            method::DISCOVER | method::LISTEN => {
                invalid(format!("`{method}` needs `_meta` with `{}`", Slot::MetaVersion.name()))
            }
            _ => Ok(Era::Legacy),
        };
    }
    if version != modern {
        let data = json!({"supported": [modern], "requested": version});
        let error = ErrorObject::new(code::UNSUPPORTED_VERSION, "Unsupported protocol version");
        return Err(error.with_data(data.to_string()));
    }
    match value(message, Slot::MetaCapabilities).is_object() {
        true => Ok(Era::Modern),
        false => invalid(format!("`_meta` needs an object `{}`", Slot::MetaCapabilities.name())),
    }
}

#[cfg(test)]
mod tests;
