//! Profiles: what clients, and the services behind them, take. Each is a dated file of data in `profiles`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::fault::Fault;

/// Names are never made shorter than this, or they could not be told apart.
const SHORTEST: usize = 16;

/// What one client takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name in settings, such as `claude-code`.
    pub name: String,
    /// Its name for people.
    pub title: String,
    /// The version it was measured with, or whose rules were read.
    pub version: String,
    /// When that was: year, month and day.
    pub date: String,
    /// How it is known.
    pub source: String,
    /// Whether the client was run; otherwise these are its published rules.
    pub is_measured: bool,
    /// The faults that cost it the tool.
    pub loses_tool: BTreeSet<Fault>,
    /// The faults that cost it all tools of the server.
    pub loses_server: BTreeSet<Fault>,
    /// The faults with which it makes less of a tool.
    pub minds: BTreeSet<Fault>,
    /// What it writes before the name of a tool, where `{server}` is the name that it has for the server.
    pub prefix: Option<String>,
    /// The names of tools that it takes, with that before them.
    pub tool_names: Names,
    /// The names of arguments that it takes.
    pub keys: Names,
    /// The keywords that it does not take.
    pub unsupported: Vec<String>,
    /// The only formats that it takes, if it minds others.
    pub formats: Option<Vec<String>>,
    /// The longest description that it does not cut by itself, in letters.
    pub max_description: Option<usize>,
    /// How many tools it takes.
    pub max_tools: Option<usize>,
}

impl Profile {
    /// Every profile, by its name.
    pub fn all() -> &'static [Profile] {
        &PROFILES
    }

    /// The profile of this name.
    pub fn named(name: &str) -> Option<&'static Profile> {
        PROFILES.iter().find(|profile| profile.name == name)
    }

    /// What most clients take: the profile that is meant if none is named.
    pub fn common() -> &'static Profile {
        Self::named("common").expect("a test reads every file")
    }

    /// Nothing is shaped for any client: only what is not valid is repaired.
    pub fn none() -> &'static Profile {
        Self::named("none").expect("a test reads every file")
    }

    /// The same for the tools of one server, which have its name before their own: there is less room for that.
    pub fn of_server(&self, name: &str) -> Profile {
        let before = self
            .prefix
            .as_ref()
            .map_or(0, |prefix| prefix.replace("{server}", name).chars().count());
        let max = self.tool_names.max.saturating_sub(before).max(SHORTEST);
        Profile { tool_names: Names { max, ..self.tool_names.clone() }, ..self.clone() }
    }

    /// Whether it makes less of a tool with this fault, or nothing at all.
    pub fn is_about(&self, fault: Fault) -> bool {
        [&self.loses_tool, &self.loses_server, &self.minds]
            .into_iter()
            .any(|all| all.contains(&fault))
    }
}

/// Names that a client takes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Names {
    /// The letters besides `A-Z`, `a-z` and `0-9`; `None` if any may be there.
    #[serde(default)]
    pub letters: Option<String>,
    /// How many letters there may be.
    #[serde(default = "unlimited")]
    pub max: usize,
    /// Whether a digit may come first.
    #[serde(default = "yes")]
    pub may_begin_with_digit: bool,
}

impl Default for Names {
    fn default() -> Self {
        Self { letters: None, max: usize::MAX, may_begin_with_digit: true }
    }
}

impl Names {
    /// Whether a name is taken as it is.
    pub(crate) fn fit(&self, name: &str) -> bool {
        let begins = self.may_begin_with_digit || !name.starts_with(|it: char| it.is_ascii_digit());
        let is_there = self.letters.is_none() || !name.is_empty();
        is_there && begins && self.has_letters(name) && name.chars().count() <= self.max
    }

    pub(crate) fn has_letters(&self, name: &str) -> bool {
        name.chars().all(|letter| self.has(letter))
    }

    fn has(&self, letter: char) -> bool {
        self.letters
            .as_ref()
            .is_none_or(|more| letter.is_ascii_alphanumeric() || more.contains(letter))
    }

    /// The name with letters that are taken, if that leaves something to know it by.
    pub(crate) fn fitted(&self, name: &str) -> String {
        if self.fit(name) {
            return name.to_owned();
        }
        let kept: String = name.chars().map(|it| if self.has(it) { it } else { '_' }).collect();
        let kept = kept.trim_matches('_');
        match !kept.is_empty() && self.fit(kept) {
            true => kept.to_owned(),
            false => self.marked(name),
        }
    }

