//! The keys of a server in `mcp-servers.json`, and of its `isolation`, each with its default and its documentation.
//!
//! The tables are what is read, what misspelt keys are compared with, and what
//! `docs/configuration.md` is written from, so that the three cannot disagree. How keys go together
//! is left to `complete.rs`.

use std::path::{Path, PathBuf};

use pontoon_schema::Profile;

use super::app_headers::{AppHeader, BadHeader};
use super::app_place::{AppPlace, BadPlace};
use super::document::{DocumentNode, DocumentReader, Member};
use super::draft::{Draft, FileContext, WrittenApp, WrittenKind, WrittenMode};
use super::endpoint::BadEndpoint;
use super::healing::Healing;
use super::isolation::{Level, Network};
use super::lifetime::{FileLinks, MessageFraming, SessionKey, Warm, WorkspaceScope};
use super::nearest::unknown;
use super::remarks::Weight;
use super::secret::{Secret, is_own_secret};
use super::server::InheritEnv;
use super::template::{self, Start, Template};
use super::units;

/// A key of a server in the file, or of its `isolation`.
pub(super) struct ServerKey {
    pub(super) name: &'static str,
    /// Other spellings that mean the same.
    pub(super) also: &'static [&'static str],
    /// The value without it, as it would be written.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    pub(super) default: &'static str,
    /// For a user, as Markdown.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    pub(super) doc: &'static str,
    pub(super) read: fn(&mut Draft, &DocumentNode<'_>, &mut DocumentReader<'_>, &FileContext<'_>),
}

impl ServerKey {
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.also.contains(&name)
    }
}

