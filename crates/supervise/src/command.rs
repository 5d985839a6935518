//! What to run, as plain data, and its packed form on the way to the spawner.
//!
//! Packed, a command is two numbers and then strings, each ended by a zero byte, so that the
//! spawner can point `execve` at them without copying.

use std::ffi::{CStr, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What to run. Nothing is inherited and nothing is looked up.
#[derive(Clone, Default)]
pub struct Command {
    /// The absolute path of the program.
    pub program: PathBuf,
    /// Its arguments, without the program itself.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory; `None` is that of the program that started the spawner.
    pub directory: Option<PathBuf>,
    /// What it may use.
    pub limits: Limits,
}

impl Command {
    /// `program` without arguments or environment.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), ..Self::default() }
    }
}

impl fmt::Debug for Command {
    /// Arguments and variables may be secrets, so only their number and names are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&OsString> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Command")
            .field("program", &self.program)
            .field("args", &self.args.len())
            .field("env", &names)
            .field("directory", &self.directory)
            .field("limits", &self.limits)
            .finish()
    }
}

/// What a child may use. `None` leaves the limit of the program that started the spawner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// How many descriptors it may have open.
    pub open_files: Option<u64>,
}

/// More than any kernel lets through to a program; what is larger is refused before it is sent.
pub(crate) const MAX_PACKED_BYTES: usize = 8 << 20;

/// Stands for a limit that is not set. As a limit it would mean the same.
const NO_LIMIT: u64 = u64::MAX;

/// Why a command cannot be packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unpackable {
    RelativeProgram,
    ZeroByte,
    VariableName,
    TooLarge { bytes: usize },
}

/// Appends the packed form of `command`.
pub(crate) fn pack(command: &Command, bytes: &mut Vec<u8>) -> Result<(), Unpackable> {
    if !command.program.is_absolute() {
        return Err(Unpackable::RelativeProgram);
    }
    let start = bytes.len();
    bytes.extend(command.limits.open_files.unwrap_or(NO_LIMIT).to_ne_bytes());
    let arguments = u32::try_from(command.args.len()).unwrap_or(u32::MAX);
    bytes.extend(arguments.to_ne_bytes());
    push_string(bytes, &[command.program.as_os_str()])?;
    let directory = command.directory.as_ref().map_or(OsStr::new(""), |path| path.as_os_str());
    push_string(bytes, &[directory])?;
    for argument in &command.args {
        push_string(bytes, &[argument])?;
    }
    for (name, value) in &command.env {
        if name.is_empty() || name.as_bytes().contains(&b'=') {
            return Err(Unpackable::VariableName);
        }
        push_string(bytes, &[name, OsStr::new("="), value])?;
    }
    match bytes.len() - start {
        size if size > MAX_PACKED_BYTES => Err(Unpackable::TooLarge { bytes: size }),
        _ => Ok(()),
    }
}

fn push_string(bytes: &mut Vec<u8>, parts: &[&OsStr]) -> Result<(), Unpackable> {
    for part in parts {
        if part.as_bytes().contains(&0) {
            return Err(Unpackable::ZeroByte);
        }
        bytes.extend(part.as_bytes());
    }
    bytes.push(0);
    Ok(())
}

/// A command as the spawner sees it: strings inside the bytes that were received.
#[derive(Debug)]
pub(crate) struct Packed<'a> {
    pub(crate) program: &'a CStr,
    pub(crate) directory: Option<&'a CStr>,
    pub(crate) args: Vec<&'a CStr>,
    pub(crate) env: Vec<&'a CStr>,
    pub(crate) limits: Limits,
}

impl<'a> Packed<'a> {
    /// `None` for bytes that [`pack`] does not make.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (open_files, bytes) = bytes.split_first_chunk::<8>()?;
        let (arguments, mut bytes) = bytes.split_first_chunk::<4>()?;
        let open_files = u64::from_ne_bytes(*open_files);
        let arguments = usize::try_from(u32::from_ne_bytes(*arguments)).ok()?;
        let program = next_string(&mut bytes)?;
        let directory = next_string(&mut bytes)?;
        let args = (0..arguments).map(|_| next_string(&mut bytes)).collect::<Option<_>>()?;
        let mut env = Vec::new();
        while !bytes.is_empty() {
            env.push(next_string(&mut bytes)?);
        }
        Some(Self {
            program,
            directory: (!directory.is_empty()).then_some(directory),
            args,
            env,
            limits: Limits { open_files: (open_files != NO_LIMIT).then_some(open_files) },
        })
    }
}

fn next_string<'a>(bytes: &mut &'a [u8]) -> Option<&'a CStr> {
    let string = CStr::from_bytes_until_nul(bytes).ok()?;
    *bytes = &bytes[string.count_bytes() + 1..];
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &Command, refusal: Unpackable) {
        assert_eq!(pack(command, &mut Vec::new()), Err(refusal));
    }

    #[test]
    fn a_packed_command_reads_the_same() {
        let command = Command {
            program: "/bin/echo".into(),
            args: vec!["".into(), "two words".into()],
            env: vec![("A".into(), "b=c".into()), ("EMPTY".into(), "".into())],
            directory: Some("/srv".into()),
            limits: Limits { open_files: Some(64) },
        };
        let mut bytes = Vec::new();
        pack(&command, &mut bytes).unwrap();
        let packed = Packed::parse(&bytes).unwrap();
        assert_eq!(packed.program, c"/bin/echo");
        assert_eq!(packed.directory, Some(c"/srv"));
        assert_eq!(packed.args, [c"", c"two words"]);
        assert_eq!(packed.env, [c"A=b=c", c"EMPTY="]);
        assert_eq!(packed.limits, command.limits);
    }

    #[test]
    fn secrets_are_not_shown() {
        let command = Command {
            args: vec!["--token=secret".into()],
            env: vec![("TOKEN".into(), "secret".into())],
            ..Command::new("/bin/true")
        };
        let shown = format!("{command:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_cut_command_is_refused_and_not_run() {
        let mut bytes = Vec::new();
        let command = Command { args: vec!["a".into()], ..Command::new("/bin/true") };
        pack(&command, &mut bytes).unwrap();
        for end in 0..bytes.len() {
            assert!(Packed::parse(&bytes[..end]).is_none(), "cut at {end}");
        }
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let good = Command::new("/bin/true");
        check(&Command::new("true"), Unpackable::RelativeProgram);
        check(&Command { args: vec!["a\0b".into()], ..good.clone() }, Unpackable::ZeroByte);
        check(
            &Command { env: vec![("A=B".into(), "".into())], ..good.clone() },
            Unpackable::VariableName,
        );
        let large = "x".repeat(MAX_PACKED_BYTES);
        let mut bytes = Vec::new();
        let refusal = pack(&Command { args: vec![large.into()], ..good }, &mut bytes);
        assert!(matches!(refusal, Err(Unpackable::TooLarge { .. })));
    }
}