    /// The name with letters that are taken, and a mark that tells it from others.
    pub(crate) fn marked(&self, name: &str) -> String {
        let kept: String = name.chars().map(|it| if self.has(it) { it } else { '_' }).collect();
        let kept = kept.trim_matches('_');
        let begins = if self.may_begin_with_digit { "" } else { "_" };
        let mark = format!("_{:06x}", mark(name) & 0xFF_FFFF);
        let room = self.max.saturating_sub(mark.len() + begins.len());
        let kept: String = kept.chars().take(room).collect();
        let begins = if kept.starts_with(|it: char| it.is_ascii_digit()) { begins } else { "" };
        format!("{begins}{kept}{mark}")
    }
}

/// FNV-1a, for names that are the same everywhere and always.
fn mark(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn unlimited() -> usize {
    usize::MAX
}

fn yes() -> bool {
    true
}

/// A profile as its file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    version: String,
    date: String,
    source: String,
    is_measured: bool,
    #[serde(default)]
    loses_tool: Vec<String>,
    #[serde(default)]
    loses_server: Vec<String>,
    #[serde(default)]
    minds: Vec<String>,
    prefix: Option<String>,
    #[serde(default)]
    tool_names: Names,
    #[serde(default)]
    keys: Names,
    #[serde(default)]
    unsupported: Vec<String>,
    formats: Option<Vec<String>>,
    max_description: Option<usize>,
    max_tools: Option<usize>,
}

impl File {
    fn into_profile(self) -> Profile {
        let faults = |ids: Vec<String>| {
            let fault = |id: &String| Fault::named(id).unwrap_or_else(|| panic!("no fault {id}"));
            ids.iter().map(fault).collect()
        };
        Profile {
            loses_tool: faults(self.loses_tool),
            loses_server: faults(self.loses_server),
            minds: faults(self.minds),
            name: self.name,
            title: self.title,
            version: self.version,
            date: self.date,
            source: self.source,
            is_measured: self.is_measured,
            prefix: self.prefix,
            tool_names: self.tool_names,
            keys: self.keys,
            unsupported: self.unsupported,
            formats: self.formats,
            max_description: self.max_description,
            max_tools: self.max_tools,
        }
    }
}

macro_rules! profiles {
    ($($name:literal)*) => {
        [$(include_str!(concat!("../profiles/", $name, ".json")),)*]
    };
}

static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let files = profiles! {
        "none" "common" "claude-code" "anthropic-api" "openai" "openai-strict" "gemini" "gemini-json-schema"
        "open-webui" "ts-sdk-1" "ts-sdk-2" "python-sdk-1" "python-sdk-2" "vscode" "cursor"
    };
    let read = |file: &&str| serde_json::from_str::<File>(file).map(File::into_profile);
    files.iter().map(|file| read(file).expect("a test reads every file")).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_dated_and_says_how_it_is_known() {
        for profile in Profile::all() {
            assert_eq!(Profile::named(&profile.name), Some(profile));
            let is_dated = profile.date.len() == 10 && profile.date.starts_with("20");
            assert!(is_dated && !profile.source.is_empty(), "{profile}");
        }
        assert_eq!(Profile::common().name, "common");
        assert!(Profile::none().loses_tool.is_empty());
    }

    #[test]
    fn the_name_of_a_server_takes_room() {
        let of = |name: &str, server: &str| {
            Profile::named(name).unwrap().of_server(server).tool_names.max
        };
        assert_eq!(of("claude-code", "office"), 128 - "mcp__office__".len());
        assert_eq!(of("claude-code", &"long".repeat(40)), SHORTEST);
        assert_eq!(of("open-webui", "office"), usize::MAX);
    }

    #[test]
    fn names_are_fitted_and_told_apart() {
        let names = Names { letters: Some("_-".to_owned()), max: 20, may_begin_with_digit: false };
        assert!(names.fit("get_it") && !names.fit("a.b") && !names.fit("7up") && !names.fit(""));
        assert_eq!(names.fitted("uids[]"), "uids");
        for odd in ["a.b", "a/b", "日本", "7up", "a very long name indeed, is it not", "", "_"] {
            let marked = names.marked(odd);
            assert!(names.fit(&marked), "{marked}");
            assert_eq!(names.fitted(&names.fitted(odd)), names.fitted(odd));
        }
        assert_ne!(names.marked("a.b"), names.marked("a/b"));
    }
}
