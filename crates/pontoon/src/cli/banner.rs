//! What `serve` says when it listens: where, what, and lines to paste that work for the one who reads them.

use std::net::SocketAddr;

use super::terminal::{learnt_with, source};
use crate::adding::{AddedServer, KEY};
use crate::config::{Config, ConfigSource, Mode, Secret, Server, SessionKey, below_root};

/// All of it, a text for each line.
pub(super) fn lines(config: &Config, addresses: &[SocketAddr]) -> Vec<String> {
    let scheme = config.settings.scheme();
    let version = env!("CARGO_PKG_VERSION");
    let listening = addresses
        .iter()
        .map(|address| format!("pontoon {version} listening on {scheme}://{address}"));
    let mut lines: Vec<_> = listening.collect();
    let Some(address) = addresses.first() else { return lines };
    let address = address_for_clients(config, address);
    lines.push(format!("configuration: {}", source(config)));
    lines.push("servers:".to_owned());
    lines.extend(config.servers.iter().map(|server| of_server(server, &address)));
    if let Some(server) = config.servers.first() {
        lines.extend(how_to_add(config, server, &address));
    }
    lines
}

/// Where the paths of the bridge begin for a client.
fn address_for_clients(config: &Config, address: &SocketAddr) -> String {
    let settings = &config.settings;
    if !settings.base_url.is_empty() {
        return below_root(settings.base_url.trim_end_matches('/'), &settings.rest.root_path);
    }
    let named = settings.allowed_hosts.iter().find(|host| !host.contains('*'));
    let host = match (address.ip().is_unspecified(), named) {
        (false, _) => address.to_string(),
        // What listens at every address of this machine is not at that one for a client.
        (true, None) => format!("localhost:{}", address.port()),
        (true, Some(host)) if host.contains(':') => host.clone(),
        (true, Some(host)) => format!("{host}:{}", address.port()),
    };
    below_root(&format!("{}://{host}", settings.scheme()), &settings.rest.root_path)
}

fn of_server(server: &Server, address: &str) -> String {
    let mode = match server.mode {
        Mode::Stateless => "a process for each request",
        Mode::Stateful { .. } if server.session_key == SessionKey::Together => {
            "one process for all who do not say who they are"
        }
        Mode::Stateful { .. } => "a process for each session",
        Mode::Shared { .. } if server.app.is_some() => "reached when it is there",
        Mode::Shared { .. } => "one process for everybody",
    };
    let name = &server.name;
    format!("  {:<16} {address}/mcp/{name}  ({mode}{})", name.as_str(), learnt_with(server))
}

fn how_to_add(config: &Config, server: &Server, address: &str) -> Vec<String> {
    let wants_key = !config.settings.api_keys.is_empty();
    let added = AddedServer { name: server.name.as_str(), address, wants_key };
    let url = added.url();
    let bearer = if wants_key { format!(", Bearer {KEY}") } else { String::new() };
    let rest = rest_address(config, server, address);
    let mut lines = vec![
        "add it to a client:".to_owned(),
        format!("  Claude Code   {}", added.claude_code()),
        format!("  Open WebUI    Settings, External Tools, MCP (Streamable HTTP): {url}{bearer}"),
        format!("  others        open {url} in a browser"),
        format!("  as OpenAPI    {rest}/openapi.json, to try it out {rest}/docs"),
    ];
    let token = if wants_key { format!("PONTOON_TOKEN={KEY} ") } else { String::new() };
    let call = format!("{token}pontoon call --url {url}");
    match &config.source {
        ConfigSource::Demo { made_key } => {
            lines.push("try it in another terminal:".to_owned());
            lines.push(format!("  {call} greet name=Ada"));
            lines.push(format!("  {call} make_report title=Sales 'lines=[\"one\"]' format=md"));
            lines.push("                the answer has a link to a file; with --save behind `call` it is fetched".to_owned());
            lines.extend(made_key.as_ref().map(of_made_key));
        }
        ConfigSource::File(_) | ConfigSource::CommandLine => {
            lines.push(format!("  shell         {token}pontoon tools --url {url}"));
        }
    }
    let is_made = matches!(config.source, ConfigSource::Demo { made_key: Some(_) });
    if wants_key && !is_made {
        lines.push(format!(
            "  {KEY} is one person's own with MCPO_API_KEYS=me=KEY, and a front end's with MCPO_API_KEY=KEY"
        ));
    }
    lines
}

