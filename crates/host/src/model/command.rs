//! The command line of the CLI. Prompts go by standard input and by files: one argument has room for 128 KiB only,
//! and every user of the machine can read it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::error::ModelError;
use super::request::{Request, SessionChoice};
use super::settings::Settings;
use crate::bridge::is_executable;
use crate::ipc::Place;

/// A schema that is longer goes by standard input, which older CLIs do not read it from.
const MAX_ARGUMENT_BYTES: usize = 100 * 1024;

/// What a run of the CLI is made of.
pub(super) struct Wish<'a> {
    pub(super) settings: &'a Settings,
    pub(super) request: &'a Request,
    /// The name of the server that has the program's tools, and its entry in the configuration.
    pub(super) server: Option<(&'a str, &'a Value)>,
    /// Whether text is wanted as it comes.
    pub(super) is_streamed: bool,
}

impl Wish<'_> {
    /// The arguments. The files they name are written to `place`.
    pub(super) fn arguments(&self, place: &Place) -> io::Result<Vec<OsString>> {
        let settings = self.settings;
        let mut args: Vec<OsString> =
            ["--output-format=stream-json", "--verbose", "--input-format=stream-json"]
                .map(Into::into)
                .into();
        let mut put = |name: &str, value: Option<OsString>| {
            // In one word, so that a value cannot be taken for an option.
            args.extend(value.map(|value| {
                let mut word = OsString::from(format!("--{name}="));
                word.push(value);
                word
            }));
        };
        let text = |text: &Option<String>| text.as_ref().map(OsString::from);
        let list = |rules: &[String]| (!rules.is_empty()).then(|| rules.join(",").into());
        let file = |name: &str, text: Option<&[u8]>| -> io::Result<Option<OsString>> {
            text.map(|text| place.write(name, text).map(PathBuf::into_os_string)).transpose()
        };

        put("model", text(&settings.model));
        let system_prompt = settings.system_prompt.as_deref().map(str::as_bytes);
        put("system-prompt-file", file("system_prompt.txt", system_prompt)?);
        let append = settings.append_system_prompt.as_deref().map(str::as_bytes);
        put("append-system-prompt-file", file("append_system_prompt.txt", append)?);
        put("tools", settings.built_in_tools.as_ref().map(|tools| tools.join(",").into()));
        let own = self.server.as_ref().map(|(name, _)| format!("mcp__{name}"));
        let allowed: Vec<_> = settings.allowed_tools.iter().cloned().chain(own).collect();
        put("allowedTools", list(&allowed));
        put("disallowedTools", list(&settings.disallowed_tools));
        put("permission-mode", text(&settings.permission_mode));
        put("permission-prompt-tool", settings.permission.is_some().then(|| "stdio".into()));
        put("max-turns", settings.max_turns.map(|turns| turns.to_string().into()));
        put("max-budget-usd", settings.max_budget_usd.map(|budget| budget.to_string().into()));
        match &self.request.session {
            SessionChoice::New => {}
            SessionChoice::Last => args.push("--continue".into()),
            SessionChoice::Resume(id) => args.push(format!("--resume={id}").into()),
        }
        if let Some(schema) = self.output_schema().filter(is_short) {
            args.push(format!("--json-schema={schema}").into());
        }
        if let Some((name, entry)) = &self.server {
            let config = json!({"mcpServers": {*name: entry}}).to_string();
            let path = place.write("mcp_config.json", config.as_bytes())?;
            args.extend(["--mcp-config".into(), path.into_os_string()]);
        }
        if !settings.use_other_mcp_servers {
            args.push("--strict-mcp-config".into());
        }
        if self.is_streamed {
            args.push("--include-partial-messages".into());
        }
        args.extend(settings.extra_args.iter().cloned());
        Ok(args)
    }

    /// The messages that go to its standard input first.
    pub(super) fn opening(&self) -> [Value; 2] {
        let mut initialize = json!({"subtype": "initialize", "hooks": null});
        if let Some(schema) = self.output_schema().filter(|schema| !is_short(schema)) {
            initialize["jsonSchema"] = schema;
        }
        let initialize =
            json!({"type": "control_request", "request_id": INITIALIZE, "request": initialize});
        [initialize, self.request.message()]
    }

    /// The schema without the name of its dialect: the CLI refuses all but one, and reads the others, too.
    fn output_schema(&self) -> Option<Value> {
        let mut schema = self.request.output_schema.clone()?;
        schema.as_object_mut().map(|schema| schema.remove("$schema"));
        Some(schema)
    }
}

