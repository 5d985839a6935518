//! Commands that are called otherwise elsewhere, and what they are called here.

/// Words that people type for commands, and what to type.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &["servers", "list", "ls"],
        "`pontoon check` lists the servers of a configuration, `pontoon tools NAME` the tools of one",
    ),
    (
        &["run", "start", "up", "server", "proxy"],
        "`pontoon serve` serves the configuration, `pontoon serve -- COMMAND` one server",
    ),
    (
        &["stop", "down", "kill", "restart", "reload"],
        "press Ctrl-C where `pontoon serve` runs, or send it SIGTERM; SIGHUP has it read its configuration again",
    ),
    (
        &["ps", "top", "info", "stats"],
        "`pontoon status` shows the bridges that run, `pontoon jobs` the calls that were made",
    ),
    (
        &["add", "install", "remove"],
        "write the server into mcp-servers.json; `pontoon config` prints what to write into a client",
    ),
    (
        &["validate", "lint", "verify", "config-check"],
        "`pontoon check` tells every mistake of a configuration",
    ),
    (
        &["inspect", "inspector", "test", "debug", "diagnose", "probe"],
        "`pontoon doctor -- COMMAND` examines a server, `pontoon tools NAME` lists its tools",
    ),
    (&["exec", "invoke", "tool", "execute"], "`pontoon call SERVER TOOL key=value` calls a tool"),
    (&["clean", "prune", "cleanup", "sweep"], "`pontoon gc` removes what has expired"),
    (&["history", "calls", "log"], "`pontoon jobs` lists the calls that were made"),
    (&["ping", "healthcheck"], "`pontoon health` asks a bridge how it is"),
    (&["version"], "`pontoon --version`"),
];

/// What this word is called here.
pub(super) fn called_here(word: &str) -> Option<&'static str> {
    let known = ELSEWHERE.iter().find(|(words, _)| words.contains(&word));
    known.map(|(_, hint)| *hint)
}
