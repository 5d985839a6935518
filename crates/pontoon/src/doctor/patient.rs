//! Who is examined: a program, an application or a server behind HTTP, as it was typed or as the configuration has it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::config::{Environment, Server, ServerName};

/// A server that is examined.
#[derive(Debug, Clone)]
pub struct Patient {
    /// How it is started or reached.
    pub server: Arc<Server>,
    /// What it is called in the report: the command line, the address, or its name in the configuration.
    pub shown: String,
    /// What is written of it in a configuration, without what is recommended.
    pub entry: Value,
    /// Whether it is spoken to over HTTP, at the host and path that its application names.
    pub is_http: bool,
}

impl Patient {
    /// The program that was typed, with its arguments. Arguments that name files from here on are made absolute,
    /// for a server works in a folder of its own.
    ///
    /// # Errors
    ///
    /// When no name for the configuration can be made of it.
    pub fn of_command(
        words: &[String],
        cwd: Option<PathBuf>,
        environment: &Environment,
        here: &Path,
    ) -> Result<Self, String> {
        let (command, arguments) = words.split_first().ok_or("there is no command")?;
        let absolute = |word: &String| match cwd.is_none() && names_file(word, here) {
            true => here.join(word).display().to_string(),
            false => word.clone(),
        };
        let arguments: Vec<String> = arguments.iter().map(absolute).collect();
        let name = name_of(command, &arguments);
        let server = Server::of_command(name, command, &arguments, cwd.clone(), environment, here);
        let mut entry = json!({"command": command, "args": arguments});
        if let Some(cwd) = cwd {
            entry["cwd"] = json!(cwd);
        }
        Ok(Self { server: Arc::new(server), shown: words.join(" "), entry, is_http: false })
    }

    /// A server of the configuration.
    pub fn of_config(server: &Arc<Server>) -> Self {
        let shown = format!("`{}` of the configuration", server.name);
        Self { server: Arc::clone(server), shown, entry: json!({}), is_http: false }
    }

    /// What answers at an address, with what it is shown.
    pub fn of_url(url: &str, server: Server, is_http: bool) -> Self {
        // What follows may be a secret.
        let shown = url.split(['?', '#']).next().unwrap_or_default().to_owned();
        let entry = json!({"url": shown});
        Self { server: Arc::new(server), shown, entry, is_http }
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        self.server.name.as_str()
    }

    /// Whether it is a process of ours.
    pub fn is_program(&self) -> bool {
        self.server.app.is_none()
    }
}

/// Whether a word is the path of something that is there.
fn names_file(word: &str, here: &Path) -> bool {
    let path = Path::new(word);
    let is_path = word.contains('/') || path.extension().is_some();
    is_path && path.is_relative() && here.join(path).exists()
}

/// A name for a server: what is run by `uvx`, `npx` and the like, else the program.
fn name_of(command: &str, arguments: &[String]) -> ServerName {
    const RUNNERS: [&str; 12] = [
        "uvx", "npx", "uv", "node", "python", "python3", "bunx", "deno", "docker", "pipx", "run",
        "sh",
    ];
    let last = |word: &str| {
        let word = word.rsplit(['/', '\\']).next().unwrap_or_default();
        let word = word.split('@').next().unwrap_or_default();
        let word = word.trim_end_matches(".py").trim_end_matches(".js").trim_end_matches(".mjs");
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        let word: String = word.chars().map(plain).take(64).collect();
        word.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
    };
    let is_runner = |word: &str| RUNNERS.contains(&word);
    let words = std::iter::once(command).chain(arguments.iter().map(String::as_str));
    let names = words.filter(|word| !word.starts_with('-')).map(last);
    let name =
        names.into_iter().find(|name| !is_runner(name) && name.parse::<ServerName>().is_ok());
    let name = name.and_then(|name| name.parse().ok());
    name.unwrap_or_else(|| "server".parse().expect("a plain word is a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_after_what_is_run() {
        let check = |words: &[&str], expected: &str| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(name_of(&words[0], &words[1..]).as_str(), expected);
        };
        check(&["uvx", "mcp-server-time"], "mcp-server-time");
        check(&["npx", "-y", "@modelcontextprotocol/server-everything@1.0"], "server-everything");
        check(&["/opt/x/my server", "--stdio"], "my-server");
        check(&["python3", "tools/calc.py"], "calc");
        check(&["sh", "-c"], "server");
    }

    #[test]
    fn files_that_are_named_from_here_on_are_made_absolute() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("server.py"), "").unwrap();
        let words = ["python3", "server.py", "other.py", "--x"].map(str::to_owned);
        let environment = Environment::default();
        let made = |cwd| Patient::of_command(&words, cwd, &environment, folder.path()).unwrap();
        let file = folder.path().join("server.py");
        assert_eq!(made(None).entry["args"], json!([file, "other.py", "--x"]));
        let stays = made(Some(folder.path().to_owned()));
        assert_eq!(stays.entry["args"], json!(["server.py", "other.py", "--x"]));
        assert_eq!(stays.server.cwd.as_deref(), Some(folder.path()));
    }
}
