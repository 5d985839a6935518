//! Playing a script: one prompt, from `system/init` to its result.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Instant;

use serde_json::{Map, Value, json};

use crate::output::{VERSION, complain, fresh_id};
use crate::{Cli, LOOK};

/// Plays the script of a prompt, and tells whether its last result was an error.
pub(crate) fn prompt(cli: &Arc<Cli>, prompt: &str) -> bool {
    let servers = cli.servers();
    thread::scope(|scope| {
        for server in &servers {
            scope.spawn(|| server.connect(cli));
        }
    });
    let steps = script(prompt);
    let started = Instant::now();
    let mut play = Play {
        cli,
        started,
        text: String::new(),
        results: Vec::new(),
        turns: 0,
        denials: Vec::new(),
        ended: None,
    };
    if !steps.iter().any(|step| step.get("init").is_some()) {
        play.init(&json!({}));
    }
    for step in &steps {
        play.step(step);
        if cli.is_interrupted.swap(false, Ordering::SeqCst) {
            play.result(
                &json!({"subtype": "error_during_execution", "is_error": true, "result": null,
                "errors": ["the request was aborted"], "terminal_reason": "aborted_tools"}),
            );
            break;
        }
    }
    play.ended.unwrap_or_else(|| play.result(&json!({})))
}

/// The steps, from the prompt or from the file.
fn script(prompt: &str) -> Vec<Value> {
    let file = std::env::var_os("STAND_IN_SCRIPT");
    let steps = match (serde_json::from_str(prompt), file) {
        (Ok(Value::Array(steps)), _) => return steps,
        (_, Some(file)) => std::fs::read_to_string(file).ok(),
        (_, None) => return vec![json!({"text": format!("heard {} bytes", prompt.len())})],
    };
    let steps = steps.and_then(|steps| serde_json::from_str(&steps).ok());
    steps.unwrap_or_else(|| wrong("STAND_IN_SCRIPT is not a list of steps"))
}

/// A mistake in a test.
fn wrong(text: &str) -> ! {
    complain(&format!("stand-in: {text}"));
    std::process::exit(64)
}

/// A prompt under way.
struct Play<'a> {
    cli: &'a Arc<Cli>,
    started: Instant,
    /// What was said last.
    text: String,
    /// The results of the last calls.
    results: Vec<Value>,
    turns: u32,
    denials: Vec<Value>,
    /// There was a result, and whether it was an error.
    ended: Option<bool>,
}

