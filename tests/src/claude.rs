//! Claude Code, the real command, whose model is a script.
//!
//! `tests/claude/messages_api.py` stands for the model: its first comment says what a script is. Each
//! [`Claude`] has such an API on loopback, a home and an environment of its own, so that nothing of the
//! user's own Claude Code is read or written, and nothing leaves this machine.
//!
//! The part `claude` of `scripts/test.sh` installs the versions and names their folder in
//! `PONTOON_CLAUDE`. Where that is not set the tests say so, since that part runs them.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::rig::processes::{self, Process};
use crate::rig::wait_until;

/// The newest version that is installed.
pub const NEWEST: &str = "2.1.325";

/// The variable that names the folder with the versions.
const FOLDER: &str = "PONTOON_CLAUDE";
/// The variable that all processes of one [`Claude`] carry.
const TAG: &str = "PONTOON_CLAUDE_TEST";
/// How long a whole conversation may take.
const RUN: Duration = Duration::from_secs(120);
/// How long a process may outlive its conversation.
const AFTERLIFE: Duration = Duration::from_secs(10);

/// One version of Claude Code with a model of its own.
#[derive(Debug)]
pub struct Claude {
    program: PathBuf,
    api: MessagesApi,
    home: TempDir,
    tag: String,
}

impl Claude {
    /// This version, with a script for its model. `None` where the versions are not installed, which is
    /// said.
    ///
    /// # Panics
    ///
    /// When they should be installed and this one is not, or the model does not start.
    pub fn of_version(version: &str, script: &Value) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let Some(folder) = std::env::var_os(FOLDER) else {
            #[expect(clippy::print_stdout, reason = "a test says why it does nothing")]
            {
                println!(
                    "skipped here: `scripts/test.sh claude` installs Claude Code and runs this"
                );
            }
            return None;
        };
        let program = Path::new(&folder).join(format!("claude-{version}"));
        assert!(program.exists(), "{FOLDER}: there is no {}", program.display());
        let home = tempfile::Builder::new().prefix("pc").tempdir_in("/tmp").expect("a home");
        std::fs::create_dir(home.path().join("tmp")).expect("it is our own");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let tag = format!("{}-{count}", std::process::id());
        Some(Self { program, api: MessagesApi::start(script), home, tag })
    }

    /// The executable.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Its home, where it also works.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its model.
    pub fn api(&self) -> &MessagesApi {
        &self.api
    }

    /// All that its environment consists of.
    pub fn environment(&self) -> Vec<(String, String)> {
        let home = self.home.path().display();
        let variables = [
            ("PATH", String::from("/usr/bin:/bin")),
            ("HOME", home.to_string()),
            ("TMPDIR", format!("{home}/tmp")),
            ("ANTHROPIC_API_KEY", String::from("fake-key")),
            ("ANTHROPIC_BASE_URL", self.api.url.clone()),
            ("DISABLE_TELEMETRY", String::from("1")),
            ("DISABLE_AUTOUPDATER", String::from("1")),
            ("DISABLE_ERROR_REPORTING", String::from("1")),
            ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", String::from("1")),
            (TAG, self.tag.clone()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Starts a conversation with one MCP server, called `mine`, all of whose tools are allowed.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn start(&self, server: &Value) -> Conversation {
        let config = self.home.path().join("mcp.json");
        std::fs::write(&config, json!({"mcpServers": {"mine": server}}).to_string())
            .expect("it is our own");
        #[expect(clippy::disallowed_methods, reason = "the conversation ends it")]
        let mut command = Command::new(&self.program);
        command.args(["-p", "go", "--output-format", "stream-json", "--verbose"]);
        command.args(["--allowedTools", "mcp__mine", "--strict-mcp-config", "--mcp-config"]);
        command.arg(config).current_dir(self.home.path());
        command.env_clear().envs(self.environment());
        Conversation::start(&mut command)
    }

    /// Has a whole conversation with one MCP server, and gives its messages.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn run(&self, server: &Value) -> Vec<Value> {
        self.start(server).finish()
    }

    /// The processes that run for it, and those that they have started.
    pub fn processes(&self) -> Vec<Process> {
        let processes = processes::tagged(TAG, &self.tag);
        processes.into_iter().filter(|process| !process.is_zombie()).collect()
    }

    /// Waits until none of its processes is there any more.
    ///
    /// # Panics
    ///
    /// When one stays.
    pub fn leaves_no_process(&self) {
        wait_until("its processes end", AFTERLIFE, || self.processes().is_empty());
    }
}

/// A conversation of the command that was started with `-p`.
#[derive(Debug)]
pub struct Conversation {
    child: Child,
    output: Option<JoinHandle<Vec<Value>>>,
    errors: Option<JoinHandle<String>>,
}

impl Conversation {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = child.stdout.take().expect("piped");
        let mut errors = child.stderr.take().expect("piped");
        let output = thread::spawn(move || messages(output));
        let errors = thread::spawn(move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        });
        Self { child, output: Some(output), errors: Some(errors) }
    }

    /// Waits for its end and gives its messages.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn finish(self) -> Vec<Value> {
        let (status, output, errors) = self.end();
        assert!(status.success(), "{status}: {errors}\n{output:#?}");
        output
    }

    /// Waits for its end, which is none of success, and gives its messages.
    ///
    /// # Panics
    ///
    /// When it does not fail.
    pub fn fail(self) -> Vec<Value> {
        let (status, output, _) = self.end();
        assert!(!status.success(), "{output:#?}");
        output
    }

    fn end(mut self) -> (ExitStatus, Vec<Value>, String) {
        let mut status = None;
        wait_until("the conversation ends", RUN, || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        let output = self.output.take().expect("taken once").join().expect("lines of JSON");
        let errors = self.errors.take().expect("taken once").join().expect("it does not panic");
        (status.expect("waited for"), output, errors)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn messages(output: ChildStdout) -> Vec<Value> {
    let lines = BufReader::new(output).lines().map_while(Result::ok);
    lines
        .map(|line| serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// The script that stands for the model, on loopback.
#[derive(Debug)]
pub struct MessagesApi {
    child: Child,
    url: String,
    place: TempDir,
}

impl MessagesApi {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// When it cannot be started, or has a word against the script.
    pub fn start(script: &Value) -> Self {
        let place = tempfile::tempdir().expect("a place for the record");
        let turns = place.path().join("script.json");
        std::fs::write(&turns, script.to_string()).expect("it is our own");
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("claude/messages_api.py");
        #[expect(clippy::disallowed_methods, reason = "it ends with this value")]
        let mut command = Command::new("python3");
        command.arg(program).arg("--script").arg(turns).arg("--exit-with-stdin");
        command.arg("--log").arg(place.path().join("requests.jsonl"));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("it says where it listens");
        let url = line.trim().strip_prefix("LISTENING ").expect("it listens").to_owned();
        Self { child, url, place }
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What the model was asked so far, without titles and other small questions.
    ///
    /// # Panics
    ///
    /// When the record cannot be read.
    pub fn requests(&self) -> Vec<Value> {
        self.record().into_iter().map(|mut request| request["body"].take()).collect()
    }

    fn record(&self) -> Vec<Value> {
        let record = std::fs::read_to_string(self.place.path().join("requests.jsonl"));
        let record = record.expect("it writes a record");
        let requests = record.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        requests.filter(|request: &Value| request["turn"].is_number()).collect()
    }

    /// What it said against the requests that it refused, without small questions.
    ///
    /// # Panics
    ///
    /// When the record cannot be read.
    pub fn refused(&self) -> Vec<String> {
        let refused = self.record().into_iter().filter(|request| request["refused"].is_string());
        refused.map(|request| request["refused"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The results of tools that the model got so far, each once.
    pub fn tool_results(&self) -> Vec<Value> {
        let mut results: Vec<Value> = Vec::new();
        for request in self.requests() {
            let messages = request["messages"].as_array().into_iter().flatten();
            let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
            for block in blocks.filter(|block| block["type"] == "tool_result") {
                // Each request tells the whole conversation again.
                if !results.iter().any(|it| it["tool_use_id"] == block["tool_use_id"]) {
                    results.push(block.clone());
                }
            }
        }
        results
    }

    /// The result of the call that the script gives this id.
    ///
    /// # Panics
    ///
    /// When the model got none.
    pub fn tool_result(&self, id: &str) -> Value {
        let results = self.tool_results();
        let found = results.iter().find(|result| result["tool_use_id"] == id);
        found.cloned().unwrap_or_else(|| panic!("no result of {id}: {results:#?}"))
    }

    /// The names of the tools in the last question to the model.
    pub fn offered_tools(&self) -> Vec<String> {
        let requests = self.requests();
        let tools = requests.last().and_then(|request| request["tools"].as_array().cloned());
        let names = tools.into_iter().flatten();
        names.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
    }
}

impl Drop for MessagesApi {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
