//! What reading the configuration had to say: warnings and mistakes, all of them at once.
//!
//! Every remark knows its place, so that it can be found and put right without a second run.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// All remarks of one reading, in the order of their places.
///
/// Its text is a heading for each place and a line for each remark:
///
/// ```text
/// mcp-servers.json: 1 mistake, 1 warning
///   warning: line 5, column 7: mcpServers.excel: unknown key `comand`, did you mean `command`?
///   line 7, column 15: mcpServers.excel.heal: expected "off" or "warn" or "repair", found 5
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remarks {
    remarks: Vec<Remark>,
}

/// One thing to put right, or to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// What follows from it.
    pub weight: Weight,
    /// Where it was written.
    pub place: RemarkPlace,
    /// The key, variable or option it is about, such as `mcpServers.excel.timeout`; may be empty.
    pub key: String,
    /// What is wrong and what to write instead, without place and key.
    pub message: String,
}

/// What follows from a remark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Everything runs.
    Warning,
    /// One server cannot run as it stands; the others do.
    BrokenServer,
    /// Nothing runs until it is put right.
    Mistake,
}

/// Where a remark was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemarkPlace {
    /// An option of the command line.
    CommandLine,
    /// A variable of the environment.
    Environment,
    /// The configuration file.
    File {
        /// Its name as it was given.
        path: Arc<Path>,
        /// Where in it, unless all of it is meant.
        position: Option<Position>,
    },
}

/// A place in a text, both counted from one; columns are characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl Remarks {
    /// Every remark, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Remark> {
        self.remarks.iter()
    }

    /// True if there is nothing to say at all.
    pub fn is_empty(&self) -> bool {
        self.remarks.is_empty()
    }

    /// The heaviest weight, if there is any remark.
    pub fn heaviest(&self) -> Option<Weight> {
        self.remarks.iter().map(|remark| remark.weight).max()
    }

    /// True if some server is broken or nothing can run: what `pontoon check` refuses.
    pub fn need_repair(&self) -> bool {
        self.heaviest() > Some(Weight::Warning)
    }

    /// Makes those a warning that are not about one of these keys.
    pub(super) fn only_warn_except(&mut self, keys: &[&str]) {
        let others = self.remarks.iter_mut().filter(|remark| !keys.contains(&remark.key.as_str()));
        others.for_each(|remark| remark.weight = Weight::Warning);
    }

    /// Drops what does not concern these servers: what is said of others, and warnings about the bridge.
    pub(super) fn keep_only(&mut self, names: &[String]) {
        let is_of = |key: &str, name: &String| {
            let rest = key.strip_prefix(name.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.remarks.retain(|remark| match remark.key.strip_prefix("mcpServers.") {
            Some(key) => names.iter().any(|name| is_of(key, name)),
            None => remark.weight > Weight::Warning || remark.place != RemarkPlace::Environment,
        });
    }

    /// Makes of mistakes what breaks only their server, and says so.
    pub(super) fn break_only_server(&mut self, so: &str) {
        for mistake in self.remarks.iter_mut().filter(|it| it.weight == Weight::Mistake) {
            mistake.weight = Weight::BrokenServer;
            mistake.message.push_str(so);
        }
    }

    /// Takes over all of these.
    pub(super) fn take(&mut self, others: Self) {
        for Remark { weight, place, key, message } in others.remarks {
            self.add(weight, place, key, message);
        }
    }

    pub(super) fn add(
        &mut self,
        weight: Weight,
        place: RemarkPlace,
        key: impl Into<String>,
        message: impl Into<String>,
    ) {
        let remark = Remark { weight, place, key: key.into(), message: message.into() };
        // Kept sorted, so that the reader of the text meets them in the order of the file.
        let index = self.remarks.partition_point(|other| other.place <= remark.place);
        self.remarks.insert(index, remark);
    }
}

impl std::error::Error for Remarks {}

impl fmt::Display for Remarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.remarks.chunk_by(|a, b| a.place.is_beside(&b.place));
        for (index, group) in groups.enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            let warnings = group.iter().filter(|remark| remark.weight == Weight::Warning).count();
            write!(f, "{}: ", group[0].place.heading())?;
            match (group.len() - warnings, warnings) {
                (0, warnings) => write!(f, "{}", counted(warnings, "warning"))?,
                (mistakes, 0) => write!(f, "{}", counted(mistakes, "mistake"))?,
                (mistakes, warnings) => {
                    write!(f, "{}, {}", counted(mistakes, "mistake"), counted(warnings, "warning"))?
                }
            }
            for remark in group {
                write!(f, "\n  ")?;
                remark.write_without_path(f)?;
            }
        }
        Ok(())
    }
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

