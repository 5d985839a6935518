//! What the demo server offers: six tools, a prompt, a resource.
//!
//! Each shows one thing that a bridge has to carry: a plain answer, data, a file, progress, a
//! cancelled call, a question to the user. `offer.json` has the lists as clients get them, and the
//! arguments of a call are checked against the same schemas.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::time::Duration;

use pontoon_wire::error::code;
use pontoon_wire::{Era, ErrorObject, Slot, method};
use serde_json::{Map, Value, json};

use super::client::{DemoCall, value};
use super::report;

pub(super) const INSTRUCTIONS: &str =
    "A demonstration server. Start with `greet`; `make_report` makes a file to download.";

const README: &str = "# Pontoon demo

This server is part of Pontoon and shows what passes over the bridge.

- `greet` answers at once.
- `make_report` writes a file; behind Pontoon the answer carries a link to it.
- `count` tells its progress on the way.
- `slow_echo` takes its time and can be cancelled.
- `ask_name` asks the user in the middle of a call.
- `roll_dice` answers with data and text.
";

/// What `offer.json` says.
static OFFER: LazyLock<Value> = LazyLock::new(|| {
    let mut offer: Value =
        serde_json::from_str(include_str!("offer.json")).expect("a test reads it as well");
    offer["resources"][0]["size"] = README.len().into();
    offer
});

/// One of the lists: `tools`, `prompts`, `resources` or `resourceTemplates`.
pub(super) fn list(name: &str) -> Value {
    json!({name: OFFER[name]})
}

/// Whether the tool answers at once. The others wait, and so need a thread.
pub(super) fn is_quick(call: &DemoCall) -> bool {
    !matches!(call.message.string(Slot::Name).as_deref(), Some("count" | "slow_echo"))
}

/// Runs the tool that the call names, and gives its result. That of a cancelled call is of no use.
pub(super) fn call(call: &DemoCall) -> Result<Value, ErrorObject> {
    let name = call.message.string(Slot::Name).unwrap_or_default();
    let Some(tool) = OFFER["tools"].as_array().into_iter().flatten().find(|it| it["name"] == *name)
    else {
        return invalid(format!("there is no tool `{name}`; `tools/list` names those there are"));
    };
    let given = value(&call.message, Slot::Arguments);
    let arguments = match Arguments::check(given, &tool["inputSchema"]) {
        Ok(arguments) => arguments,
        Err(what) => return Ok(wrong(&what)),
    };
    Ok(match &*name {
        "greet" => text(&format!("Hello, {}!", arguments.text("name"))),
        "make_report" => make_report(&arguments, call),
        "count" => count(&arguments, call),
        "slow_echo" => {
            call.pause(Duration::from_secs(arguments.number("seconds")));
            text(arguments.text("text"))
        }
        "ask_name" => return ask_name(call),
        _ => roll_dice(&arguments),
    })
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// An error for the model to read, with what would be right.
fn wrong(what: &str) -> Value {
    json!({"content": [{"type": "text", "text": what}], "isError": true})
}

fn invalid<T>(what: impl Into<String>) -> Result<T, ErrorObject> {
    Err(ErrorObject::new(code::INVALID_PARAMS, what))
}

fn count(arguments: &Arguments, call: &DemoCall) -> Value {
    let (to, delay) = (arguments.number("to"), arguments.number("delay_ms"));
    for number in 1..=to {
        call.progress(number, to, &format!("{number} of {to}"));
        // Waiting comes after telling: some clients drop a note that comes along with the answer.
        if !call.pause(Duration::from_millis(delay)) {
            break;
        }
    }
    text(&format!("Counted to {to}."))
}

/// The one question of the one tool that asks.
pub(super) const QUESTION: &str = "name";

/// The state holds no secret and changes nothing, so it needs no seal: a forged one is refused.
const NAME_ASKED: &str = "ask_name/1";

fn ask_name(call: &DemoCall) -> Result<Value, ErrorObject> {
    if !call.can_ask {
        let what = "this client cannot ask its user (no `elicitation`); ask for the name yourself \
                    and call `greet` with it";
        return Ok(wrong(what));
    }
    let state = call.message.string(Slot::RequestState);
    if !matches!(state.as_deref(), None | Some(NAME_ASKED)) {
        return invalid("`requestState` is not one of ours");
    }
    let answer = &value(&call.message, Slot::InputResponses)[QUESTION];
    let name = answer["content"]["name"].as_str().map_or("", str::trim);
    let may_ask_again = call.era == Era::Modern || !call.message.has(Slot::InputResponses);
    Ok(match answer["action"].as_str() {
        Some("accept") if !name.is_empty() => text(&format!("Hello, {name}!")),
        Some("accept") | None if may_ask_again => {
            let mut params = json!({
                "message": "What is your name?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "title": "Your name", "minLength": 1}},
                    "required": ["name"],
                },
            });
            if call.era == Era::Modern {
                params["mode"] = "form".into();
            }
            json!({
                "resultType": "input_required",
                "inputRequests": {QUESTION: {"method": method::ELICIT, "params": params}},
                "requestState": NAME_ASKED,
            })
        }
        _ => text("Hello, whoever you are!"),
    })
}

