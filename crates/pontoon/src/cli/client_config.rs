//! `pontoon config`: what to write into the configuration of a client, ready to paste.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::config_args::ConfigArgs;
use super::terminal::{load, say, tell};
use crate::config::{Config, Server, as_spelt, below_root};

/// What stands below the help.
pub const EXAMPLES: &str = "\
Examples:
  pontoon config open-webui --url http://pontoon:8080
  pontoon config open-webui --url http://pontoon:8080 --as openapi
  TOOL_SERVER_CONNECTIONS=\"$(pontoon config open-webui --url http://pontoon:8080)\"";

/// For which client.
#[derive(Debug, Args)]
pub struct ClientConfigArgs {
    #[command(subcommand)]
    client: ClientName,
}

#[derive(Debug, Subcommand)]
enum ClientName {
    /// The value of Open WebUI's TOOL_SERVER_CONNECTIONS: a connection for each server.
    #[command(after_help = EXAMPLES)]
    OpenWebui(OpenWebuiArgs),
}

#[derive(Debug, Args)]
struct OpenWebuiArgs {
    #[command(flatten)]
    source: ConfigArgs,
    /// Where Open WebUI reaches this bridge [default: MCPO_BASE_URL, else the first address of MCPO_LISTEN].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// How the servers are reached.
    #[arg(long = "as", value_name = "KIND", default_value = "mcp")]
    kind: ConnectionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ConnectionKind {
    /// MCP (Streamable HTTP): progress, and one answer for each tool.
    Mcp,
    /// OpenAPI: each tool as an operation, as with mcpo.
    Openapi,
}

/// Prints it.
pub fn run(arguments: &ClientConfigArgs) -> ExitCode {
    let ClientName::OpenWebui(arguments) = &arguments.client;
    let config = match load(&arguments.source.options()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let url = match &arguments.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => own_url(&config),
    };
    let ids = ids(config.servers.iter().map(|server| server.name.as_str()));
    let connections: Vec<_> = config
        .servers
        .iter()
        .zip(&ids)
        .map(|(server, id)| connection(&config, server, id, &url, arguments.kind).to_string())
        .collect();
    say(&format!("[\n{}\n]", connections.join(",\n")));
    for note in notes(&config, arguments.url.is_none().then_some(&url)) {
        tell(&format!("note: {note}"));
    }
    ExitCode::SUCCESS
}

/// Where the bridge is, as far as it knows.
fn own_url(config: &Config) -> String {
    let (listen, scheme) = (config.settings.listen.first(), config.settings.scheme());
    match config.settings.base_url.as_str() {
        "" => listen.map_or_else(String::new, |address| format!("{scheme}://{address}")),
        url => url.to_owned(),
    }
}

/// The ids of servers with these names, each once. An id is a part of the names of tools, in which models take letters,
/// digits and `_`.
fn ids<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for name in names {
        let fit = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
        let id: String = name.chars().map(fit).collect();
        let numbered = (2..).map(|number| format!("{id}_{number}"));
        let free = std::iter::once(id.clone()).chain(numbered).find(|it| !ids.contains(it));
        ids.push(free.unwrap_or(id));
    }
    ids
}

/// The connection to one server.
fn connection(
    config: &Config,
    server: &Server,
    id: &str,
    url: &str,
    kind: ConnectionKind,
) -> Value {
    let name = server.name.as_str();
    let url = below_root(url, &config.settings.rest.root_path);
    let (kind, path, file) = match kind {
        ConnectionKind::Mcp => ("mcp", "mcp", ""),
        ConnectionKind::Openapi => ("openapi", "mcpo", "openapi.json"),
    };
    let (auth, key) = match config.settings.api_keys.is_empty() {
        true => ("none", ""),
        false => ("bearer", "KEY"),
    };
    // A grant for everyone: without any, only administrators see the tools.
    let everyone = json!({"principal_type": "user", "principal_id": "*", "permission": "read"});
    json!({
        "type": kind,
        "url": format!("{url}/{path}/{name}"),
        "path": file,
        "auth_type": auth,
        "key": key,
        "headers": headers(config),
        "config": {"enable": true, "access_grants": [everyone]},
        "info": {"id": id, "name": name, "description": ""},
    })
}

/// The headers that say who asks, where Open WebUI does not sign that.
fn headers(config: &Config) -> Value {
    let settings = &config.settings;
    if settings.owui_jwt_secret.is_some() {
        return Value::Object(Map::new());
    }
    let identity = &settings.identity;
    json!({as_spelt(&identity.user): "{{USER_ID}}", as_spelt(&identity.chat): "{{CHAT_ID}}"})
}