impl Play<'_> {
    fn step(&mut self, step: &Value) {
        // `spawn` has members beside its name.
        let known = |step: &Map<String, Value>| {
            let (name, value) =
                step.iter().find(|(name, _)| *name != "pid" && *name != "keeps_output")?;
            Some((name.clone(), value.clone()))
        };
        let Some((name, value)) = step.as_object().and_then(known) else {
            wrong(&format!("not a step: {step}"))
        };
        let text = || value.as_str().unwrap_or_default();
        match name.as_str() {
            "text" => self.say(&self.filled(text())),
            "large" => {
                self.say(&"x".repeat(usize::try_from(value.as_u64().unwrap_or(0)).unwrap_or(0)))
            }
            "delta" => self.delta(text()),
            "call" => self.call(value.as_array().map_or(&[], Vec::as_slice)),
            "list" => {
                let servers = self.cli.servers();
                servers.iter().for_each(|server| drop(server.list(self.cli)));
            }
            "ask" => {
                let mut question = json!({"subtype": "can_use_tool", "tool_use_id": fresh_id()});
                merge(&mut question, &value);
                let answer = self.cli.ask(&question);
                self.say(&answer.map_or_else(|error| error, |answer| answer.to_string()));
            }
            "init" if value.is_null() => {}
            "init" => self.init(&value),
            "result" => drop(self.result(&value)),
            "raw" => self.cli.output.write(&value),
            "garbage" => self.cli.output.write_line(text()),
            "stderr" => complain(text()),
            "exit" => std::process::exit(i32::try_from(value.as_i64().unwrap_or(1)).unwrap_or(1)),
            "hang" => self.wait_until(|| false),
            "deaf" => self.cli.is_deaf.store(true, Ordering::SeqCst),
            "ignore_sigterm" => self.cli.ignores_sigterm.store(true, Ordering::SeqCst),
            "spawn" => spawn(text(), step),
            "kill_server" => {
                let servers = self.cli.servers();
                servers
                    .iter()
                    .filter(|server| server.name == text())
                    .for_each(|server| server.kill());
            }
            "touch" => drop(std::fs::write(text(), "")),
            "wait_for_tool" => self.wait_until(|| self.cli.tools().iter().any(|it| it == text())),
            "wait_for" => self.wait_until(|| Path::new(text()).exists()),
            other => wrong(&format!("there is no step `{other}`")),
        }
    }

    fn wait_until(&self, condition: impl Fn() -> bool) {
        while !condition() && !self.cli.is_interrupted() {
            thread::sleep(LOOK);
        }
    }

    /// Writes a message with what all of them have.
    fn write(&self, mut message: Value) {
        message["session_id"] = json!(self.cli.session_id);
        message["uuid"] = json!(fresh_id());
        self.cli.output.write(&message);
    }

    fn init(&self, members: &Value) {
        let servers: Vec<Value> = self.cli.servers().iter().map(|server| server.status()).collect();
        let mut message = json!({"type": "system", "subtype": "init", "cwd": std::env::current_dir().ok(),
            "tools": self.cli.tools(), "mcp_servers": servers, "model": self.model(),
            "permissionMode": "default", "apiKeySource": "ANTHROPIC_API_KEY",
            "claude_code_version": VERSION});
        merge(&mut message, members);
        self.write(message);
    }

    fn model(&self) -> String {
        self.cli.options.model.clone().unwrap_or_else(|| String::from("stand-in"))
    }

    fn say(&mut self, text: &str) {
        text.clone_into(&mut self.text);
        self.turns += 1;
        self.assistant(&json!({"type": "text", "text": text}));
    }

    fn assistant(&self, block: &Value) {
        self.write(json!({"type": "assistant", "parent_tool_use_id": null, "message": {
            "id": fresh_id(), "type": "message", "role": "assistant", "model": self.model(),
            "content": [block], "stop_reason": null, "usage": usage()}}));
    }

    fn delta(&self, text: &str) {
        if self.cli.options.partial_messages {
            self.write(json!({"type": "stream_event", "parent_tool_use_id": null, "event": {
                "type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": text}}}));
        }
    }

    /// Calls tools at the same time, and tells each result as it comes.
    fn call(&mut self, calls: &[Value]) {
        let calls: Vec<(String, &Value)> =
            calls.iter().map(|call| (format!("toolu_{}", fresh_id()), call)).collect();
        self.turns += 1;
        for (id, call) in &calls {
            self.assistant(&json!({"type": "tool_use", "id": id, "name": call["tool"],
                "input": call["input"]}));
        }
        let this = &*self;
        let results = thread::scope(|scope| {
            let calls = calls.iter().map(|(id, call)| scope.spawn(move || this.one_call(id, call)));
            let calls: Vec<_> = calls.collect();
            let results = calls.into_iter().map(|call| call.join().expect("a call does not panic"));
            results.collect::<Vec<_>>()
        });
        self.results = results.iter().map(|(result, _)| result.clone()).collect();
        self.denials.extend(results.into_iter().filter_map(|(_, denial)| denial));
    }

    /// The result of one call, and the denial if it was denied.
    fn one_call(&self, id: &str, call: &Value) -> (Value, Option<Value>) {
        let (name, input) = (call["tool"].as_str().unwrap_or_default(), &call["input"]);
        let permitted = self.cli.permitted(name, input, id);
        let is_denied = permitted.is_err();
        let outcome = permitted.and_then(|input| self.called(name, &input, id));
        let (content, is_error) = match outcome {
            Ok(result) => (content(&result), result["isError"] == true),
            Err(error) => (json!(error), true),
        };
        let mut result = json!({"type": "tool_result", "tool_use_id": id, "content": content});
        if is_error {
            result["is_error"] = json!(true);
        }
        self.write(json!({"type": "user", "parent_tool_use_id": null,
            "message": {"role": "user", "content": [result]}}));
        let denial = json!({"tool_name": name, "tool_use_id": id, "tool_input": input});
        (result, is_denied.then_some(denial))
    }

    fn called(&self, name: &str, input: &Value, id: &str) -> Result<Value, String> {
        let servers = self.cli.servers();
        let found = servers.iter().find_map(|server| {
            let tool = name.strip_prefix(&format!("mcp__{}__", server.name))?;
            let is_known = server.tool_names().iter().any(|known| known == name);
            is_known.then_some((server, tool))
        });
        let Some((server, tool)) = found.filter(|_| !self.cli.options.disallows(name)) else {
            return Err(format!(
                "<tool_use_error>Error: No such tool available: {name}</tool_use_error>"
            ));
        };
        server.call(self.cli, tool, input, id)
    }

    fn result(&mut self, members: &Value) -> bool {
        let elapsed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let mut message = json!({"type": "result", "subtype": "success", "is_error": false,
            "result": self.text, "num_turns": self.turns.max(1), "duration_ms": elapsed,
            "duration_api_ms": elapsed, "total_cost_usd": 0.0125, "usage": usage(),
            "modelUsage": {self.model(): {"inputTokens": 10, "outputTokens": 5, "costUSD": 0.0125}},
            "permission_denials": self.denials});
        merge(&mut message, members);
        let is_error = message["is_error"] == true;
        self.write(message);
        self.ended = Some(is_error);
        is_error
    }

    /// A text of the script with what it asks for.
    fn filled(&self, text: &str) -> String {
        let of = |result: &Value| match &result["content"] {
            Value::String(text) => text.clone(),
            blocks => {
                let blocks = blocks.as_array().into_iter().flatten();
                blocks.filter_map(|block| block["text"].as_str()).collect()
            }
        };
        let last = self.results.last().map(of).unwrap_or_default();
        let mut text = text.replace("{{result}}", &last);
        for (n, result) in self.results.iter().enumerate() {
            text = text.replace(&format!("{{{{result:{n}}}}}"), &of(result));
        }
        let prompts = self.cli.prompts.load(Ordering::SeqCst).to_string();
        text.replace("{{tools}}", &self.cli.tools().join(","))
            .replace("{{session}}", &self.cli.session_id)
            .replace("{{prompts}}", &prompts)
    }
}

