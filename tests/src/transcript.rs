//! Transcripts: a conversation as text, read and played against the real bridge.
//!
//! ```text
//! # Why: a cancelled call gets no answer, and its child is gone.
//! front http   back stateless   server rude-server --how hang
//! > {"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"wait"}}
//! = child running
//! > {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}
//! = child gone
//! < nothing
//! ```
//!
//! The setup line has parts, set apart by two spaces or more: `front http` (legacy) or `front http
//! modern`; `back` and the mode; `server` and its command line; any other word is a member of the
//! server's entry in the configuration, as `timeout 2` or `heal off`. `ready never` is for one that cannot be used.
//!
//! | line | meaning |
//! |---|---|
//! | `> JSON` | the client posts this; the player adds headers, and `_meta` in the modern era |
//! | `> GET` | the client opens the stream of its session |
//! | `> DELETE` | the client ends its session |
//! | `< JSON` | the next message the client hears, on whichever stream |
//! | `< nothing` | every post is answered in full and brought nothing more |
//! | `~ JSON` | from here on, messages like this may be heard or not; `~ nothing` takes that back |
//! | `= status 202` | the status of the last post |
//! | `= child running`, `= child gone` | whether a process of the server is there |
//! | `= healed H01` | the log of the bridge names this heal, once |
//! | `# …` | why |
//!
//! A line that begins with a space goes on with the one before. In what is heard, `"…"` stands for
//! any value, `"a…b"` for text between, `"…": "…"` for further members, and `"$x"` for a value
//! that later lines may say again as `"$x"`. Without an `initialize` of its own, a legacy
//! transcript begins in an open session. At its end nothing more may have been heard.

mod pattern;
mod play;

use serde_json::{Map, Value};

pub use pattern::{Captures, fill, matches};
pub use play::{play, play_over_websocket};

/// One conversation.
#[derive(Debug)]
pub struct Transcript {
    /// Who talks to whom.
    pub setup: Setup,
    /// What happens, each with the number of its line.
    pub steps: Vec<(usize, Step)>,
}

/// Who talks to whom.
#[derive(Debug, PartialEq)]
pub struct Setup {
    /// The client is of the modern era.
    pub modern: bool,
    /// The name of the server's program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// It never gets ready, and is not waited for.
    pub never_ready: bool,
    /// Further members of its entry.
    pub settings: Map<String, Value>,
}

/// One line of a transcript.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// The client posts this.
    Post(Value),
    /// The client opens the stream of its session.
    Listen,
    /// The client ends its session.
    End,
    /// The client hears something like this next.
    Hear(Value),
    /// The client has heard everything.
    HearNothing,
    /// The client may hear such things, or, if none is given, no more.
    Allow(Option<Value>),
    /// The last post got this status.
    Status(u16),
    /// A process of the server is, or is not, there.
    Child {
        /// It is.
        running: bool,
    },
    /// The log names this heal once.
    Healed(String),
}

impl Transcript {
    /// Reads a transcript.
    ///
    /// # Errors
    ///
    /// What is wrong, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut setup = None;
        let mut steps = Vec::new();
        for (number, line) in joined_lines(text) {
            let wrong = |what: &str| format!("line {number}: {what}: {line}");
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if line.starts_with("front ") {
                if setup.replace(Setup::parse(&line).map_err(|what| wrong(&what))?).is_some() {
                    return Err(wrong("a second setup"));
                }
                continue;
            }
            let step = Step::parse(&line).map_err(|what| wrong(&what))?;
            steps.push((number, step));
        }
        let setup = setup.ok_or("no line begins with `front`")?;
        if !steps.iter().any(|(_, step)| !matches!(step, Step::Post(_) | Step::Listen | Step::End))
        {
            return Err(String::from("it checks nothing"));
        }
        Ok(Self { setup, steps })
    }
}

/// The lines with their numbers; one that begins with a space belongs to the one before.
fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match lines.last_mut() {
            Some((_, open)) if line.starts_with(' ') => open.push_str(line.trim_end()),
            _ => lines.push((index + 1, line.trim_end().to_owned())),
        }
    }
    lines
}

