//! What to run, as plain data, and its packed form on the way to the spawner.
//!
//! Packed, a command is a few numbers and then strings, each ended by a zero byte, so that the
//! spawner can point `execve` at them without copying.

use std::ffi::{CStr, OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::confinement::{Cgroup, Confinement, Network, User};

/// What to run. Nothing is inherited and nothing is looked up.
#[derive(Clone, Default)]
pub struct Command {
    /// The absolute path of the program.
    pub program: PathBuf,
    /// Its arguments, without the program itself.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory; `None` is that of the program that started the spawner, and `/` where
    /// the spawner was run ([`Spawner::run`](crate::Spawner::run)).
    pub directory: Option<PathBuf>,
    /// Whether it is a program of the user's own choice that must find what it would find in a
    /// shell: the umask and the limit of core dumps that the program had when it started the
    /// spawner, no higher score when memory is scarce, and, unless it is confined, a way to gain
    /// privileges (`sudo`). It is stopped and ended as any other.
    pub trusted: bool,
    /// What it may use.
    pub limits: Limits,
    /// What it is kept from.
    pub confinement: Confinement,
    /// Where it is added, once it has ended, how long it and all it started had computed.
    pub computed: ComputedTime,
}

/// How long children had computed that have ended, with all that they started: on which processor, and whether in the
/// kernel or not, is one. Clones are the same sum.
#[derive(Clone, Debug, Default)]
pub struct ComputedTime(Arc<AtomicU64>);

impl ComputedTime {
    /// The sum.
    pub fn sum(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Acquire))
    }

    pub(crate) fn add(&self, more: Duration) {
        let micros = u64::try_from(more.as_micros()).unwrap_or(u64::MAX);
        self.0.fetch_add(micros, Ordering::AcqRel);
    }
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
            .field("trusted", &self.trusted)
            .field("limits", &self.limits)
            .field("confinement", &self.confinement)
            .finish()
    }
}

/// What a child may use. `None` leaves the limit of the program that started the spawner.
///
/// How long a child may live is not in here: whoever holds its [`Child`](crate::Child) stops it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// How many descriptors each process may have open.
    pub open_files: Option<u64>,
    /// How much memory. With a cgroup: the child and all it started together, page cache and
    /// shared memory included, and at its end the kernel kills ([`Exit::OutOfMemory`]).
    ///
    /// Without one: the private data of each process (`RLIMIT_DATA`), and at its end an allocation
    /// fails. That guards against accidents only, as shared memory is not counted. The limit of
    /// the address space would count it, but Node, Go and Java reserve far more than they use.
    ///
    /// [`Exit::OutOfMemory`]: crate::Exit::OutOfMemory
    pub memory_bytes: Option<u64>,
    /// How many processes and threads. With a cgroup: of the child and all it started. Without
    /// one: of all children of its [`User`](crate::User), which it must then have.
    pub processes: Option<u64>,
    /// How many seconds of computing each process may use. Then it gets SIGXCPU, and one that does
    /// not end by that is killed a second later.
    pub cpu_seconds: Option<u64>,
    /// How large a file may grow. A write beyond that ends the process with SIGXFSZ, or fails
    /// where that signal is ignored.
    pub file_size_bytes: Option<u64>,
}

/// More than any kernel lets through to a program; what is larger is refused before it is sent.
pub(crate) const MAX_PACKED_BYTES: usize = 8 << 20;

/// How many numbers a packed command begins with.
const NUMBERS: usize = 18;

/// Stands for a number that is not set. As a limit it would mean the same.
const NONE: u64 = u64::MAX;

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
    let Command { program, args, env, directory, trusted, limits, confinement, computed: _ } =
        command;
    let Confinement { files, deny_calls, network, user, cgroup } = confinement;
    let rules = files.as_ref();
    let cpu_percent = cgroup.as_ref().map(|cgroup| cgroup.cpu_percent.map_or(NONE, u64::from));
    let numbers: [u64; NUMBERS] = [
        limits.open_files.unwrap_or(NONE),
        limits.memory_bytes.unwrap_or(NONE),
        limits.processes.unwrap_or(NONE),
        limits.cpu_seconds.unwrap_or(NONE),
        limits.file_size_bytes.unwrap_or(NONE),
        u64::from(files.is_some()),
        u64::from(*deny_calls),
        u64::from(*network == Network::None),
        user.map_or(NONE, |user| u64::from(user.uid)),
        user.map_or(NONE, |user| u64::from(user.gid)),
        u64::from(cgroup.is_some()),
        cpu_percent.unwrap_or(NONE),
        args.len() as u64,
        rules.map_or(0, |rules| rules.read.len()) as u64,
        rules.map_or(0, |rules| rules.write.len()) as u64,
        rules.map_or(0, |rules| rules.read_if_there.len()) as u64,
        rules.map_or(0, |rules| rules.write_if_there.len()) as u64,
        u64::from(*trusted),
    ];
    bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
    push_string(bytes, &[program.as_os_str()])?;
    push_string(bytes, &[directory.as_ref().map_or(OsStr::new(""), |path| path.as_os_str())])?;
    for argument in args {
        push_string(bytes, &[argument])?;
    }
    for path in rules.iter().flat_map(|rules| rules.paths()) {
        push_string(bytes, &[path.as_os_str()])?;
    }
    for (name, value) in env {
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
    pub(crate) trusted: bool,
    pub(crate) limits: Limits,
    /// Without file rules, whose paths are in `files`.
    pub(crate) confinement: Confinement,
    pub(crate) files: Option<PackedFiles<'a>>,
}

