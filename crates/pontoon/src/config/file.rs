//! The file `mcp-servers.json`: its text in, its servers out, and every mistake in it told.
//!
//! What each key means is in `keys.rs`.

use std::path::Path;
use std::sync::Arc;

use super::complete::WrittenKeys;
use super::document::{DocumentNode, DocumentReader, Member, parse};
use super::draft::{Draft, FileContext};
use super::keys::{self, KEYS, REACHED_KEYS, REFUSED_KEYS, UNNEEDED_KEYS};
use super::mcpo;
use super::name::{BadServerName, is_reserved};
use super::nearest::unknown;
use super::remarks::{Remarks, Weight};
use super::server::Server;

/// The servers that `text` names, in its order; what is wrong with it goes to `remarks`.
pub(super) fn read(
    path: &Path,
    text: &str,
    around: &FileContext<'_>,
    remarks: &mut Remarks,
) -> Vec<Arc<Server>> {
    // Some editors begin a file with this mark; it is no part of the text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = DocumentReader { path: path.into(), text, remarks };
    let reader = &mut reader;
    let Some(value) = parse(reader) else { return Vec::new() };
    let root = DocumentNode::root(&value);
    let Some(members) = reader.members(&root) else { return Vec::new() };
    for member in members.iter().filter(|member| member.name != "mcpServers") {
        let message = unknown("key", &member.name, ["mcpServers"]);
        reader.about_name(Weight::Warning, member, message);
    }
    let Some(list) = members.iter().find(|member| member.name == "mcpServers") else {
        reader.about(Weight::Mistake, &root, "there is no `mcpServers` with the servers to run: write {\"mcpServers\": {\"NAME\": {\"command\": \"...\"}}}");
        return Vec::new();
    };
    let Some(members) = reader.members(&list.node) else { return Vec::new() };
    let mut servers = Vec::new();
    let mut disabled = 0;
    for entry in &members {
        let read = match around.is_of_mcpo && around.is_start {
            false => read_server(entry, reader, around),
            true => reader.apart(|reader| read_server(entry, reader, around), leave_out),
        };
        match read {
            WrittenServer::Fine(server) => servers.push(server),
            WrittenServer::Disabled => disabled += 1,
            WrittenServer::Wrong => {}
        }
    }
    if members.is_empty() {
        reader.about(Weight::Mistake, &list.node, "names no server");
    } else if disabled == members.len() {
        reader.about(Weight::Mistake, &list.node, "has no server that is not disabled");
    } else if servers.is_empty() && around.is_of_mcpo {
        reader.about(Weight::Mistake, &list.node, "has no server that can be served");
    }
    servers
}

/// What an entry of the file comes to.
enum WrittenServer {
    Fine(Arc<Server>),
    Disabled,
    /// What is wrong with it was told.
    Wrong,
}

/// One server less is better than none for those who come from mcpo, so at its start an entry with a mistake is left out and
/// costs no other. Later a mistake changes nothing, as everywhere: the server may be at work.
fn leave_out(read: WrittenServer, remarks: &mut Remarks) -> WrittenServer {
    if remarks.heaviest() < Some(Weight::Mistake) {
        return read;
    }
    remarks.break_only_server(LEFT_OUT);
    WrittenServer::Wrong
}

/// What is said of an entry that is left out.
const LEFT_OUT: &str = ": this entry is left out";

