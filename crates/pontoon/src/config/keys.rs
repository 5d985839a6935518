//! The keys of a server in `mcp-servers.json`, each with its default and its documentation.
//!
//! The table [`KEYS`] is what is read, what misspelt keys are compared with, and what
//! `docs/configuration.md` is written from, so that the three cannot disagree.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::document::{Node, Reader};
use super::environment::Environment;
use super::placeholders::resolve;
use super::remarks::Weight;
use pontoon_wire::heal::HealMode;

use super::server::InheritEnv;
use super::units;

/// A key of a server in the file.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// The value without it, as it would be written.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    pub(super) default: &'static str,
    /// For a user, as Markdown.
    #[cfg_attr(not(test), expect(dead_code, reason = "the documentation is written by a test"))]
    pub(super) doc: &'static str,
    pub(super) read: fn(&mut Draft, &Node<'_>, &mut Reader<'_>, &Surroundings<'_>),
}

/// What a server is read with, besides the file.
pub(super) struct Surroundings<'a> {
    /// The absolute folder of the file, where relative paths begin.
    pub(super) folder: &'a Path,
    /// Our own environment, for placeholders and `PATH`.
    pub(super) environment: &'a Environment,
    /// The time-out of servers that have none of their own.
    pub(super) timeout: Duration,
}

/// A server while it is read: what was written and could be understood.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) command: Option<String>,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) inherit_env: InheritEnv,
    pub(super) cwd: Option<PathBuf>,
    pub(super) is_stateful: bool,
    pub(super) timeout: Option<Duration>,
    pub(super) idle: Option<Duration>,
    pub(super) heal: HealMode,
}

/// Every key of a server that this version knows.
pub(super) const KEYS: &[Key] = &[
    Key {
        name: "command",
        default: "none, it is required",
        doc: "The program to start, without a shell. A name is looked up in `PATH` (the one in \
              `env`, else Pontoon's own); a path with a slash is relative to the folder of this \
              file. A program that is missing breaks only its own server.",
        read: |draft, node, reader, _| draft.command = reader.filled_text(node),
    },
    Key {
        name: "args",
        default: "[]",
        doc: "The arguments of the program. `${env:NAME}` becomes the value of that variable; a \
              variable that is not set is a mistake.",
        read: |draft, node, reader, around| {
            for item in reader.items(node, "a list of texts").unwrap_or_default() {
                draft.args.extend(filled_in(&item, reader, around));
            }
        },
    },
    Key {
        name: "env",
        default: "{}",
        doc: "Variables set for the program. `${env:NAME}` becomes the value of that variable of \
              Pontoon's own environment, so that secrets stay out of the file.",
        read: |draft, node, reader, around| {
            for member in reader.members(node).unwrap_or_default() {
                if !is_variable_name(&member.name) {
                    reader.about_name(Weight::Mistake, &member, NOT_A_VARIABLE);
                }
                let value = filled_in(&member.node, reader, around);
                draft.env.extend(value.map(|value| (member.name, value)));
            }
        },
    },
    Key {
        name: "inherit_env",
        default: "[]",
        doc: "The names of Pontoon's own variables that the program sees besides the usual ones, \
              or `\"all\"` for all of them but Pontoon's own settings (`MCPO_*`, `PONTOON_*`).",
        read: |draft, node, reader, _| draft.inherit_env = inherit_env(node, reader),
    },
    Key {
        name: "cwd",
        default: "the folder Pontoon was started in",
        doc: "The folder the program starts in, relative to the folder of this file.",
        read: |draft, node, reader, around| {
            let Some(written) = reader.filled_text(node) else { return };
            let cwd = around.folder.join(written);
            // It may appear before the first call, so that starting it decides; this is a hint.
            if !cwd.is_dir() {
                let message = format!("there is no folder `{}`", cwd.display());
                reader.about(Weight::BrokenServer, node, message);
            }
            draft.cwd = Some(cwd);
        },
    },
    Key {
        name: "type",
        default: "\"stdio\"",
        doc: "How the server is reached: `\"stdio\"`, the only way of this version.",
        read: |_, node, reader, _| {
            reader.word(node, &[("stdio", ())]);
        },
    },
    Key {
        name: "mode",
        default: "\"stateless\"",
        doc: "`\"stateless\"`: one process for each request. `\"stateful\"`: one process for each \
              session, for servers that keep their state in memory.",
        read: |draft, node, reader, _| {
            let words = [("stateless", false), ("stateful", true)];
            // A slip here is told once: an idle time beside it may well be right.
            draft.is_stateful = reader.word(node, &words).unwrap_or(true);
        },
    },
    Key {
        name: "timeout",
        default: "300",
        doc: "How long one call may take: seconds, or text such as `\"30s\"` or `\"5m\"`. Without \
              it, `MCPO_TIMEOUT` holds.",
        read: |draft, node, reader, _| draft.timeout = reader.measure(node, units::duration),
    },
    Key {
        name: "idle_timeout",
        default: "1800",
        doc: "How long a process of a `\"stateful\"` server is kept without a request: seconds, \
              or text such as `\"30m\"`.",
        read: |draft, node, reader, _| draft.idle = reader.measure(node, units::duration),
    },
    Key {
        name: "heal",
        default: "\"repair\"",
        doc: "What is done when the server violates the protocol: `\"repair\"` puts it right, \
              `\"warn\"` only counts and logs it, `\"off\"` does nothing.",
        read: |draft, node, reader, _| {
            let words =
                [("off", HealMode::Off), ("warn", HealMode::Warn), ("repair", HealMode::Repair)];
            draft.heal = reader.word(node, &words).unwrap_or_default();
        },
    },
    Key {
        name: "disabled",
        default: "false",
        doc: "`true` leaves the server out; its other keys are not even read.",
        // Read before all others, by `file::is_disabled`.
        read: |_, _, _, _| {},
    },
];

/// Keys that mean something to other versions or bridges: ignoring one would change what its
/// author relies on, so it is refused by name.
pub(super) const REFUSED_KEYS: &[&str] = &[
    "client_header_forwarding",
    "disabledTools",
    "disabled_tools",
    "file_path_fields",
    "files",
    "headers",
    "instructions",
    "isolation",
    "max_in_flight",
    "max_processes_per_chat",
    "max_processes_per_client",
    "max_processes_per_ip",
    "oauth",
    "post_instruction",
    "profile",
    "session_key",
    "socket",
    "tool_timeouts",
    "url",
    "usage_guide",
    "warm",
    "workspace",
];

const NOT_A_VARIABLE: &str = "a variable has a name, without `=` and NUL";

/// A text with its placeholders filled in.
fn filled_in(
    node: &Node<'_>,
    reader: &mut Reader<'_>,
    around: &Surroundings<'_>,
) -> Option<String> {
    let resolved = resolve(&reader.text(node)?, |name| around.environment.text(name));
    for mistake in &resolved.mistakes {
        reader.about(Weight::Mistake, node, mistake);
    }
    for warning in &resolved.warnings {
        reader.about(Weight::Warning, node, warning);
    }
    resolved.mistakes.is_empty().then_some(resolved.text)
}

fn inherit_env(node: &Node<'_>, reader: &mut Reader<'_>) -> InheritEnv {
    if node.is_text("all") {
        return InheritEnv::All;
    }
    let mut names = Vec::new();
    for item in reader.items(node, "a list of names or \"all\"").unwrap_or_default() {
        match reader.text(&item) {
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