/// The id of the first request to the CLI.
pub(super) const INITIALIZE: &str = "pontoon-initialize";

fn is_short(schema: &Value) -> bool {
    schema.to_string().len() <= MAX_ARGUMENT_BYTES
}

/// The absolute path of the CLI.
pub(super) fn find_cli(explicit: Option<&Path>) -> Result<PathBuf, ModelError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let looked = candidates(explicit, &path, home.as_deref());
    let found = looked.iter().find(|path| is_executable(path).is_ok()).cloned();
    match found.map(std::path::absolute) {
        Some(Ok(path)) => Ok(path),
        _ => Err(ModelError::CliNotFound { looked }),
    }
}

/// Where it may be.
fn candidates(explicit: Option<&Path>, path: &OsStr, home: Option<&Path>) -> Vec<PathBuf> {
    // What lies in the working directory is no command of the user's, unless it is named so.
    let folders = || std::env::split_paths(path).filter(|folder| folder.is_absolute());
    match explicit {
        Some(cli) if cli.components().count() > 1 => vec![cli.to_owned()],
        Some(name) => folders().map(|folder| folder.join(name)).collect(),
        None => {
            let installed = [".local/bin/claude", ".claude/local/claude"];
            let of_home = home.iter().flat_map(|home| installed.map(|place| home.join(place)));
            folders().map(|folder| folder.join("claude")).chain(of_home).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &Settings, request: &Request, expected: &[&str]) {
        let base = tempfile::tempdir().unwrap();
        let place = Place::make(&[base.path().to_owned()]).unwrap();
        let wish = Wish { settings, request, server: None, is_streamed: false };
        let args = wish.arguments(&place).unwrap();
        let directory = format!("{}/", place.directory().display());
        let args: Vec<_> =
            args.iter().skip(3).map(|arg| arg.to_str().unwrap().replace(&directory, "")).collect();
        assert_eq!(args, expected);
    }

    #[test]
    fn what_is_not_set_the_cli_decides() {
        check(&Settings::default(), &"hello".into(), &["--strict-mcp-config"]);
    }

    #[test]
    fn settings_become_options_and_texts_become_files() {
        let settings = Settings {
            model: Some("--opus".to_owned()),
            system_prompt: Some("secret".to_owned()),
            built_in_tools: Some(Vec::new()),
            allowed_tools: vec!["Read".to_owned(), "Bash(git log:*)".to_owned()],
            max_turns: Some(3),
            max_budget_usd: Some(0.5),
            use_other_mcp_servers: true,
            extra_args: vec!["--debug".into()],
            ..Settings::default()
        };
        let session = SessionChoice::Resume("--help".to_owned());
        let request = Request { session, ..Request::from("hello") };
        let expected = [
            "--model=--opus",
            "--system-prompt-file=system_prompt.txt",
            "--tools=",
            "--allowedTools=Read,Bash(git log:*)",
            "--max-turns=3",
            "--max-budget-usd=0.5",
            "--resume=--help",
            "--debug",
        ];
        check(&settings, &request, &expected);
    }

    #[test]
    fn a_long_schema_goes_by_standard_input() {
        let is_in_opening = |description: usize| {
            let schema = json!({"description": "x".repeat(description)});
            let request = Request { output_schema: Some(schema), ..Request::from("hello") };
            let settings = Settings::default();
            let wish =
                Wish { settings: &settings, request: &request, server: None, is_streamed: false };
            wish.opening()[0]["request"].get("jsonSchema").is_some()
        };
        assert_eq!([10, 200_000].map(is_in_opening), [false, true]);
    }

    #[test]
    fn a_cli_that_is_not_there_is_named() {
        let error = find_cli(Some(Path::new("/nowhere/claude"))).unwrap_err();
        assert!(error.to_string().contains("/nowhere/claude"), "{error}");
    }

    #[test]
    fn a_cli_in_the_working_directory_is_not_taken_for_the_users() {
        let check = |explicit: Option<&str>, path: &str, expected: &[&str]| {
            let found = candidates(explicit.map(Path::new), path.as_ref(), Some(Path::new("/me")));
            assert_eq!(found, expected.iter().map(PathBuf::from).collect::<Vec<_>>(), "{path}");
        };
        let of_home = ["/me/.local/bin/claude", "/me/.claude/local/claude"];
        check(None, "", &of_home);
        check(None, "/bin::.:", &["/bin/claude", of_home[0], of_home[1]]);
        check(Some("mine"), "/bin:bin", &["/bin/mine"]);
        check(Some("./mine"), "/bin", &["./mine"]);
    }
}
