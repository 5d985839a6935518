//! What the demo server offers: six tools, a prompt, a resource.
//!
//! Each shows one thing that a bridge has to carry: a plain answer, data, a file, progress, a
//! cancelled call, a question to the user.

use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Call, Era, Refusal};

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

/// What came of a call.
pub(super) enum Outcome {
    Text(String),
    /// The text and the structured content.
    Data(String, Value),
    /// An error for the model to read, with what would be right.
    Wrong(String),
    /// Questions for a modern client, and the state it brings back with the answers.
    InputRequired(Value, &'static str),
    /// Cancelled: there is nobody to answer.
    Stopped,
}

/// Wrong input, in words that help to put it right.
struct Wrong(String);

/// Whether the tool answers at once. The others wait, and so need a thread.
pub(super) fn is_quick(params: &Value) -> bool {
    !matches!(params["name"].as_str(), Some("count" | "slow_echo" | "ask_name"))
}

/// Runs the tool that the call names.
pub(super) fn call(call: &Call) -> Result<Outcome, Refusal> {
    let arguments = &call.params["arguments"];
    let outcome = match call.params["name"].as_str() {
        Some("greet") => greet(arguments),
        Some("make_report") => make_report(arguments, &call.server.work_dir),
        Some("count") => count(arguments, call),
        Some("slow_echo") => slow_echo(arguments, call),
        Some("ask_name") => return ask_name(arguments, call),
        Some("roll_dice") => roll_dice(arguments),
        name => {
            let name = name.unwrap_or_default();
            let text = format!("there is no tool `{name}`; `tools/list` names those there are");
            return Err(Refusal::new(-32602, text));
        }
    };
    Ok(outcome.unwrap_or_else(|Wrong(text)| Outcome::Wrong(text)))
}

fn greet(arguments: &Value) -> Result<Outcome, Wrong> {
    only(arguments, &["name"])?;
    Ok(Outcome::Text(format!("Hello, {}!", text(arguments, "name")?)))
}

fn count(arguments: &Value, call: &Call) -> Result<Outcome, Wrong> {
    only(arguments, &["to", "delay_ms"])?;
    let to = integer(arguments, "to", 1, 1000, None)?;
    let delay = Duration::from_millis(integer(arguments, "delay_ms", 0, 10_000, Some(200))?);
    for number in 1..=to {
        call.progress(number, to, &format!("{number} of {to}"));
        // Waiting comes after telling: some clients drop a note that comes along with the answer.
        if !call.pause(delay) {
            return Ok(Outcome::Stopped);
        }
    }
    Ok(Outcome::Text(format!("Counted to {to}.")))
}

fn slow_echo(arguments: &Value, call: &Call) -> Result<Outcome, Wrong> {
    only(arguments, &["text", "seconds"])?;
    let text = text(arguments, "text")?.to_owned();
    let seconds = integer(arguments, "seconds", 0, 300, Some(3))?;
    let is_over = call.pause(Duration::from_secs(seconds));
    Ok(if is_over { Outcome::Text(text) } else { Outcome::Stopped })
}

/// The state holds no secret and changes nothing, so it needs no seal: a forged one is refused.
const NAME_ASKED: &str = "ask_name/1";

fn ask_name(arguments: &Value, call: &Call) -> Result<Outcome, Refusal> {
    if let Err(Wrong(text)) = only(arguments, &[]) {
        return Ok(Outcome::Wrong(text));
    }
    if !call.can_ask() {
        let text = "this client cannot ask its user (no `elicitation`); ask for the name yourself \
                    and call `greet` with it";
        return Ok(Outcome::Wrong(text.into()));
    }
    let mut question = json!({
        "message": "What is your name?",
        "requestedSchema": {
            "type": "object",
            "properties": {"name": {"type": "string", "title": "Your name", "minLength": 1}},
            "required": ["name"],
        },
    });
    let answer = match call.era {
        Era::Legacy => match call.ask(&question) {
            Some(answer) => answer,
            None => return Ok(Outcome::Stopped),
        },
        Era::Modern => {
            if !matches!(call.params["requestState"].as_str(), None | Some(NAME_ASKED)) {
                return Err(Refusal::new(-32602, "`requestState` is not one of ours"));
            }
            call.params["inputResponses"]["name"].clone()
        }
    };
    let name = answer["content"]["name"].as_str().map_or("", str::trim);
    Ok(match (answer["action"].as_str(), call.era) {
        (Some("accept"), _) if !name.is_empty() => Outcome::Text(format!("Hello, {name}!")),
        (Some("accept") | None, Era::Modern) => {
            question["mode"] = "form".into();
            let question = json!({"method": "elicitation/create", "params": question});
            Outcome::InputRequired(json!({"name": question}), NAME_ASKED)
        }
        _ => Outcome::Text("Hello, whoever you are!".into()),
    })
}

fn roll_dice(arguments: &Value) -> Result<Outcome, Wrong> {
    only(arguments, &["sides", "times"])?;
    let sides = integer(arguments, "sides", 2, 1000, Some(6))?;
    let times = integer(arguments, "times", 1, 100, Some(1))?;
    // The standard library's hasher has random keys, which is luck enough for dice.
    let luck = RandomState::new();
    let rolls: Vec<_> = (0..times).map(|time| luck.hash_one(time) % sides + 1).collect();
    let total = rolls.iter().sum::<u64>();
    let words: Vec<_> = rolls.iter().map(u64::to_string).collect();
    let text = format!("Rolled {}: {total} in all.", words.join(", "));
    Ok(Outcome::Data(text, json!({"rolls": rolls, "total": total})))
}

fn make_report(arguments: &Value, work_dir: &Path) -> Result<Outcome, Wrong> {
    only(arguments, &["title", "lines", "format", "file_name"])?;
    let title = text(arguments, "title")?;
    let lines = arguments["lines"].as_array();
    let lines = lines.and_then(|lines| lines.iter().map(Value::as_str).collect());
    let lines: Vec<&str> = lines.ok_or_else(|| {
        Wrong("`lines` must be a list of texts, such as [\"first\", \"second\"]".into())
    })?;
    let (format, content) = match arguments.get("format").map_or(Some("html"), Value::as_str) {
        Some("html") => ("html", html(title, &lines)),
        Some("csv") => ("csv", csv(&lines)),
        Some("md") => ("md", markdown(title, &lines)),
        _ => return Err(Wrong("`format` must be `html`, `csv` or `md`".into())),
    };
    let name = match arguments.get("file_name") {
        Some(_) => text(arguments, "file_name")?,
        None => title,
    };
    let name = name.strip_suffix(&format!(".{format}")).unwrap_or(name);
    let path =
        write_new(work_dir, &safe_name(name), format, content.as_bytes()).map_err(|error| {
            Wrong(format!("cannot write to {}: {error}; set MCPO_WORKDIR", work_dir.display()))
        })?;
    Ok(Outcome::Text(format!("Wrote {} ({} bytes).", path.display(), content.len())))
}

fn html(title: &str, lines: &[&str]) -> String {
    let safe = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let items: String = lines.iter().map(|line| format!("<li>{}</li>\n", safe(line))).collect();
    let title = safe(title);
    format!(
        "<!doctype html>\n<html lang=\"\">\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <style>body {{ font: 1.1rem/1.6 system-ui; max-width: 40rem; margin: 3rem auto }}</style>\n\
         <h1>{title}</h1>\n<ul>\n{items}</ul>\n</html>\n"
    )
}

/// With a byte order mark, without which Excel takes UTF-8 for something else.
fn csv(lines: &[&str]) -> String {
    let mut csv = String::from("\u{feff}\"number\",\"text\"\r\n");
    for (line, number) in lines.iter().zip(1_u32..) {
        // A cell that begins like a formula would be run by whoever opens the file.
        let guard = if line.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
        csv += &format!("{number},\"{guard}{}\"\r\n", line.replace('"', "\"\""));
    }
    csv
}

fn markdown(title: &str, lines: &[&str]) -> String {
    let items: String = lines.iter().map(|line| format!("- {line}\n")).collect();
    format!("# {title}\n\n{items}")
}

/// Letters and digits of any script, with a hyphen for each run of something else.
fn safe_name(text: &str) -> String {
    let words =
        text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let name: String = words.collect::<Vec<_>>().join("-").chars().take(60).collect();
    if name.is_empty() { "report".into() } else { name }
}

/// Writes a file that was not there before; a name in use gets a number.
fn write_new(dir: &Path, name: &str, format: &str, content: &[u8]) -> io::Result<PathBuf> {
    for number in 1..1000 {
        let number = if number == 1 { String::new() } else { format!("-{number}") };
        let path = dir.join(format!("{name}{number}.{format}"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(content)?;
                return path.canonicalize();
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other(format!("there are too many files called {name}")))
}

/// Refuses arguments that no one asked for: most often they are misspelt.
fn only(arguments: &Value, known: &[&str]) -> Result<(), Wrong> {
    let arguments = match arguments {
        Value::Null => return Ok(()),
        Value::Object(arguments) => arguments,
        _ => return Err(Wrong("the arguments must be an object".into())),
    };
    let unknown = arguments.keys().find(|name| !known.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| {
        let known = match known {
            [] => "none".to_owned(),
            known => format!("`{}`", known.join("`, `")),
        };
        Err(Wrong(format!("there is no argument `{name}`; there is {known}")))
    })
}

fn text<'a>(arguments: &'a Value, name: &str) -> Result<&'a str, Wrong> {
    let text = arguments[name].as_str().map(str::trim).filter(|text| !text.is_empty());
    let text = text.filter(|text| text.len() <= 1000);
    text.ok_or_else(|| Wrong(format!("`{name}` must be a text of 1 to 1000 bytes")))
}

fn integer(
    arguments: &Value,
    name: &str,
    least: u64,
    most: u64,
    default: Option<u64>,
) -> Result<u64, Wrong> {
    let given = arguments.get(name);
    let value = if given.is_none() { default } else { given.and_then(Value::as_u64) };
    value
        .filter(|value| (least..=most).contains(value))
        .ok_or_else(|| Wrong(format!("`{name}` must be a whole number from {least} to {most}")))
}

/// The tools, in the order a newcomer would try them.
pub(super) fn list() -> Value {
    let object = |properties: Value, required: &[&str]| {
        json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })
    };
    let tool = |name: &str, title: &str, description: &str, input: Value, is_read_only: bool| {
        json!({
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": input,
            "annotations": {"readOnlyHint": is_read_only, "openWorldHint": false},
        })
    };
    let whole = |least: u64, most: u64, default: u64, description: &str| {
        json!({
            "type": "integer",
            "minimum": least,
            "maximum": most,
            "default": default,
            "description": description,
        })
    };
    let text = |description: &str| json!({"type": "string", "description": description});
    let mut dice = tool(
        "roll_dice",
        "Roll dice",
        "Rolls dice and adds them up.",
        object(
            json!({
                "sides": whole(2, 1000, 6, "Sides of each die."),
                "times": whole(1, 100, 1, "How many dice."),
            }),
            &[],
        ),
        true,
    );
    let rolls = json!({"type": "array", "items": {"type": "integer"}});
    dice["outputSchema"] =
        object(json!({"rolls": rolls, "total": {"type": "integer"}}), &["rolls", "total"]);
    json!([
        tool(
            "greet",
            "Greet",
            "Says hello to someone.",
            object(json!({"name": text("Whom to greet.")}), &["name"]),
            true,
        ),
        tool(
            "make_report",
            "Make a report",
            "Writes a title and some lines into a file of the working directory and tells where.",
            object(
                json!({
                    "title": text("The title of the report."),
                    "lines": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "The lines of the report.",
                    },
                    "format": {
                        "type": "string",
                        "enum": ["html", "csv", "md"],
                        "default": "html",
                        "description": "What kind of file: a web page, a table or Markdown.",
                    },
                    "file_name": text("The name of the file; made from the title if left out."),
                }),
                &["title", "lines"],
            ),
            false,
        ),
        tool(
            "count",
            "Count",
            "Counts slowly and tells its progress.",
            object(
                json!({
                    "to": whole(1, 1000, 10, "The last number."),
                    "delay_ms": whole(0, 10_000, 200, "Milliseconds after each number."),
                }),
                &["to"],
            ),
            true,
        ),
        tool(
            "slow_echo",
            "Slow echo",
            "Gives a text back after some seconds. Can be cancelled.",
            object(
                json!({
                    "text": text("What to give back."),
                    "seconds": whole(0, 300, 3, "How long to wait."),
                }),
                &["text"],
            ),
            true,
        ),
        tool(
            "ask_name",
            "Ask for a name",
            "Asks the user for a name, then says hello.",
            object(json!({}), &[]),
            true,
        ),
        dice,
    ])
}