impl Setup {
    fn parse(line: &str) -> Result<Self, String> {
        let mut setup = Self {
            modern: false,
            program: String::new(),
            args: Vec::new(),
            never_ready: false,
            settings: Map::new(),
        };
        for part in line.split("  ").map(str::trim).filter(|part| !part.is_empty()) {
            let (word, rest) =
                part.split_once(' ').ok_or_else(|| format!("`{part}` says nothing"))?;
            match (word, rest.trim()) {
                ("front", "http" | "http legacy") => setup.modern = false,
                ("front", "http modern") => setup.modern = true,
                ("front", other) => return Err(format!("no front `{other}`")),
                ("ready", "never") => setup.never_ready = true,
                ("back", mode) => drop(setup.settings.insert(String::from("mode"), mode.into())),
                ("server", command) => {
                    let mut words = command.split_ascii_whitespace().map(str::to_owned);
                    setup.program = words.next().unwrap_or_default();
                    setup.args = words.collect();
                }
                (key, value) => {
                    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
                    setup.settings.insert(key.to_owned(), value);
                }
            }
        }
        if setup.program.is_empty() || !setup.settings.contains_key("mode") {
            return Err(String::from("wants `front`, `back` and `server`"));
        }
        Ok(setup)
    }
}

impl Step {
    fn parse(line: &str) -> Result<Self, String> {
        let (mark, rest) = line.split_at_checked(1).unwrap_or((line, ""));
        let rest = rest.trim();
        let json = || serde_json::from_str(rest).map_err(|error| error.to_string());
        match (mark, rest) {
            (">", "GET") => Ok(Self::Listen),
            (">", "DELETE") => Ok(Self::End),
            (">", _) => json().map(Self::Post),
            ("<", "nothing") => Ok(Self::HearNothing),
            ("<", _) => json().map(Self::Hear),
            ("~", "nothing") => Ok(Self::Allow(None)),
            ("~", _) => json().map(|pattern| Self::Allow(Some(pattern))),
            ("=", "child running") => Ok(Self::Child { running: true }),
            ("=", "child gone") => Ok(Self::Child { running: false }),
            ("=", _) => match rest.split_once(' ') {
                Some(("status", code)) => {
                    code.parse().map(Self::Status).map_err(|_| String::from("no status"))
                }
                Some(("healed", code)) => Ok(Self::Healed(code.to_owned())),
                _ => Err(String::from("nothing that can be checked")),
            },
            _ => Err(String::from("no such line")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_transcript_is_read_line_by_line() {
        let text = "# why\nfront http modern   back stateful   server rude-server --how banner   \
                    timeout 2\n> {\"id\":1,\n  \"method\":\"x\"}\n= status 202\n< nothing\n= healed H01\n";
        let transcript = Transcript::parse(text).unwrap();
        assert!(transcript.setup.modern);
        assert_eq!(transcript.setup.program, "rude-server");
        assert_eq!(transcript.setup.args, ["--how", "banner"]);
        assert_eq!(transcript.setup.settings["timeout"], 2);
        assert_eq!(
            transcript.steps,
            [
                (3, Step::Post(json!({"id": 1, "method": "x"}))),
                (5, Step::Status(202)),
                (6, Step::HearNothing),
                (7, Step::Healed(String::from("H01"))),
            ]
        );
    }

    #[test]
    fn mistakes_name_their_line() {
        let setup = "front http  back stateless  server rude-server\n";
        for (text, wanted) in [
            (String::from("> {}\n< nothing\n"), "no line begins with `front`"),
            (format!("{setup}> {{}}\n"), "it checks nothing"),
            (format!("{setup}> {{\n"), "line 2: EOF"),
            (format!("{setup}? {{}}\n"), "line 2: no such line"),
            (format!("{setup}= child asleep\n"), "line 2: nothing that can be checked"),
            (String::from("front ws  back x  server y\n"), "line 1: no front `ws`"),
        ] {
            let mistake = Transcript::parse(&text).unwrap_err();
            assert!(mistake.starts_with(wanted), "{mistake:?} for {text:?}");
        }
    }
}
