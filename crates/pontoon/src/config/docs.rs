//! Keeps `docs/configuration.md` and `mcp-servers.example.json` true to the tables they describe.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pontoon_wire::heal::Heal;

use super::keys::{ISOLATION_KEYS, KEYS, REACHED_KEYS, REFUSED_KEYS, ServerKey};
use super::network::{CERTIFICATE_VARIABLES, DEFAULT_VARIABLES, PROXY_VARIABLES, USUAL_VARIABLES};
use super::remarks::Weight;
use super::secret::SECRETS;
use super::server::Server;
use super::settings::{REFUSED_VARIABLES, Unset, VARIABLES};
use super::tests::servers;
use super::traces::TRACE_VARIABLES;

const HEAD: &str = "\
<!-- Written by a test from the tables in crates/pontoon/src/config. Renew it with
     UPDATE=1 cargo test -p pontoon config::docs -->

# Configuration

Pontoon reads the servers to run from `mcp-servers.json`, in the form that Claude and mcpo use: JSON,
with comments and trailing commas allowed. `pontoon init` writes one to begin with. `pontoon check` reads it, starts nothing, and
tells every mistake at once with its line and key; `pontoon check --start` also starts each server once. Options of the command line win over variables of the
environment, and these over the defaults.

With no file at all, a built-in server named `demo` is run; where other machines can reach it and no API key is
set, it asks for one that is made and printed at its start. A file that was named with `--config` or
`MCPO_CONFIG_FILE` must be there.

```json
{
  \"mcpServers\": {
    \"excel\": { \"command\": \"uvx\", \"args\": [\"excel-mcp-server\", \"stdio\"] }
  }
}
```

The name of a server (`excel`) is part of its URL, `/mcp/excel`: 1 to 64 letters, digits, `.`, `_`
and `-`, beginning with a letter or digit. `mcp-servers.example.json` shows every key.
";

const SHARED: &str = "
## One process for everybody

`\"mode\": \"shared\"` is for servers that keep nothing: time, fetch, search, a calculator. All clients, known or not, use one
process (two if clients of both protocol eras call a server that speaks both). Each still gets its own answers, progress and
cancellation.

It is safe if a call means the same whoever makes it and whatever was called before. It is **not** safe for a server
that keeps a document, a cursor, a page or a login open, that remembers what it was told, that writes files for people, that has
tasks, or that works with a person's account: people would meet in it. Such a server is `\"stateful\"`, or `\"stateless\"`.

- The process is started with the bridge, and again with the next call when it has ended or was idle for `idle_timeout`. Calls that were open when
  it died fail with what happened; the next one goes to a new process, and hears of nothing lost. One that answers neither
  a call nor a ping gets no more calls and ends with those it has, and another takes its place. One that does not start, or ends before it answered a call, is tried again after 1 s, 2 s and so on up to 60 s; calls meanwhile hear why.
- `max_in_flight` (64) bounds the calls at once, of all clients together; each client has its share of them as of `MCPO_MAX_CONCURRENT`, which does not
  count them. Over it a call is refused with 429 and `Retry-After`, at once or after `MCPO_QUEUE_WAIT`. `MCPO_STATEFUL_MAX_TOTAL_PROCESSES`
  does not count the process.
- It works in a folder of its own that goes with it, so there is no `workspace`, no job and no link to a file; a call is a line of the journal. A time
  to live (`run_time` of `isolation`) is that of the process.
- A legacy server hears that its client can answer nothing, and what it asks nevertheless is refused. A modern one asks with its answer, which is its
  call's. A log line goes to the client whose call is the only one open, if it is within its level and no other
  call was answered in the ten seconds before; else to none. What it writes to its standard error is for the log, and no client is told. There are no `resources/subscribe`
  and no `resources/updated`.
- `workspace`, `session_key`, `max_processes_per_*`, `files` other than `\"off\"`, `warm`, `\"isolation\": \"user\"` and the placeholders of a person, a workspace
  or a job are mistakes beside it.
";

const REACHED: &str = "
## A server that runs already

An application with an MCP server of its own, a program with `pontoon-host`, or a WebSocket server elsewhere: it is reached at its `url` or `socket`, and
not started.

```json
{
  \"mcpServers\": {
    \"max\": { \"url\": \"ws://localhost:7400\", \"max_in_flight\": 1 },
    \"tools\": { \"socket\": \"/run/user/1000/my-program/tools.sock\" }
  }
}
```

One connection serves all clients, as one process of a `\"shared\"` server does, and what is said there of people holds here, too: whoever may use the
bridge uses the same application. It may come and go. While it is away its tools stay listed (the last that were seen, also after a restart of the bridge), a call waits for
it for `connect_wait`, and then says that it was not made. A call that was under way when the connection was lost says that its outcome is unknown, and
is never made twice unless the tool is marked as read-only or idempotent. It is looked for all the time, and clients hear when its tools are others than
before. `/health` names it `away` and says why; the bridge is `degraded` then, and never down for this.

