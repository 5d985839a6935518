//! Servers that other clients on this machine have, read from their files; secrets stay where they are.

use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use serde_json::{Map, Value};

use super::written::NewServer;
use crate::config::{Environment, ServerName, is_reserved};
use crate::observe::redact::Redactor;
use crate::plain_file::{self, FileKind};

/// More bytes than this are no list of servers; Claude Code keeps much beside it.
const LONGEST: u64 = 64 << 20;

/// A server that another client has.
pub(super) struct FoundServer {
    pub(super) server: NewServer,
    pub(super) file: PathBuf,
}

/// All that are found, each name once; and what is to be said of those that were left out.
pub(super) fn all(environment: &Environment, here: &Path) -> (Vec<FoundServer>, Vec<String>) {
    let (mut found, mut notes): (Vec<FoundServer>, _) = (Vec::new(), Vec::new());
    for file in files(environment, here) {
        let text = match plain_file::read_text(&file, FileKind::Regular, LONGEST) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                notes.push(format!("{} cannot be read: {error}", file.display()));
                continue;
            }
        };
        let Ok(value) =
            jsonc_parser::parse_to_serde_value::<Value>(&text, &ParseOptions::default())
        else {
            notes.push(format!("{} is no JSON, and was passed over", file.display()));
            continue;
        };
        for (name, entry) in entries(&value, here) {
            let from = file.display().to_string();
            match taken_over(name, entry, &from, Reading { here, environment }) {
                Ok(server) if found.iter().any(|it| it.server.name == server.name) => {
                    notes.push(format!(
                        "{name:?} of {from} was left out: there is one of that name already"
                    ));
                }
                Ok(server) => found.push(FoundServer { server, file: file.clone() }),
                Err(why) => notes.push(format!("{name:?} of {from} was left out: {why}")),
            }
        }
    }
    (found, notes)
}

/// Where and with which variables the files are read.
#[derive(Debug, Clone, Copy)]
struct Reading<'a> {
    here: &'a Path,
    environment: &'a Environment,
}

/// Where clients keep their servers, those of this folder first.
fn files(environment: &Environment, here: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        [".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json"].map(|file| here.join(file)).to_vec();
    if let Some(home) = environment.get("HOME").map(Path::new).filter(|home| home.is_absolute()) {
        files.extend(
            [
                ".claude.json",
                ".config/Claude/claude_desktop_config.json",
                "Library/Application Support/Claude/claude_desktop_config.json",
                ".config/Code/User/mcp.json",
                "Library/Application Support/Code/User/mcp.json",
                ".cursor/mcp.json",
            ]
            .map(|file| home.join(file)),
        );
    }
    files.dedup();
    files
}

/// The servers in a file: VS Code has another word for them, and Claude Code keeps those of each folder apart.
fn entries<'v>(value: &'v Value, here: &Path) -> impl Iterator<Item = (&'v String, &'v Value)> {
    let of_folder = &value["projects"][here.to_str().unwrap_or_default()]["mcpServers"];
    let all = [&value["mcpServers"], &value["servers"], of_folder];
    all.into_iter().filter_map(Value::as_object).flatten()
}

/// The server that this entry is.
fn taken_over(
    name: &str,
    entry: &Value,
    from: &str,
    reading: Reading<'_>,
) -> Result<NewServer, String> {
    let Some(command) = entry["command"].as_str() else {
        return Err(match entry["url"].is_string() || entry["serverUrl"].is_string() {
            true => "it is reached over HTTP, which clients do by themselves".to_owned(),
            false => "it has no command".to_owned(),
        });
    };
    let fit: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' })
        .collect();
    let fit = fit.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    // A path of Pontoon's own is no name.
    let fit: &str = if is_reserved(fit) { &format!("{fit}-server") } else { fit };
    if fit.parse::<ServerName>().is_err() {
        return Err("its name cannot be part of an address".to_owned());
    }
    let mut variables = Vec::new();
    let words = entry["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut args: Vec<String> =
        words.map(|word| in_our_form(word, reading, &mut variables)).collect();
    hide_secrets(&mut args, fit, &mut variables);
    let none = Map::new();
    let env = entry["env"].as_object().unwrap_or(&none).iter();
    let env = env.map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let value = match is_secret(name, &text) {
            true => reference(name, &mut variables),
            false => in_our_form(&text, reading, &mut variables),
        };
        (name.clone(), value)
    });
    let env = env.collect();
    let keys = entry["cwd"].as_str().map(|cwd| {
        let cwd = in_our_form(cwd, reading, &mut variables);
        ("cwd".to_owned(), Value::from(cwd).to_string())
    });
    let command = in_our_form(command, reading, &mut variables);
    variables.sort();
    variables.dedup();
    Ok(NewServer {
        name: fit.to_owned(),
        command,
        args,
        env,
        keys: keys.into_iter().collect(),
        from: Some(from.to_owned()),
        variables,
        ..NewServer::default()
    })
}

