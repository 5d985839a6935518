//! One server as it will be run: everything decided, nothing left to look up.
//!
//! Starting it is left to others; this file says with which environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pontoon_schema::Profile;
use pontoon_wire::heal::{Heal, HealMode};
use sha2::{Digest, Sha256};

use super::app_options::AppOptions;
use super::environment::Environment;
use super::healing::Healing;
use super::isolation::Isolation;
use super::lifetime::{
    FileLinks, MessageFraming, Mode, RestExtras, SessionKey, Warm, WorkspaceScope,
};
use super::name::ServerName;
use super::network::{DEFAULT_VARIABLES, USUAL_VARIABLES, is_of_the_network};
use super::program::{ProgramError, Search, is_program};
use super::secret::is_own_secret;
use super::template::{Start, Template};

/// A server of the configuration, complete and checked.
#[derive(Clone, PartialEq)]
pub struct Server {
    /// What clients call it, in `/mcp/{server}`.
    pub name: ServerName,
    /// The absolute path of its program, or why there is none; the other servers run all the same.
    pub program: Result<PathBuf, ProgramError>,
    /// The application that it is, if it is no program of ours.
    pub app: Option<AppOptions>,
    /// How it is looked for again.
    pub search: Option<Search>,
    /// The arguments of the program; they may hold secrets.
    pub args: Vec<Template>,
    /// The variables set for it; they may hold secrets.
    pub env: Vec<(String, Template)>,
    /// Which of our own variables it sees besides the usual ones.
    pub inherit_env: InheritEnv,
    /// The absolute directory it starts in, if one was chosen; else it is its workspace.
    pub cwd: Option<PathBuf>,
    /// How long its processes live.
    pub mode: Mode,
    /// Which folder its processes work in.
    pub workspace: WorkspaceScope,
    /// How many processes are kept ready.
    pub warm: Warm,
    /// How clients learn of the files that a call made.
    pub files: FileLinks,
    /// Where in its answers the paths of files stand, by the names of the fields.
    pub file_path_fields: Vec<String>,
    /// What its processes are kept from, and what they may use.
    pub isolation: Isolation,
    /// By what its sessions are told apart.
    pub session_key: SessionKey,
    /// How many calls one kept process works on at the same time.
    pub max_in_flight: usize,
    /// How long one call may take.
    pub timeout: Duration,
    /// The same for tools that have a limit of their own.
    pub tool_timeouts: Vec<(String, Duration)>,
    /// Said to clients in place of the server's own instructions.
    pub instructions: Option<String>,
    /// Said to clients after the instructions.
    pub usage_guide: Option<String>,
    /// Said to clients last.
    pub post_instruction: Option<String>,
    /// What is offered over REST besides its tools.
    pub rest: RestExtras,
    /// Tools that clients neither see nor call.
    pub disabled_tools: Vec<String>,
    /// What is done about its violations of the protocol.
    pub heal: Healing,
    /// The clients that its tools are shown for.
    pub profile: &'static Profile,
    /// How messages to it are told apart.
    pub framing: MessageFraming,
    /// Changes when the server might offer other tools: when what is started changes.
    ///
    /// The same in every run and build, so that it can name a file on disk.
    pub fingerprint: u64,
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

/// How many calls one kept process works on at the same time, unless told otherwise.
pub(super) const MAX_IN_FLIGHT: usize = 64;

impl Server {
    /// A server of which no more is written than this.
    pub fn new(
        name: ServerName,
        program: Result<PathBuf, ProgramError>,
        args: Vec<Template>,
    ) -> Self {
        Self {
            name,
            program,
            app: None,
            search: None,
            args,
            env: Vec::new(),
            inherit_env: InheritEnv::default(),
            cwd: None,
            mode: Mode::default(),
            workspace: WorkspaceScope::default(),
            warm: Warm::default(),
            files: FileLinks::default(),
            file_path_fields: Vec::new(),
            isolation: Isolation::default(),
            session_key: SessionKey::default(),
            max_in_flight: MAX_IN_FLIGHT,
            timeout: Duration::from_secs(300),
            tool_timeouts: Vec::new(),
            instructions: None,
            usage_guide: None,
            post_instruction: None,
            rest: RestExtras::default(),
            disabled_tools: Vec::new(),
            heal: Healing::default(),
            profile: Profile::common(),
            framing: MessageFraming::default(),
            fingerprint: 0,
        }
    }

