//! Servers as the text of a configuration file, with a word on each.

use serde_json::json;

/// A server of the new file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NewServer {
    pub(super) name: String,
    /// Why it is written so; stands above it.
    pub(super) why: String,
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    /// Other keys, with their values as they are written.
    pub(super) keys: Vec<(String, String)>,
    /// The file of another client that it is from.
    pub(super) from: Option<String>,
    /// The variables that have to be set for it.
    pub(super) variables: Vec<NeededVariable>,
}

/// A variable that has to be set where Pontoon runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NeededVariable {
    pub(super) name: String,
    /// What of the other client's file it holds, where its name does not say that.
    pub(super) what: String,
}

impl NeededVariable {
    /// Its name, and what it holds.
    pub(super) fn shown(&self) -> String {
        match self.what.as_str() {
            "" => self.name.clone(),
            what => format!("{} ({what})", self.name),
        }
    }
}

const HEAD: &str = "\
// The servers that Pontoon serves: each is at /mcp/NAME. Comments and trailing commas are allowed.
// `pontoon check` tells every mistake, `pontoon check --start` whether each server starts, `pontoon serve` serves them.
// Every key is in docs/configuration.md.
";

const SAMPLE: &str = "
    // Another server is written like this one. `pontoon init --list` names some that are known to work.
    // \"mine\": {
    //   \"command\": \"npx\",
    //   \"args\": [\"-y\", \"my-server\"],
    //   \"env\": { \"API_TOKEN\": \"${env:API_TOKEN}\" },   // secrets stay out of this file
    //   \"mode\": \"stateful\"                           // a process for each chat, kept while it is used
    // },
";

/// The text of a file with these servers.
pub(super) fn text_of(servers: &[NewServer], is_sample: bool) -> String {
    let servers: Vec<_> = servers.iter().map(text_of_server).collect();
    let sample = if is_sample { SAMPLE } else { "" };
    format!("{HEAD}{{\n  \"mcpServers\": {{\n{}{sample}  }}\n}}\n", servers.join("\n"))
}

fn text_of_server(server: &NewServer) -> String {
    let mut text = String::new();
    let mut comment = |line: &str| {
        // A name or a path may hold anything.
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        text.push_str(&format!("    // {line}\n"));
    };
    if !server.why.is_empty() {
        comment(&server.why);
    }
    if let Some(from) = &server.from {
        comment(&format!("From {from}."));
    }
    if !server.variables.is_empty() {
        let shown: Vec<_> = server.variables.iter().map(NeededVariable::shown).collect();
        comment(&format!("Set these where Pontoon runs: {}.", shown.join(", ")));
    }
    let mut members = vec![("command".to_owned(), json!(server.command).to_string())];
    if !server.args.is_empty() {
        let words: Vec<_> = server.args.iter().map(|word| json!(word).to_string()).collect();
        members.push(("args".to_owned(), format!("[{}]", words.join(", "))));
    }
    if !server.env.is_empty() {
        let pairs =
            server.env.iter().map(|(name, value)| format!("{}: {}", json!(name), json!(value)));
        members.push(("env".to_owned(), format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))));
    }
    members.extend(server.keys.iter().cloned());
    let lines: Vec<_> =
        members.iter().map(|(name, value)| format!("      {}: {value}", json!(name))).collect();
    format!("{text}    {}: {{\n{}\n    }},\n", json!(server.name), lines.join(",\n"))
}
