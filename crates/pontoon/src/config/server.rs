//! One server as it will be run: everything decided, nothing left to look up.
//!
//! Starting it is left to others; this file says with which environment.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pontoon_wire::heal::HealMode;

use super::program::ProgramError;

/// A server of the configuration, complete and checked.
#[derive(Clone)]
pub struct Server {
    /// What clients call it, in `/mcp/{server}`.
    pub name: ServerName,
    /// The absolute path of its program, or why there is none; the other servers run all the same.
    pub program: Result<PathBuf, ProgramError>,
    /// The arguments of the program, placeholders filled in: they may hold secrets.
    pub args: Vec<String>,
    /// The variables set for it, placeholders filled in: they may hold secrets.
    pub env: Vec<(String, String)>,
    /// Which of our own variables it sees besides the usual ones.
    pub inherit_env: InheritEnv,
    /// The absolute directory it starts in, if one was chosen.
    pub cwd: Option<PathBuf>,
    /// How long its processes live.
    pub mode: Mode,
    /// How long one call may take.
    pub timeout: Duration,
    /// What is done about its violations of the protocol.
    pub heal: HealMode,
    /// Changes when the server might offer other tools: when what is started changes.
    ///
    /// The same in every run and build, so that it can name a file on disk.
    pub fingerprint: u64,
}

/// How long the processes of a server live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// One process for each request.
    #[default]
    Stateless,
    /// One process for each session.
    Stateful {
        /// Stopped after this long without a request.
        idle: Duration,
    },
}

/// Which of our own variables a server sees besides the usual ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InheritEnv {
    /// All of them but our own settings, which begin with `MCPO_` or `PONTOON_`.
    All,
    /// These.
    Names(Vec<String>),
}

impl Default for InheritEnv {
    fn default() -> Self {
        Self::Names(Vec::new())
    }
}

/// Variables that programs need to run at all, and that hold no secrets.
pub(super) const USUAL_VARIABLES: &[&str] =
    &["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// Most servers are Python: without these, output waits in a buffer or is not UTF-8.
pub(super) const DEFAULT_VARIABLES: &[(&str, &str)] =
    &[("PYTHONUNBUFFERED", "1"), ("PYTHONUTF8", "1")];

impl Server {
    /// The whole environment of a process of this server, sorted by name.
    ///
    /// `ours` is our own environment, as [`std::env::vars_os`] gives it. What `env` sets wins over
    /// what is inherited, and that wins over the defaults.
    pub fn environment_for_child(
        &self,
        ours: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let is_inherited = |name: &str| {
            USUAL_VARIABLES.contains(&name)
                || match &self.inherit_env {
                    InheritEnv::All => !name.starts_with("MCPO_") && !name.starts_with("PONTOON_"),
                    InheritEnv::Names(names) => names.iter().any(|chosen| chosen == name),
                }
        };
        let defaults = DEFAULT_VARIABLES.iter().map(|(name, value)| (name.into(), value.into()));
        let inherited = ours.into_iter().filter(|(name, _)| is_inherited(&name.to_string_lossy()));
        let set = self.env.iter().map(|(name, value)| (name.into(), value.into()));
        let variables: BTreeMap<OsString, OsString> =
            defaults.chain(inherited).chain(set).collect();
        variables.into_iter().collect()
    }

    /// What [`Server::fingerprint`] is for these parts; `program` is a path or a command.
    pub(super) fn fingerprint_of(&self, program: &[u8]) -> u64 {
        let mut hash = Fnv::default();
        hash.part(program);
        hash.list(self.args.iter().map(String::as_bytes));
        hash.list(self.env.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        match &self.inherit_env {
            InheritEnv::All => hash.part(b"all"),
            InheritEnv::Names(names) => hash.list(names.iter().map(String::as_bytes)),
        }
        hash.list(self.cwd.iter().map(|cwd| cwd.as_os_str().as_encoded_bytes()));
        hash.0
    }
}

/// Arguments and values stay out: they may hold secrets, and this goes to the log.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.name.as_str())
            .field("program", &self.program)
            .field("mode", &self.mode)
            .field("timeout", &self.timeout)
            .field("heal", &self.heal)
            .finish_non_exhaustive()
    }
}

/// FNV-1a. The hasher of the standard library may differ from build to build.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The length goes first, so that no two lists of parts look the same.
    fn part(&mut self, bytes: &[u8]) {
        self.bytes(&(bytes.len() as u64).to_le_bytes());
        self.bytes(bytes);
    }

    fn list<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>) {
        let parts: Vec<&[u8]> = parts.collect();
        self.bytes(&(parts.len() as u64).to_le_bytes());
        for part in parts {
            self.part(part);
        }
    }
}

