//! A model that drives the real command, by both transports.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};

use pontoon_host::model::{
    Environment, Event, Metadata, Model, ModelError, Permission, PermissionCallback, Request,
    Response, SessionChoice, Settings, ToolsetOptions, Transport,
};
use pontoon_host::{Tool, Toolset};
use pontoon_tests::claude::{Claude, NEWEST};
use pontoon_tests::program;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::{check_results, in_every_version, text, tools, turns, watched};
use crate::binaries;
use crate::host::SOON;

in_every_version!(a_model_has_tools_by_stdio, a_model_has_tools_by_sdk);

fn a_model_has_tools_by_stdio(version: &str) {
    a_model_has_tools(version, Transport::Stdio);
}

fn a_model_has_tools_by_sdk(version: &str) {
    a_model_has_tools(version, Transport::Sdk);
}

/// Lists and calls tools, with results, errors and pictures, and without the tools that it may not have.
fn a_model_has_tools(version: &str, transport: Transport) {
    let mut script = turns();
    let hidden = json!([{"id": "hidden", "tool": "mcp__mine__hidden", "input": {}}]);
    script.as_array_mut().unwrap().insert(0, hidden);
    let hidden = Tool::new("hidden", |(), _| async { "found me" });
    let tools = tools().with(hidden).unwrap();
    let Some(stage) = Stage::new(version, &script, &tools, transport) else { return };
    let names = ["add", "fails", "picture", "meet"];
    let request = Request {
        tools: Some(names.map(str::to_owned).into()),
        settings: Some(Settings {
            system_prompt: Some("You are a parrot.".to_owned()),
            ..stage.settings()
        }),
        ..Request::from("p".repeat(200_000))
    };
    let (started, (response, metadata)) = stage.follow(request);
    assert_eq!(response.text, "That is all.");
    assert!(!metadata.session_id.is_empty() && metadata.turns > 4, "{metadata:?}");
    assert_eq!(metadata.permission_denials, Vec::<Value>::new());
    let mut listed: Vec<_> =
        started.iter().filter_map(|name| name.strip_prefix("mcp__mine__")).collect();
    listed.sort_unstable();
    assert_eq!(listed, ["add", "fails", "meet", "picture"]);
    check_results(stage.claude.api());
    let hidden = stage.claude.api().tool_result("hidden");
    assert_eq!(hidden["is_error"], true, "{hidden}");
    assert!(!hidden.to_string().contains("found me"), "{hidden}");
    let asked = stage.claude.api().requests();
    assert!(asked[0]["messages"].to_string().contains(&"p".repeat(200_000)), "the prompt is cut");
    assert!(asked[0]["system"].to_string().contains("You are a parrot."), "{}", asked[0]["system"]);
    assert!(!asked[0]["tools"].to_string().contains("hidden"));
    stage.nothing_stays();
}

#[test]
fn nothing_is_left_of_requests_by_stdio() {
    twenty_five_requests(Transport::Stdio);
}

#[test]
fn nothing_is_left_of_requests_by_sdk() {
    twenty_five_requests(Transport::Sdk);
}

/// Some are answered, some are given up in the midst of a call, and some lose a process.
fn twenty_five_requests(transport: Transport) {
    let script = json!({
        "turns": [[{"tool": "mcp__mine__add", "input": {"a": 2, "b": 40}}], "It is {{tool_result}}."],
        "conversations": [{"match": "please wait",
            "turns": [[{"tool": "mcp__mine__watched", "input": {}}], "It was in vain."]}],
    });
    let (tells, hears) = channel();
    let tools = tools().with(watched(tells)).unwrap();
    let Some(stage) = Stage::new(NEWEST, &script, &tools, transport) else { return };
    let bridge = binaries().pontoon.canonicalize().unwrap();
    let command = stage.claude.program().canonicalize().unwrap();
    for round in 0..5 {
        let (response, _) = stage.ask("go").unwrap();
        assert_eq!(response.text, "It is 42.", "round {round}");
        stage.nothing_is_left();
        // Dropped without a word.
        let waiting = stage.begin(&hears);
        waiting.abort();
        assert_eq!(hears.recv_timeout(SOON), Ok("dropped"), "round {round}");
        stage.nothing_stays();
        // Stopped, and waited for.
        stage.runtime.block_on(async {
            let mut events = stage.model.request_stream("please wait");
            while !matches!(events.next().await.unwrap().unwrap(), Event::ToolUse { .. }) {}
            assert_eq!(hears.recv_timeout(SOON), Ok("began"), "round {round}");
            events.stop().await;
        });
        assert_eq!(hears.recv_timeout(SOON), Ok("dropped"), "round {round}");
        stage.nothing_is_left();
        // The command is killed.
        let waiting = stage.begin(&hears);
        stage.signal(&command, Signal::KILL);
        let error = stage.runtime.block_on(waiting).unwrap().unwrap_err();
        assert!(matches!(error, ModelError::Cli { .. }), "round {round}: {error:?}");
        assert_eq!(hears.recv_timeout(SOON), Ok("dropped"), "round {round}");
        stage.nothing_is_left();
        let waiting = stage.begin(&hears);
        if transport == Transport::Stdio {
            // The bridge is killed: the call fails, and the model goes on.
            stage.signal(&bridge, Signal::KILL);
            let response = stage.runtime.block_on(waiting).unwrap().unwrap();
            assert_eq!(response.text, "It was in vain.", "round {round}");
        } else {
            // The command is asked to end, by another than us.
            stage.signal(&command, Signal::TERM);
            stage.runtime.block_on(waiting).unwrap().unwrap_err();
        }
        assert_eq!(hears.recv_timeout(SOON), Ok("dropped"), "round {round}");
        stage.nothing_is_left();
    }
    assert_eq!(stage.directories().len(), 25);
}

