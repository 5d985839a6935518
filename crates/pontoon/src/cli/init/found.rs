//! Servers that other clients on this machine have, read from their files; secrets stay where they are.

use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use serde_json::{Map, Value};

use super::secrets::{
    has_value, holds_secret, is_login, is_secret_name, is_value, is_variable_name, kept_part,
};
use super::written::{NeededVariable, NewServer};
use crate::config::{Environment, ServerName, is_reserved};
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
    let mut needed = Needed { server: fit, variables: Vec::new() };
    let words = entry["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let args = taken_words(words, reading, &mut needed)?;
    let none = Map::new();
    let env = entry["env"].as_object().unwrap_or(&none).iter();
    let env = env.map(|(name, value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Ok((name.clone(), taken_value(name, &text, reading, &mut needed)?))
    });
    let env = env.collect::<Result<_, String>>()?;
    let command = in_our_form(command, reading, &mut needed)?;
    let cwd =
        entry["cwd"].as_str().map(|cwd| in_our_form(cwd, reading, &mut needed)).transpose()?;
    // No variable can stand in their place.
    if [Some(&command), cwd.as_ref()].into_iter().flatten().any(|text| holds_secret(text)) {
        return Err("its command or folder seems to hold a secret; write `command` as the program alone, and what follows it \
                    as `args` and `env`"
            .to_owned());
    }
    let keys = cwd.map(|cwd| ("cwd".to_owned(), Value::from(cwd).to_string()));
    let mut variables = needed.variables;
    variables.sort();
    variables.dedup_by(|a, b| a.name == b.name);
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

/// The variables that a server needs, as they are found.
struct Needed<'n> {
    server: &'n str,
    variables: Vec<NeededVariable>,
}

impl Needed<'_> {
    /// A placeholder for the variable of this name, which then has to be set.
    fn reference(&mut self, name: &str, what: String) -> String {
        self.variables.push(NeededVariable { name: name.to_owned(), what });
        format!("${{env:{name}}}")
    }

    /// A placeholder for a secret that has no name of its own.
    fn secret(&mut self, what: String) -> String {
        let stem = variable_name(self.server, "SERVER");
        self.reference(&format!("{stem}_SECRET_{}", self.variables.len() + 1), what)
    }
}

/// A name as that of a variable; one that cannot begin so has `before` before it.
fn variable_name(name: &str, before: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let made: String = name.chars().map(upper).collect();
    if is_variable_name(&made) { made } else { format!("{before}_{made}") }
}

/// Arguments in our form, with variables in place of those that are secrets: what follows an option of such a name, and what
/// looks so.
fn taken_words<'w>(
    words: impl Iterator<Item = &'w str>,
    reading: Reading<'_>,
    needed: &mut Needed<'_>,
) -> Result<Vec<String>, String> {
    let (mut taken, mut follows_name, mut follows_user) = (Vec::new(), false, false);
    for (number, word) in words.enumerate() {
        let before = needed.variables.len();
        let word = in_our_form(word, reading, needed)?;
        let is_option = word.starts_with('-');
        let is_named = follows_name && is_value(&word) || follows_user && is_login(&word);
        let is_hidden = is_named || holds_secret(&word);
        let name = word.strip_suffix(':').or(Some(&word).filter(|_| is_option).map(String::as_str));
        follows_name = name.is_some_and(|name| !name.contains('=') && is_secret_name(name))
            || word.eq_ignore_ascii_case("bearer");
        follows_user = matches!(word.as_str(), "-u" | "--user");
        if !is_hidden {
            taken.push(word);
            continue;
        }
        needed.variables.truncate(before);
        let kept = if is_named { "" } else { kept_part(&word) };
        let what = match kept {
            "" => format!("argument {} there", number + 1),
            kept => format!("what follows {kept:?} in argument {} there", number + 1),
        };
        taken.push(format!("{kept}{}", needed.secret(what)));
    }
    Ok(taken)
}

/// The value of a variable in our form; if it is a secret, the variable itself has to be set where Pontoon runs.
fn taken_value(
    name: &str,
    text: &str,
    reading: Reading<'_>,
    needed: &mut Needed<'_>,
) -> Result<String, String> {
    let before = needed.variables.len();
    let value = in_our_form(text, reading, needed)?;
    if !(is_secret_name(name) && has_value(&value) || holds_secret(&value)) {
        return Ok(value);
    }
    // A variable that is only a part of the value is another one.
    let is_part = needed.variables[before..].iter().any(|it| it.name == name);
    needed.variables.truncate(before);
    Ok(match is_variable_name(name) && !is_part {
        true => needed.reference(name, "its value there".to_owned()),
        false => needed.secret(format!("the value of {name:?} there")),
    })
}

/// A text with the placeholders of other clients in our form: `${NAME}`, `${NAME:-else}`, `${input:ID}` and
/// `${workspaceFolder}`.
fn in_our_form(
    text: &str,
    reading: Reading<'_>,
    needed: &mut Needed<'_>,
) -> Result<String, String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("${") {
        let Some((inner, behind)) = behind.split_once('}') else { break };
        made.push_str(before);
        made.push_str(&placeholder(inner, reading, needed)?);
        rest = behind;
    }
    Ok(made + rest)
}