fn usage() -> Value {
    json!({"input_tokens": 10, "output_tokens": 5, "cache_creation_input_tokens": 3,
        "cache_read_input_tokens": 2, "service_tier": "standard"})
}

/// What the model would see of a tool's result.
fn content(result: &Value) -> Value {
    if let Some(structured) = result.get("structuredContent") {
        return json!([{"type": "text", "text": structured.to_string()}]);
    }
    let blocks = result["content"].as_array().into_iter().flatten();
    blocks
        .map(|block| match block["type"].as_str() {
            Some("image") => json!({"type": "image", "source": {"type": "base64",
                "media_type": block["mimeType"], "data": block["data"]}}),
            _ => block.clone(),
        })
        .collect()
}

/// Sets members, and takes those out that are `null`.
fn merge(message: &mut Value, members: &Value) {
    let (Some(message), Some(members)) = (message.as_object_mut(), members.as_object()) else {
        return;
    };
    for (name, value) in members {
        if value.is_null() {
            message.remove(name);
        } else {
            message.insert(name.clone(), value.clone());
        }
    }
}

/// Starts a process that goes on without us.
fn spawn(script: &str, step: &Value) {
    #[expect(clippy::disallowed_methods, reason = "the test looks whether it is left")]
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(format!("exec {script}")).stdin(Stdio::null()).stderr(Stdio::null());
    if step["keeps_output"] != true {
        command.stdout(Stdio::null());
    }
    let Ok(child) = command.spawn() else { wrong(&format!("`{script}` cannot be started")) };
    if let Some(path) = step["pid"].as_str() {
        let draft = format!("{path}.draft");
        // Whole at once, since a test waits for it.
        let written = std::fs::write(&draft, child.id().to_string());
        if written.and_then(|()| std::fs::rename(draft, path)).is_err() {
            wrong("the file with the process id cannot be written");
        }
    }
}