#[test]
fn text_comes_piece_by_piece() {
    let script = json!([{"content": ["Once upon a time there was a bridge."], "chunk_chars": 5}]);
    let Some(stage) = Stage::new(NEWEST, &script, &Toolset::new(), Transport::Sdk) else { return };
    let (pieces, whole) = stage.runtime.block_on(async {
        let mut events = stage.model.request_stream("tell me a story");
        let (mut pieces, mut whole) = (Vec::new(), String::new());
        while let Some(event) = events.next().await {
            match event.unwrap() {
                Event::TextDelta(piece) => pieces.push(piece),
                Event::Text(text) => whole = text,
                _ => {}
            }
        }
        (pieces, whole)
    });
    assert!(pieces.len() > 1, "{pieces:?}");
    assert_eq!(pieces.concat(), whole);
    assert_eq!(whole, "Once upon a time there was a bridge.");
}

#[test]
fn the_command_asks_the_program_for_permissions() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name);
    let write = |id: &str| json!([{"id": id, "tool": "Write", "input": {"file_path": file(id), "content": "mine"}}]);
    let script = json!([write("changed"), write("denied"), "done"]);
    let no_tools = Toolset::new();
    let Some(stage) = Stage::new(NEWEST, &script, &no_tools, Transport::Stdio) else { return };
    let permission = PermissionCallback::new(|use_of| async move {
        let mut input = use_of.input;
        if input["file_path"].as_str().is_some_and(|path| path.ends_with("denied")) {
            return Permission::Deny("not there".to_owned());
        }
        input.insert("content".to_owned(), json!("yours"));
        Permission::AllowWith(input)
    });
    let settings = Settings { permission: Some(permission), ..stage.settings() };
    let request = Request { settings: Some(settings), ..Request::from("go") };
    let (_, metadata) = stage.ask(request).unwrap();
    assert_eq!(std::fs::read_to_string(file("changed")).unwrap(), "yours");
    assert!(!file("denied").exists());
    let denied = stage.claude.api().tool_result("denied");
    assert!(text(&denied).contains("not there"), "{denied}");
    assert_eq!(metadata.permission_denials.len(), 1, "{:?}", metadata.permission_denials);
}

#[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
struct Person {
    name: String,
    age: Option<u8>,
    friends: Vec<Friend>,
}

#[derive(Debug, PartialEq, serde::Deserialize, schemars::JsonSchema)]
struct Friend {
    name: String,
}

#[test]
fn the_command_gives_structured_output() {
    let ann = json!({"name": "Ann", "age": 44, "friends": [{"name": "Bob"}]});
    let script = json!([[{"tool": "StructuredOutput", "input": ann}], "done"]);
    let no_tools = Toolset::new();
    let Some(stage) = Stage::new(NEWEST, &script, &no_tools, Transport::Stdio) else { return };
    let person = stage.runtime.block_on(stage.model.request_typed::<Person>("Who?")).unwrap();
    assert_eq!((person.name.as_str(), person.age), ("Ann", Some(44)));
    assert_eq!(person.friends, [Friend { name: "Bob".to_owned() }]);
    // One that is too long for an argument.
    let mut schema = schemars::schema_for!(Person).to_value();
    schema["description"] = json!("d".repeat(200_000));
    let request = Request { output_schema: Some(schema), ..Request::from("Who?") };
    let (response, _) = stage.ask(request).unwrap();
    assert_eq!(response.structured_output, Some(ann));
}

#[test]
fn a_session_of_the_command_goes_on() {
    let script = json!({"turns": ["first answer", "second answer"]});
    let no_tools = Toolset::new();
    let Some(stage) = Stage::new(NEWEST, &script, &no_tools, Transport::Stdio) else { return };
    let (_, first) = stage.ask("the first question").unwrap();
    let session = SessionChoice::Resume(first.session_id);
    let again = Request { session, ..Request::from("the second question") };
    let (response, _) = stage.ask(again).unwrap();
    assert_eq!(response.text, "second answer");
    let asked = stage.claude.api().requests().last().unwrap()["messages"].to_string();
    assert!(asked.contains("the first question") && asked.contains("first answer"), "{asked}");
}