/// File rules as the spawner sees them.
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nobody keeps to them"))]
pub(crate) struct PackedFiles<'a> {
    pub(crate) read: Vec<&'a CStr>,
    pub(crate) write: Vec<&'a CStr>,
    pub(crate) read_if_there: Vec<&'a CStr>,
    pub(crate) write_if_there: Vec<&'a CStr>,
}

impl<'a> Packed<'a> {
    /// `None` for bytes that [`pack`] does not make.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (numbers, mut bytes) = bytes.split_first_chunk::<{ NUMBERS * 8 }>()?;
        let mut numbers = numbers.as_chunks::<8>().0.iter().map(|it| u64::from_ne_bytes(*it));
        let mut number = || numbers.next();
        let some = |number: u64| (number != NONE).then_some(number);
        let limits = Limits {
            open_files: some(number()?),
            memory_bytes: some(number()?),
            processes: some(number()?),
            cpu_seconds: some(number()?),
            file_size_bytes: some(number()?),
        };
        let has_files = number()? == 1;
        let deny_calls = number()? == 1;
        let network = if number()? == 1 { Network::None } else { Network::Open };
        let user = (some(number()?), some(number()?));
        let user = match user {
            (Some(uid), Some(gid)) => {
                Some(User { uid: uid.try_into().ok()?, gid: gid.try_into().ok()? })
            }
            _ => None,
        };
        let has_cgroup = number()? == 1;
        let cpu_percent = some(number()?).and_then(|percent| u32::try_from(percent).ok());
        let arguments = number()?;
        let [read, write] = [number()?, number()?];
        let [read_if_there, write_if_there] = [number()?, number()?];
        let trusted = number()? == 1;
        let mut strings =
            |count| (0..count).map(|_| next_string(&mut bytes)).collect::<Option<Vec<&CStr>>>();
        let (program, directory) = (strings(1)?[0], strings(1)?[0]);
        let args = strings(arguments)?;
        let files = PackedFiles {
            read: strings(read)?,
            write: strings(write)?,
            read_if_there: strings(read_if_there)?,
            write_if_there: strings(write_if_there)?,
        };
        let mut env = Vec::new();
        while !bytes.is_empty() {
            env.push(next_string(&mut bytes)?);
        }
        let cgroup = has_cgroup.then_some(Cgroup { cpu_percent });
        Some(Self {
            program,
            directory: (!directory.is_empty()).then_some(directory),
            args,
            env,
            trusted,
            limits,
            confinement: Confinement { files: None, deny_calls, network, user, cgroup },
            files: has_files.then_some(files),
        })
    }

    /// Whether the child keeps the capabilities of the spawner, if that has any.
    pub(crate) fn keeps_capabilities(&self) -> bool {
        self.files.is_none() && self.confinement.keeps_capabilities()
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
    use crate::FileRules;

    fn check(command: &Command, refusal: Unpackable) {
        assert_eq!(pack(command, &mut Vec::new()), Err(refusal));
    }

    #[test]
    fn a_packed_command_reads_the_same() {
        let command = Command {
            program: "/bin/echo".into(),
            args: vec!["".into(), "two words".into()],
            env: vec![("A".into(), "b=c".into()), ("EMPTY".into(), "".into())],
            computed: ComputedTime::default(),
            directory: Some("/srv".into()),
            trusted: true,
            limits: Limits {
                open_files: Some(64),
                memory_bytes: Some(1 << 40),
                processes: Some(20),
                cpu_seconds: None,
                file_size_bytes: Some(0),
            },
            confinement: Confinement {
                files: Some(FileRules {
                    read: vec!["/usr".into(), "/opt".into()],
                    write: vec!["/srv".into()],
                    read_if_there: vec!["/perhaps".into()],
                    write_if_there: vec!["/or".into(), "/not".into()],
                }),
                deny_calls: true,
                network: Network::None,
                user: Some(User { uid: 61_234, gid: 61_235 }),
                cgroup: Some(Cgroup { cpu_percent: Some(150) }),
            },
        };
        let mut bytes = Vec::new();
        pack(&command, &mut bytes).unwrap();
        let packed = Packed::parse(&bytes).unwrap();
        assert_eq!(packed.program, c"/bin/echo");
        assert_eq!(packed.directory, Some(c"/srv"));
        assert_eq!(packed.args, [c"", c"two words"]);
        assert_eq!(packed.env, [c"A=b=c", c"EMPTY="]);
        assert!(packed.trusted);
        assert_eq!(packed.limits, command.limits);
        let files = packed.files.unwrap();
        assert_eq!((files.read, files.write), (vec![c"/usr", c"/opt"], vec![c"/srv"]));
        let if_there = (files.read_if_there, files.write_if_there);
        assert_eq!(if_there, (vec![c"/perhaps"], vec![c"/or", c"/not"]));
        assert_eq!(packed.confinement, Confinement { files: None, ..command.confinement });
    }

    #[test]
    fn a_packed_command_asks_for_no_more_than_the_command() {
        let mut bytes = Vec::new();
        pack(&Command::new("/bin/true"), &mut bytes).unwrap();
        let packed = Packed::parse(&bytes).unwrap();
        assert_eq!(packed.limits, Limits::default());
        assert_eq!(packed.confinement, Confinement::default());
        assert!(packed.files.is_none() && packed.keeps_capabilities() && !packed.trusted);
        let rules = Some(FileRules::default());
        let confinement = Confinement { files: rules, ..Confinement::default() };
        pack(&Command { confinement, ..Command::new("/bin/true") }, &mut bytes).unwrap();
        let packed = Packed::parse(&bytes[bytes.len() / 2..]).unwrap();
        assert!(packed.files.is_some() && !packed.keeps_capabilities());
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
