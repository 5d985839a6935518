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
        let name = ServerName::of_command(command, &arguments);
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
pub(crate) fn names_file(word: &str, here: &Path) -> bool {
    let path = Path::new(word);
    let is_path = word.contains('/') || path.extension().is_some();
    is_path && path.is_relative() && here.join(path).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

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