fn roll_dice(arguments: &Arguments) -> Value {
    let (sides, times) = (arguments.number("sides"), arguments.number("times"));
    // The standard library's hasher has random keys, which is luck enough for dice.
    let luck = RandomState::new();
    let rolls: Vec<_> = (0..times).map(|time| luck.hash_one(time) % sides + 1).collect();
    let total = rolls.iter().sum::<u64>();
    let words: Vec<_> = rolls.iter().map(u64::to_string).collect();
    let mut result = text(&format!("Rolled {}: {total} in all.", words.join(", ")));
    result["structuredContent"] = json!({"rolls": rolls, "total": total});
    result
}

fn make_report(arguments: &Arguments, call: &DemoCall) -> Value {
    let (title, format) = (arguments.text("title"), arguments.text("format"));
    let name = match arguments.text("file_name") {
        "" => title,
        name => name,
    };
    let lines = arguments.0["lines"].as_array().into_iter().flatten();
    let lines: Vec<_> = lines.filter_map(Value::as_str).collect();
    let dir = &call.work_dir;
    match report::write(dir, name, format, title, &lines) {
        Ok((path, bytes)) => text(&format!("Wrote {} ({bytes} bytes).", path.display())),
        Err(error) => {
            wrong(&format!("cannot write to {}: {error}; set MCPO_WORKDIR", dir.display()))
        }
    }
}

/// The arguments of a call, right by the schema of its tool; defaults are filled in.
struct Arguments(Map<String, Value>);

impl Arguments {
    /// Checks them. What is wrong is said in words that help to put it right.
    fn check(given: Value, schema: &Value) -> Result<Self, String> {
        let mut given = match given {
            Value::Null => Map::new(),
            Value::Object(given) => given,
            _ => return Err("the arguments must be an object".into()),
        };
        let rules = schema["properties"].as_object().expect("a test calls every tool");
        if let Some(unknown) = given.keys().find(|name| !rules.contains_key(*name)) {
            let known: Vec<_> = rules.keys().map(|name| format!("`{name}`")).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(format!("there is no argument `{unknown}`; there is {known}"));
        }
        for (name, rule) in rules {
            let is_required =
                schema["required"].as_array().is_some_and(|it| it.contains(&name.as_str().into()));
            match given.get(name) {
                None if is_required => check(name, &Value::Null, rule)?,
                None => drop(given.insert(name.clone(), rule["default"].clone())),
                Some(value) => check(name, value, rule)?,
            }
        }
        Ok(Self(given))
    }

    /// A text without the spaces around it; empty if it was left out.
    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().map_or("", str::trim)
    }

    fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_default()
    }
}

fn check(name: &str, value: &Value, rule: &Value) -> Result<(), String> {
    let bound = |key: &str| rule[key].as_u64().unwrap_or_default();
    let (is_right, wanted) = match (rule["type"].as_str(), rule["enum"].as_array()) {
        (Some("integer"), _) => {
            let (least, most) = (bound("minimum"), bound("maximum"));
            let is_right = value.as_u64().is_some_and(|it| (least..=most).contains(&it));
            (is_right, format!("a whole number from {least} to {most}"))
        }
        (Some("array"), _) => {
            let is_right = value.as_array().is_some_and(|all| all.iter().all(Value::is_string));
            (is_right, "a list of texts, such as [\"first\", \"second\"]".to_owned())
        }
        (_, Some(choices)) => {
            let words: Vec<_> = choices.iter().filter_map(Value::as_str).collect();
            (choices.contains(value), format!("one of `{}`", words.join("`, `")))
        }
        _ => {
            let most = bound("maxLength");
            let is_right = value
                .as_str()
                .is_some_and(|text| !text.trim().is_empty() && text.chars().count() as u64 <= most);
            (is_right, format!("a text of 1 to {most} letters, and not of spaces alone"))
        }
    };
    if is_right { Ok(()) } else { Err(format!("`{name}` must be {wanted}")) }
}

/// The prompt that `params` name.
pub(super) fn prompt(params: &Value) -> Result<Value, ErrorObject> {
    if params["name"] != "tour" {
        return invalid(format!("there is no prompt {}; there is \"tour\"", params["name"]));
    }
    let name = params["arguments"]["name"].as_str().unwrap_or("a newcomer");
    let text = format!(
        "Show {name} what the Pontoon demo can do: greet, roll three dice, count to five, and \
         write a short report about it. Say in one sentence what each step showed."
    );
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    Ok(json!({"description": "A tour of the demo", "messages": [message]}))
}

/// The resource at `uri`.
pub(super) fn resource(uri: &Value, era: Era) -> Result<Value, ErrorObject> {
    if uri != "demo://readme" {
        let code = if era == Era::Modern { code::INVALID_PARAMS } else { NO_RESOURCE };
        let error = ErrorObject::new(code, format!("there is no resource {uri}"));
        return Err(error.with_data(json!({"uri": uri}).to_string()));
    }
    let contents = json!({"uri": uri, "mimeType": "text/markdown", "text": README});
    Ok(json!({"contents": [contents]}))
}

/// How a legacy server says that there is no such resource.
const NO_RESOURCE: i64 = -32002;
