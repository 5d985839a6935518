//! The manners of mcpo: what its command line says besides, and what holds for its servers where a file says nothing else.
//!
//! Its servers have its environment and its folder, and one process each, which all share who do not say who they are.

use std::path::Path;
use std::time::Duration;

use super::document::{DocumentReader, Member};
use super::draft::{Draft, WrittenMode};
use super::environment::Environment;
use super::lifetime::{Mode, SessionKey};
use super::remarks::{RemarkPlace, Remarks, Weight};
use super::rest_settings::RootInfo;
use super::server::{InheritEnv, Server};
use super::settings::BridgeSettings;

/// What the command line of mcpo says besides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct McpoOptions {
    /// Variables for the servers, besides those of the environment.
    pub variables: Vec<(String, String)>,
    /// What the document of all servers says of itself.
    pub root: RootInfo,
    /// What stands before the names of servers.
    pub path_prefix: Option<String>,
    /// What stands before every path as clients see it.
    pub root_path: Option<String>,
}

impl McpoOptions {
    /// The environment with the variables that were typed.
    pub(super) fn environment(&self, environment: &Environment) -> Environment {
        let typed = self.variables.iter().map(|(name, value)| (name.into(), value.into()));
        let before = environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        Environment::new(before.chain(typed))
    }
}

/// mcpo ends no call, and takes as many at a time as come. Here both have an end, which no tool and no bridge of such people
/// should meet.
pub(super) const TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// As many as all processes that are kept have together.
const MAX_IN_FLIGHT: usize = 1024;

/// The server of a command line.
pub(super) fn adapt(server: &mut Server, settings: &BridgeSettings) {
    server.mode = Mode::Stateful {
        idle: settings.idle,
        per_address: settings.per_address,
        per_client: settings.per_client,
    };
    server.max_in_flight = MAX_IN_FLIGHT;
    server.session_key = SessionKey::Together;
}

/// A server of a file, before its keys are read.
pub(super) fn begin(mut draft: Draft, here: &Path) -> Draft {
    draft.server.max_in_flight = MAX_IN_FLIGHT;
    draft.mode = WrittenMode::Stateful;
    draft.server.session_key = SessionKey::Together;
    draft.server.inherit_env = InheritEnv::All;
    draft.server.cwd = Some(here.to_owned());
    draft
}

/// What is said of an entry for a server that runs elsewhere.
pub(super) const NOT_REACHED: &str =
    "servers over HTTP are not reached by this version; add it to the client itself";

