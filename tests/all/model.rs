//! A model that drives a command like Claude Code's: a stand-in that plays the script it is asked.
//!
//! The same with the real command is in `claude::model`.

mod answers;
mod faults;
mod requests;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pontoon_host::Toolset;
use pontoon_host::model::{
    Environment, Metadata, Model, ModelError, Request, Response, Settings, ToolsetOptions,
    Transport,
};
use pontoon_tests::rig::processes::{self, Process};
use pontoon_tests::rig::wait_until;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::binaries;
use crate::host::SOON;

/// Both ways from the command to the tools.
const TRANSPORTS: [Transport; 2] = [Transport::Stdio, Transport::Sdk];
/// The variable that carries the tag.
const TAG: &str = "PONTOON_MODEL_TEST";

/// A model with a stand-in, which keeps a record.
struct Stage {
    model: Model,
    runtime: Runtime,
    place: tempfile::TempDir,
    tag: String,
}

impl Stage {
    fn new() -> Self {
        Self::with(|_| {})
    }

    /// With other settings.
    fn with(change: impl FnOnce(&mut Settings)) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let place = tempfile::tempdir().unwrap();
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let tag = format!("{}-{count}", std::process::id());
        let record = place.path().join("record").into();
        let environment =
            vec![("STAND_IN_RECORD".into(), record), (TAG.into(), tag.clone().into())];
        let mut settings = Settings {
            cli: Some(env!("CARGO_BIN_EXE_stand-in-claude").into()),
            bridge: Some(binaries().pontoon),
            environment: Environment::InheritedAnd(environment),
            timeout: Some(Duration::from_secs(60)),
            ..Settings::default()
        };
        change(&mut settings);
        Self { model: Model::new(settings), runtime: Runtime::new().unwrap(), place, tag }
    }

    /// With these tools, on a server called `mine`.
    fn offering(tools: &Toolset, transport: Transport) -> Self {
        let stage = Self::new();
        stage.offer(tools, transport);
        stage
    }

    fn offer(&self, tools: &Toolset, transport: Transport) {
        let options = ToolsetOptions::default().server_name("mine").transport(transport);
        self.model.set_agent_toolsets_with(std::slice::from_ref(tools), options).unwrap();
    }

    /// What comes of a script.
    fn ask(&self, script: &Value) -> Result<(Response, Metadata), ModelError> {
        self.request(script.to_string())
    }

    fn request(&self, request: impl Into<Request>) -> Result<(Response, Metadata), ModelError> {
        self.runtime.block_on(self.model.request_with_metadata(request))
    }

    /// The text that comes of a script.
    #[track_caller]
    fn text(&self, script: &Value) -> String {
        let (response, _) = self.ask(script).unwrap_or_else(|error| panic!("{script}: {error}"));
        response.text
    }

    /// Why nothing comes of a script.
    #[track_caller]
    fn failure(&self, script: &Value) -> ModelError {
        self.ask(script).map(|(response, _)| panic!("it is answered: {response:?}")).unwrap_err()
    }

    /// A file of this test's.
    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Waits until a file is there.
    fn wait_for_file(&self, name: &str) {
        let file = self.file(name);
        wait_until(&format!("there is `{name}`"), SOON, || file.exists());
    }

    /// What the stand-ins have recorded.
    fn record(&self) -> Vec<Value> {
        let record = std::fs::read_to_string(self.file("record")).unwrap_or_default();
        record.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// How the stand-ins were started.
    fn starts(&self) -> Vec<Value> {
        self.record().into_iter().filter(|entry| entry["arguments"].is_array()).collect()
    }

    /// The directories that the requests have made for their files.
    fn directories(&self) -> Vec<PathBuf> {
        let configurations = self.starts().into_iter().filter_map(|start| {
            let arguments = start["arguments"].as_array()?.clone();
            let place = arguments.iter().position(|it| it == "--mcp-config")?;
            Path::new(arguments[place + 1].as_str()?).parent().map(Path::to_owned)
        });
        configurations.collect()
    }

    fn processes(&self) -> Vec<Process> {
        let processes = processes::tagged(TAG, &self.tag);
        processes.into_iter().filter(|process| !process.is_zombie()).collect()
    }

    /// Nothing stays of requests that are over.
    #[track_caller]
    fn nothing_is_left(&self) {
        assert!(self.processes().is_empty(), "left: {:?}", self.processes());
        let directories = self.directories();
        assert!(directories.iter().all(|it| !it.exists()), "left: {directories:?}");
    }

    /// Nothing stays, soon, of requests that were given up without a word.
    #[track_caller]
    fn nothing_stays(&self) {
        // What is given up is taken down behind it, its processes and its directory in any order.
        wait_until("its processes end and its directories go", SOON, || {
            self.processes().is_empty() && self.directories().iter().all(|it| !it.exists())
        });
    }
}

/// One call in a script.
fn call(tool: &str, input: &Value) -> Value {
    json!({"call": [{"tool": format!("mcp__mine__{tool}"), "input": input}]})
}
