//! Which program a `command` names, kept as an absolute path. One that is missing is looked for again
//! whenever it is to be started.
//!
//! A name without a slash is looked up in `PATH`; one with a slash is relative to the folder of
//! the configuration file, never to wherever Pontoon happened to be started.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::environment::Environment;

/// Why a server has no program to start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// No such file.
    #[error(
        "the program `{command}` was not found; looked in {}{}",
        listed(searched),
        hint(command)
    )]
    NotFound {
        /// The command as it was written.
        command: String,
        /// The folders, or the one file, that were tried.
        searched: Vec<PathBuf>,
    },
    /// There is something of that name, but it cannot be run.
    #[error("`{}` is not an executable file", program.display())]
    NotExecutable {
        /// The file that was found.
        program: PathBuf,
    },
    /// The server is an application that runs by itself.
    #[error("it is an application, which is started by its user and not from here")]
    Application,
    /// The path of our own program file, for the demo, could not be learnt.
    #[error("the path of this program is unknown: {reason}")]
    OwnPath {
        /// What the system said.
        reason: String,
    },
}

/// How the program of a server is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Search {
    command: String,
    /// The folders, or the one file, that are looked at in this order.
    places: Vec<PathBuf>,
}

impl Search {
    /// For what `command` names, in the folders of `path`, or from `folder` on.
    pub(super) fn new(command: &str, path: Option<&OsStr>, folder: &Path) -> Self {
        let places = match command.contains('/') {
            true => vec![folder.join(command)],
            false => std::env::split_paths(path.unwrap_or_default())
                .filter(|entry| !entry.as_os_str().is_empty())
                .map(|entry| folder.join(entry))
                .collect(),
        };
        Self { command: command.to_owned(), places }
    }

    /// The absolute path of the program, as of now.
    pub(super) fn find(&self) -> Result<PathBuf, ProgramError> {
        let mut in_the_way = None;
        for place in &self.places {
            let program = match self.command.contains('/') {
                true => place.clone(),
                false => place.join(&self.command),
            };
            match look(&program) {
                ProgramFile::Executable => return Ok(program),
                // As a shell does, look on: a later folder may hold the real one.
                ProgramFile::Other => in_the_way = in_the_way.or(Some(program)),
                ProgramFile::Missing => {}
            }
        }
        Err(match in_the_way {
            Some(program) => ProgramError::NotExecutable { program },
            None => ProgramError::NotFound {
                command: self.command.clone(),
                searched: self.places.clone(),
            },
        })
    }
}

/// Whether this word at a shell would start a program.
pub(crate) fn is_program_name(word: &str, environment: &Environment) -> bool {
    Search::new(word, environment.get("PATH"), Path::new(".")).find().is_ok()
}

/// Whether this can be started.
pub(super) fn is_program(path: &Path) -> bool {
    matches!(look(path), ProgramFile::Executable)
}

enum ProgramFile {
    Executable,
    Other,
    Missing,
}

fn look(program: &Path) -> ProgramFile {
    match fs::metadata(program) {
        Ok(metadata) if metadata.is_file() && metadata.mode() & 0o111 != 0 => {
            ProgramFile::Executable
        }
        Ok(_) => ProgramFile::Other,
        Err(_) => ProgramFile::Missing,
    }
}

fn listed(searched: &[PathBuf]) -> String {
    if searched.is_empty() {
        return "no folder, because PATH is empty".to_owned();
    }
    let mut folders: Vec<String> = Vec::new();
    for path in searched.iter().map(|path| path.display().to_string()) {
        if !folders.contains(&path) {
            folders.push(path);
        }
    }
    let rest = folders.len().saturating_sub(MOST_FOLDERS);
    folders.truncate(MOST_FOLDERS);
    match rest {
        0 => folders.join(", "),
        rest => format!("{} and {rest} more folders of PATH", folders.join(", ")),
    }
}

/// As many folders of a long `PATH` are named.
const MOST_FOLDERS: usize = 12;