/// Whether an entry names a server that runs elsewhere, as mcpo writes it.
pub(super) fn is_remote(keys: &[Member<'_>]) -> bool {
    const REMOTE: [&str; 4] = ["sse", "streamable-http", "streamable_http", "streamablehttp"];
    let text = |name: &str| keys.iter().find(|key| key.name == name)?.node.as_text();
    let is_web = |url: &str| url.starts_with("http://") || url.starts_with("https://");
    match text("type") {
        Some(kind) if REMOTE.contains(&kind) => true,
        Some("stdio") if text("command").is_some() => false,
        _ => text("url").is_some_and(is_web),
    }
}

/// Drops keys that say nothing.
pub(super) fn drop_nulls(keys: &mut Vec<Member<'_>>) {
    keys.retain(|key| !key.node.is_null());
}

/// Drops the keys of a server that is reached from one that is started: mcpo does not look at them.
pub(super) fn drop_keys_of_reached(keys: &mut Vec<Member<'_>>, reader: &mut DocumentReader<'_>) {
    if !keys.iter().any(|key| key.name == "command") {
        return;
    }
    keys.retain(|key| {
        let is_used = !matches!(&*key.name, "headers" | "url");
        if !is_used {
            let message = "is ignored: this server is started by its `command`";
            reader.about_name(Weight::Warning, key, message);
        }
        is_used
    });
}

/// Warns of each way in which the defaults of mcpo are looser than those of `pontoon serve`.
pub(super) fn warn(settings: &BridgeSettings, remarks: &mut Remarks) {
    let mut tell = |key: &str, message: &str| {
        remarks.add(Weight::Warning, RemarkPlace::CommandLine, key, message);
    };
    tell(
        "mcpo",
        "each server has one process for all who do not say who they are, in this folder and with all variables of \
         this environment, as with mcpo; `pontoon serve` keeps people apart",
    );
    if settings.any_identity {
        tell(
            "--api-key",
            "without a key requests are believed about who asks, so people are kept apart, but not from one who claims to \
             be another",
        );
    }
    if settings.any_host {
        tell(
            "--host",
            "any name is served, so a web page may reach this bridge through a name of its own",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{servers, servers_of};
    use super::*;

    const HERE: &str = "/srv";

    #[test]
    fn a_server_of_a_file_has_the_manners_of_mcpo() {
        let file = r#"{"mcpServers": {"shell": {"command": "/bin/sh", "args": ["-c", "x"]}}}"#;
        let (found, remarks) = servers_of(file, Some(Path::new(HERE)));
        assert!(remarks.is_empty(), "{remarks}");
        let [server] = &found[..] else { panic!("one server") };
        assert!(matches!(server.mode, Mode::Stateful { .. }), "{:?}", server.mode);
        assert_eq!(server.session_key, SessionKey::Together);
        assert_eq!(server.inherit_env, InheritEnv::All);
        assert_eq!(server.cwd.as_deref(), Some(Path::new(HERE)));
        let (found, _) = servers(file);
        assert_eq!((&found[0].mode, &found[0].cwd), (&Mode::Stateless, &None));
        assert_eq!(found[0].inherit_env, InheritEnv::default());
    }

    #[test]
    fn one_entry_that_cannot_be_served_costs_no_other() {
        let entry = |name: &str, keys: &str| format!("\"{name}\": {{{keys}}}");
        let shell = "\"command\": \"/bin/sh\"";
        for (name, keys, says) in [
            ("far", r#""type": "streamable-http", "url": "https://h/mcp""#, "servers over HTTP"),
            ("far", r#""type": "sse", "url": "https://h/sse""#, "servers over HTTP"),
            ("far", r#""url": "https://h/sse""#, "servers over HTTP"),
            ("Google Maps", shell, "a server's name is"),
            ("docs", shell, "`docs` is a path of the bridge itself"),
            ("mcpo", shell, "`mcpo` is a path of the bridge itself"),
            (
                "typed",
                "\"command\": \"/bin/sh\", \"env\": {\"PORT\": 8080}",
                "expected text in quotes",
            ),
            ("args", "\"command\": \"/bin/sh\", \"args\": \"-c\"", "expected a list"),
            ("nothing", "", "there is no `command` to start"),
        ] {
            let file =
                format!("{{\"mcpServers\": {{{},{}}}}}", entry(name, keys), entry("shell", shell));
            let (found, remarks) = servers_of(&file, Some(Path::new(HERE)));
            assert_eq!(remarks.heaviest(), Some(Weight::BrokenServer), "{remarks}");
            assert_eq!(remarks.iter().count(), 1, "{remarks}");
            let told = remarks.to_string();
            assert!(told.contains(name) && told.contains(says), "{told}");
            assert!(told.ends_with(": this entry is left out"), "{told}");
            let names: Vec<_> = found.iter().map(|server| server.name.as_str()).collect();
            assert_eq!(names, ["shell"]);
            let (_, remarks) = servers(&file);
            assert_eq!(remarks.heaviest(), Some(Weight::Mistake), "serve takes no such file");
        }
    }

    #[test]
    fn what_mcpo_does_not_look_at_costs_nothing() {
        for (keys, told) in [
            (r#""args": null, "env": null, "cwd": null, "type": null, "disabled": null"#, None),
            (
                r#""headers": {"X": "y"}"#,
                Some("is ignored: this server is started by its `command`"),
            ),
            (r#""type": "stdio", "url": "https://h/mcp""#, Some("is ignored: this server")),
            (r#""oauth": {}"#, Some("is ignored")),
        ] {
            let file = format!(r#"{{"mcpServers": {{"a": {{"command": "/bin/sh", {keys}}}}}}}"#);
            let (found, remarks) = servers_of(&file, Some(Path::new(HERE)));
            assert_eq!(found.len(), 1, "{keys}");
            assert_eq!(remarks.heaviest(), told.map(|_| Weight::Warning), "{remarks}");
            assert!(remarks.to_string().contains(told.unwrap_or_default()), "{remarks}");
        }
    }

    #[test]
    fn paths_begin_where_it_was_started() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        std::os::unix::fs::symlink("/bin/sh", folder.path().join("run")).unwrap();
        let file = r#"{"mcpServers": {"a": {"command": "./run", "cwd": "work"}}}"#;
        let (found, remarks) = servers_of(file, Some(folder.path()));
        assert!(remarks.is_empty(), "{remarks}");
        assert_eq!(found[0].cwd, Some(folder.path().join("work")));
        assert!(found[0].program.is_ok());
    }

    #[test]
    fn its_looser_defaults_are_told() {
        for (is_open, told) in [(false, &["mcpo"][..]), (true, &["mcpo", "--api-key", "--host"])] {
            let mut remarks = Remarks::default();
            let (any_host, any_identity) = (is_open, is_open);
            let settings = BridgeSettings { any_host, any_identity, ..BridgeSettings::unset() };
            warn(&settings, &mut remarks);
            let keys: Vec<_> = remarks.iter().map(|remark| remark.key.clone()).collect();
            assert_eq!(keys, told);
            assert_eq!(remarks.heaviest(), Some(Weight::Warning));
        }
    }
}