/// What else is to be done, for a person. `guessed` is the address where none was given.
fn notes(config: &Config, guessed: Option<&String>) -> Vec<String> {
    let settings = &config.settings;
    let mut notes = Vec::new();
    if let Some(url) = guessed {
        notes.push(format!(
            "the connections begin with {url}: write what Open WebUI reaches with --url, if that is another address"
        ));
    }
    if !settings.api_keys.is_empty() {
        notes.push("put the API key (MCPO_API_KEY) in the place of KEY".to_owned());
    }
    match (settings.owui_jwt_secret.is_some(), settings.api_keys.is_empty()) {
        (true, _) => notes.push(
            "Open WebUI has to sign who asks: ENABLE_FORWARD_USER_INFO_HEADERS=true, and FORWARD_USER_INFO_HEADER_JWT_SECRET \
             with the secret that is MCPO_OWUI_JWT_SECRET here"
                .to_owned(),
        ),
        (false, true) if settings.trusted_proxies.is_empty() => notes.push(
            "the headers that say who asks are believed only with an API key (MCPO_API_KEY) or from MCPO_TRUSTED_PROXIES"
                .to_owned(),
        ),
        _ => {}
    }
    notes.push(
        "Open WebUI reads TOOL_SERVER_CONNECTIONS at its first start; later the connections in its settings count, unless \
         ENABLE_PERSISTENT_CONFIG=false"
            .to_owned(),
    );
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ApiKey, KeyName, Secret};

    fn config(change: impl FnOnce(&mut Config)) -> Config {
        let server = Server::new("excel".parse().unwrap(), Ok("/bin/true".into()), Vec::new());
        let mut config = Config::of_app(server, &crate::config::Environment::default());
        change(&mut config);
        config
    }

    fn made(config: &Config, kind: ConnectionKind) -> Value {
        connection(config, &config.servers[0], "excel", "http://pontoon:8080", kind)
    }

    #[test]
    fn a_connection_has_what_open_webui_needs() {
        let keyed = config(|config| {
            let key = ApiKey { name: KeyName::Unnamed, key: Secret::new("hidden") };
            config.settings.api_keys = vec![key];
        });
        let mcp = made(&keyed, ConnectionKind::Mcp);
        assert_eq!(
            (&mcp["type"], &mcp["url"]),
            (&json!("mcp"), &json!("http://pontoon:8080/mcp/excel"))
        );
        assert_eq!((&mcp["auth_type"], &mcp["key"]), (&json!("bearer"), &json!("KEY")));
        assert_eq!(mcp["headers"]["X-OpenWebUI-User-Id"], "{{USER_ID}}");
        assert_eq!(mcp["info"]["id"], "excel");
        assert_eq!(mcp["config"]["access_grants"][0]["principal_id"], "*");
        let openapi = made(&keyed, ConnectionKind::Openapi);
        assert_eq!(openapi["url"], "http://pontoon:8080/mcpo/excel");
        assert_eq!(openapi["path"], "openapi.json");
        assert!(!notes(&keyed, None).iter().any(|note| note.contains("hidden")));
    }

    #[test]
    fn the_root_path_stands_in_an_address_once() {
        for (base, expected) in [
            ("https://h", "https://h/rp/mcpo/excel"),
            ("https://h/rp", "https://h/rp/mcpo/excel"),
            ("https://h/x", "https://h/x/rp/mcpo/excel"),
        ] {
            let config = config(|config| {
                config.settings.rest.root_path = "/rp".to_owned();
                config.settings.base_url = base.to_owned();
            });
            let url = own_url(&config);
            let made = connection(&config, &config.servers[0], "e", &url, ConnectionKind::Openapi);
            assert_eq!(made["url"], expected, "{base}");
        }
    }

    #[test]
    fn what_is_signed_needs_no_headers() {
        let signed = config(|config| config.settings.owui_jwt_secret = Some(Secret::new("s")));
        assert_eq!(made(&signed, ConnectionKind::Mcp)["headers"], json!({}));
        assert!(notes(&signed, None)[0].contains("FORWARD_USER_INFO_HEADER_JWT_SECRET"));
        let open = config(|_| ());
        assert_eq!(made(&open, ConnectionKind::Mcp)["auth_type"], "none");
        assert!(notes(&open, None)[0].contains("believed only with an API key"));
    }

    #[test]
    fn ids_are_plain_and_each_there_once() {
        let names = ["excel", "excel-2.x", "excel_2_x", "excel_2-x"];
        assert_eq!(ids(names.into_iter()), ["excel", "excel_2_x", "excel_2_x_2", "excel_2_x_3"]);
    }
}
