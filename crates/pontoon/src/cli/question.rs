//! A server's question in the middle of `pontoon call`: answered as typed beforehand, else by the person at the terminal.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};

use pontoon_supervise::plain_text;
use pontoon_wire::{Message, Slot, envelope, quoted};
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::terminal::tell;
use super::typed_words::fit;
use super::waiting::WaitingLine;
use crate::config::nearest;

/// The longest line of an answer.
const LONGEST: usize = 64 << 10;

/// The answers that were typed beforehand, and which of them were asked for.
#[derive(Debug)]
pub(super) struct TypedAnswers<'a> {
    answers: Vec<(&'a str, &'a str)>,
    used: BTreeSet<&'a str>,
    asked: BTreeSet<String>,
}

impl<'a> TypedAnswers<'a> {
    pub(super) fn new(answers: Vec<(&'a str, &'a str)>) -> Self {
        Self { answers, used: BTreeSet::new(), asked: BTreeSet::new() }
    }

    /// What was typed for this.
    fn of(&mut self, name: &str) -> Option<&'a str> {
        self.asked.insert(name.to_owned());
        let (key, value) = self.answers.iter().find(|(key, _)| *key == name)?;
        self.used.insert(key);
        Some(value)
    }

    /// What is to be said of answers that no question asked for.
    pub(super) fn unused(&self) -> Option<String> {
        let unused =
            self.answers.iter().map(|(key, _)| *key).find(|key| !self.used.contains(key))?;
        Some(match nearest(unused, self.asked.iter().map(String::as_str)) {
            Some(meant) => format!(
                "the server did not ask for {unused:?}, but for {meant:?}: write --answer {meant}=..."
            ),
            None if self.asked.is_empty() => {
                format!("--answer {unused}=... was not used: the server asked nothing")
            }
            None => {
                let asked: Vec<_> = self.asked.iter().map(String::as_str).collect();
                format!(
                    "--answer {unused}=... was not used: the server asked for {}",
                    asked.join(", ")
                )
            }
        })
    }
}

/// Answers a server's question; without an answer it is declined. Dropping this while a person is asked leaves
/// the terminal as it was, at the beginning of a line.
pub(super) async fn answer(
    question: &Message,
    answers: &mut TypedAnswers<'_>,
    line: &WaitingLine,
) -> Message {
    let _hidden = line.hidden();
    let id = String::from_utf8_lossy(question.raw(Slot::Id).unwrap_or_default()).into_owned();
    let params = params_of(question);
    let answer = |result: Value| Message::own(envelope::result_answer(&id, &result.to_string()));
    let message = params["message"].as_str().unwrap_or_default();
    tell(&format!("the server asks: {}", plain_text(message.to_owned())));
    let mut content = Map::new();
    let properties = params["requestedSchema"]["properties"].as_object();
    for (name, property) in properties.into_iter().flatten() {
        if let Some(value) = answers.of(name) {
            content.insert(name.clone(), fit(property, value));
            continue;
        }
        if !io::stdin().is_terminal() {
            tell(&format!(
                "(declined: standard input is no terminal; answer with --answer {name}=...)"
            ));
            return answer(json!({ "action": "decline" }));
        }
        let label = property["description"].as_str().or(property["title"].as_str()).unwrap_or(name);
        let label = plain_text(label.to_owned());
        match typed_line(&format!("  {label} ({}): ", quoted(name))).await {
            Ok(Some(typed)) => content.insert(name.clone(), fit(property, &typed)),
            Ok(None) => return answer(json!({ "action": "cancel" })),
            Err(error) => {
                tell(&format!("(declined: the terminal cannot be read: {error})"));
                return answer(json!({ "action": "decline" }));
            }
        };
    }
    answer(json!({ "action": "accept", "content": content }))
}

/// What a person types behind this prompt; `None` at the end of the input (Ctrl-D). No thread waits at the terminal, so
/// that an interruption ends it.
async fn typed_line(prompt: &str) -> io::Result<Option<String>> {
    let mut input = terminal()?;
    drop(io::stderr().write_all(prompt.as_bytes()));
    // Until a line was typed, the cursor stands behind the prompt.
    let mut open = OpenPrompt { is_open: true };
    let mut typed = Vec::new();
    loop {
        let length = input.read_buf(&mut typed).await?;
        if length == 0 && typed.is_empty() {
            return Ok(None);
        }
        if length == 0 || typed.ends_with(b"\n") || typed.len() > LONGEST {
            open.is_open = !typed.ends_with(b"\n");
            let text = String::from_utf8_lossy(&typed);
            return Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()));
        }
    }
}

/// The terminal of standard input, opened anew: only we do not wait at it then, and not the shell that shares it.
fn terminal() -> io::Result<pipe::Receiver> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |path: &str| openat(CWD, path, flags, Mode::empty());
    // That of another user cannot be opened by its own name.
    let file = open("/dev/fd/0").or_else(|_| open("/dev/tty"))?;
    pipe::Receiver::from_owned_fd_unchecked(file)
}

/// A prompt that was not answered with a line.
struct OpenPrompt {
    is_open: bool,
}

impl Drop for OpenPrompt {
    fn drop(&mut self) {
        if self.is_open {
            drop(io::stderr().write_all(b"\n"));
        }
    }
}

pub(super) fn params_of(message: &Message) -> Value {
    serde_json::from_slice(message.raw(Slot::Params).unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_not_asked_for_is_told_with_what_was_meant() {
        for (typed, asked, expected) in [
            ("name", &["name"][..], None),
            (
                "nam",
                &["name"],
                Some(
                    "the server did not ask for \"nam\", but for \"name\": write --answer name=...",
                ),
            ),
            ("nam", &[], Some("--answer nam=... was not used: the server asked nothing")),
            (
                "x",
                &["name", "age"],
                Some("--answer x=... was not used: the server asked for age, name"),
            ),
        ] {
            let mut answers = TypedAnswers::new(vec![(typed, "Bob")]);
            for name in asked {
                answers.of(name);
            }
            assert_eq!(answers.unused().as_deref(), expected);
        }
    }
}