/// One entry of the file.
fn read_server(
    entry: &Member<'_>,
    reader: &mut DocumentReader<'_>,
    around: &FileContext<'_>,
) -> WrittenServer {
    let Some(mut keys) = reader.members(&entry.node) else { return WrittenServer::Wrong };
    if around.is_of_mcpo {
        mcpo::drop_nulls(&mut keys);
    }
    if is_disabled(&keys, reader) {
        return WrittenServer::Disabled;
    }
    let name = entry.name.parse();
    let wrong = match &name {
        Err(error) => Some(BadServerName::to_string(error)),
        Ok(_) if is_reserved(&entry.name) => {
            let name = &entry.name;
            Some(format!("`{name}` is a path of the bridge itself, and no name for a server"))
        }
        Ok(_) if around.is_of_mcpo && mcpo::is_remote(&keys) => Some(mcpo::NOT_REACHED.to_owned()),
        Ok(_) => None,
    };
    match wrong {
        // mcpo has such servers, so a file may have them for long.
        Some(wrong) if around.is_of_mcpo => {
            reader.about_name(Weight::BrokenServer, entry, wrong + LEFT_OUT);
            return WrittenServer::Wrong;
        }
        Some(wrong) => reader.about_name(Weight::Mistake, entry, wrong),
        None => {}
    }
    // With a wrong name its keys are read all the same, so that every mistake is told.
    let name = name.unwrap_or_else(|_| "unnamed".parse().expect("a plain word is a name"));
    let mut draft = Draft::new(name, around.settings);
    if around.is_of_mcpo {
        mcpo::drop_keys_of_reached(&mut keys, reader);
        draft = mcpo::begin(draft, around.folder);
    }
    let draft = read_keys(draft, &keys, reader, around);
    let written = WrittenKeys { server: entry, keys: &keys };
    let server = draft.finish(&written, reader, around);
    server.map_or(WrittenServer::Wrong, |server| WrittenServer::Fine(Arc::new(server)))
}