/// Makes a table of keys. A row has the documentation of a key for a user, as Markdown, its name with other spellings of it,
/// its default as it would be written, and how it is read, of what the table names.
macro_rules! key_table {
    (
        $(#[doc = $about:literal])+
        $table:ident($draft:ident, $node:ident, $reader:ident, $around:ident):
        $($(#[doc = $doc:literal])+ $name:literal $(| $also:literal)*, $default:literal => $read:expr;)+
    ) => {
        $(#[doc = $about])+
        #[allow(unused_variables)]
        pub(super) const $table: &[ServerKey] = &[$(ServerKey {
            name: $name,
            also: &[$($also),*],
            default: $default,
            doc: concat!($($doc),+),
            read: |$draft, $node, $reader, $around| { $read; },
        }),+];
    };
}
key_table! {
    /// Every key of a server that this version knows.
    KEYS(draft, node, reader, around):
    /// The program to start, without a shell. A name is looked up in `PATH` (the one in `env`, else Pontoon's own); a
    /// path with a slash is relative to the folder of this file. A program that is missing breaks only its own server. A
    /// server that runs already has a `url` or a `socket` in its place (below).
    "command", "none, it is required" => draft.command = reader.filled_text(node);
    /// The arguments of the program, with placeholders (below).
    "args", "[]" => {
        for item in reader.items(node, "a list of texts").unwrap_or_default() {
            draft.server.args.extend(template(&item, reader, around));
        }
    };
    /// Variables set for the program, with placeholders (below) in their values.
    "env", "{}" => {
        for member in reader.members(node).unwrap_or_default() {
            if !is_variable_name(&member.name) {
                reader.about_name(Weight::Mistake, &member, NOT_A_VARIABLE);
            }
            let value = template(&member.node, reader, around);
            draft.server.env.extend(value.map(|value| (member.name, value)));
        }
    };
    /// The names of Pontoon's own variables that the program sees besides the usual ones, or `"all"` for all of them but
    /// Pontoon's own settings (`MCPO_*`, `PONTOON_*`).
    "inherit_env", "[]" => draft.server.inherit_env = inherit_env(node, reader);
    /// The folder the program starts in, relative to the folder of this file. Files that it makes outside its workspace
    /// are not offered to clients.
    "cwd", "the workspace" => {
        let Some(written) = reader.filled_text(node) else { return };
        let cwd = around.folder.join(written);
        // It may appear before the first call, so that starting it decides; this is a hint.
        if !cwd.is_dir() {
            let message = format!("there is no folder `{}`", cwd.display());
            reader.about(Weight::BrokenServer, node, message);
        }
        draft.server.cwd = Some(cwd);
    };
    /// How the server is spoken to: `"stdio"` if it is started by `command`, `"ws"` if it is at a `url`. It may be left out.
    "type", "\"stdio\", and \"ws\" at a `url`" => {
        let words = [("stdio", WrittenKind::Stdio), ("ws", WrittenKind::WebSocket)];
        draft.app.kind = reader.word(node, &words);
    };
    /// `"stateless"`: one process for each request. `"stateful"`: one process for each session, for servers that keep
    /// their state in memory. `"shared"`: one process for everybody, for servers that keep nothing (below).
    "mode", "\"stateless\"" => {
        let words = [
            ("stateless", WrittenMode::Stateless),
            ("stateful", WrittenMode::Stateful),
            ("shared", WrittenMode::Shared),
        ];
        draft.mode = reader.word(node, &words).unwrap_or(WrittenMode::Unknown);
    };
    /// How long a process of a `"stateful"` or `"shared"` server is kept without a request: seconds, or text such as
    /// `"30m"`. An MCP session with a `"stateful"` server lives no shorter. A `"stateless"` server ignores it and the
    /// next three, with a warning. Without it, `MCPO_STATEFUL_DEFAULT_IDLE_TIMEOUT` holds.
    "idle_timeout", "1800" => draft.idle = reader.measure(node, units::duration);
    /// How many processes of a `"stateful"` server one address has for sessions without a key of their own: with more
    /// than one, another is started when they are busy. Programs there that offer a server different abilities, such as
    /// elicitation, count apart. Also written `max_processes_per_chat`. Without it, `MCPO_STATEFUL_MAX_PROCESSES_PER_IP`
    /// holds.
    "max_processes_per_ip" | "max_processes_per_chat", "1" => draft.per_address = reader.measure(node, units::count);
    /// How many processes of a `"stateful"` server one user has over all chats, or one address where no user is known.
    /// Over it, the one idle for longest goes.
    "max_processes_per_client", "32" => draft.per_client = reader.measure(node, units::count);
    /// How many calls one process of a `"stateful"` server works on at the same time, or a `"shared"` server or one at a `url` or
    /// `socket` in all. An application that does one thing at a time wants 1.
    "max_in_flight", "64" => set(&mut draft.server.max_in_flight, reader.measure(node, units::count));
    /// By what sessions are told apart. `"auto"`: user and chat, else the MCP session, else `X-Session-Id`, else the
    /// named API key, else the address; a request that shows only the key without a name (`MCPO_API_KEY`) is refused,
    /// because it may be anybody's. `"credential"`: the API key alone, so that all who show one key share a process and
    /// a folder. `"ip"`: the address alone, which is everybody's where all come through one proxy. `"together"`: user and
    /// chat where a request says them; all other requests share one process, which is kept for as long as it lives. Its
    /// tools are those that a client has which cannot be asked.
    "session_key", "\"auto\"" => {
        let words = [
            ("auto", SessionKey::Auto),
            ("credential", SessionKey::Credential),
            ("ip", SessionKey::Ip),
            ("together", SessionKey::Together),
        ];
        draft.server.session_key = reader.word(node, &words).unwrap_or_default();
    };
    /// The folder a process works in. `"job"`: a new one for each request. `"session"`: one for each session, so that a
    /// call finds the files of the last; a `"stateful"` server always has it so.
    "workspace", "\"job\"" => {
        let words = [("job", WorkspaceScope::Job), ("session", WorkspaceScope::Session)];
        draft.server.workspace = reader.word(node, &words).unwrap_or_default();
    };
    /// How many processes of a `"stateless"` server are kept ready, each used once, so that a call does not wait for a
    /// start; `"auto"` follows the calls within `MCPO_WARM_MEMORY`.
    "warm", "0" => {
        draft.server.warm = match node.is_text("auto") {
            true => Warm::Auto,
            false => Warm::Fixed(reader.measure(node, units::spares).unwrap_or_default()),
        };
    };
    /// How clients learn of the files that a call made. `"append"`: links are added to its answer, and are in its
    /// headers; a result of over 1 MB that comes on a stream which has begun becomes a file, too. `"header"`: in its
    /// headers only, or in its answer where a stream has begun and the headers are gone. `"off"`: not at all.
    "files", "\"append\"" => {
        let words = [
            ("append", FileLinks::Append),
            ("header", FileLinks::Header),
            ("off", FileLinks::Off),
        ];
        draft.server.files = reader.word(node, &words).unwrap_or_default();
    };
    /// Names of fields that hold the paths of files, in the arguments of a call and in its answer: hints, where
    /// comparing the workspace before and after does not tell.
    "file_path_fields", "[]" => draft.server.file_path_fields = names(node, reader);
    /// What a process is kept from and what it may use: `"basic"`, `"confined"`, `"user"`, or an object with a `level`
    /// and limits (below).
    "isolation", "\"basic\"" => isolation(draft, node, reader, around);
    /// How long one call may take, from its request to its answer: seconds, or text such as `"30s"` or `"5m"`. The wait
    /// for a free slot and the start of a process count, so it must be longer than a start (`warm` has processes started
    /// ahead); what a person takes to answer a question does not count. Without it, `MCPO_TIMEOUT` holds.
    "timeout", "300" => set(&mut draft.server.timeout, reader.measure(node, units::duration));
    /// The same for single tools, by their names, such as `{"render": "10m"}`.
    "tool_timeouts", "{}" => {
        for member in reader.members(node).unwrap_or_default() {
            let timeout = reader.measure(&member.node, units::duration);
            draft.server.tool_timeouts.extend(timeout.map(|timeout| (member.name, timeout)));
        }
    };
    /// Names of tools that clients neither see nor call. Also written `disabled_tools`.
    "disabledTools" | "disabled_tools", "[]" => draft.server.disabled_tools = names(node, reader);
    /// What clients tell their models about the server, in place of its own words; empty for none.
    "instructions", "those of the server" => draft.server.instructions = reader.text(node);
    /// Text added to the instructions.
    "usage_guide", "\"\"" => draft.server.usage_guide = said(node, reader);
    /// Text added after all others.
    // How the bridge that had it first spells it.
    "post_instruction" | "post_instraction", "\"\"" => draft.server.post_instruction = said(node, reader);
    /// What is offered over REST and OpenAPI besides the tools, a list: `"prompts"` and `"resources"` are operations at
    /// `/mcpo/NAME/prompts`, `.../prompts/PROMPT`, `.../resources`, `.../resources/templates` and `.../resources/read`. With
    /// `"html"` a result that is one page of HTML is answered as that page, which Open WebUI shows in the chat; one of
    /// a call that made files is answered as usual, with their links.
    "rest", "[]" => {
        let rest = &mut draft.server.rest;
        for item in reader.items(node, "a list of texts").unwrap_or_default() {
            match reader.word(&item, &[("prompts", 0), ("resources", 1), ("html", 2)]) {
                Some(0) => rest.prompts = true,
                Some(1) => rest.resources = true,
                Some(_) => rest.html = true,
                None => {}
            }
        }
    };
    /// What is done when the server violates the protocol, or the schema of a tool is not valid: `"repair"` puts it right,
    /// `"warn"` only counts and logs it, `"off"` does nothing. An object says it for single codes, such as
    /// `{"H25": "off", "S004": "warn", "default": "repair"}`. For some there is one way only, since what they are about can go
    /// to no client or is over: H08, H10, H20, H22, H26, H27 and H28, log text (H01), progress of no call (H12) and a version
    /// that does not exist (H19) are dealt with in every mode, and `"off"` only leaves them uncounted.
    "heal", "\"repair\"" => draft.server.heal = Healing::read(node, reader);
    /// How messages are told apart that go to the server: `"auto"` writes one a line, and `Content-Length` frames to a
    /// server that does; `"content-length"` writes frames from the start.
    "framing", "\"auto\"" => {
        let words = [("auto", MessageFraming::Auto), ("content-length", MessageFraming::ContentLength)];
        draft.server.framing = reader.word(node, &words).unwrap_or_default();
    };
    /// The clients that tools are shown for. `"common"` is what most take; `"none"` repairs what is not valid and shapes
    /// nothing; others are named after a client, such as `"claude-code"`, `"openai"` or `"gemini"` (all are in docs/codes.md).
    /// Calls reach the server under its own names and with the arguments that it takes.
    "profile", "\"common\"" => {
        let profiles = Profile::all();
        let words: Vec<_> = profiles.iter().map(|profile| (profile.name.as_str(), profile)).collect();
        draft.server.profile = reader.word(node, &words).unwrap_or_else(Profile::common);
    };
    /// `true` leaves the server out; its other keys are not even read.
    // Read before all others, by `file::is_disabled`.
    "disabled", "false" => {};
}

key_table! {
    /// The keys of a server that is reached, and not started.
    REACHED_KEYS(draft, node, reader, around):
    /// Where a server is that is not started from here, such as an application with an MCP server of its own:
    /// `ws://HOST:PORT/PATH`, `wss://...`, `ws+unix:/PATH`, `tcp://HOST:PORT` or `unix:/PATH`. For PORT,
    /// FIRST-LAST looks at several ports.
    "url", "none" => draft.app.url = url(node, reader);
    /// The Unix socket of such a server, relative to the folder of this file: that of a program with `pontoon-host`, for one.
    "socket", "none" => draft.app.socket = reader.filled_text(node).map(|path| around.folder.join(path));
    /// What is shown to the server at a `ws` or `wss` URL when a connection is opened, such as
    /// `{"Authorization": "Bearer ${env:NAME}"}`.
    "headers", "{}" => {
        for member in reader.members(node).unwrap_or_default() {
            if let Some(value) = template(&member.node, reader, around) {
                header(&member, &value, &mut draft.app, reader);
            }
        }
    };
    /// Certificates of authorities to trust beside those of this machine, in PEM form, for a `wss` URL; relative to the
    /// folder of this file.
    "ca_file", "none" => draft.app.authorities = file(node, reader, around);
    /// The certificate that is shown to the server at a `wss` URL, in PEM form.
    "client_cert", "none" => draft.app.certificate = file(node, reader, around);
    /// The key of that certificate.
    "client_key", "none" => draft.app.key = file(node, reader, around);
    /// How long a call waits for a server at a `url` or `socket` that is away.
    "connect_wait", "10" => draft.app.connect_wait = reader.measure(node, units::duration);
    /// How long such a server may give no sign of life while it works on a call.
    "busy_grace", "120" => draft.app.busy_grace = reader.measure(node, units::duration);
}

const LEVELS: [(&str, Level); 3] =
    [("basic", Level::Basic), ("confined", Level::Confined), ("user", Level::User)];

key_table! {
    /// Every key of the object `isolation`.
    ISOLATION_KEYS(draft, node, reader, around):
    /// `"basic"`: own process group, no inherited files, no new privileges, own folder for temporary files; it has
    /// Pontoon's rights, so it is guarded against accidents only. `"confined"`: also reads little more than the system
    /// and its program, writes only to its workspace, and is refused dangerous system calls. `"user"`: also has a user
    /// of the system for each session, which needs Pontoon to run as root.
    "level", "\"basic\"" => draft.server.isolation.level = reader.word(node, &LEVELS).unwrap_or_default();
    /// `"none"`: the process reaches nobody.
    "network", "\"open\"" => {
        let words = [("open", Network::Open), ("none", Network::None)];
        draft.server.isolation.network = reader.word(node, &words).unwrap_or_default();
    };
    /// What the system cannot give is an error, unless this is `true`.
    "best_effort", "false" => draft.server.isolation.best_effort = reader.boolean(node).unwrap_or_default();
    /// How much memory: bytes, or text such as `"512MiB"`.
    "memory", "no limit" => draft.server.isolation.memory_bytes = reader.measure(node, units::bytes);
    /// How many processes and threads at once.
    "processes", "no limit" => draft.server.isolation.processes = number(node, reader);
    /// How long one process may compute: whole seconds, or text such as `"5m"`.
    "cpu", "no limit" => draft.server.isolation.cpu = reader.measure(node, units::whole_seconds);
    /// How large one file may become: bytes, or text such as `"100MiB"`.
    "file_size", "no limit" => draft.server.isolation.file_size_bytes = reader.measure(node, units::bytes);
    /// How many files may be open at once.
    "open_files", "no limit" => draft.server.isolation.open_files = number(node, reader);
    /// How long one process may live, whatever it does: seconds, or text such as `"2h"`.
    "run_time", "no limit" => draft.server.isolation.run_time = reader.measure(node, units::duration);
    /// More files and folders that a `"confined"` process may read, relative to the folder of this file.
    "read", "[]" => draft.server.isolation.read = paths(node, reader, around.folder);
    /// More files and folders that a `"confined"` process may write.
    "write", "[]" => draft.server.isolation.write = paths(node, reader, around.folder);
}

/// The key of a server that is called so, of either kind.
pub(super) fn find(name: &str) -> Option<&'static ServerKey> {
    KEYS.iter().chain(REACHED_KEYS).find(|key| key.is_called(name))
}

/// Keys that mean something to other versions or bridges: ignoring one would change what its
/// author relies on, so it is refused by name.
pub(super) const REFUSED_KEYS: &[&str] = &["client_header_forwarding", "oauth"];

/// Keys of another bridge whose purpose is served without them, and by what.
pub(super) const UNNEEDED_KEYS: &[(&str, &str)] = &[
    ("resolve_path_fields", "the program starts in its workspace, where relative paths begin"),
    ("session_persistence", "`mode` and `workspace` say what is kept between calls"),
];

const NOT_A_VARIABLE: &str = "a variable has a name, without `=` and NUL";

/// Takes over what was understood; what was not has been told.
fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// An address, or `None` after telling why it is none.
fn url(node: &DocumentNode<'_>, reader: &mut DocumentReader<'_>) -> Option<AppPlace> {
    let place = reader.filled_text(node)?.parse();
    let message = match place {
        Ok(place) => return Some(place),
        Err(BadPlace::Endpoint(BadEndpoint::Secret)) => {
            "an address must hold no user name or password: write \
             \"headers\": {\"Authorization\": \"Bearer ${env:NAME}\"}"
                .to_owned()
        }
        Err(BadPlace::Endpoint(BadEndpoint::Http { scheme, web })) => format!(
            "a server at {scheme}:// is not supported by this version: write {web}:// if it is a WebSocket, or add it to \
             the client itself and leave it out here (`\"disabled\": true`)"
        ),
        Err(bad) => bad.to_string(),
    };
    reader.about(Weight::Mistake, node, message);
    None
}

/// The path of a file, which should be there.
fn file(
    node: &DocumentNode<'_>,
    reader: &mut DocumentReader<'_>,
    around: &FileContext<'_>,
) -> Option<PathBuf> {
    let file = around.folder.join(reader.filled_text(node)?);
    if !file.is_file() {
        let message = format!("there is no file `{}`", file.display());
        reader.about(Weight::BrokenServer, node, message);
    }
    Some(file)
}

/// Takes a header over, or tells why not. `Authorization` is a token. One connection is everybody's, so nothing of it may be a
/// person's.
fn header(
    member: &Member<'_>,
    value: &Template,
    app: &mut WrittenApp,
    reader: &mut DocumentReader<'_>,
) {
    let mut refuse = |message: String| reader.about(Weight::Mistake, &member.node, message);
    if value.needs_person() || value.needs_workspace() {
        let message = "all clients share one connection, so there is nothing for ${user:..}, ${header:..}, \
                       ${MCPO_WORKDIR} and ${MCPO_JOB_ID}";
        return refuse(message.to_owned());
    }
    let is_from_variable = value.variables().next().is_some();
    let value = value.fill(&Start::unknown());
    if member.name.eq_ignore_ascii_case("authorization") {
        let token = value.strip_prefix("Bearer ").map(str::trim).filter(|it| !it.is_empty());
        match token {
            Some(token) => app.token = Some(Secret::new(token)),
            None => refuse("expected \"Bearer TOKEN\", such as \"Bearer ${env:NAME}\"".to_owned()),
        }
        return;
    }
    match format!("{}: {value}", member.name).parse::<AppHeader>() {
        Ok(header) => app.headers.push(AppHeader { is_from_variable, ..header }),
        Err(BadHeader::Form) => {
            refuse("is no header: a name without spaces, and a value of ASCII text".to_owned())
        }
        Err(bad) => refuse(bad.to_string()),
    }
}

/// A text with placeholders.
fn template(
    node: &DocumentNode<'_>,
    reader: &mut DocumentReader<'_>,
    around: &FileContext<'_>,
) -> Option<Template> {
    let read = template::read(&reader.text(node)?, |name| around.environment.text(name));
    for mistake in &read.mistakes {
        reader.about(Weight::Mistake, node, mistake);
    }
    for warning in &read.warnings {
        reader.about(Weight::Warning, node, warning);
    }
    read.mistakes.is_empty().then_some(read.template)
}

fn inherit_env(node: &DocumentNode<'_>, reader: &mut DocumentReader<'_>) -> InheritEnv {
    if node.is_text("all") {
        return InheritEnv::All;
    }
    let mut names = Vec::new();
    for item in reader.items(node, "a list of names or \"all\"").unwrap_or_default() {
        match reader.text(&item) {
            Some(name) if is_own_secret(&name) => {
                let message = format!("`{name}` is a secret of Pontoon's own, not for its servers");
                reader.about(Weight::Mistake, &item, message);
            }
            Some(name) if is_variable_name(&name) => names.push(name),
            Some(_) => reader.about(Weight::Mistake, &item, NOT_A_VARIABLE),
            None => {}
        }
    }
    InheritEnv::Names(names)
}

fn is_variable_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

fn names(node: &DocumentNode<'_>, reader: &mut DocumentReader<'_>) -> Vec<String> {
    let items = reader.items(node, "a list of names").unwrap_or_default();
    items.iter().filter_map(|item| reader.filled_text(item)).collect()
}

/// A text to say; an empty one says nothing.
fn said(node: &DocumentNode<'_>, reader: &mut DocumentReader<'_>) -> Option<String> {
    reader.text(node).filter(|text| !text.is_empty())
}

/// What is written under `isolation`: the word of a level, or an object.
fn isolation(
    draft: &mut Draft,
    node: &DocumentNode<'_>,
    reader: &mut DocumentReader<'_>,
    around: &FileContext<'_>,
) {
    if !node.is_object() {
        draft.server.isolation.level = reader.word(node, &LEVELS).unwrap_or_default();
        return;
    }
    for member in reader.members(node).unwrap_or_default() {
        match ISOLATION_KEYS.iter().find(|key| key.name == member.name) {
            Some(key) => (key.read)(draft, &member.node, reader, around),
            // Unlike elsewhere no warning will do: somebody relies on what it was to keep out.
            None => {
                let known = ISOLATION_KEYS.iter().map(|key| key.name);
                let message = unknown("key", &member.name, known);
                reader.about_name(Weight::Mistake, &member, message);
            }
        }
    }
}

fn number(node: &DocumentNode<'_>, reader: &mut DocumentReader<'_>) -> Option<u64> {
    reader.measure(node, units::count).map(|count| count as u64)
}

/// Paths from the root. A missing one breaks the server, whose start would fail.
fn paths(node: &DocumentNode<'_>, reader: &mut DocumentReader<'_>, folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for item in reader.items(node, "a list of paths").unwrap_or_default() {
        let Some(path) = reader.filled_text(&item).map(|path| folder.join(path)) else { continue };
        if !path.exists() {
            let message = format!("there is no file or folder `{}`", path.display());
            reader.about(Weight::BrokenServer, &item, message);
        }
        paths.push(path);
    }
    paths
}
