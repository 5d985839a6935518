//! Why no child could be started.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::command::Unpackable;
use crate::frame::Step;
use crate::{Command, Restriction};

/// Why no child could be started: one variant for each step that can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The program is not an absolute path.
    #[error("`{}` is not an absolute path", program.display())]
    RelativeProgram {
        /// The program as given.
        program: PathBuf,
    },
    /// A path, an argument or a variable contains a zero byte.
    #[error("the command line or environment of `{}` contains a zero byte", program.display())]
    ZeroByte {
        /// The program that was to run.
        program: PathBuf,
    },
    /// The name of a variable is empty or contains `=`.
    #[error("a variable for `{}` has an empty name or one with `=`", program.display())]
    VariableName {
        /// The program that was to run.
        program: PathBuf,
    },
    /// The system does not take so many bytes of arguments and environment, or one of that length.
    #[error(
        "the arguments and environment of `{}` ({bytes} bytes) are larger than the system allows",
        program.display()
    )]
    TooLarge {
        /// The program that was to run.
        program: PathBuf,
        /// Program, arguments and environment together.
        bytes: usize,
        /// `E2BIG`.
        source: io::Error,
    },
    /// No pipes for its streams, mostly because too many descriptors are open.
    #[error("no pipes for the streams of `{}`", program.display())]
    Pipes {
        /// The program that was to run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no process, mostly because there are too many.
    #[error("no process for `{}`", program.display())]
    Fork {
        /// The program that was to run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The new process could not be given its group or its streams.
    #[error("the process for `{}` could not be prepared", program.display())]
    Prepare {
        /// The program that was to run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A limit could not be set.
    #[error("the limits of `{}` could not be set", program.display())]
    Limits {
        /// The program that was to run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// This system, or this user of it, cannot give a restriction that was asked for. Nothing was
    /// tried.
    #[error(
        "this system cannot {restriction}, as asked for `{}`: {}, or allow less \
         (`isolation.best_effort`)",
        program.display(), restriction.remedy()
    )]
    Impossible {
        /// The program that was to run.
        program: PathBuf,
        /// What cannot be given.
        restriction: Restriction,
    },
    /// A restriction could not be applied, though this system should know how.
    #[error("could not {restriction}, so `{}` was not run", program.display())]
    Restrict {
        /// The program that was to run.
        program: PathBuf,
        /// What was not given.
        restriction: Restriction,
        /// What the system said.
        source: io::Error,
    },
    /// A path the child may reach is missing, or out of its reach for another reason.
    #[error("`{}`, which `{}` may reach, could not be opened", path.display(), program.display())]
    FilePath {
        /// The program that was to run.
        program: PathBuf,
        /// The path of the rule.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The program, or its interpreter, is outside of the files it may read.
    #[error("`{}` could not be executed with only the files it may reach", program.display())]
    ExecConfined {
        /// The program that was to run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The working directory could not be entered.
    #[error("`{}` could not be entered to run `{}`", directory.display(), program.display())]
    Directory {
        /// The program that was to run.
        program: PathBuf,
        /// The directory it was to run in.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The program could not be executed: it is missing, not executable, or its interpreter is.
    #[error("`{}` could not be executed", program.display())]
    Exec {
        /// The program that was to run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The program is a script, and the interpreter that its first line names is not there.
    #[error("`{}` could not be executed: its first line names the interpreter {interpreter:?}{}", program.display(), end_of_line(interpreter))]
    Interpreter {
        /// The program that was to run.
        program: PathBuf,
        /// What is behind `#!`.
        interpreter: String,
        /// What the system said.
        source: io::Error,
    },
    /// The program is nothing that this machine can run.
    #[error("`{}` is neither a program for this machine nor a script whose first line names its interpreter (`#!`)", program.display())]
    NoProgram {
        /// The program that was to run.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The spawner process has ended, and nothing can be started any more.
    #[error("the spawner process has ended")]
    SpawnerGone,
}

impl SpawnError {
    pub(crate) fn unpackable(command: &Command, refusal: Unpackable) -> Self {
        let program = command.program.clone();
        match refusal {
            Unpackable::RelativeProgram => Self::RelativeProgram { program },
            Unpackable::ZeroByte => Self::ZeroByte { program },
            Unpackable::VariableName => Self::VariableName { program },
            Unpackable::TooLarge { bytes } => {
                let source = io::Error::from_raw_os_error(libc::E2BIG);
                Self::TooLarge { program, bytes, source }
            }
        }
    }

    /// `bytes` is the size of the packed command.
    pub(crate) fn failed(command: &Command, bytes: usize, step: Step, errno: i32) -> Self {
        let program = command.program.clone();
        let source = io::Error::from_raw_os_error(errno);
        match step {
            Step::Exec if errno == libc::E2BIG => Self::TooLarge { program, bytes, source },
            Step::Exec if errno == libc::EACCES && command.confinement.files.is_some() => {
                Self::ExecConfined { program, source }
            }
            Step::Exec if errno == libc::ENOEXEC => Self::NoProgram { program, source },
            Step::Exec => match interpreter_of(&program).filter(|_| errno == libc::ENOENT) {
                Some(interpreter) => Self::Interpreter { program, interpreter, source },
                None => Self::Exec { program, source },
            },
            Step::Restrict(restriction) => Self::Restrict { program, restriction, source },
            Step::FilePath(place) => {
                let rules = command.confinement.files.iter();
                let mut paths = rules.flat_map(|rules| rules.read.iter().chain(&rules.write));
                let path = usize::try_from(place).ok().and_then(|place| paths.nth(place));
                Self::FilePath { program, path: path.cloned().unwrap_or_default(), source }
            }
            Step::Directory => {
                let directory = command.directory.clone().unwrap_or_default();
                Self::Directory { program, directory, source }
            }
            Step::Limits => Self::Limits { program, source },
            Step::Fork => Self::Fork { program, source },
            Step::Receive | Step::Group | Step::Streams => Self::Prepare { program, source },
        }
    }
}

/// What the first line of a script names behind `#!`, without arguments.
fn interpreter_of(program: &Path) -> Option<String> {
    // A program that is there is a file; anything else might keep us waiting.
    let is_file = std::fs::metadata(program).is_ok_and(|facts| facts.is_file());
    let mut head = Vec::new();
    let file = is_file.then(|| std::fs::File::open(program).ok()).flatten()?;
    file.take(LONGEST_HEAD).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line).trim_matches([' ', '\t']).to_owned();
    Some(line.split([' ', '\t']).next().unwrap_or_default().to_owned())
}

/// The system reads no more of a first line.
const LONGEST_HEAD: u64 = 256;

/// What is to be said of an interpreter whose name ends with a carriage return.
fn end_of_line(interpreter: &str) -> &'static str {
    match interpreter.ends_with('\r') {
        true => ", for the line ends as in Windows: save the file with Unix line ends",
        false => ", which is not there: install it, or correct the line",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_script_wants_to_be_run_by_is_told() {
        let folder = tempfile::tempdir().unwrap();
        for (text, interpreter, says) in [
            ("#!/no/python -u\nx", Some("/no/python"), "install it"),
            ("#! /no/env python", Some("/no/env"), "install it"),
            ("#!/bin/sh\r\n", Some("/bin/sh\r"), "Unix line ends"),
            ("\x7fELF", None, ""),
            ("", None, ""),
        ] {
            let script = folder.path().join("script");
            std::fs::write(&script, text).unwrap();
            let command = Command::new(&script);
            let error = SpawnError::failed(&command, 0, Step::Exec, libc::ENOENT);
            assert_eq!(interpreter_of(&script).as_deref(), interpreter, "{text:?}");
            let is_told = matches!(error, SpawnError::Interpreter { .. });
            assert_eq!(is_told, interpreter.is_some(), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        assert_eq!(interpreter_of(folder.path()), None, "a folder is no script");
    }
}