Calls beyond `max_in_flight` wait for their turn as long as their own time (`timeout`) lasts. `mode`, if it is written, is `\"shared\"`; keys of a process, such as
`args`, `env`, `workspace`, `files` and `isolation`, are mistakes beside `url` and `socket`. What else `pontoon connect` knows, such as several bridges
with one connection, is in [live-app.md](live-app.md).

| key | default | meaning |
|---|---|---|
";

const PLACEHOLDERS: &str = "
## Placeholders

In `args` and in the values of `env`, and, of them, `${env:NAME}` in those of `headers`:

| placeholder | becomes |
|---|---|
| `${env:NAME}` | the value of that variable of Pontoon's own environment, so that secrets stay out \
of the file; one that is not set is a mistake |
| `${MCPO_WORKDIR}` | the workspace of the process |
| `${MCPO_JOB_ID}` | a name of its workspace: the id of its job, or, for `\"mode\": \"stateful\"` and `\"workspace\": \
\"session\"`, the name of the session's folder, the same for all its calls. Make no addresses of it: the \
links to files are those that an answer names |
| `${user:id}`, `${user:email}`, `${user:name}`, `${user:role}` | what is known of who calls, so \
that a person's own account reaches that person's process and no other; empty if it is not known |
| `${header:X-Name}` | that header of the request, but not `Cookie` and `Proxy-Authorization`, and \
no header that holds a key of Pontoon's: the protocol forbids to pass on what a client proves itself \
with. `Authorization` is handed on where the key of Pontoon is in `X-API-Key`; else it is empty |

Write `--user=${user:id}` rather than `${user:id}` alone, so that a value that begins with `-` is
not taken for an option.
";

const TRACES: &str = "
### Traces

These are OpenTelemetry's own variables. What is sent, and what never is, is in [operations.md](operations.md#traces). A wrong value is a mistake
that is told at the start; those of its variables that are not named here change nothing.

| variable | default | meaning |
|---|---|---|
";

const UNCHANGED: &str = "
## Payloads byte for byte

Pontoon reads the envelope of a message and leaves its payload alone, but for three things: it adds links to files to
answers (`files`), it puts right what violates the protocol or breaks clients (`heal`, `profile`), and it translates between a client and a
server of different eras. A server of whose answers not a byte may change has

```json
{ \"command\": \"...\", \"files\": \"off\", \"heal\": \"off\" }
```

For clients of its own era `params` of a request and `result` and `error` of an answer then pass as they are
written: numbers of any size, the order of names, escapes and spaces. What Pontoon still replaces are `id` and
`progressToken`, which are its own on the way to the server, and line breaks between the tokens of a request, which become
spaces, because a message to a stdio server is one line. Lists (`tools/list` and the like) come from what was learnt of the
server, each item as the server wrote it.
";

