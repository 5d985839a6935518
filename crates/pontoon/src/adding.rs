//! How a server of the bridge is added to each client: what to paste, and where. The place of a key is marked, and no key is
//! ever in it.

use serde_json::{Value, json};

/// What stands for the key in what is to be pasted.
pub const KEY: &str = "KEY";

/// How a server is added to one client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// The client.
    pub client: &'static str,
    /// Where the text belongs, as a sentence or two.
    pub place: String,
    /// What is pasted.
    pub text: String,
}

/// A server of the bridge, as clients see it.
#[derive(Debug, Clone, Copy)]
pub struct AddedServer<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where the paths of the bridge begin, without a slash at the end.
    pub address: &'a str,
    /// Whether calls need a key.
    pub wants_key: bool,
}

impl AddedServer<'_> {
    /// Its address for clients that speak MCP over HTTP.
    pub fn url(&self) -> String {
        format!("{}/mcp/{}", self.address, self.name)
    }

    /// Its address over WebSocket.
    fn web_socket(&self) -> String {
        let address = match self.address.strip_prefix("http") {
            Some(rest) => format!("ws{rest}"),
            None => self.address.to_owned(),
        };
        format!("{address}/ws/{}", self.name)
    }

    /// The command that adds it to Claude Code.
    pub fn claude_code(&self) -> String {
        let header = match self.wants_key {
            true => format!(" --header \"Authorization: Bearer {KEY}\""),
            false => String::new(),
        };
        format!("claude mcp add --transport http {} {}{header}", self.name, self.url())
    }

    /// Its entry for a client that speaks HTTP, with these members before the others.
    fn entry(&self, kind: Option<&str>) -> Value {
        let mut entry = json!({});
        if let Some(kind) = kind {
            entry["type"] = json!(kind);
        }
        entry["url"] = json!(self.url());
        if self.wants_key {
            entry["headers"] = json!({"Authorization": format!("Bearer {KEY}")});
        }
        json!({ self.name: entry })
    }

    /// Its entry for a client that starts programs.
    fn started(&self) -> Value {
        let mut entry = json!({"command": "pontoon", "args": ["connect", self.web_socket()]});
        if self.wants_key {
            entry["env"] = json!({"PONTOON_TOKEN": KEY});
        }
        json!({ self.name: entry })
    }

    /// A program for the SDK that lists its tools.
    fn python(&self) -> String {
        let url = self.url();
        let (imports, opened) = match self.wants_key {
            false => ("", format!("    async with Client(\"{url}\") as client:\n")),
            true => (
                "from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client\n",
                format!(
                    "    http = create_mcp_http_client(headers={{\"Authorization\": \"Bearer {KEY}\"}})\n    \
                     async with http, Client(streamable_http_client(\"{url}\", http_client=http)) as client:\n"
                ),
            ),
        };
        format!(
            "import asyncio\nfrom mcp import Client\n{imports}\nasync def main():\n{opened}        \
             for tool in (await client.list_tools()).tools:\n            print(tool.name)\n\nasyncio.run(main())"
        )
    }

    /// How it is added to each client.
    pub fn additions(&self) -> Vec<Addition> {
        let pretty = |member: &str, entry: Value| {
            serde_json::to_string_pretty(&json!({ member: entry })).unwrap_or_default()
        };
        let key = match self.wants_key {
            true => " Choose Bearer there, and give it the key.",
            false => "",
        };
        let addition =
            |client, place: &str, text| Addition { client, place: place.to_owned(), text };
        vec![
            addition("Claude Code", "In a terminal.", self.claude_code()),
            addition(
                "Open WebUI",
                &format!(
                    "As an administrator: Settings, External Tools, add a connection of the type MCP (Streamable HTTP) \
                     with this URL.{key}"
                ),
                self.url(),
            ),
            addition(
                "VS Code",
                "In .vscode/mcp.json of a folder, or by the command MCP: Open User Configuration.",
                pretty("servers", self.entry(Some("http"))),
            ),
            addition(
                "Cursor",
                "In .cursor/mcp.json of a project, or in ~/.cursor/mcp.json.",
                pretty("mcpServers", self.entry(None)),
            ),
            addition(
                "Claude Desktop",
                "In claude_desktop_config.json (Settings, Developer, Edit Config). It starts pontoon, which has to be \
                 installed where Claude Desktop runs.",
                pretty("mcpServers", self.started()),
            ),
            addition("Python", "After pip install mcp, in a file of your own.", self.python()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(wants_key: bool) -> AddedServer<'static> {
        AddedServer { name: "time", address: "https://h.example/p", wants_key }
    }

    #[test]
    fn every_client_is_told_the_address_and_where_a_key_goes() {
        for wants_key in [false, true] {
            let additions = added(wants_key).additions();
            assert_eq!(additions.len(), 6);
            for Addition { client, place, text } in additions {
                let at = match client {
                    "Claude Desktop" => "wss://h.example/p/ws/time",
                    _ => "https://h.example/p/mcp/time",
                };
                assert!(text.contains(at), "{client}: {text}");
                let says_key = text.contains(KEY) || place.contains("the key");
                assert_eq!(says_key, wants_key, "{client}: {place} {text}");
            }
        }
    }

    #[test]
    fn what_is_json_is_whole() {
        for (client, pointer, expected) in [
            ("VS Code", "/servers/time/headers/Authorization", "Bearer KEY"),
            ("Cursor", "/mcpServers/time/url", "https://h.example/p/mcp/time"),
            ("Claude Desktop", "/mcpServers/time/env/PONTOON_TOKEN", "KEY"),
        ] {
            let additions = added(true).additions();
            let found = additions.iter().find(|it| it.client == client).unwrap();
            let written: Value = serde_json::from_str(&found.text).unwrap();
            assert_eq!(written.pointer(pointer), Some(&json!(expected)), "{client}");
        }
    }
}