/// A placeholder for the variable of this name, which then has to be set.
fn reference(name: &str, variables: &mut Vec<String>) -> String {
    variables.push(name.to_owned());
    format!("${{env:{name}}}")
}

/// Whether what a variable holds must not be copied.
fn is_secret(name: &str, value: &str) -> bool {
    !value.is_empty() && !value.contains("${") && (Redactor::is_secret(name) || looks_secret(value))
}

/// Whether a word looks like a key that some service gave out.
fn looks_secret(word: &str) -> bool {
    const BEGINNINGS: [&str; 12] = [
        "sk-",
        "sk_",
        "ghp_",
        "gho_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "xoxp-",
        "AKIA",
        "AIza",
        "eyJ",
        "hf_",
    ];
    let is_long = word.len() >= 16;
    // What holds a password before a host is one, too.
    let has_password = word
        .split_once("://")
        .and_then(|(_, rest)| rest.split('/').next()?.split_once('@'))
        .is_some_and(|(user, _)| user.contains(':'));
    is_long && BEGINNINGS.iter().any(|begin| word.starts_with(begin)) || has_password
}

/// Puts variables in place of the arguments that are secrets: what follows an option of such a name, and what looks so.
fn hide_secrets(args: &mut [String], server: &str, variables: &mut Vec<String>) {
    let mut follows_secret = false;
    let stem: String = server
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    for word in args {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) if option.starts_with('-') => {
                (Some(option.to_owned()), value.to_owned())
            }
            _ => (None, word.clone()),
        };
        let named = option.as_deref().is_some_and(Redactor::is_secret);
        let is_option = word.starts_with('-');
        let is_hidden = !value.contains("${")
            && (named || looks_secret(&value) || follows_secret && !is_option && !value.is_empty());
        follows_secret = is_option && option.is_none() && Redactor::is_secret(word);
        if is_hidden {
            let held = reference(&format!("{stem}_SECRET_{}", variables.len() + 1), variables);
            *word = option.map_or_else(|| held.clone(), |option| format!("{option}={held}"));
        }
    }
}

/// A text with the placeholders of other clients in our form: `${NAME}`, `${NAME:-else}`, `${input:ID}` and
/// `${workspaceFolder}`.
fn in_our_form(text: &str, reading: Reading<'_>, variables: &mut Vec<String>) -> String {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((inner, behind)) = behind.split_once('}') else { break };
        made.push_str(before);
        made.push_str(&placeholder(inner, reading, variables));
        rest = behind;
    }
    made + rest
}