#[test]
fn a_command_that_gives_up_says_why() {
    let add = json!([{"tool": "mcp__mine__add", "input": {"a": 1, "b": 2}}]);
    let script = json!([add, add, add, "done"]);
    let Some(stage) = Stage::new(NEWEST, &script, &tools(), Transport::Sdk) else { return };
    let settings = Settings { max_turns: Some(2), ..stage.settings() };
    let request = Request { settings: Some(settings), ..Request::from("go") };
    let error = stage.ask(request).unwrap_err();
    let diagnosis = error.diagnosis().unwrap_or_else(|| panic!("{error:?}"));
    assert_eq!(diagnosis.subtype.as_deref(), Some("error_max_turns"), "{error}");
    assert!(diagnosis.session_id.is_some() && diagnosis.turns.is_some(), "{error}");
    assert!(error.to_string().contains("maximum number of turns"), "{error}");
    stage.nothing_is_left();
}

/// A model with a version of the command.
struct Stage {
    claude: Claude,
    model: Model,
    runtime: Runtime,
}

impl Stage {
    /// With these tools, on a server called `mine`. `None` where the command is not installed.
    fn new(version: &str, script: &Value, tools: &Toolset, transport: Transport) -> Option<Self> {
        let claude = Claude::of_version(version, script)?;
        // It writes down how it is started, and becomes the command.
        let (home, real) = (claude.home().display(), claude.program().display());
        let cli =
            format!("for it; do echo \"$it\" >> '{home}/arguments'; done\nexec '{real}' \"$@\"");
        let cli = program::script(&claude.home().join("claude"), &cli);
        let environment = claude.environment().into_iter();
        let environment = environment.map(|(name, value)| (name.into(), value.into())).collect();
        let model = Model::new(Settings {
            cli: Some(cli),
            bridge: Some(binaries().pontoon),
            environment: Environment::Only(environment),
            working_directory: Some(claude.home().to_owned()),
            ..Settings::default()
        });
        if !tools.names().is_empty() {
            let options = ToolsetOptions::default().server_name("mine").transport(transport);
            model.set_agent_toolsets_with(std::slice::from_ref(tools), options).unwrap();
        }
        Some(Self { claude, model, runtime: Runtime::new().unwrap() })
    }

    fn settings(&self) -> Settings {
        self.model.settings().clone()
    }

    fn ask(&self, request: impl Into<Request>) -> Result<(Response, Metadata), ModelError> {
        self.runtime.block_on(self.model.request_with_metadata(request))
    }

    /// The tools that the command has, and its answer.
    fn follow(&self, request: Request) -> (Vec<String>, (Response, Metadata)) {
        self.runtime.block_on(async {
            let mut events = self.model.request_stream(request);
            let mut tools = Vec::new();
            loop {
                match events.next().await.unwrap().unwrap() {
                    Event::Started(started) => tools = started.tools,
                    Event::Done(outcome) => break (tools, *outcome),
                    _ => {}
                }
            }
        })
    }

    /// A request whose call has begun.
    fn begin(
        &self,
        hears: &Receiver<&'static str>,
    ) -> tokio::task::JoinHandle<Result<Response, ModelError>> {
        let model = self.model.clone();
        let request = self.runtime.spawn(async move { model.request("please wait").await });
        assert_eq!(hears.recv_timeout(SOON), Ok("began"));
        request
    }

    /// Sends a signal to the process that runs this program.
    fn signal(&self, program: &Path, signal: Signal) {
        let processes = self.claude.processes();
        let found: Vec<_> =
            processes.iter().filter(|it| it.program().as_deref() == Some(program)).collect();
        let [process] = found[..] else { panic!("not one {}: {processes:?}", program.display()) };
        let pid = Pid::from_raw(process.pid.try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// The directories that the requests have made for their files.
    fn directories(&self) -> Vec<PathBuf> {
        let arguments = std::fs::read_to_string(self.claude.home().join("arguments")).unwrap();
        let arguments: Vec<_> = arguments.lines().collect();
        let configurations = arguments.windows(2).filter(|two| two[0] == "--mcp-config");
        configurations.map(|two| Path::new(two[1]).parent().unwrap().to_owned()).collect()
    }

    /// Nothing stays of requests that are over.
    #[track_caller]
    fn nothing_is_left(&self) {
        assert!(self.claude.processes().is_empty(), "left: {:?}", self.claude.processes());
        let directories = self.directories();
        assert!(directories.iter().all(|it| !it.exists()), "left: {directories:?}");
    }

    /// Nothing stays, soon, of requests that were given up without a word.
    #[track_caller]
    fn nothing_stays(&self) {
        self.claude.leaves_no_process();
        self.nothing_is_left();
    }
}