    /// A program as it is typed at a shell: looked up there, with all variables of the shell but our own.
    pub fn of_command(
        name: ServerName,
        command: &str,
        arguments: &[String],
        cwd: Option<PathBuf>,
        environment: &Environment,
        here: &Path,
    ) -> Self {
        let search = Search::new(command, environment.get("PATH"), here);
        let arguments = arguments.iter().map(Template::plain).collect();
        let server = Self::new(name, search.find(), arguments);
        Self { search: Some(search), cwd, inherit_env: InheritEnv::All, ..server }
    }

    /// An application that serves MCP by itself.
    pub fn of_app(name: ServerName, app: AppOptions) -> Self {
        let fingerprint = Self::fingerprint_of_app(&app);
        let mode = Mode::Stateful { idle: Duration::MAX, per_address: 1, per_client: 1 };
        let server = Self::new(name, Err(ProgramError::Application), Vec::new());
        let files = FileLinks::Off;
        Self { app: Some(app), mode, files, max_in_flight: 1, fingerprint, ..server }
    }

    /// What [`Server::fingerprint`] is for an application: what it offers may differ by what it is shown.
    pub(super) fn fingerprint_of_app(app: &AppOptions) -> u64 {
        let mut hash = PartsHash::default();
        hash.part(app.meeting_name().as_bytes());
        hash.finish()
    }

    /// The program as of now: it may have been installed, or moved, since the configuration was read.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub fn find_program(&self) -> Result<PathBuf, ProgramError> {
        match (&self.program, &self.search) {
            (Ok(program), _) if is_program(program) => Ok(program.clone()),
            (_, Some(search)) => search.find(),
            (known, None) => known.clone(),
        }
    }

    /// How long a call of `tool`, or any other call, may take.
    pub fn timeout_of(&self, tool: Option<&str>) -> Duration {
        let own = |tool| self.tool_timeouts.iter().find(|(name, _)| name == tool);
        tool.and_then(own).map_or(self.timeout, |&(_, timeout)| timeout)
    }

    /// True if a session finds again what it left: a process, or a folder.
    pub fn has_sessions(&self) -> bool {
        self.mode.is_stateful() || self.workspace == WorkspaceScope::Session
    }

    /// True if its processes differ by who calls: then one is never used for another person.
    pub fn is_personal(&self) -> bool {
        let values = self.env.iter().map(|(_, value)| value);
        self.args.iter().chain(values).any(Template::needs_person)
    }

    /// The headers of a request that its processes get.
    pub fn headers_for_child(&self) -> impl Iterator<Item = &str> {
        let values = self.env.iter().map(|(_, value)| value);
        self.args.iter().chain(values).flat_map(Template::headers)
    }

    /// A hash of everything that is filled in for the person who calls; `None` if nothing is. Only
    /// people for whom it is the same may ever use the same process.
    pub fn person_hash(&self, start: &Start<'_>) -> Option<[u8; 32]> {
        let values = self.env.iter().map(|(_, value)| value);
        let templates = self.args.iter().chain(values).filter(|it| it.needs_person());
        let mut hash = None;
        for template in templates {
            let hash: &mut PartsHash = hash.get_or_insert_default();
            hash.part(template.fill(start).as_bytes());
        }
        hash.map(|hash| hash.0.finalize().into())
    }

    /// The whole environment of a process of this server, sorted by name.
    ///
    /// `inherited` is what [`Server::inherited`] gives. What `env` sets wins over
    /// what the process is told about its start, that over what is inherited, and that over the
    /// defaults. What is empty in `start` is not told.
    pub fn environment_for_child(
        &self,
        inherited: &Environment,
        start: &Start<'_>,
    ) -> Vec<(OsString, OsString)> {
        let inherited = inherited.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let told = [
            ("MCPO_WORKDIR", start.workdir),
            ("MCPO_JOB_ID", start.job_id),
            ("MCPO_BASE_URL", start.base_url),
            ("TMPDIR", start.tmpdir),
        ];
        let told = told.into_iter().filter(|(_, value)| !value.is_empty());
        let told = told.map(|(name, value)| (name.into(), value.into()));
        let set = self.env.iter().map(|(name, value)| (name.into(), value.fill(start).into()));
        let variables: BTreeMap<OsString, OsString> = inherited.chain(told).chain(set).collect();
        variables.into_iter().collect()
    }

