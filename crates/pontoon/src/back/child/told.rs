//! What clients are told of a failure: everything but where things lie on this machine.
//!
//! The log, `/health` with the key, and `pontoon call` at a terminal have the paths; a client has no use for
//! them, and they tell of users, folders and versions.

use std::path::Path;

use crate::config::ProgramError;

/// Who hears of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearers {
    /// Clients of any kind.
    Clients,
    /// The person who runs this program.
    Operator,
}

impl Hearers {
    /// Why the program of a server cannot be run, as it may be told.
    pub(crate) fn told_of_program(self, error: &ProgramError) -> Option<String> {
        (self == Self::Clients).then(|| of_program(error))
    }

    /// What happened, as it may be told; `jobs` is where jobs and workspaces are.
    pub(crate) fn told(self, what: &str, jobs: &Path) -> String {
        match self {
            Self::Operator => what.to_owned(),
            Self::Clients => {
                // Wherever it stands, also in the middle of a word.
                let jobs = format!("{}/", jobs.display());
                without_folders(&what.replace(&jobs, "/"))
            }
        }
    }
}

fn of_program(error: &ProgramError) -> String {
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let mend = "whoever runs the bridge has to install it, or to correct `command`";
    match error {
        ProgramError::NotFound { command, .. } => {
            format!("the program `{}` was not found; {mend}", last(command))
        }
        ProgramError::NotExecutable { program } => {
            format!("`{}` is not an executable file; {mend}", last(&program.to_string_lossy()))
        }
        ProgramError::Application => error.to_string(),
        ProgramError::OwnPath { .. } => "the path of this program is unknown".to_owned(),
    }
}

/// The text with every absolute path cut down to its last part. An address of the web is none.
fn without_folders(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('/') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if from.starts_with("//") && out.ends_with(':') {
            match out.strip_suffix("file:").map(str::len) {
                // A path in the form of an address.
                Some(length) => out.truncate(length),
                None => {
                    let (address, after) = from.split_at(word_end(from, None));
                    out.push_str(address);
                    rest = after;
                    continue;
                }
            }
        }
        let quote = out.chars().last();
        if !quote.is_none_or(begins_path) {
            out.push('/');
            rest = &from[1..];
            continue;
        }
        let (path, after) = from.split_at(word_end(from, quote));
        let last = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        out.push_str(if last.is_empty() { "/" } else { last });
        rest = after;
    }
    out + rest
}

/// Whether a path may stand behind this.
fn begins_path(c: char) -> bool {
    c.is_whitespace() || "'\"`([{<=,;|:@>".contains(c)
}

/// Where a word ends; what stands in quotes ends with the quote.
fn word_end(text: &str, quote: Option<char>) -> usize {
    let quote = quote.filter(|quote| "'\"`".contains(*quote) && text.contains(*quote));
    let is_end = |c: char| match quote {
        Some(quote) => c == quote,
        None => c.is_whitespace() || "'\"`)]}>,;|:".contains(c),
    };
    // The sign of an address is no end of it.
    let skip = if text.starts_with("//") { 2 } else { 0 };
    text[skip..].find(is_end).map_or(text.len(), |at| at + skip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_down_to_their_last_part() {
        let check = |text: &str, expected: &str| assert_eq!(without_folders(text), expected);
        check("`/opt/My Tools/run.py` could not be executed", "`run.py` could not be executed");
        check("File \"/srv/app/a b/x.py\", line 3", "File \"x.py\", line 3");
        check("at file:///home/ada/x.mjs:3:7", "at x.mjs:3:7");
        check("(/usr/lib/node.js:12) | /etc/x, --config=/a/b/", "(node.js:12) | x, --config=b");
        check("cd /: /tmp: no /", "cd /: tmp: no /");
        check("'/home/ada' is gone", "'ada' is gone");
        check("an odd ' /home/ada", "an odd ' ada");
    }

    #[test]
    fn what_is_no_path_stays() {
        for text in [
            "",
            "see https://example.com/a/b?c=/d and ws://h/x",
            "text/plain, and/or 1/2, ./a/b, ~/x, ../y",
            "exited with code 1",
            "売上/報告",
        ] {
            assert_eq!(without_folders(text), text);
        }
    }
}
