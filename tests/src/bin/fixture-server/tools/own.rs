//! Tools for our own tests.
//!
//! | tool | arguments | what it does |
//! | --- | --- | --- |
//! | `echo` | `text` | gives `text` back |
//! | `token` | `value` | gives `"<value> <pid>"`, as fast as can be |
//! | `pid` | | gives its process id |
//! | `wait` | `ms` | sleeps, unless it is cancelled |
//! | `count` | `steps`, `delay_ms` | tells its progress after each delay |
//! | `big` | `bytes` | gives a text of that many bytes |
//! | `ask` | `question` | asks the user; gives `accept:<answer>`, `decline` or `cancel` |
//! | `touch` | `uri` | says that the resource changed, to those who watch it |
//! | `environment` | | gives its environment variables, as a JSON object |
//! | `write_file` | `name`, `text` | writes a file, relative to the working directory |
//! | `crash` | | exits with 3 and a line on stderr, without an answer |

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Pace, Tool, form, nothing};
use crate::call::{Call, Outcome};
use crate::changes;
use crate::input::{Question, State, ask};
use crate::message::{text, tool_error};

pub(super) fn tools() -> Vec<Tool> {
    let tool = |name, description, schema, pace, run| Tool { name, description, schema, pace, run };
    let (quick, slow) = (Pace::Quick, Pace::Slow);
    let string = || json!({ "type": "string" });
    let count = || json!({ "type": "integer", "minimum": 0 });
    vec![
        tool("echo", "Says it again.", form(&[("text", string())]), quick, |call| {
            with(string_of(call, "text"), |said| Ok(text(said)))
        }),
        tool(
            "token",
            "Says it with the process id.",
            form(&[("value", string())]),
            quick,
            |call| {
                with(string_of(call, "value"), |value| {
                    Ok(text(format!("{value} {}", std::process::id())))
                })
            },
        ),
        tool("pid", "The process id.", nothing(), quick, |_| {
            Ok(text(std::process::id().to_string()))
        }),
        tool("wait", "Sleeps.", form(&[("ms", count())]), slow, |call| {
            with(number_of(call, "ms"), |ms| {
                call.sleep(Duration::from_millis(ms))?;
                Ok(text(format!("waited {ms} ms")))
            })
        }),
        tool(
            "count",
            "Counts.",
            form(&[("steps", count()), ("delay_ms", count())]),
            slow,
            counting,
        ),
        tool("big", "A long text.", form(&[("bytes", count())]), slow, |call| {
            with(number_of(call, "bytes"), |bytes| match usize::try_from(bytes) {
                Ok(bytes) if bytes <= 1 << 30 => Ok(text("x".repeat(bytes))),
                _ => Ok(tool_error("`bytes` is more than 1 GiB")),
            })
        }),
        tool("ask", "Asks the user.", form(&[("question", string())]), slow, asking),
        tool("touch", "Touches a resource.", form(&[("uri", string())]), quick, |call| {
            with(string_of(call, "uri"), |uri| {
                changes::touch(call, uri);
                Ok(text("touched"))
            })
        }),
        tool("environment", "The environment.", nothing(), quick, |_| {
            let variables: Map<String, Value> = std::env::vars_os()
                .map(|(name, value)| {
                    (name.to_string_lossy().into_owned(), value.to_string_lossy().into())
                })
                .collect();
            Ok(text(Value::Object(variables).to_string()))
        }),
        tool(
            "write_file",
            "Writes a file.",
            form(&[("name", string()), ("text", string())]),
            slow,
            write_file,
        ),
        tool(
            "refer",
            "Gives a link.",
            form(&[("uri", string()), ("text", string())]),
            quick,
            |call| {
                let arguments =
                    string_of(call, "uri").and_then(|uri| Ok((uri, string_of(call, "text")?)));
                with(arguments, |(uri, said)| {
                    let link = json!({ "type": "resource_link", "uri": uri, "name": "a report" });
                    Ok(json!({ "content": [{ "type": "text", "text": said }, link] }))
                })
            },
        ),
        tool("crash", "Dies.", nothing(), quick, |_| {
            let _ = writeln!(io::stderr(), "fixture-server: crashing because it was asked to");
            std::process::exit(3);
        }),
    ]
}

/// Goes on with an argument, or tells the model which one is wrong.
fn with<T>(argument: Result<T, String>, go_on: impl FnOnce(T) -> Outcome) -> Outcome {
    match argument {
        Ok(argument) => go_on(argument),
        Err(wrong) => Ok(tool_error(wrong)),
    }
}

fn string_of<'a>(call: &'a Call, name: &str) -> Result<&'a str, String> {
    let argument = call.argument(name).and_then(Value::as_str);
    argument.ok_or_else(|| format!("argument `{name}` must be a string"))
}

fn number_of(call: &Call, name: &str) -> Result<u64, String> {
    let argument = call.argument(name).and_then(Value::as_u64);
    argument.ok_or_else(|| format!("argument `{name}` must be an integer of 0 or more"))
}

fn counting(call: &Call) -> Outcome {
    let arguments = number_of(call, "steps").and_then(|steps| {
        let delay =
            if call.argument("delay_ms").is_some() { number_of(call, "delay_ms")? } else { 0 };
        Ok((steps, delay))
    });
    with(arguments, |(steps, delay)| {
        for step in 1..=steps {
            call.sleep(Duration::from_millis(delay))?;
            call.progress(step, steps);
        }
        Ok(text(format!("counted to {steps}")))
    })
}

fn asking(call: &Call) -> Outcome {
    with(string_of(call, "question"), |question| {
        let schema = form(&[("answer", json!({ "type": "string" }))]);
        let answers = ask(call, &[Question::elicit("ask", question, &schema)], State::WhenNeeded)?;
        let answer = &answers[0];
        Ok(text(match answer["action"].as_str() {
            Some("accept") => {
                format!("accept:{}", answer["content"]["answer"].as_str().unwrap_or_default())
            }
            action => action.unwrap_or_default().to_owned(),
        }))
    })
}

fn write_file(call: &Call) -> Outcome {
    let arguments = string_of(call, "name").and_then(|name| Ok((name, string_of(call, "text")?)));
    with(arguments, |(name, contents)| match std::fs::write(name, contents) {
        Ok(()) => Ok(text(format!("wrote {} bytes to {name}", contents.len()))),
        Err(error) => Ok(tool_error(format!("`{name}` was not written: {error}"))),
    })
}