    /// What each of its processes sees of `ours`, our own environment, over the defaults.
    pub fn inherited(&self, ours: &Environment) -> Environment {
        let is_inherited = |name: &str| {
            USUAL_VARIABLES.contains(&name)
                || is_of_the_network(name)
                || match &self.inherit_env {
                    InheritEnv::All => {
                        let is_ours = name.starts_with("MCPO_") || name.starts_with("PONTOON_");
                        !is_ours && !is_own_secret(name)
                    }
                    InheritEnv::Names(names) => names.iter().any(|chosen| chosen == name),
                }
        };
        let is_healed = |heal: Heal| self.heal.protocol().of(heal) == HealMode::Repair;
        let defaults = DEFAULT_VARIABLES.iter().filter(|(_, _, heal)| is_healed(*heal));
        let defaults = defaults.map(|(name, value, _)| (name.into(), value.into()));
        let inherited = ours.iter().filter(|(name, _)| is_inherited(&name.to_string_lossy()));
        let inherited = inherited.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Environment::new(defaults.chain(inherited))
    }

    /// What [`Server::fingerprint`] is for these parts; `program` is a path or a command.
    pub(super) fn fingerprint_of(&self, program: &[u8]) -> u64 {
        let mut hash = PartsHash::default();
        hash.part(program);
        hash.list(self.args.iter().map(Template::written));
        let values = self.env.iter().map(|(name, value)| (name.clone(), value.written()));
        hash.list(values.flat_map(|(name, value)| [name, value]));
        match &self.inherit_env {
            InheritEnv::All => hash.part(b"all"),
            InheritEnv::Names(names) => hash.list(names.iter()),
        }
        hash.list(self.cwd.iter().map(|cwd| cwd.as_os_str().as_encoded_bytes()));
        hash.finish()
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
            .field("profile", &self.profile.name)
            .finish_non_exhaustive()
    }
}

/// A hash of parts, the same in every build. The length of a part goes before it, and the number of a list, so
/// that no two look the same.
#[derive(Default)]
struct PartsHash(Sha256);