/// The name of a server: a letter or digit, then up to 63 of these, dots, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerName(String);

/// A text that cannot name a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a server's name is 1 to 64 letters, digits, `.`, `_` and `-`, \
     and begins with a letter or digit"
)]
pub struct BadServerName;

impl ServerName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServerName {
    type Err = BadServerName;

    fn from_str(text: &str) -> Result<Self, BadServerName> {
        let is_fit = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'-');
        let begins_well = text.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric);
        if begins_well && text.len() <= 64 && text.bytes().all(is_fit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadServerName)
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(inherit_env: InheritEnv, env: &[(&str, &str)]) -> Server {
        Server {
            name: "demo".parse().unwrap(),
            program: Ok("/bin/demo".into()),
            args: vec!["a".to_owned(), "b".to_owned()],
            env: env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect(),
            inherit_env,
            cwd: None,
            mode: Mode::default(),
            timeout: Duration::from_secs(1),
            heal: HealMode::default(),
            fingerprint: 0,
        }
    }

    fn check(server: &Server, ours: &[(&str, &str)], expected: &[(&str, &str)]) {
        let ours = ours.iter().map(|&(name, value)| (name.into(), value.into()));
        let child = server.environment_for_child(ours);
        let child: Vec<(&str, &str)> = child
            .iter()
            .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
            .filter(|(name, _)| {
                !name.starts_with("PYTHON") || expected.iter().any(|e| e.0 == *name)
            })
            .collect();
        assert_eq!(child, expected);
    }

    const OURS: &[(&str, &str)] = &[
        ("AWS_SECRET", "s"),
        ("HOME", "/h"),
        ("MCPO_API_KEY", "k"),
        ("PATH", "/bin"),
        ("PONTOON_X", "x"),
        ("PYTHONUTF8", "0"),
    ];

    #[test]
    fn a_child_sees_only_the_usual_variables() {
        let python = ("PYTHONUNBUFFERED", "1");
        let expected = [("HOME", "/h"), ("PATH", "/bin"), python, ("PYTHONUTF8", "1")];
        check(&server(InheritEnv::default(), &[]), OURS, &expected);
    }

    #[test]
    fn all_leaves_out_our_own_settings() {
        let expected = [("AWS_SECRET", "s"), ("HOME", "/h"), ("PATH", "/bin"), ("PYTHONUTF8", "0")];
        check(&server(InheritEnv::All, &[]), OURS, &expected);
    }

    #[test]
    fn env_wins_over_what_is_inherited() {
        let names = InheritEnv::Names(vec!["AWS_SECRET".to_owned(), "ABSENT".to_owned()]);
        let expected = [("AWS_SECRET", "mine"), ("HOME", "/h"), ("PATH", "/bin")];
        check(&server(names, &[("AWS_SECRET", "mine")]), OURS, &expected);
    }

    #[test]
    fn the_fingerprint_is_the_same_in_every_build() {
        let plain = server(InheritEnv::default(), &[("A", "b")]);
        assert_eq!(plain.fingerprint_of(b"/bin/demo"), 637_138_539_340_456_568);
    }

    #[test]
    fn the_fingerprint_tells_what_is_started_apart() {
        let plain = server(InheritEnv::default(), &[("A", "b")]);
        let print = |server: &Server| server.fingerprint_of(b"/bin/demo");
        let joined = Server { args: vec!["ab".to_owned()], ..plain.clone() };
        let elsewhere = Server { cwd: Some("/".into()), ..plain.clone() };
        let open = Server { inherit_env: InheritEnv::All, ..plain.clone() };
        for other in [&joined, &elsewhere, &open, &server(InheritEnv::default(), &[("A", "c")])] {
            assert_ne!(print(other), print(&plain));
        }
        assert_ne!(plain.fingerprint_of(b"/bin/other"), print(&plain));
        let patient = Server { timeout: Duration::from_secs(9), ..plain.clone() };
        assert_eq!(print(&patient), print(&plain));
    }

    #[test]
    fn debugging_shows_no_secret() {
        let secret = server(InheritEnv::default(), &[("KEY", "hunter2")]);
        assert!(!format!("{secret:?}").contains("hunter2"));
    }

    #[test]
    fn names_are_plain() {
        let long = "x".repeat(64);
        for good in ["a", "Excel-2.x_y", "0", &long] {
            assert_eq!(good.parse::<ServerName>().unwrap().as_str(), good);
        }
        for bad in ["", ".a", "-a", "_a", "a/b", "a b", "ä", &format!("{long}x")] {
            assert_eq!(bad.parse::<ServerName>(), Err(BadServerName), "{bad:?}");
        }
    }
}