fn placeholder(
    inner: &str,
    reading: Reading<'_>,
    needed: &mut Needed<'_>,
) -> Result<String, String> {
    let mut reference = |name: &str| Ok(needed.reference(name, String::new()));
    if matches!(inner, "workspaceFolder" | "workspaceRoot") {
        return Ok(reading.here.display().to_string());
    }
    if let Some((name, otherwise)) = inner.split_once(":-")
        && is_variable_name(name)
    {
        // Without the variable the other client would have this.
        return match reading.environment.get(name) {
            Some(_) => reference(name),
            None => Ok(otherwise.to_owned()),
        };
    }
    match inner.split_once(':') {
        None if is_variable_name(inner) => reference(inner),
        Some(("env", name)) if is_variable_name(name) => reference(name),
        Some(("env", name)) => Err(format!("{name:?} in it is no name of a variable")),
        Some(("input", id)) => reference(&variable_name(id, "INPUT")),
        _ => Ok(format!("${{{inner}}}")),
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
    fn secrets_inside_of_arguments_and_values_are_not_copied() {
        let server = taken(&json!({
            "command": "docker",
            "args": [
                "--header", "Authorization: Bearer sesame", "--header=X-Api-Key: sesame", "-H", "X-Api-Key:sesame", "-k", "sesame",
                "run", "-e", "GITHUB_TOKEN=sesame", "--env=SLACK_TOKEN=sesame", "-e", "GITHUB_TOKEN", "image",
                "sh", "-c", "API_KEY=sesame exec x", "https://x/mcp?api_key=sesame", "https://sesame@sentry.io/1",
                "Server=h;Password=sesame", "Authorization:", "sesame", "--token", "sesame=sesame", "--password", "-sesame1", "-u", "me:sesame", "--user", "1000:1000", "Bearer ${NOPE:-sesame}"
            ],
            "env": {
                "AUTH": "Basic sesame", "HEADERS": "Authorization=Bearer sesame", "PAT": "sesame", "PGPASS": "sesame",
                "OPENAPI_MCP_HEADERS": "{\"Authorization\":\"Bearer sesame\"}", "API_KEY": "${NOPE:-sesame}",
                "DB_PASSWORD": "${P:-sesame}", "KEY": "pre${X}sesame", "TOKEN": "${TOKEN}sesame",
                "LEVEL": "${NOPE:-debug}", "AUTHORIZATION": "Bearer ${TOKEN}"
            }
        }));
        assert!(!format!("{server:?}").contains("sesame"), "{server:?}");
        for kept in
            ["run", "-e", "GITHUB_TOKEN", "image", "sh", "-c", "-H", "--header", "Authorization:"]
        {
            assert!(server.args.iter().any(|word| word == kept), "{kept}: {:?}", server.args);
        }
        assert_eq!(server.args[1], "Authorization: Bearer ${env:A_SECRET_1}");
        assert_eq!(server.args[10], "--env=SLACK_TOKEN=${env:A_SECRET_6}");
        let value = |name: &str| &*server.env.iter().find(|(it, _)| it == name).unwrap().1;
        assert_eq!(value("LEVEL"), "debug");
        assert_eq!(value("AUTHORIZATION"), "Bearer ${env:TOKEN}");
        assert_eq!(value("KEY"), "${env:KEY}");
        assert!(value("TOKEN").starts_with("${env:A_SECRET_"), "{server:?}");
        // Each says what it is to be set to.
        let first = server.variables.iter().find(|it| it.name == "A_SECRET_1").unwrap();
        assert_eq!(first.what, "what follows \"Authorization: Bearer \" in argument 2 there");
    }

    #[test]
    fn placeholders_of_other_clients_become_ours() {
        let environment = Environment::default();
        let reading = Reading { here: Path::new("/here"), environment: &environment };
        let mut needed = Needed { server: "a", variables: Vec::new() };
        let mut check = |text: &str, expected: &str| {
            assert_eq!(in_our_form(text, reading, &mut needed).unwrap(), expected);
        };
        check("${HOME}/x", "${env:HOME}/x");
        check("${env:A}", "${env:A}");
        check("${input:github-token}", "${env:GITHUB_TOKEN}");
        check("${workspaceFolder}/data", "/here/data");
        check("${NO_SUCH_VARIABLE_HERE:-8080}", "8080");
        check("$HOME ${ ${a b}", "$HOME ${ ${a b}");
        let names: Vec<_> = needed.variables.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["HOME", "A", "GITHUB_TOKEN"]);
    }

    #[test]
    fn what_pontoon_cannot_start_is_left_out_with_a_reason() {
        for (name, entry, says) in [
            ("a", json!({"type": "http", "url": "https://h/mcp"}), "over HTTP"),
            ("a", json!({}), "no command"),
            ("", json!({"command": "x"}), "part of an address"),
            ("\u{e4}", json!({"command": "x"}), "part of an address"),
            ("a", json!({"command": "env API_KEY=sesame foo"}), "seems to hold a secret"),
            ("a", json!({"command": "x", "cwd": "/a?token=sesame"}), "seems to hold a secret"),
            (
                "a",
                json!({"command": "x", "args": ["${env:\u{1b}[31mEVIL}"]}),
                "no name of a variable",
            ),
        ] {
            let why = taken_over(
                name,
                &entry,
                "x",
                Reading { here: Path::new("/"), environment: &Environment::default() },
            )
            .unwrap_err();
            assert!(why.contains(says) && !why.contains("sesame"), "{name}: {why}");
            assert!(!why.contains(char::is_control), "{why:?}");
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