/// Where the server is as OpenAPI.
fn rest_address(config: &Config, server: &Server, address: &str) -> String {
    let (rest, name) = (&config.settings.rest, &server.name);
    match &rest.single {
        Some(_) => address.to_owned(),
        // Who typed `mcpo` knows its paths.
        None if config.settings.any_host => format!("{address}{}{name}", rest.path_prefix),
        None => format!("{address}/mcpo/{name}"),
    }
}

/// The key that is known nowhere else.
fn of_made_key(key: &Secret) -> String {
    format!("{KEY} was made for this run: {}", String::from_utf8_lossy(key.expose()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Options};

    /// What is said with this address and these variables.
    fn said(listen: &str, variables: &[(&str, &str)]) -> String {
        let options = Options { listen: Some(listen.to_owned()), ..Options::default() };
        let none = [("PATH", "/bin"), ("MCPO_CONFIG_FILE", "")];
        let environment = Environment::new(none.into_iter().chain(variables.iter().copied()));
        let (config, _) = Config::load(&options, &environment).expect("a configuration");
        lines(&config, &[listen.parse().unwrap()]).join("\n")
    }

    #[test]
    fn without_a_key_the_lines_work_as_they_are() {
        let said = said("127.0.0.1:8080", &[]);
        for line in [
            "  Claude Code   claude mcp add --transport http demo http://127.0.0.1:8080/mcp/demo\n",
            "  others        open http://127.0.0.1:8080/mcp/demo in a browser\n",
            "  pontoon call --url http://127.0.0.1:8080/mcp/demo greet name=Ada\n",
            "http://127.0.0.1:8080/mcpo/demo/docs\n",
        ] {
            assert!(said.contains(line), "{line} is not in {said}");
        }
        assert!(!said.contains(KEY), "{said}");
    }

    #[test]
    fn with_a_key_its_place_is_marked_and_it_is_not_said() {
        let said = said("127.0.0.1:8080", &[("MCPO_API_KEYS", "me=sesame-sesame")]);
        for line in [
            "--header \"Authorization: Bearer KEY\"\n",
            "/mcp/demo, Bearer KEY\n",
            "  PONTOON_TOKEN=KEY pontoon call --url http://127.0.0.1:8080/mcp/demo greet name=Ada\n",
            "KEY is one person's own",
        ] {
            assert!(said.contains(line), "{line} is not in {said}");
        }
        assert!(!said.contains("sesame"), "{said}");
    }

    #[test]
    fn a_key_that_was_made_is_said_once() {
        let said = said("0.0.0.0:8080", &[]);
        let (_, key) = said.split_once("KEY was made for this run: ").expect("a key");
        assert_eq!(said.matches(key.trim()).count(), 1, "{said}");
        assert!(
            said.contains("claude mcp add --transport http demo http://localhost:8080/mcp/demo"),
            "{said}"
        );
    }

    #[test]
    fn clients_elsewhere_are_told_the_name_that_they_know() {
        let key = ("MCPO_API_KEYS", "me=sesame-sesame");
        let named = said("0.0.0.0:8080", &[key, ("MCPO_ALLOWED_HOSTS", "tools.example")]);
        assert!(named.contains(" http://tools.example:8080/mcp/demo"), "{named}");
        let base = ("MCPO_BASE_URL", "https://chat.example/tools");
        let behind = said("127.0.0.1:8080", &[key, base]);
        assert!(behind.contains("listening on http://127.0.0.1:8080\n"), "{behind}");
        assert!(behind.contains(" https://chat.example/tools/mcp/demo"), "{behind}");
    }
}