/// The one prompt.
pub(super) fn prompts() -> Value {
    let name = json!({"name": "name", "description": "Your name.", "required": false});
    json!([{
        "name": "tour",
        "title": "A tour of the demo",
        "description": "Lets the model try every tool once.",
        "arguments": [name],
    }])
}

/// The prompt that `params` name, or why there is none.
pub(super) fn prompt(params: &Value) -> Result<Value, String> {
    if params["name"] != "tour" {
        return Err(format!("there is no prompt {}; there is \"tour\"", params["name"]));
    }
    let name = params["arguments"]["name"].as_str().unwrap_or("a newcomer");
    let text = format!(
        "Show {name} what the Pontoon demo can do: greet, roll three dice, count to five, and \
         write a short report about it. Say in one sentence what each step showed."
    );
    let message = json!({"role": "user", "content": {"type": "text", "text": text}});
    Ok(json!({"description": "A tour of the demo", "messages": [message]}))
}

/// The one resource.
pub(super) fn resources() -> Value {
    json!([{
        "uri": "demo://readme",
        "name": "readme",
        "title": "About the demo",
        "description": "What each tool shows.",
        "mimeType": "text/markdown",
        "size": README.len(),
    }])
}

/// The resource that `params` name, or why there is none.
pub(super) fn resource(params: &Value) -> Result<Value, String> {
    if params["uri"] != "demo://readme" {
        return Err(format!("there is no resource {}", params["uri"]));
    }
    let contents = json!({"uri": "demo://readme", "mimeType": "text/markdown", "text": README});
    Ok(json!({"contents": [contents]}))
}
