//! What the command is given: prompts of any size, options, an environment, and permissions.

use std::sync::{Arc, Mutex};

use pontoon_host::model::{Environment, Permission, PermissionCallback, Prompt, Request};
use serde_json::{Value, json};

use super::{Stage, TAG};

#[test]
fn a_prompt_may_be_of_any_size_and_is_no_argument() {
    let stage = Stage::with(|settings| settings.system_prompt = Some("s".repeat(200_000)));
    let (response, _) = stage.request("p".repeat(200_000)).unwrap();
    assert_eq!(response.text, "heard 200000 bytes");
    let arguments = stage.starts()[0]["arguments"].to_string();
    assert!(!arguments.contains("ppp") && !arguments.contains("sss"), "{}", arguments.len());
    assert!(arguments.contains("--system-prompt-file="), "{arguments}");
    let blocks = vec![json!({"type": "text", "text": "four"}), json!({"type": "image"})];
    let (response, _) = stage.request(Request::from(Prompt::Blocks(blocks))).unwrap();
    assert_eq!(response.text, "heard 4 bytes");
}

#[test]
fn settings_reach_the_command() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().canonicalize().unwrap();
    let stage = Stage::with(|settings| {
        settings.model = Some("sonnet".to_owned());
        settings.max_turns = Some(7);
        settings.disallowed_tools = vec!["Bash".to_owned()];
        settings.working_directory = Some(directory.clone());
        settings.extra_args = vec!["--debug-file".into(), "log".into()];
    });
    let text = stage.text(&json!([{"text": "{{tools}}"}]));
    assert_eq!(text, "Read,Write");
    let start = &stage.starts()[0];
    assert_eq!(start["directory"], json!(directory));
    let arguments = start["arguments"].as_array().unwrap();
    for expected in
        ["--model=sonnet", "--max-turns=7", "--debug-file", "log", "--strict-mcp-config"]
    {
        assert!(arguments.contains(&json!(expected)), "{expected}: {arguments:?}");
    }
    // A request may have settings of its own.
    let mut settings = stage.model.settings().clone();
    settings.model = Some("opus".to_owned());
    let request = Request { settings: Some(settings), ..Request::from("hello") };
    stage.request(request).unwrap();
    let arguments = stage.starts()[1]["arguments"].to_string();
    assert!(arguments.contains("--model=opus"), "{arguments}");
}

#[test]
fn the_command_has_the_environment_that_was_asked_for() {
    let stage = Stage::new();
    stage.text(&json!([]));
    let environment = stage.starts()[0]["environment"].clone();
    assert_eq!(environment["PATH"], json!(std::env::var("PATH").unwrap()));
    assert_eq!(environment[TAG], json!(stage.tag));
    let only = Stage::with(|settings| {
        let Environment::InheritedAnd(more) = &settings.environment else { unreachable!() };
        settings.environment = Environment::Only(more.clone());
    });
    only.text(&json!([]));
    let environment = only.starts()[0]["environment"].clone();
    let names: Vec<_> = environment.as_object().unwrap().keys().cloned().collect();
    assert_eq!(names, [TAG, "STAND_IN_RECORD"]);
}

#[test]
fn the_program_is_asked_for_permissions() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    let callback = PermissionCallback::new(move |use_of| {
        heard.lock().unwrap().push((use_of.tool.clone(), Value::Object(use_of.input.clone())));
        async move {
            match use_of.tool.as_str() {
                "Read" => Permission::Allow,
                "Write" => Permission::AllowWith(serde_json::Map::new()),
                tool => Permission::Deny(format!("{tool} is not for you")),
            }
        }
    });
    let stage = Stage::with(|settings| settings.permission = Some(callback));
    let answer = |tool: &str| {
        let question = json!({"tool_name": tool, "input": {"file": "a"}});
        let text = stage.text(&json!([{"ask": question}]));
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let input = json!({"file": "a"});
    assert_eq!(answer("Read"), json!({"behavior": "allow", "updatedInput": input}));
    assert_eq!(answer("Write"), json!({"behavior": "allow", "updatedInput": {}}));
    assert_eq!(answer("Bash"), json!({"behavior": "deny", "message": "Bash is not for you"}));
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked, ["Read", "Write", "Bash"].map(|tool| (tool.to_owned(), input.clone())));
}

#[test]
fn without_a_callback_a_permission_is_refused_and_listed() {
    let stage = Stage::new();
    let script = json!([{"call": [{"tool": "Bash", "input": {}}]}, {"text": "{{result}}"}]);
    let (response, metadata) = stage.ask(&script).unwrap();
    assert!(response.text.contains("haven't granted it"), "{}", response.text);
    assert_eq!(metadata.permission_denials[0]["tool_name"], "Bash");
}

#[test]
fn a_callback_that_panics_refuses() {
    let callback = PermissionCallback::new(|use_of| async move {
        match use_of.input.get("file") {
            Some(_) => Permission::Allow,
            None => panic!("there is always a file"),
        }
    });
    let stage = Stage::with(|settings| settings.permission = Some(callback));
    let text = stage.text(&json!([{"ask": {"tool_name": "Read", "input": {}}}]));
    assert!(text.contains("deny") && text.contains("panicked"), "{text}");
}
