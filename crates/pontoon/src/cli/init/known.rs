//! Servers that can be named: their command lines are known to work, in the versions that the tests of this project use.

use super::written::NewServer;

/// A server that is known by name.
pub(super) struct KnownServer {
    pub(super) name: &'static str,
    /// What it does, in a line.
    pub(super) what: &'static str,
    /// Why it is written so.
    why: &'static str,
    command: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    /// Other keys, as they are written.
    keys: &'static [(&'static str, &'static str)],
}

const PLAIN: KnownServer =
    KnownServer { name: "", what: "", why: "", command: "", args: &[], env: &[], keys: &[] };

/// One process for everybody, for what keeps nothing.
const SHARED: &[(&str, &str)] = &[("mode", "\"shared\"")];

/// All of them, by name.
pub(super) const KNOWN: &[KnownServer] = &[
    KnownServer {
        name: "demo",
        what: "the demo server of Pontoon",
        why: "The demo server of Pontoon: it greets, counts, asks, and makes files.",
        ..PLAIN
    },
    KnownServer {
        name: "everything",
        what: "a bit of everything that the protocol has, for tests of clients (npx)",
        why: "A bit of everything that the protocol has, for tests of clients.",
        command: "npx",
        args: &["-y", "@modelcontextprotocol/server-everything@2026.8.31"],
        ..PLAIN
    },
    KnownServer {
        name: "excel",
        what: "makes and changes Excel workbooks (uvx)",
        why: "A workbook is a file: a process for each request, in a folder that stays the same for a chat. Answers have links to \
              the files.",
        command: "uvx",
        args: &["excel-mcp-server==2.2.2", "stdio"],
        env: &[("EXCEL_FILES_PATH", "${MCPO_WORKDIR}")],
        keys: &[("workspace", "\"session\"")],
    },
    KnownServer {
        name: "fetch",
        what: "fetches web pages (uvx)",
        why: "Fetches web pages. It keeps nothing, so one process is for everybody. It reaches whatever this machine reaches.",
        command: "uvx",
        args: &["mcp-server-fetch==2026.10.24"],
        keys: SHARED,
        ..PLAIN
    },
    KnownServer {
        name: "filesystem",
        what: "reads and writes files in the folder of a chat (npx)",
        why: "Files in the folder of a chat. Name other folders behind it to open those.",
        command: "npx",
        args: &["-y", "@modelcontextprotocol/server-filesystem@2026.8.31", "${MCPO_WORKDIR}"],
        keys: &[("workspace", "\"session\"")],
        ..PLAIN
    },
    KnownServer {
        name: "memory",
        what: "remembers facts as a graph, for each chat (npx)",
        why: "Remembers facts as a graph, in the folder of a chat.",
        command: "npx",
        args: &["-y", "@modelcontextprotocol/server-memory@2026.8.31"],
        env: &[("MEMORY_FILE_PATH", "${MCPO_WORKDIR}/memory.json")],
        keys: &[("workspace", "\"session\"")],
    },
    KnownServer {
        name: "powerpoint",
        what: "makes PowerPoint presentations (uvx)",
        why: "Presentations lie in the memory of the process, so each chat has one of its own, kept while it is used.",
        command: "uvx",
        args: &[
            "--from",
            "office-powerpoint-mcp-server==2.0.7",
            "--with",
            "mcp<2",
            "ppt_mcp_server",
        ],
        keys: &[("mode", "\"stateful\""), ("idle_timeout", "\"30m\""), ("timeout", "\"5m\"")],
        ..PLAIN
    },
    KnownServer {
        name: "time",
        what: "tells the time in each time zone (uvx)",
        why: "It keeps nothing, so one process is for everybody.",
        command: "uvx",
        args: &["mcp-server-time==2026.10.19"],
        keys: SHARED,
        ..PLAIN
    },
];

impl KnownServer {
    /// The server as it is written.
    pub(super) fn server(&self) -> NewServer {
        if self.command.is_empty() {
            return demo();
        }
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        NewServer {
            name: self.name.to_owned(),
            why: self.why.to_owned(),
            command: self.command.to_owned(),
            args: self.args.iter().map(|&word| word.to_owned()).collect(),
            env: self.env.iter().map(pair).collect(),
            keys: self.keys.iter().map(pair).collect(),
            ..NewServer::default()
        }
    }
}

/// The demo server, which this very program is.
pub(super) fn demo() -> NewServer {
    let program = std::env::current_exe().unwrap_or_else(|_| "pontoon".into());
    let why = KNOWN.iter().find(|it| it.name == "demo").map_or("", |it| it.why);
    NewServer {
        name: "demo".to_owned(),
        why: why.to_owned(),
        command: program.display().to_string(),
        args: vec!["demo".to_owned()],
        ..NewServer::default()
    }
}