impl Remark {
    fn write_without_path(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.weight == Weight::Warning {
            write!(f, "warning: ")?;
        }
        if let RemarkPlace::File { position: Some(Position { line, column }), .. } = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        self.write_key_and_message(f)
    }

    fn write_key_and_message(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.message)
    }
}

/// The remark in one line, such as a log wants it, without its weight.
impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.place.heading())?;
        if let RemarkPlace::File { position: Some(Position { line, column }), .. } = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": ")?;
        self.write_key_and_message(f)
    }
}

impl RemarkPlace {
    fn heading(&self) -> String {
        match self {
            Self::CommandLine => "command line".to_owned(),
            Self::Environment => "environment".to_owned(),
            Self::File { path, .. } => path.display().to_string(),
        }
    }

    fn is_beside(&self, other: &Self) -> bool {
        self.heading() == other.heading()
    }
}

impl Position {
    /// The place of the byte `offset` in `text`.
    pub(super) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Remarks {
        /// The weight, the key and the message of each.
        pub(in super::super) fn lines(&self) -> Vec<String> {
            let line = |it: &Remark| format!("{:?}: {}: {}", it.weight, it.key, it.message);
            self.remarks.iter().map(line).collect()
        }
    }

    fn check(remarks: &[(Weight, RemarkPlace, &str)], text: &str) {
        let mut all = Remarks::default();
        for (weight, place, key) in remarks {
            all.add(*weight, place.clone(), *key, "is wrong");
        }
        assert_eq!(all.to_string(), text);
    }

    fn at(line: usize, column: usize) -> RemarkPlace {
        let path = Path::new("mcp-servers.json").into();
        RemarkPlace::File { path, position: Some(Position { line, column }) }
    }

    #[test]
    fn remarks_stand_under_their_place_in_its_order() {
        check(
            &[
                (Weight::Mistake, at(9, 1), "b"),
                (Weight::Warning, at(7, 18), "a"),
                (Weight::BrokenServer, at(10, 2), ""),
                (Weight::Mistake, RemarkPlace::Environment, "MCPO_TIMEOUT"),
            ],
            "environment: 1 mistake\n  MCPO_TIMEOUT: is wrong\n\
             mcp-servers.json: 2 mistakes, 1 warning\n  \
             warning: line 7, column 18: a: is wrong\n  \
             line 9, column 1: b: is wrong\n  \
             line 10, column 2: is wrong",
        );
    }

    #[test]
    fn a_remark_alone_is_one_line() {
        let place = at(7, 18);
        let message = "is wrong".to_owned();
        let remark = Remark { weight: Weight::Warning, place, key: "a".to_owned(), message };
        assert_eq!(remark.to_string(), "mcp-servers.json:7:18: a: is wrong");
    }

    #[test]
    fn what_is_wrong_with_others_is_not_told_of_one_server() {
        let mut all = Remarks::default();
        for key in ["mcpServers.a", "mcpServers.a.command", "mcpServers.ab", "mcpServers.b.args[0]"]
        {
            all.add(Weight::Mistake, at(1, 1), key, "is wrong");
        }
        all.add(Weight::Warning, RemarkPlace::Environment, "MCPO_X", "is unknown");
        all.add(Weight::Mistake, RemarkPlace::Environment, "MCPO_TIMEOUT", "is wrong");
        all.keep_only(&["a".to_owned()]);
        let keys: Vec<_> = all.iter().map(|remark| remark.key.as_str()).collect();
        assert_eq!(keys, ["MCPO_TIMEOUT", "mcpServers.a", "mcpServers.a.command"]);
    }

    #[test]
    fn columns_count_characters() {
        assert_eq!(Position::of("a\nüx", "a\nü".len()), Position { line: 2, column: 2 });
        assert_eq!(Position::of("", 0), Position { line: 1, column: 1 });
    }
}