impl PartsHash {
    fn part(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// The first bytes of the hash, as a number.
    fn finish(self) -> u64 {
        let hash: [u8; 32] = self.0.finalize().into();
        u64::from_le_bytes(*hash.first_chunk().expect("it has 32 bytes"))
    }

    fn list(&mut self, parts: impl Iterator<Item = impl AsRef<[u8]>>) {
        let parts: Vec<_> = parts.collect();
        self.0.update((parts.len() as u64).to_le_bytes());
        parts.iter().for_each(|part| self.part(part.as_ref()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::template::read;
    use super::*;

    fn server(inherit_env: InheritEnv, env: &[(&str, &str)]) -> Server {
        let args = ["a", "b"].map(Template::plain).to_vec();
        let env = env.iter().map(|&(name, value)| (name.to_owned(), Template::plain(value)));
        let plain = Server::new("demo".parse().unwrap(), Ok("/bin/demo".into()), args);
        Server { inherit_env, env: env.collect(), ..plain }
    }

    fn check(server: &Server, ours: &[(&str, &str)], expected: &[(&str, &str)]) {
        check_start(server, ours, &Start::unknown(), expected);
    }

    fn check_start(
        server: &Server,
        ours: &[(&str, &str)],
        start: &Start<'_>,
        expected: &[(&str, &str)],
    ) {
        let ours = Environment::new(ours.iter().copied());
        let child = server.environment_for_child(&server.inherited(&ours), start);
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
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=k"),
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
    fn python_is_told_to_write_utf8_at_once_where_that_is_healed() {
        let told = |heal: Healing| {
            let server = Server { heal, ..server(InheritEnv::default(), &[("PYTHONUTF8", "0")]) };
            let child = server.environment_for_child(
                &server.inherited(&Environment::new([("PATH", "/bin")])),
                &Start::unknown(),
            );
            let python = child.into_iter().filter(|(name, _)| name != "PATH");
            python.map(|(name, value)| format!("{name:?}={value:?}").replace('"', "")).collect()
        };
        let all: Vec<String> = told(Healing::default());
        assert_eq!(all, ["PYTHONIOENCODING=utf-8", "PYTHONUNBUFFERED=1", "PYTHONUTF8=0"]);
        let some: Vec<String> = told(Healing::typed(["H06=off"]).unwrap());
        assert_eq!(some, ["PYTHONUNBUFFERED=1", "PYTHONUTF8=0"]);
        let none: Vec<String> = told(Healing::typed(["warn"]).unwrap());
        assert_eq!(none, ["PYTHONUTF8=0"]);
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
    fn a_child_is_told_about_its_start() {
        let user = |_: &str| Some("u".to_owned());
        let start = Start {
            workdir: "/w",
            job_id: "j",
            tmpdir: "/w/.tmp",
            base_url: "https://x.org",
            user: &user,
            ..Start::unknown()
        };
        let ours = [("MCPO_BASE_URL", "http://ours"), ("MCPO_JOB_ID", "0"), ("TMPDIR", "/tmp")];
        let expected = [
            ("MCPO_BASE_URL", "https://x.org"),
            ("MCPO_JOB_ID", "j"),
            ("MCPO_WORKDIR", "/w"),
            ("TMPDIR", "/w/.tmp"),
        ];
        check_start(&server(InheritEnv::All, &[]), &ours, &start, &expected);
        check_start(&server(InheritEnv::All, &[]), &ours, &Start::unknown(), &[("TMPDIR", "/tmp")]);
        let mut own = server(InheritEnv::default(), &[("TMPDIR", "/mine"), ("MCPO_JOB_ID", "")]);
        own.env.push(("WHO".to_owned(), read("${user:id}", |_| None).template));
        let expected = [
            ("MCPO_BASE_URL", "https://x.org"),
            ("MCPO_JOB_ID", ""),
            ("MCPO_WORKDIR", "/w"),
            ("TMPDIR", "/mine"),
            ("WHO", "u"),
        ];
        check_start(&own, &[], &start, &expected);
    }

    #[test]
    fn a_server_with_a_person_in_it_is_personal() {
        let person = || read("${user:id}", |_| None).template;
        let plain = server(InheritEnv::default(), &[("A", "${user:id}")]);
        assert!(!plain.is_personal());
        assert!(Server { args: vec![person()], ..plain.clone() }.is_personal());
        assert!(Server { env: vec![("A".to_owned(), person())], ..plain }.is_personal());
    }

    #[test]
    fn people_are_told_apart_by_what_is_filled_in_for_them() {
        let template = |text: &str| read(text, |_| None).template;
        let plain = server(InheritEnv::default(), &[("A", "b")]);
        let args = vec![template("${header:X-Key}"), template("${header:X-Team}")];
        let personal = Server { args, ..plain.clone() };
        let hash = |server: &Server, key: &str, team: &str| {
            let header =
                |name: &str| Some(if name == "x-key" { key.to_owned() } else { team.to_owned() });
            server.person_hash(&Start { header: &header, ..Start::unknown() })
        };
        assert_eq!(hash(&plain, "k", "t"), None);
        assert_eq!(hash(&personal, "k", "t"), hash(&personal, "k", "t"));
        assert_ne!(hash(&personal, "k", "t"), hash(&personal, "", "t"));
        assert_ne!(hash(&personal, "k", "t"), hash(&personal, "kt", ""), "where one ends");
    }

    #[test]
    fn a_server_is_the_same_until_something_of_it_changes() {
        let plain = server(InheritEnv::default(), &[("A", "b")]);
        assert!(plain == plain.clone());
        assert!(plain != Server { max_in_flight: 1, ..plain.clone() });
        assert!(plain != server(InheritEnv::default(), &[("A", "c")]));
    }

    #[test]
    fn the_fingerprint_is_the_same_in_every_build() {
        let plain = server(InheritEnv::default(), &[("A", "b")]);
        assert_eq!(plain.fingerprint_of(b"/bin/demo"), 5_970_231_491_469_970_692);
    }

    #[test]
    fn the_fingerprint_tells_what_is_started_apart() {
        let plain = server(InheritEnv::default(), &[("A", "b")]);
        let print = |server: &Server| server.fingerprint_of(b"/bin/demo");
        let joined = Server { args: vec![Template::plain("ab")], ..plain.clone() };
        let elsewhere = Server { cwd: Some("/".into()), ..plain.clone() };
        let template = read("${user:id}", |_| None).template;
        let personal = Server { args: vec![template], ..plain.clone() };
        let open = Server { inherit_env: InheritEnv::All, ..plain.clone() };
        for other in
            [&joined, &elsewhere, &personal, &open, &server(InheritEnv::default(), &[("A", "c")])]
        {
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
}