fn placeholder(inner: &str, reading: Reading<'_>, variables: &mut Vec<String>) -> String {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let (name, otherwise) = match inner.split_once(":-") {
        Some((name, otherwise)) => (name, Some(otherwise)),
        None => (inner, None),
    };
    if matches!(inner, "workspaceFolder" | "workspaceRoot") {
        return reading.here.display().to_string();
    }
    if let Some(otherwise) = otherwise.filter(|_| is_name(name)) {
        // Without the variable the other client would have this.
        return match reading.environment.get(name) {
            Some(_) => reference(name, variables),
            None => otherwise.to_owned(),
        };
    }
    match inner.split_once(':') {
        None if is_name(inner) => reference(inner, variables),
        Some(("env", name)) => reference(name, variables),
        Some(("input", id)) => {
            let name: String = id
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
                .collect();
            reference(&name, variables)
        }
        _ => format!("${{{inner}}}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn taken(entry: &Value) -> NewServer {
        taken_over(
            "a",
            entry,
            "x.json",
            Reading { here: Path::new("/here"), environment: &Environment::default() },
        )
        .unwrap()
    }

    #[test]
    fn secrets_of_other_clients_are_not_copied() {
        let server = taken(&json!({
            "command": "npx",
            "args": ["-y", "@a/b", "--api-key", "sesame", "--token=sesame", "postgres://u:sesame@h/db", "ghp_0123456789sesame"],
            "env": {"GITHUB_TOKEN": "sesame", "OTHER": "sk-0123456789-sesame", "LEVEL": "debug", "PORT": 80}
        }));
        assert!(!format!("{server:?}").contains("sesame"), "{server:?}");
        let env: Vec<_> =
            server.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let expected = [
            ("GITHUB_TOKEN", "${env:GITHUB_TOKEN}"),
            ("LEVEL", "debug"),
            ("OTHER", "${env:OTHER}"),
            ("PORT", "80"),
        ];
        let mut sorted = env.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, expected);
        assert_eq!(server.args[..3], ["-y", "@a/b", "--api-key"]);
        assert_eq!(server.args[4], "--token=${env:A_SECRET_2}");
        assert_eq!(server.variables.len(), 6, "{:?}", server.variables);
    }

    #[test]
    fn placeholders_of_other_clients_become_ours() {
        let environment = Environment::default();
        let reading = Reading { here: Path::new("/here"), environment: &environment };
        let mut variables = Vec::new();
        let mut check = |text: &str, expected: &str| {
            assert_eq!(in_our_form(text, reading, &mut variables), expected);
        };
        check("${HOME}/x", "${env:HOME}/x");
        check("${env:A}", "${env:A}");
        check("${input:github-token}", "${env:GITHUB_TOKEN}");
        check("${workspaceFolder}/data", "/here/data");
        check("${NO_SUCH_VARIABLE_HERE:-8080}", "8080");
        check("$HOME ${ ${a b}", "$HOME ${ ${a b}");
        assert_eq!(variables, ["HOME", "A", "GITHUB_TOKEN"]);
    }

    #[test]
    fn what_pontoon_cannot_start_is_left_out_with_a_reason() {
        for (name, entry, says) in [
            ("a", json!({"type": "http", "url": "https://h/mcp"}), "over HTTP"),
            ("a", json!({}), "no command"),
            ("", json!({"command": "x"}), "part of an address"),
            ("\u{e4}", json!({"command": "x"}), "part of an address"),
        ] {
            let why = taken_over(
                name,
                &entry,
                "x",
                Reading { here: Path::new("/"), environment: &Environment::default() },
            )
            .unwrap_err();
            assert!(why.contains(says), "{name}: {why}");
        }
        let named = taken_over(
            "my server!",
            &json!({"command": "x"}),
            "x",
            Reading { here: Path::new("/"), environment: &Environment::default() },
        )
        .unwrap();
        assert_eq!(named.name, "my-server-");
        let named = taken_over(
            "docs",
            &json!({"command": "x"}),
            "x",
            Reading { here: Path::new("/"), environment: &Environment::default() },
        )
        .unwrap();
        assert_eq!(named.name, "docs-server");
    }

    #[test]
    fn each_kind_of_file_is_read() {
        let here = Path::new("/here");
        for value in [
            json!({"mcpServers": {"a": {}}}),
            json!({"servers": {"a": {}}}),
            json!({"projects": {"/here": {"mcpServers": {"a": {}}}, "/other": {"mcpServers": {"b": {}}}}}),
        ] {
            let names: Vec<_> = entries(&value, here).map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["a"], "{value}");
        }
        assert_eq!(entries(&json!([1]), here).count(), 0);
    }
}
