//! The file `mcp-servers.json`: its text in, its servers out, and every mistake in it told.
//!
//! What each key means is in `keys.rs`.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::document::{Member, Node, Reader, parse};
use super::keys::{Draft, KEYS, REFUSED_KEYS, Surroundings};
use super::nearest::unknown;
use super::program;
use super::remarks::{Remarks, Weight};
use super::server::{Mode, Server, ServerName};

const DEFAULT_IDLE: Duration = Duration::from_secs(1800);

/// The servers that `text` names, in its order; what is wrong with it goes to `remarks`.
pub(super) fn read(
    path: &Path,
    text: &str,
    around: &Surroundings<'_>,
    remarks: &mut Remarks,
) -> Vec<Arc<Server>> {
    // Some editors begin a file with this mark; it is no part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { path: path.into(), text, remarks };
    let reader = &mut reader;
    let Some(value) = parse(reader) else { return Vec::new() };
    let root = Node::root(&value);
    let Some(members) = reader.members(&root) else { return Vec::new() };
    for member in members.iter().filter(|member| member.name != "mcpServers") {
        let message = unknown("key", &member.name, ["mcpServers"]);
        reader.about_name(Weight::Warning, member, message);
    }
    let Some(list) = members.iter().find(|member| member.name == "mcpServers") else {
        reader.about(Weight::Mistake, &root, "there is no `mcpServers` with the servers to run");
        return Vec::new();
    };
    let Some(members) = reader.members(&list.node) else { return Vec::new() };
    let mut servers = Vec::new();
    let mut disabled = 0;
    for server in &members {
        let Some(keys) = reader.members(&server.node) else { continue };
        if is_disabled(&keys, reader) {
            disabled += 1;
            continue;
        }
        let draft = read_keys(&keys, reader, around);
        servers.extend(finish(server, draft, &keys, reader, around).map(Arc::new));
    }
    if members.is_empty() {
        reader.about(Weight::Mistake, &list.node, "names no server");
    } else if disabled == members.len() {
        reader.about(Weight::Mistake, &list.node, "has no server that is not disabled");
    }
    servers
}

/// Whether a server is left out. It may be so for a reason: then its other keys are not read.
fn is_disabled(keys: &[Member<'_>], reader: &mut Reader<'_>) -> bool {
    let switch = keys.iter().find(|key| key.name == "disabled");
    switch.and_then(|switch| reader.boolean(&switch.node)).unwrap_or_default()
}

/// What is written for one server, key by key.
fn read_keys(keys: &[Member<'_>], reader: &mut Reader<'_>, around: &Surroundings<'_>) -> Draft {
    let mut draft = Draft::default();
    for written in keys {
        match KEYS.iter().find(|key| key.name == written.name) {
            Some(key) => (key.read)(&mut draft, &written.node, reader, around),
            None if REFUSED_KEYS.contains(&&*written.name) => {
                let message = format!("`{}` is not supported by this version", written.name);
                reader.about_name(Weight::Mistake, written, message);
            }
            None => {
                let message = unknown("key", &written.name, KEYS.iter().map(|key| key.name));
                reader.about_name(Weight::Warning, written, message);
            }
        }
    }
    draft
}

/// The server that a draft makes, once its keys are compared with each other.
fn finish(
    server: &Member<'_>,
    draft: Draft,
    keys: &[Member<'_>],
    reader: &mut Reader<'_>,
    around: &Surroundings<'_>,
) -> Option<Server> {
    let key = |name: &str| keys.iter().find(|member| member.name == name);
    let name = server.name.parse::<ServerName>();
    if let Err(error) = &name {
        reader.about_name(Weight::Mistake, server, error.to_string());
    }
    if let (Some(idle), false) = (key("idle_timeout"), draft.is_stateful) {
        let message = "has a meaning only with `\"mode\": \"stateful\"`";
        reader.about_name(Weight::Mistake, idle, message);
    }
    let command = written_command(server, &draft, keys, reader)?;
    let path = draft.env.iter().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, path)| OsStr::new(path)).or_else(|| around.environment.get("PATH"));
    let program = program::find(command, path, around.folder);
    if let (Err(error), Some(key)) = (&program, key("command")) {
        reader.about(Weight::BrokenServer, &key.node, error.to_string());
    }
    let started = program.as_ref().map_or_else(|_| command.into(), OsString::from);
    let mode = match draft.is_stateful {
        true => Mode::Stateful { idle: draft.idle.unwrap_or(DEFAULT_IDLE) },
        false => Mode::Stateless,
    };
    let mut server = Server {
        name: name.ok()?,
        program,
        args: draft.args,
        env: draft.env,
        inherit_env: draft.inherit_env,
        cwd: draft.cwd,
        mode,
        timeout: draft.timeout.unwrap_or(around.timeout),
        heal: draft.heal,
        fingerprint: 0,
    };
    server.fingerprint = server.fingerprint_of(started.as_encoded_bytes());
    Some(server)
}

/// The command of a server, or `None` after telling that there is none.
fn written_command<'d>(
    server: &Member<'_>,
    draft: &'d Draft,
    keys: &[Member<'_>],
    reader: &mut Reader<'_>,
) -> Option<&'d str> {
    // A wrong command has been told, and so has the key that makes a server a remote one: that
    // there is no command besides is no news.
    if !keys.iter().any(|key| matches!(&*key.name, "command" | "url" | "socket")) {
        reader.about_name(Weight::Mistake, server, "there is no `command` to start");
    }
    draft.command.as_deref()
}

