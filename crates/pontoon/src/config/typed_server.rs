//! The server that is typed in place of a file: it runs as it would at the shell where it was typed.

use std::path::Path;
use std::sync::Arc;

use super::environment::Environment;
use super::mcpo;
use super::name::ServerName;
use super::options::Options;
use super::remarks::{RemarkPlace, Remarks, Weight};
use super::server::Server;
use super::settings::BridgeSettings;

/// The only server, if the command line names one, in this folder.
pub(super) fn typed_server(
    options: &Options,
    settings: &BridgeSettings,
    environment: &Environment,
    here: &Path,
    remarks: &mut Remarks,
) -> Option<Arc<Server>> {
    let (command, arguments) = options.command.split_first()?;
    let name = ServerName::of_command(command, arguments);
    let cwd = Some(here.to_owned());
    let server = Server::of_command(name, command, arguments, cwd, environment, here);
    if let Err(error) = &server.program {
        remarks.add(Weight::Mistake, RemarkPlace::CommandLine, "--", error.to_string());
    }
    let mut server = Server { timeout: settings.timeout, ..server };
    if options.mcpo.is_some() {
        mcpo::adapt(&mut server, settings);
    }
    server.fingerprint = server.fingerprint_of(command.as_bytes());
    Some(Arc::new(server))
}

#[cfg(test)]
mod tests {
    use super::super::lifetime::{Mode, SessionKey};
    use super::super::mcpo::McpoOptions;
    use super::super::server::InheritEnv;
    use super::*;

    fn typed(words: &[&str], is_of_mcpo: bool) -> (Option<Arc<Server>>, Remarks) {
        let command = words.iter().map(|&word| word.to_owned()).collect();
        let mcpo = is_of_mcpo.then(McpoOptions::default);
        let options = Options { command, mcpo, ..Options::default() };
        let (environment, mut remarks) = (Environment::new([("PATH", "/bin")]), Remarks::default());
        let settings = BridgeSettings::unset();
        let here = Path::new("/srv");
        (typed_server(&options, &settings, &environment, here, &mut remarks), remarks)
    }

    #[test]
    fn a_typed_server_works_where_it_was_typed() {
        for (is_of_mcpo, key) in [(false, SessionKey::Auto), (true, SessionKey::Together)] {
            let (server, remarks) = typed(&["sh", "-c", "x"], is_of_mcpo);
            let server = server.unwrap();
            assert!(remarks.is_empty(), "{remarks}");
            assert_eq!((server.name.as_str(), server.args.len()), ("x", 2));
            assert_eq!(server.cwd.as_deref(), Some(Path::new("/srv")));
            assert_eq!((&server.session_key, &server.inherit_env), (&key, &InheritEnv::All));
            assert_eq!(matches!(server.mode, Mode::Stateful { .. }), is_of_mcpo);
        }
        assert!(typed(&[], false).0.is_none());
    }

    #[test]
    fn a_typed_program_that_is_missing_is_a_mistake() {
        let (_, remarks) = typed(&["no-such-program"], false);
        assert_eq!(remarks.heaviest(), Some(Weight::Mistake));
        assert!(remarks.to_string().contains("no-such-program"), "{remarks}");
    }
}