/// Whether a server is left out. It may be so for a reason: then its other keys are not read.
fn is_disabled(keys: &[Member<'_>], reader: &mut DocumentReader<'_>) -> bool {
    let switch = keys.iter().find(|key| key.name == "disabled");
    switch.and_then(|switch| reader.boolean(&switch.node)).unwrap_or_default()
}

/// What is written for one server, key by key.
fn read_keys(
    mut draft: Draft,
    keys: &[Member<'_>],
    reader: &mut DocumentReader<'_>,
    around: &FileContext<'_>,
) -> Draft {
    for (index, written) in keys.iter().enumerate() {
        let name = written.name.as_str();
        if let Some(key) = keys::find(name) {
            match keys[..index].iter().find(|other| key.is_called(&other.name)) {
                Some(first) => {
                    let message = format!("means the same as `{}`, leave one out", first.name);
                    reader.about_name(Weight::Mistake, written, message);
                }
                None => (key.read)(&mut draft, &written.node, reader, around),
            }
        } else if REFUSED_KEYS.contains(&name) && around.is_of_mcpo {
            let message = "is for servers that are reached over HTTP, and is ignored";
            reader.about_name(Weight::Warning, written, message);
        } else if REFUSED_KEYS.contains(&name) {
            let message = format!("`{name}` is not supported by this version");
            reader.about_name(Weight::Mistake, written, message);
        } else if let Some((_, served_by)) = UNNEEDED_KEYS.iter().find(|(key, _)| *key == name) {
            reader.about_name(Weight::Warning, written, format!("is not needed: {served_by}"));
        } else {
            let message = unknown("key", name, KEYS.iter().chain(REACHED_KEYS).map(|key| key.name));
            reader.about_name(Weight::Warning, written, message);
        }
    }
    draft
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pontoon_wire::heal::HealMode;

    use super::super::isolation::{Isolation, Level, Network};
    use super::super::lifetime::{FileLinks, Mode, SessionKey, Warm, WorkspaceScope};
    use super::super::server::InheritEnv;
    use super::super::template::Template;
    use super::super::tests::servers;
    use super::*;

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
                        "heal": "off", "disabled": false, "max_processes_per_chat": 2,
                        "max_processes_per_client": 3, "max_in_flight": 4, "session_key": "ip",
                        "workspace": "session", "warm": 0, "files": "header",
                        "file_path_fields": ["path"], "tool_timeouts": {"render": "10m"},
                        "disabledTools": ["rm"], "instructions": "", "usage_guide": "g",
                        "post_instraction": "p",
                        "isolation": {
                            "level": "user", "network": "none", "best_effort": true,
                            "memory": "512MiB", "processes": 16, "cpu": 60, "file_size": "1GiB",
                            "open_files": 256, "run_time": "2h", "read": ["/etc"], "write": ["."],
                        },
                    },
                    "b": {
                        "command": "/bin/sh", "inherit_env": "all", "warm": "auto", "files": "off",
                        "isolation": "confined", "disabled_tools": ["x"], "usage_guide": "",
                    },
                    "c": {"disabled": true, "warm": -5, "url": "http://x"},
                },
            }"#,
        );
        assert_eq!(remarks.to_string(), "");
        let [a, b] = &servers[..] else { panic!("two servers") };
        assert!(a.program.as_ref().unwrap().ends_with("sh"));
        assert_eq!(a.args, ["-c", "secret"].map(Template::plain));
        assert_eq!(a.env, [("KEY".to_owned(), Template::plain("xsecret"))]);
        assert_eq!(a.inherit_env, InheritEnv::Names(vec!["LANG".to_owned()]));
        assert_eq!(a.cwd, Some("/tmp/.".into()));
        let idle = Duration::from_secs(60);
        assert_eq!(a.mode, Mode::Stateful { idle, per_address: 2, per_client: 3 });
        assert_eq!((a.max_in_flight, a.session_key), (4, SessionKey::Ip));
        assert_eq!((a.workspace, a.warm), (WorkspaceScope::Session, Warm::Fixed(0)));
        assert_eq!((a.files, &*a.file_path_fields[0]), (FileLinks::Header, "path"));
        assert_eq!(a.disabled_tools, ["rm"]);
        assert_eq!(a.timeout_of(None), Duration::from_secs(300));
        assert_eq!(a.timeout_of(Some("other")), Duration::from_secs(300));
        assert_eq!(a.timeout_of(Some("render")), Duration::from_secs(600));
        let said = [&a.instructions, &a.usage_guide, &a.post_instruction].map(Option::as_deref);
        assert_eq!(said, [Some(""), Some("g"), Some("p")]);
        let isolation = Isolation {
            level: Level::User,
            network: Network::None,
            best_effort: true,
            memory_bytes: Some(512 << 20),
            processes: Some(16),
            cpu: Some(idle),
            file_size_bytes: Some(1 << 30),
            open_files: Some(256),
            run_time: Some(Duration::from_secs(7200)),
            read: vec!["/etc".into()],
            write: vec!["/tmp/.".into()],
        };
        assert_eq!(a.isolation, isolation);
        assert_eq!(a.heal, HealMode::Off.into());
        assert_eq!((b.mode, &b.heal), (Mode::Stateless, &HealMode::Repair.into()));
        assert_eq!(
            (b.warm, b.files, b.workspace),
            (Warm::Auto, FileLinks::Off, WorkspaceScope::Job)
        );
        assert_eq!(b.isolation, Isolation { level: Level::Confined, ..Isolation::default() });
        assert_eq!((&b.disabled_tools[..], &b.usage_guide), (&["x".to_owned()][..], &None));
        assert_eq!((b.max_in_flight, b.session_key), (64, SessionKey::Auto));
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
      "oauth": 2
    },
    "no good": {"command": ""},
    "c": {"command": "sh", "env": {"A": 5, "B": "${env:GONE}"}},
    "c": {}
  }
}"#,
            "mcp-servers.json: 9 mistakes, 1 warning
  line 3, column 5: mcpServers.excel: there is no `command` to start, and no `url` or `socket` to reach
  warning: line 4, column 7: mcpServers.excel.comand: unknown key `comand`, did you mean `command`?
  line 5, column 15: mcpServers.excel.args: expected a list of texts, found text
  line 6, column 18: mcpServers.excel.timeout: expected seconds such as 300 or \"5m\", found \"soon\"
  line 7, column 7: mcpServers.excel.oauth: `oauth` is not supported by this version
  line 9, column 5: mcpServers.\"no good\": a server's name is 1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or digit
  line 9, column 28: mcpServers.\"no good\".command: is empty
  line 10, column 41: mcpServers.c.env.A: expected text in quotes, found a number
  line 10, column 49: mcpServers.c.env.B: ${env:GONE}: the variable `GONE` is not set, or is not UTF-8 text
  line 11, column 5: mcpServers.c: written twice, first in line 10",
        );
    }

    #[test]
    fn wrong_values_say_what_to_write() {
        let at = "2:9: mcpServers.a.";
        check_keys(
            "\"mode\": 5",
            &[&format!("{at}mode: expected \"stateless\" or \"stateful\" or \"shared\", found 5")],
        );
        check_keys(
            "\"heal\": \"\"",
            &[&format!("{at}heal: expected \"off\" or \"warn\" or \"repair\", found \"\"")],
        );
        check_keys(
            "\"type\": \"sse\"",
            &[&format!("{at}type: expected \"stdio\" or \"ws\", found \"sse\"")],
        );
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
    fn what_is_kept_needs_a_process_that_is_kept() {
        for key in [
            "idle_timeout",
            "max_processes_per_ip",
            "max_processes_per_chat",
            "max_processes_per_client",
            "max_in_flight",
        ] {
            check_keys(&format!("\"mode\": \"stateful\", \"{key}\": 5"), &[]);
            let modes = match key {
                "idle_timeout" | "max_in_flight" => "`\"stateful\"` or `\"shared\"`",
                _ => "`\"stateful\"`",
            };
            let told = format!("is ignored: it has a meaning only with the `mode` {modes}");
            let told = format!("2:1: mcpServers.a.{key}: {told}");
            check_keys(&format!("\"{key}\": 5"), &[&told]);
            let text = format!(r#"{{"mcpServers": {{"a": {{"command": "sh", "{key}": 5}}}}}}"#);
            assert_eq!(servers(&text).1.heaviest(), Some(Weight::Warning), "{key} stops nothing");
        }
        let told = "2:9: mcpServers.a.mode: expected \"stateless\" or \"stateful\" or \"shared\", found \"full\"";
        check_keys("\"mode\": \"full\", \"idle_timeout\": \"1h\"", &[told]);
    }

    #[test]
    fn what_is_kept_ready_depends_on_no_call() {
        let told = "2:1: mcpServers.a.warm: no process can be kept ready:";
        let for_whom =
            "it is not known yet for whom, but `args` or `env` have ${user:..} or ${header:..}";
        for (keys, reason) in [
            ("\"mode\": \"stateful\"", "a stateful process is kept for its session anyway"),
            (
                "\"workspace\": \"session\"",
                "it is not known yet in whose workspace, `\"workspace\": \"session\"`",
            ),
            ("\"args\": [\"--for=${user:id}\"]", for_whom),
            ("\"env\": {\"TEAM\": \"${header:X-Team}\"}", for_whom),
            (
                "\"isolation\": \"user\"",
                "it is not known yet as which user of the system, `isolation` being `\"user\"`",
            ),
        ] {
            check_keys(&format!("\"warm\": 1, {keys}"), &[&format!("{told} {reason}")]);
            check_keys(&format!("\"warm\": \"auto\", {keys}"), &[&format!("{told} {reason}")]);
            check_keys(&format!("\"warm\": 0, {keys}"), &[]);
        }
        check_keys("\"warm\": 3, \"env\": {\"DIR\": \"${MCPO_WORKDIR}\"}", &[]);
        let told = "2:9: mcpServers.a.mode: expected \"stateless\" or \"stateful\" or \"shared\", found \"full\"";
        check_keys("\"mode\": \"full\", \"warm\": 1", &[told]);
    }

    #[test]
    fn a_process_of_one_person_is_not_shared_by_an_address() {
        let personal = "\"session_key\": \"ip\", \"args\": [\"--for=${user:id}\"]";
        let told = "2:1: mcpServers.a.session_key: all who come from one address would share a \
                    process, but `args` or `env` have ${user:..} or ${header:..}";
        check_keys(&format!("{personal}, \"mode\": \"stateful\""), &[told]);
        check_keys(personal, &[]);
        check_keys("\"session_key\": \"ip\", \"mode\": \"stateful\"", &[]);
    }

    #[test]
    fn a_wrong_isolation_is_never_less_than_asked() {
        let at = "2:14: mcpServers.a.isolation";
        let levels = "\"basic\" or \"confined\" or \"user\"";
        let told = format!("{at}: expected {levels}, found \"jail\"");
        check_keys("\"isolation\": \"jail\"", &[&told]);
        check_keys("\"isolation\": 5", &[&format!("{at}: expected {levels}, found 5")]);
        let told = "2:15: mcpServers.a.isolation.memroy: unknown key `memroy`, did you mean \
                    `memory`?";
        check_keys("\"isolation\": {\"memroy\": \"1GiB\"}", &[told]);
        let text = r#"{"mcpServers": {"a": {"command": "sh", "isolation": {"memroy": 1}}}}"#;
        assert_eq!(servers(text).1.heaviest(), Some(Weight::Mistake));
        let told = "2:1: mcpServers.a.isolation: `read` and `write` have a meaning only with the \
                    level `\"confined\"` or `\"user\"`";
        check_keys("\"isolation\": {\"read\": [\"/etc\"]}", &[told]);
        let told = "2:42: mcpServers.a.isolation.write[0]: there is no file or folder `/gone-7`";
        check_keys("\"isolation\": {\"level\": \"user\", \"write\": [\"/gone-7\"]}", &[told]);
    }

    #[test]
    fn one_key_in_two_spellings_is_a_mistake() {
        let told = "2:22: mcpServers.a.disabled_tools: means the same as `disabledTools`, leave \
                    one out";
        check_keys("\"disabledTools\": [], \"disabled_tools\": []", &[told]);
    }

    #[test]
    fn keys_that_are_not_needed_warn() {
        let (_, remarks) = servers(
            r#"{"mcpServers": {"a": {"command": "sh", "resolve_path_fields": ["p"],
                "session_persistence": true}}}"#,
        );
        assert_eq!(remarks.heaviest(), Some(Weight::Warning));
        let told: Vec<&str> = remarks.iter().map(|remark| &*remark.message).collect();
        assert!(told.iter().all(|message| message.starts_with("is not needed: ")), "{remarks}");
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn a_path_that_is_not_in_the_workspace_warns() {
        // The tests run in the folder of the package.
        for path in ["Cargo.toml", "./Cargo.toml", "./src", "src/lib.rs"] {
            let told = format!(
                "2:10: mcpServers.a.args[0]: `{path}` is found from here, but the program starts \
                 in its workspace; write an absolute path or set `cwd`"
            );
            check_keys(&format!("\"args\": [\"{path}\"]"), &[&told]);
            check_keys(&format!("\"args\": [\"{path}\"], \"cwd\": \"/\""), &[]);
        }
        for path in ["src", ".", "/etc/passwd", "gone.py", "-c", "", "${MCPO_WORKDIR}/Cargo.toml"] {
            check_keys(&format!("\"args\": [\"{path}\"]"), &[]);
        }
    }

    #[test]
    fn our_own_secrets_are_not_inherited() {
        let told = "2:17: mcpServers.a.inherit_env[0]: `MCPO_API_KEY` is a secret of Pontoon's \
                    own, not for its servers";
        check_keys("\"inherit_env\": [\"MCPO_API_KEY\"]", &[told]);
    }

    #[test]
    fn keys_of_other_versions_are_refused_by_name() {
        for key in REFUSED_KEYS {
            let told = format!("2:1: mcpServers.a.{key}: `{key}` is not supported by this version");
            check_keys(&format!("\"{key}\": 1"), &[&told]);
        }
    }

    #[test]
    fn no_known_key_is_refused() {
        assert!(!REFUSED_KEYS.iter().any(|name| keys::find(name).is_some()));
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
        let told = "1: there is no `mcpServers` with the servers to run: write {\"mcpServers\": {\"NAME\": {\"command\": \"...\"}}}";
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