#[cfg(test)]
mod tests {
    use super::super::environment::Environment;
    use pontoon_wire::heal::HealMode;

    use super::super::server::InheritEnv;
    use super::*;

    fn servers(text: &str) -> (Vec<Arc<Server>>, Remarks) {
        let variables = [("PATH", "/usr/bin:/bin"), ("TOKEN", "secret")];
        let environment =
            Environment::new(variables.map(|(name, value)| (name.into(), value.into())));
        let timeout = Duration::from_secs(300);
        let around = Surroundings { folder: Path::new("/tmp"), environment: &environment, timeout };
        let mut remarks = Remarks::default();
        let servers = read(Path::new("mcp-servers.json"), text, &around, &mut remarks);
        (servers, remarks)
    }

    /// Reads a whole file and compares the text of all remarks.
    fn check(text: &str, told: &str) {
        assert_eq!(servers(text).1.to_string(), told);
    }

    /// Reads a server `a` with these keys besides its command, in line 2 from column 1.
    fn check_keys(keys: &str, told: &[&str]) {
        let text = format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"sh\",\n{keys}}}}}}}");
        let remarks = servers(&text).1;
        let told: Vec<String> =
            told.iter().map(|told| format!("mcp-servers.json:{told}")).collect();
        assert_eq!(remarks.iter().map(ToString::to_string).collect::<Vec<_>>(), told);
    }

    #[test]
    fn every_key_is_read() {
        let (servers, remarks) = servers(
            r#"{
                // Comments and trailing commas are fine.
                "mcpServers": {
                    "a": {
                        "command": "sh", "args": ["-c", "${env:TOKEN}"],
                        "env": {"KEY": "x${env:TOKEN}"}, "inherit_env": ["LANG"], "cwd": ".",
                        "type": "stdio", "mode": "stateful", "timeout": "5m", "idle_timeout": 60,
                        "heal": "off", "disabled": false,
                    },
                    "b": {"command": "/bin/sh", "inherit_env": "all"},
                    "c": {"disabled": true, "warm": 5, "url": "http://x"},
                },
            }"#,
        );
        assert_eq!(remarks.to_string(), "");
        let [a, b] = &servers[..] else { panic!("two servers") };
        assert!(a.program.as_ref().unwrap().ends_with("sh"));
        assert_eq!(a.args, ["-c", "secret"]);
        assert_eq!(a.env, [("KEY".to_owned(), "xsecret".to_owned())]);
        assert_eq!(a.inherit_env, InheritEnv::Names(vec!["LANG".to_owned()]));
        assert_eq!(a.cwd, Some("/tmp/.".into()));
        assert_eq!(a.mode, Mode::Stateful { idle: Duration::from_secs(60) });
        assert_eq!(a.timeout, Duration::from_secs(300));
        assert_eq!(a.heal, HealMode::Off);
        assert_eq!((b.mode, b.heal), (Mode::Stateless, HealMode::Repair));
        assert_eq!(b.inherit_env, InheritEnv::All);
        assert_ne!(a.fingerprint, b.fingerprint);
    }

    #[test]
    fn all_mistakes_are_told_at_once_with_their_lines() {
        check(
            r#"{
  "mcpServers": {
    "excel": {
      "comand": "uvx",
      "args": "excel",
      "timeout": "soon",
      "warm": 2
    },
    "no good": {"command": ""},
    "c": {"command": "sh", "env": {"A": 5, "B": "${env:GONE}"}},
    "c": {}
  }
}"#,
            "mcp-servers.json: 9 mistakes, 1 warning
  line 3, column 5: mcpServers.excel: there is no `command` to start
  warning: line 4, column 7: mcpServers.excel.comand: unknown key `comand`, did you mean `command`?
  line 5, column 15: mcpServers.excel.args: expected a list of texts, found text
  line 6, column 18: mcpServers.excel.timeout: expected seconds such as 300 or \"5m\", found \"soon\"
  line 7, column 7: mcpServers.excel.warm: `warm` is not supported by this version
  line 9, column 5: mcpServers.\"no good\": a server's name is 1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or digit
  line 9, column 28: mcpServers.\"no good\".command: is empty
  line 10, column 41: mcpServers.c.env.A: expected text in quotes, found a number
  line 10, column 49: mcpServers.c.env.B: the variable `GONE` of ${env:GONE} is not set, or is not UTF-8 text
  line 11, column 5: mcpServers.c: written twice, first in line 10",
        );
    }

    #[test]
    fn wrong_values_say_what_to_write() {
        let at = "2:9: mcpServers.a.";
        check_keys(
            "\"mode\": 5",
            &[&format!("{at}mode: expected \"stateless\" or \"stateful\", found 5")],
        );
        check_keys(
            "\"heal\": \"\"",
            &[&format!("{at}heal: expected \"off\" or \"warn\" or \"repair\", found \"\"")],
        );
        check_keys("\"type\": \"sse\"", &[&format!("{at}type: expected \"stdio\", found \"sse\"")]);
        check_keys(
            "\"timeout\": {}",
            &[
                "2:12: mcpServers.a.timeout: expected seconds such as 300 or \"5m\", found an object",
            ],
        );
        check_keys(
            "\"timeout\": 0",
            &["2:12: mcpServers.a.timeout: expected a time from 1ms to 365d, found 0"],
        );
        check_keys(
            "\"disabled\": 1",
            &["2:13: mcpServers.a.disabled: expected true or false, found 1"],
        );
        check_keys(
            "\"inherit_env\": \"some\"",
            &["2:16: mcpServers.a.inherit_env: expected a list of names or \"all\", found text"],
        );
        check_keys(
            "\"inherit_env\": [\"A=B\"]",
            &["2:17: mcpServers.a.inherit_env[0]: a variable has a name, without `=` and NUL"],
        );
        check_keys(
            "\"env\": {\"\": \"\"}",
            &["2:9: mcpServers.a.env.\"\": a variable has a name, without `=` and NUL"],
        );
        check_keys(
            "\"args\": [\"\", null]",
            &["2:14: mcpServers.a.args[1]: expected text in quotes, found null"],
        );
        check_keys(
            "\"args\": [\"\\u0000\"]",
            &["2:10: mcpServers.a.args[0]: the text has a NUL character, `\\u0000`"],
        );
    }

    #[test]
    fn an_idle_time_needs_a_process_that_is_kept() {
        check_keys("\"mode\": \"stateful\", \"idle_timeout\": \"1h\"", &[]);
        let told =
            "2:1: mcpServers.a.idle_timeout: has a meaning only with `\"mode\": \"stateful\"`";
        check_keys("\"idle_timeout\": \"1h\"", &[told]);
        let told = "2:9: mcpServers.a.mode: expected \"stateless\" or \"stateful\", found \"full\"";
        check_keys("\"mode\": \"full\", \"idle_timeout\": \"1h\"", &[told]);
    }

    #[test]
    fn keys_of_other_versions_are_refused_by_name() {
        for key in REFUSED_KEYS {
            let told = format!("2:1: mcpServers.a.{key}: `{key}` is not supported by this version");
            check_keys(&format!("\"{key}\": 1"), &[&told]);
        }
        check(
            r#"{"mcpServers": {"a": {"url": "https://example.org"}}}"#,
            "mcp-servers.json: 1 mistake\n  \
             line 1, column 23: mcpServers.a.url: `url` is not supported by this version",
        );
    }

    #[test]
    fn no_known_key_is_refused() {
        assert!(KEYS.iter().all(|key| !REFUSED_KEYS.contains(&key.name)));
    }

    #[test]
    fn a_missing_program_or_folder_breaks_its_server() {
        let (servers, remarks) =
            servers(r#"{"mcpServers": {"a": {"command": "gone-7", "cwd": "/gone-7"}}}"#);
        assert_eq!(remarks.heaviest(), Some(Weight::BrokenServer));
        assert_eq!(
            remarks.to_string(),
            "mcp-servers.json: 2 mistakes\n  line 1, column 34: mcpServers.a.command: \
             the program `gone-7` was not found; looked in /usr/bin, /bin\n  \
             line 1, column 51: mcpServers.a.cwd: there is no folder `/gone-7`"
        );
        assert!(servers[0].program.is_err());
    }

    #[test]
    fn the_path_of_env_decides_where_a_program_is_sought() {
        check_keys(
            "\"env\": {\"PATH\": \"/gone-7\"}",
            &["1:34: mcpServers.a.command: the program `sh` was not found; looked in /gone-7"],
        );
    }

    #[test]
    fn a_file_without_a_server_to_run_is_a_mistake() {
        let heading = "mcp-servers.json: 1 mistake\n  line 1, column";
        let told = "1: there is no `mcpServers` with the servers to run";
        check("{}", &format!("{heading} {told}"));
        let told = "22: mcpServers.a: expected an object in braces, found a number";
        check("{\"mcpServers\": {\"a\": 5}}", &format!("{heading} {told}"));
        check("{\"mcpServers\": {}}", &format!("{heading} 16: mcpServers: names no server"));
        let told = "16: mcpServers: has no server that is not disabled";
        check("{\"mcpServers\": {\"a\": {\"disabled\": true}}}", &format!("{heading} {told}"));
    }

    #[test]
    fn an_unknown_key_beside_the_servers_warns() {
        check(
            r#"{"mcpServer": {}, "mcpServers": {"a": {"command": "sh"}}}"#,
            "mcp-servers.json: 1 warning\n  warning: line 1, column 2: mcpServer: \
             unknown key `mcpServer`, did you mean `mcpServers`?",
        );
    }

    #[test]
    fn half_a_file_is_a_mistake_and_no_panic() {
        let text = include_str!("../../mcp-servers.example.json");
        let end = text.rfind('}').unwrap();
        for cut in (0..end).filter_map(|end| text.get(..end)) {
            assert_eq!(servers(cut).1.heaviest(), Some(Weight::Mistake), "{cut}");
        }
    }

    #[test]
    fn a_mark_at_the_beginning_is_no_part_of_the_text() {
        check("\u{feff}{\"mcpServers\": {\"a\": {\"command\": \"sh\"}}}", "");
    }
}