/// Programs that start servers, and what they come with.
const LAUNCHERS: [(&str, &str); 7] = [
    ("uvx", "uv, https://docs.astral.sh/uv"),
    ("uv", "uv, https://docs.astral.sh/uv"),
    ("npx", "Node.js"),
    ("node", "Node.js"),
    ("bunx", "Bun"),
    ("docker", "Docker"),
    ("deno", "Deno"),
];

/// What is to be done about a program that is not there, as far as its name tells.
fn hint(command: &str) -> String {
    let words: Vec<_> = command.split_whitespace().collect();
    if let [program, args @ ..] = &words[..]
        && !args.is_empty()
    {
        let args: Vec<_> = args.iter().map(|word| format!("{word:?}")).collect();
        return format!(
            ". `command` is the program alone, for no shell reads it: write \"command\": {program:?}, \"args\": [{}]",
            args.join(", ")
        );
    }
    if command.starts_with("~/") || command.starts_with('$') {
        return ". No shell reads it, so `~` and `$HOME` mean nothing here: write the whole path"
            .to_owned();
    }
    let launcher = LAUNCHERS.iter().find(|(name, _)| *name == command);
    launcher.map(|(_, with)| format!(". It comes with {with}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A folder with `bin/run` (executable), `bin/plain` and `later/plain` (executable).
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("bin/run", 0o755), ("bin/plain", 0o644), ("later/plain", 0o755)] {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        folder
    }

    /// `FOLDER` in `path` and `expected` stands for the folder of the configuration file.
    fn check(command: &str, path: Option<&str>, expected: &str) {
        let folder = folder();
        let name = folder.path().to_str().unwrap();
        let path = path.map(|path| path.replace("FOLDER", name));
        let found = Search::new(command, path.as_deref().map(OsStr::new), folder.path()).find();
        let told = found.map_or_else(|error| error.to_string(), |path| path.display().to_string());
        assert_eq!(told, expected.replace("FOLDER", name));
    }

    #[test]
    fn a_name_is_looked_up_in_path() {
        check("run", Some("/nowhere::FOLDER/bin"), "FOLDER/bin/run");
        check("run", Some("bin"), "FOLDER/bin/run");
    }

    #[test]
    fn a_command_with_a_slash_is_beside_the_file() {
        check("bin/run", None, "FOLDER/bin/run");
        check("./bin/run", None, "FOLDER/./bin/run");
        check("/bin/sh", None, "/bin/sh");
    }

    #[test]
    fn a_missing_program_says_where_it_was_sought() {
        check("gone", Some("/a:/b"), "the program `gone` was not found; looked in /a, /b");
        check("./gone", None, "the program `./gone` was not found; looked in FOLDER/./gone");
        check(
            "gone",
            None,
            "the program `gone` was not found; looked in no folder, because PATH is empty",
        );
    }

    #[test]
    fn a_program_that_cannot_be_found_under_that_name_says_what_to_write() {
        for (command, expected) in [
            ("ls -la /x", "write \"command\": \"ls\", \"args\": [\"-la\", \"/x\"]"),
            ("~/bin/server", "write the whole path"),
            ("$HOME/bin/server", "write the whole path"),
            ("uvx", "It comes with uv"),
            ("npx", "It comes with Node.js"),
        ] {
            let error = Search::new(command, Some(OsStr::new("/a:/a:/b")), Path::new("/c")).find();
            let told = error.unwrap_err().to_string();
            assert!(told.contains(expected), "{told}");
            assert!(!told.contains("/a, /a"), "{told}");
        }
    }

    #[test]
    fn a_plain_file_is_passed_over_for_a_later_program() {
        check("plain", Some("FOLDER/bin:FOLDER/later"), "FOLDER/later/plain");
        check("plain", Some("FOLDER/bin"), "`FOLDER/bin/plain` is not an executable file");
        check("./bin", None, "`FOLDER/./bin` is not an executable file");
    }
}
