//! What a child last complained of on its standard error, as it may be told.

use std::sync::Arc;

use pontoon_supervise::Complaints;

use crate::observe::redact::Redactor;

/// What programs say when a file is kept from them.
const REFUSALS: [&str; 5] =
    ["EACCES", "EPERM", "ermission denied", "not permitted", "PermissionError"];

/// What to do about it.
const HINT: &str = "(its isolation keeps it from files that are not its own; if it needs some of \
                    them, name their folder in `isolation.read`, or in `isolation.write`)";

/// What a child complains of, also when it is gone.
#[derive(Debug, Clone)]
pub(crate) struct ChildWords {
    pub(crate) complaints: Complaints,
    pub(crate) redactor: Arc<Redactor>,
    /// Whether it is kept from files that it was not given.
    pub(crate) is_walled: bool,
}

impl ChildWords {
    /// The last of it, without what the child was told in confidence.
    pub(crate) fn last(&self) -> Vec<String> {
        let lines = self.complaints.last_lines();
        let mut lines: Vec<_> =
            lines.iter().map(|line| self.redactor.value("last_words", line)).collect();
        let is_refused = |line: &String| REFUSALS.iter().any(|word| line.contains(word));
        if self.is_walled && lines.iter().any(is_refused) {
            lines.push(HINT.to_owned());
        }
        lines
    }

    /// The same as the end of a sentence.
    pub(crate) fn told(&self) -> String {
        told(&self.last())
    }
}

/// What to do about a server that says nothing to us, but these lines.
pub(crate) fn told_of_silence(said: impl IntoIterator<Item = String>) -> String {
    let address = said.into_iter().find_map(|line| {
        let at = line.find("http://").or_else(|| line.find("https://"))?;
        let end = line[at..].find(|c: char| c.is_whitespace() || "()'\"<>,".contains(c));
        Some(line[at..end.map_or(line.len(), |end| at + end)].to_owned())
    });
    match address {
        Some(address) => format!(
            ": it listens at {address}, and is spoken to on its standard input and output here; look for an option such as \
             `--transport stdio`"
        ),
        None => ": look whether this is the command of an MCP server on standard input and output; some want an argument such \
                 as `stdio`"
            .to_owned(),
    }
}

/// These last words as the end of a sentence.
pub(crate) fn told(lines: &[String]) -> String {
    match lines {
        [] => String::new(),
        lines => format!("; its last words: {}", lines.join(" | ")),
    }
}
