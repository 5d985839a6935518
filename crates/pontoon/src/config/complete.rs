//! A draft made whole: its keys compared with each other, its program looked for.
//!
//! Keys that are fine by themselves may say nothing together, or the wrong thing; that is told
//! here.

use std::ffi::OsString;
use std::path::Path;

use super::document::{DocumentReader, Member};
use super::draft::{Draft, FileContext, WrittenMode};
use super::isolation::{self, Isolation};
use super::keys;
use super::lifetime::{FileLinks, SessionKey, WorkspaceScope};
use super::program::Search;
use super::remarks::{Remarks, Weight};
use super::server::Server;
use super::template::Template;

/// The keys of one server as they were written.
pub(super) struct WrittenKeys<'a> {
    /// The server: its name, and all of its keys.
    pub(super) server: &'a Member<'a>,
    pub(super) keys: &'a [Member<'a>],
}

impl WrittenKeys<'_> {
    /// The key of that name, in whichever spelling.
    pub(super) fn key(&self, name: &str) -> Option<&Member<'_>> {
        let key = keys::find(name).expect("only keys of the tables are asked for");
        self.keys.iter().find(|member| key.is_called(&member.name))
    }
}

impl Draft {
    /// The server this makes, or `None` after telling why it makes none.
    pub(super) fn finish(
        mut self,
        written: &WrittenKeys<'_>,
        reader: &mut DocumentReader<'_>,
        around: &FileContext<'_>,
    ) -> Option<Server> {
        if self.is_reached() {
            return self.finish_reached(written, reader);
        }
        self.refuse_keys_of_reached(written, reader);
        self.compare_with_mode(written, reader);
        if self.mode == WrittenMode::Shared {
            self.compare_with_shared(written, reader);
            // No folder is a call's.
            self.server.files = FileLinks::Off;
        }
        self.compare_with_warm(written, reader);
        self.compare_with_session_key(written, reader);
        self.compare_with_level(written, reader);
        self.warn_of_relative_paths(written, reader, around);
        self.warn_of_shell_words(written, reader, around);
        let command = self.written_command(written, reader)?;
        let path = self.server.env.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, path)| OsString::from(path.written()));
        let path = path.as_deref().or_else(|| around.environment.get("PATH"));
        let search = Search::new(command, path, around.folder);
        let program = search.find();
        if let (Err(error), Some(key)) = (&program, written.key("command")) {
            reader.about(Weight::BrokenServer, &key.node, error.to_string());
        }
        let started = program.as_ref().map_or_else(|_| command.into(), OsString::from);
        let mode = self.mode(around.settings);
        let mut server = Server { program, search: Some(search), mode, ..self.server };
        server.fingerprint = server.fingerprint_of(started.as_encoded_bytes());
        Some(server)
    }

    fn compare_with_mode(&self, written: &WrittenKeys<'_>, reader: &mut DocumentReader<'_>) {
        if self.mode != WrittenMode::Stateless {
            return;
        }
        for (name, modes) in [
            ("idle_timeout", "`\"stateful\"` or `\"shared\"`"),
            ("max_processes_per_ip", "`\"stateful\"`"),
            ("max_processes_per_client", "`\"stateful\"`"),
            ("max_in_flight", "`\"stateful\"` or `\"shared\"`"),
        ] {
            let Some(key) = written.key(name) else { continue };
            let message = format!("is ignored: it has a meaning only with the `mode` {modes}");
            reader.about_name(Weight::Warning, key, message);
        }
    }

    /// Nothing of a process that serves all clients may depend on who calls, or on the call.
    fn compare_with_shared(&self, written: &WrittenKeys<'_>, reader: &mut DocumentReader<'_>) {
        const STATELESS: &str = "use `\"mode\": \"stateless\"`";
        let mut refuse = |name: &str, message: String| {
            if let Some(key) = written.key(name) {
                reader.about_name(Weight::Mistake, key, message);
            }
        };
        for name in ["session_key", "max_processes_per_ip", "max_processes_per_client"] {
            let message = "all clients of a shared server have one process: leave it out, or use \
                           `\"mode\": \"stateful\"`";
            refuse(name, message.to_owned());
        }
        let message =
            "a shared process works in a folder of its own, which is no call's and goes with it";
        refuse("workspace", format!("{message}: leave it out, or {STATELESS}"));
        if self.server.files != FileLinks::Off {
            let message = "it cannot be said which call of a shared process made a file";
            refuse("files", format!("{message}: leave it out, or {STATELESS}"));
        }
        if self.server.isolation.level == isolation::Level::User {
            let message = "a shared process cannot be a user of the system for each session: write \
                           `\"confined\"`, or use `\"mode\": \"stateful\"`";
            refuse("isolation", message.to_owned());
        }
        let values: Vec<_> = self.server.env.iter().map(|(_, value)| value).collect();
        let args: Vec<_> = self.server.args.iter().collect();
        for (name, texts) in [("args", args), ("env", values)] {
            if texts.iter().copied().any(Template::needs_person) {
                let message = "a shared process is started for nobody, so there is nothing for ${user:..} \
                               and ${header:..}: leave them out, or";
                refuse(name, format!("{message} {STATELESS}"));
            }
            if texts.iter().copied().any(Template::needs_workspace) {
                let message = "a shared process has neither workspace nor job, so there is nothing for \
                               ${MCPO_WORKDIR} and ${MCPO_JOB_ID}: write a folder, or";
                refuse(name, format!("{message} {STATELESS}"));
            }
        }
        if let Some(key) = written.key("file_path_fields") {
            let message = "is ignored: a shared server offers no files";
            reader.about_name(Weight::Warning, key, message);
        }
    }

    /// A spare is started before there is a call, so nothing of it may depend on the call.
    fn compare_with_warm(&self, written: &WrittenKeys<'_>, reader: &mut DocumentReader<'_>) {
        let Some(key) = written.key("warm").filter(|_| !self.server.warm.is_none()) else { return };
        let reasons = [
            (
                self.mode == WrittenMode::Stateful,
                "a stateful process is kept for its session anyway",
            ),
            (
                self.mode == WrittenMode::Shared,
                "the process of a shared server is started with the bridge anyway",
            ),
            (
                self.server.workspace == WorkspaceScope::Session,
                "it is not known yet in whose workspace, `\"workspace\": \"session\"`",
            ),
            (
                self.server.is_personal(),
                "it is not known yet for whom, but `args` or `env` have ${user:..} or ${header:..}",
            ),
            (
                self.server.isolation.level == isolation::Level::User,
                "it is not known yet as which user of the system, `isolation` being `\"user\"`",
            ),
        ];
        for (_, reason) in reasons.into_iter().filter(|(holds, _)| *holds) {
            let message = format!("no process can be kept ready: {reason}");
            reader.about_name(Weight::Mistake, key, message);
        }
    }

    /// Whoever comes from one address would use a process with the account of the first.
    fn compare_with_session_key(&self, written: &WrittenKeys<'_>, reader: &mut DocumentReader<'_>) {
        let Some(key) = written.key("session_key") else { return };
        let who = match self.server.session_key {
            SessionKey::Auto => return,
            SessionKey::Credential => "show one API key",
            SessionKey::Ip => "come from one address",
            SessionKey::Together => "say nothing of who they are",
        };
        if self.mode == WrittenMode::Stateful && self.server.is_personal() {
            let message = format!(
                "all who {who} would share a process, but `args` or `env` have ${{user:..}} or \
                 ${{header:..}}"
            );
            reader.about_name(Weight::Mistake, key, message);
        }
    }

    fn compare_with_level(&self, written: &WrittenKeys<'_>, reader: &mut DocumentReader<'_>) {
        let Isolation { level, read, write, .. } = &self.server.isolation;
        let Some(key) = written.key("isolation") else { return };
        if *level == isolation::Level::Basic && !(read.is_empty() && write.is_empty()) {
            let message = "`read` and `write` have a meaning only with the level `\"confined\"` \
                           or `\"user\"`";
            reader.about_name(Weight::Mistake, key, message);
        }
    }

    /// The program starts in its workspace, where nothing lies yet.
    fn warn_of_relative_paths(
        &self,
        written: &WrittenKeys<'_>,
        reader: &mut DocumentReader<'_>,
        around: &FileContext<'_>,
    ) {
        // A list that was understood is read again without a remark.
        let args = written
            .key("args")
            .filter(|_| self.server.cwd.is_none() && !self.server.args.is_empty());
        let Some(args) = args.and_then(|args| reader.items(&args.node, "")) else { return };
        for arg in args {
            let Some(text) = arg.as_text().filter(|text| is_path_of(text, around.folder)) else {
                continue;
            };
            let message = format!(
                "`{text}` is found from here, but the program starts in its workspace; write an \
                 absolute path or set `cwd`"
            );
            reader.about(Weight::Warning, &arg, message);
        }
    }

    /// No shell reads arguments and variables, so `~` and `$HOME` reach the program as they are.
    fn warn_of_shell_words(
        &self,
        written: &WrittenKeys<'_>,
        reader: &mut DocumentReader<'_>,
        around: &FileContext<'_>,
    ) {
        let program = self.command.as_deref().unwrap_or_default();
        let is_shell = SHELLS.contains(&program.rsplit('/').next().unwrap_or_default());
        // What was understood is read again; what was not has been told.
        let read = |reader: &mut DocumentReader<'_>| {
            let args = written.key("args").filter(|_| !is_shell);
            let args = args.and_then(|args| reader.items(&args.node, "")).unwrap_or_default();
            let env = written.key("env").and_then(|env| reader.members(&env.node));
            let values = env.unwrap_or_default().into_iter().map(|member| member.node);
            args.into_iter().chain(values).collect::<Vec<_>>()
        };
        let nodes = reader.apart(read, |nodes, remarks| {
            *remarks = Remarks::default();
            nodes
        });
        let is_set = |name: &str| around.environment.get(name).is_some();
        for node in nodes {
            let Some((word, meant)) = node.as_text().and_then(|text| shell_word(text, is_set))
            else {
                continue;
            };
            let message = format!(
                "`{word}` reaches the program as it is, for no shell reads it: write `{meant}`"
            );
            reader.about(Weight::Warning, &node, message);
        }
    }

    /// The command, or `None` after telling that there is none.
    fn written_command(
        &self,
        written: &WrittenKeys<'_>,
        reader: &mut DocumentReader<'_>,
    ) -> Option<&str> {
        // A wrong one has been told: that there is none besides is no news.
        if !written.keys.iter().any(|key| matches!(&*key.name, "command" | "url" | "socket")) {
            let message = "there is no `command` to start, and no `url` or `socket` to reach";
            reader.about_name(Weight::Mistake, written.server, message);
        }
        self.command.as_deref()
    }
}

