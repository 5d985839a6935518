//! A draft made whole: its keys compared with each other, its program looked for.
//!
//! Keys that are fine by themselves may say nothing together, or the wrong thing; that is told
//! here.

use std::ffi::OsString;
use std::path::Path;

use super::document::{DocumentReader, Member};
use super::draft::{Draft, FileContext};
use super::isolation::{self, Isolation};
use super::keys::KEYS;
use super::lifetime::{SessionKey, WorkspaceScope};
use super::program::Search;
use super::remarks::Weight;
use super::server::Server;

/// The keys of one server as they were written.
pub(super) struct WrittenKeys<'a> {
    /// The server: its name, and all of its keys.
    pub(super) server: &'a Member<'a>,
    pub(super) keys: &'a [Member<'a>],
}

impl WrittenKeys<'_> {
    /// The key of that name, in whichever spelling.
    fn key(&self, name: &str) -> Option<&Member<'_>> {
        let key = KEYS.iter().find(|key| key.name == name);
        let key = key.expect("only keys of the table are asked for");
        self.keys.iter().find(|member| key.is_called(&member.name))
    }
}

impl Draft {
    /// The server this makes, or `None` after telling why it makes none.
    pub(super) fn finish(
        self,
        written: &WrittenKeys<'_>,
        reader: &mut DocumentReader<'_>,
        around: &FileContext<'_>,
    ) -> Option<Server> {
        self.compare_with_mode(written, reader);
        self.compare_with_warm(written, reader);
        self.compare_with_session_key(written, reader);
        self.compare_with_level(written, reader);
        self.warn_of_relative_paths(written, reader, around);
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
        if self.is_stateful {
            return;
        }
        let keys =
            ["idle_timeout", "max_processes_per_ip", "max_processes_per_client", "max_in_flight"];
        for key in keys.iter().filter_map(|key| written.key(key)) {
            let message = "is ignored: it has a meaning only with `\"mode\": \"stateful\"`";
            reader.about_name(Weight::Warning, key, message);
        }
    }

    /// A spare is started before there is a call, so nothing of it may depend on the call.
    fn compare_with_warm(&self, written: &WrittenKeys<'_>, reader: &mut DocumentReader<'_>) {
        let Some(key) = written.key("warm").filter(|_| !self.server.warm.is_none()) else { return };
        // Only what is written: after a slip, `is_stateful` is a guess.
        let is_stateful = written.key("mode").is_some_and(|mode| mode.node.is_text("stateful"));
        let reasons = [
            (is_stateful, "a stateful process is kept for its session anyway"),
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
        };
        if self.is_stateful && self.server.is_personal() {
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

    /// The command, or `None` after telling that there is none.
    fn written_command(
        &self,
        written: &WrittenKeys<'_>,
        reader: &mut DocumentReader<'_>,
    ) -> Option<&str> {
        // A wrong command has been told, and so has the key that makes a server a remote one: that
        // there is no command besides is no news.
        if !written.keys.iter().any(|key| matches!(&*key.name, "command" | "url" | "socket")) {
            reader.about_name(Weight::Mistake, written.server, "there is no `command` to start");
        }
        self.command.as_deref()
    }
}

/// Whether `text` is the relative path of something in `folder` or where we were started.
fn is_path_of(text: &str, folder: &Path) -> bool {
    let path = Path::new(text);
    // A word alone is a folder only by chance, and `.` may well mean the workspace.
    let is_there = |path: &Path| path.is_file() || (text.contains('/') && path.is_dir());
    let is_here = matches!(text, "" | "." | "./" | "..");
    path.is_relative() && !is_here && (is_there(&folder.join(path)) || is_there(path))
}
