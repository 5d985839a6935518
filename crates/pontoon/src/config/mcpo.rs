//! The manners of mcpo: what its command line says besides, and what holds for its servers where a file says nothing else.
//!
//! Its servers have its environment and its folder, and one process each, which all share who do not say who they are.

use std::path::Path;
use std::sync::Arc;

use super::document::{DocumentReader, Member};
use super::draft::{Draft, WrittenMode};
use super::environment::Environment;
use super::lifetime::{Mode, SessionKey};
use super::name::ServerName;
use super::remarks::{RemarkPlace, Remarks, Weight};
use super::rest_settings::RootInfo;
use super::server::{InheritEnv, Server};
use super::settings::BridgeSettings;

/// What the command line of mcpo says besides.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct McpoOptions {
    /// The program that is the only server, with its arguments; empty where a file names the servers.
    pub command: Vec<String>,
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

    /// The only server, if the command line names one, in this folder.
    pub(super) fn server(
        &self,
        settings: &BridgeSettings,
        environment: &Environment,
        here: &Path,
        remarks: &mut Remarks,
    ) -> Option<Arc<Server>> {
        let (command, arguments) = self.command.split_first()?;
        let name = ServerName::of_command(command, arguments);
        let cwd = Some(here.to_owned());
        let server = Server::of_command(name, command, arguments, cwd, environment, here);
        if let Err(error) = &server.program {
            remarks.add(Weight::Mistake, RemarkPlace::CommandLine, "--", error.to_string());
        }
        let mode = Mode::Stateful {
            idle: settings.idle,
            per_address: settings.per_address,
            per_client: settings.per_client,
        };
        let timeout = settings.timeout;
        let session_key = SessionKey::Together;
        let mut server = Server { mode, timeout, session_key, ..server };
        server.fingerprint = server.fingerprint_of(command.as_bytes());
        Some(Arc::new(server))
    }
}

/// A server of a file, before its keys are read.
pub(super) fn begin(mut draft: Draft, here: &Path) -> Draft {
    draft.mode = WrittenMode::Stateful;
    draft.server.session_key = SessionKey::Together;
    draft.server.inherit_env = InheritEnv::All;
    draft.server.cwd = Some(here.to_owned());
    draft
}

/// Whether an entry names a server that runs elsewhere, as mcpo writes it. Such an entry is left out with a remark, and the
/// other servers run.
pub(super) fn is_remote(
    server: &Member<'_>,
    keys: &[Member<'_>],
    reader: &mut DocumentReader<'_>,
) -> bool {
    const REMOTE: [&str; 4] = ["sse", "streamable-http", "streamable_http", "streamablehttp"];
    let text = |name: &str| {
        let key = keys.iter().find(|key| key.name == name)?;
        key.node.as_text().map(str::to_owned)
    };
    let is_remote = text("type").is_some_and(|kind| REMOTE.contains(&kind.as_str()))
        || text("url").is_some_and(|url| url.starts_with("http://") || url.starts_with("https://"));
    if is_remote {
        let message = "is left out: servers over HTTP are not reached by this version; add it to the client itself";
        reader.about_name(Weight::BrokenServer, server, message);
    }
    is_remote
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
        ] {
            let file =
                format!("{{\"mcpServers\": {{{},{}}}}}", entry(name, keys), entry("shell", shell));
            let (found, remarks) = servers_of(&file, Some(Path::new(HERE)));
            assert_eq!(remarks.heaviest(), Some(Weight::BrokenServer), "{remarks}");
            assert_eq!(remarks.iter().count(), 1, "{remarks}");
            let told = remarks.to_string();
            assert!(told.contains(name) && told.contains(says), "{told}");
            let names: Vec<_> = found.iter().map(|server| server.name.as_str()).collect();
            assert_eq!(names, ["shell"]);
            let (_, remarks) = servers(&file);
            assert_eq!(remarks.heaviest(), Some(Weight::Mistake), "serve takes no such file");
        }
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

    #[test]
    fn the_server_of_a_command_line_works_where_it_was_typed() {
        let command = ["/bin/sh", "-c", "x"].map(str::to_owned).to_vec();
        let options = McpoOptions { command, ..McpoOptions::default() };
        let (environment, mut remarks) = (Environment::new([("PATH", "/bin")]), Remarks::default());
        let settings = BridgeSettings::unset();
        let server = options.server(&settings, &environment, Path::new(HERE), &mut remarks);
        let server = server.unwrap();
        assert_eq!(server.cwd.as_deref(), Some(Path::new(HERE)));
        assert_eq!(server.session_key, SessionKey::Together);
        assert!(matches!(server.mode, Mode::Stateful { .. }) && remarks.is_empty());
        let none = McpoOptions::default();
        assert!(none.server(&settings, &environment, Path::new(HERE), &mut remarks).is_none());
    }
}