/// Programs that understand `~` and `$HOME` in their arguments.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "busybox"];

/// What of a text only a shell would understand, and what to write in its place.
fn shell_word(text: &str, is_set: impl Fn(&str) -> bool) -> Option<(String, String)> {
    let is_home = |part: &str| part == "~" || part.starts_with("~/");
    if is_home(text) || text.split_once('=').is_some_and(|(_, value)| is_home(value)) {
        return Some(("~".to_owned(), "${env:HOME}".to_owned()));
    }
    let name_of = |rest: &str| {
        let length =
            rest.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_');
        rest[..length.unwrap_or(rest.len())].to_owned()
    };
    let names = text.split('$').skip(1).map(name_of);
    let name = names.into_iter().find(|name| !name.is_empty() && is_set(name))?;
    Some((format!("${name}"), format!("${{env:{name}}}")))
}

/// Whether `text` is the relative path of something in `folder` or where we were started.
fn is_path_of(text: &str, folder: &Path) -> bool {
    let path = Path::new(text);
    // A word alone is a folder only by chance, and `.` may well mean the workspace.
    let is_there = |path: &Path| path.is_file() || (text.contains('/') && path.is_dir());
    let is_here = matches!(text, "" | "." | "./" | "..");
    path.is_relative() && !is_here && (is_there(&folder.join(path)) || is_there(path))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::lifetime::Mode;
    use super::super::settings::BridgeSettings;
    use super::super::tests::servers;
    use super::*;

    /// Reads a server with these keys besides its command, and compares which of them are refused, with what words.
    fn check(keys: &str, told: &[(Weight, &str, &str)]) -> Arc<Server> {
        let text = format!(r#"{{"mcpServers": {{"a": {{"command": "/bin/sh", {keys}}}}}}}"#);
        let (servers, remarks) = servers(&text);
        let found: Vec<_> = remarks
            .iter()
            .map(|it| (it.weight, it.key.trim_start_matches("mcpServers.a."), &*it.message))
            .collect();
        assert_eq!(found, told, "{keys}");
        Arc::clone(&servers[0])
    }

    #[test]
    fn words_for_a_shell_are_told() {
        let is_set = |name: &str| matches!(name, "HOME" | "USER_2");
        for (text, expected) in [
            ("~", Some(("~", "${env:HOME}"))),
            ("~/files", Some(("~", "${env:HOME}"))),
            ("--dir=~/files", Some(("~", "${env:HOME}"))),
            ("$HOME/files", Some(("$HOME", "${env:HOME}"))),
            ("--for=$USER_2,x", Some(("$USER_2", "${env:USER_2}"))),
            ("$5 and $GONE", None),
            ("a~b", None),
            ("${env:HOME}", None),
            ("~name/files", None),
        ] {
            let expected = expected.map(|(word, meant)| (word.to_owned(), meant.to_owned()));
            assert_eq!(shell_word(text, is_set), expected, "{text}");
        }
    }

    #[test]
    fn a_process_that_all_share_depends_on_nobody_and_on_no_call() {
        let stateless = "use `\"mode\": \"stateless\"`";
        let one = "all clients of a shared server have one process: leave it out, or use `\"mode\": \"stateful\"`";
        let folder = format!(
            "a shared process works in a folder of its own, which is no call's and goes with it: leave it out, or {stateless}"
        );
        let made = format!(
            "it cannot be said which call of a shared process made a file: leave it out, or {stateless}"
        );
        let user = "a shared process cannot be a user of the system for each session: write `\"confined\"`, or \
                    use `\"mode\": \"stateful\"`";
        let person = format!(
            "a shared process is started for nobody, so there is nothing for ${{user:..}} and ${{header:..}}: leave \
             them out, or {stateless}"
        );
        let job = format!(
            "a shared process has neither workspace nor job, so there is nothing for ${{MCPO_WORKDIR}} and \
             ${{MCPO_JOB_ID}}: write a folder, or {stateless}"
        );
        let warm = "no process can be kept ready: the process of a shared server is started with the bridge anyway";
        for (key, value, told) in [
            ("session_key", "\"auto\"", one),
            ("max_processes_per_ip", "2", one),
            ("max_processes_per_chat", "2", one),
            ("max_processes_per_client", "2", one),
            ("workspace", "\"session\"", &folder),
            ("workspace", "\"job\"", &folder),
            ("files", "\"append\"", &made),
            ("files", "\"header\"", &made),
            ("isolation", "\"user\"", user),
            ("args", "[\"--for=${user:id}\"]", &person),
            ("env", "{\"TEAM\": \"${header:X-Team}\"}", &person),
            ("args", "[\"${MCPO_WORKDIR}\"]", &job),
            ("env", "{\"JOB\": \"${MCPO_JOB_ID}\"}", &job),
            ("warm", "1", warm),
            ("warm", "\"auto\"", warm),
        ] {
            let keys = format!("\"{key}\": {value}, \"mode\": \"shared\"");
            check(&keys, &[(Weight::Mistake, key, told)]);
        }
        let told = "is ignored: a shared server offers no files";
        let keys = "\"file_path_fields\": [\"path\"], \"mode\": \"shared\"";
        check(keys, &[(Weight::Warning, "file_path_fields", told)]);
        let fine = "\"mode\": \"shared\", \"idle_timeout\": 60, \"max_in_flight\": 4, \"files\": \"off\", \"warm\": 0, \
                    \"isolation\": \"confined\"";
        let server = check(fine, &[]);
        assert_eq!(server.mode, Mode::Shared { idle: Duration::from_secs(60) });
        assert_eq!(server.max_in_flight, 4);
        assert!(!server.has_sessions(), "nothing of it is a person's");
        let plain = check("\"mode\": \"shared\"", &[]);
        assert_eq!((plain.files, plain.max_in_flight), (FileLinks::Off, 64));
        assert_eq!(plain.mode.idle(), Some(BridgeSettings::unset().idle));
    }
}