/// The whole of `docs/configuration.md`.
fn page() -> String {
    let mut page = HEAD.to_owned();
    let mut add = |text: String| page.push_str(&text);
    add("\n## Keys of a server\n\n| key | default | meaning |\n|---|---|---|\n".to_owned());
    KEYS.iter().for_each(|key| add(row(key)));
    add("\nAn unknown key is a warning that names the nearest known one. These keys belong to \
         other versions or bridges and are refused: "
        .to_owned());
    add(format!("{}.\n", listed(REFUSED_KEYS)));
    add(SHARED.to_owned());
    add(REACHED.to_owned());
    REACHED_KEYS.iter().for_each(|key| add(row(key)));
    add(PLACEHOLDERS.to_owned());
    add("\n## Isolation\n\nThe keys of the object `isolation`; an unknown one is a mistake.\n\n\
         | key | default | meaning |\n|---|---|---|\n"
        .to_owned());
    ISOLATION_KEYS.iter().for_each(|key| add(row(key)));
    add(UNCHANGED.to_owned());
    add("\n## Environment variables\n\n| variable | default | meaning |\n|---|---|---|\n"
        .to_owned());
    for variable in VARIABLES {
        let unset = match variable.unset {
            Unset::Value(text) => format!("`{text}`"),
            Unset::Words(words) => words.to_owned(),
        };
        add(format!("| `{}` | {unset} | {} |\n", variable.name, variable.doc.trim_start()));
    }
    let files: Vec<String> = SECRETS.iter().map(|name| format!("{name}_FILE")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    add(format!(
        "\nA secret may lie in a file, as containers have it. These name the file: {}.\n",
        listed(&files)
    ));
    add("\nA variable that is empty counts as not set. These belong to other versions and are \
         refused: "
        .to_owned());
    add(format!("{}.\n", listed(REFUSED_VARIABLES)));
    add(TRACES.to_owned());
    for (name, unset, doc) in TRACE_VARIABLES {
        add(format!("| `{name}` | {unset} | {doc} |\n"));
    }
    add("\n## What a server sees of the environment\n\n".to_owned());
    let defaults: Vec<String> =
        DEFAULT_VARIABLES.iter().map(|(name, value, _)| format!("{name}={value}")).collect();
    let defaults: Vec<&str> = defaults.iter().map(String::as_str).collect();
    add(format!(
        "{} of Pontoon's own environment where they are set, {} unless set otherwise, what \
         `inherit_env` names, what `env` sets, and about its start `MCPO_WORKDIR`, `MCPO_JOB_ID`, \
         `MCPO_BASE_URL` where it is set, and `TMPDIR`, a folder of its own with a short path.\n\n",
        listed(USUAL_VARIABLES),
        listed(&defaults)
    ));
    add(format!(
        "So that programs can fetch what they need, also certificates ({}; a confined server may \
         read the files) and proxies ({}, also in small letters). The address of a proxy may hold \
         a password: then every server knows it, and it is kept out of the log. `env` with an empty \
         value takes one away. Settings of package indexes (`PIP_INDEX_URL`, `NPM_CONFIG_REGISTRY`) \
         often hold tokens and are for `inherit_env` to name.\n\nNothing else, so that no secret is \
         handed on by accident.\n",
        listed(CERTIFICATE_VARIABLES),
        listed(PROXY_VARIABLES),
    ));
    page
}

fn row(key: &ServerKey) -> String {
    format!("| `{}` | {} | {} |\n", key.name, marked(key.default), key.doc.trim_start())
}

/// A default as code, unless it is words.
fn marked(default: &str) -> String {
    if default.contains(' ') { default.to_owned() } else { format!("`{default}`") }
}

fn listed(names: &[&str]) -> String {
    format!("`{}`", names.join("`, `"))
}

fn in_package(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn the_page_says_what_the_tables_say() {
    let path = in_package("../../docs/configuration.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, page()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "docs/configuration.md is stale; renew it with \
         `UPDATE=1 cargo test -p pontoon config::docs`"
    );
}

#[test]
fn the_example_is_read_without_a_remark_but_for_missing_programs() {
    let text = fs::read_to_string(in_package("mcp-servers.example.json")).unwrap();
    let (servers, remarks) = servers(&text);
    assert!(remarks.iter().all(|remark| remark.weight == Weight::BrokenServer), "{remarks}");
    assert!(!servers.is_empty());
}

#[test]
fn the_example_shows_every_key_with_its_default() {
    let text = fs::read_to_string(in_package("mcp-servers.example.json")).unwrap();
    for key in KEYS.iter().chain(REACHED_KEYS) {
        assert!(text.contains(&format!("\"{}\":", key.name)), "`{}` is not shown", key.name);
        let default = format!("Default: {}.", key.default);
        assert!(text.contains(&default), "`{}` is shown without \"{default}\"", key.name);
    }
    for key in ISOLATION_KEYS {
        assert!(text.contains(&format!("\"{}\":", key.name)), "`{}` is not shown", key.name);
    }
}

/// The servers of a file in which one has this key beside others.
fn servers_with(key: &str) -> Vec<Arc<Server>> {
    let text =
        format!(r#"{{"mcpServers": {{"a": {{"mode": "stateful", "command": "/bin/sh"{key}}}}}}}"#);
    servers(&text).0
}

#[test]
fn a_default_that_is_written_changes_nothing() {
    for key in KEYS.iter().filter(|key| !key.default.contains(' ') && key.name != "mode") {
        let written = servers_with(&format!(r#", "{}": {}"#, key.name, key.default));
        assert!(written == servers_with(""), "`{}`: {}", key.name, key.default);
    }
    for key in ISOLATION_KEYS.iter().filter(|key| !key.default.contains(' ')) {
        let isolation = format!(r#", "isolation": {{"{}": {}}}"#, key.name, key.default);
        assert!(servers_with(&isolation) == servers_with(""), "`{}`: {}", key.name, key.default);
    }
}

#[test]
fn the_key_names_the_heals_that_no_mode_changes() {
    let always: Vec<_> = Heal::ALL.iter().filter(|it| it.is_always_dealt_with()).collect();
    let codes: Vec<_> = always.iter().map(|heal| heal.code()).collect();
    let (last, others) = codes.split_last().unwrap();
    let told = format!(": {} and {last}, log text (H01)", others.join(", "));
    assert!(page().contains(&told), "{told}");
}
