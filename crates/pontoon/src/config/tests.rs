//! What command line, environment and file give together.

use std::fs;

use tracing::Level;

use super::*;

const ONE_SERVER: &str = r#"{"mcpServers": {"shell": {"command": "/bin/sh"}}}"#;

/// The configuration with `default.json`, if given, beside which `named.json` always is.
fn load(
    default: Option<&str>,
    options: &Options,
    variables: &[(&str, &str)],
) -> Result<(Config, Remarks), Remarks> {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    fs::write(place("named.json"), ONE_SERVER.replace("shell", "named")).unwrap();
    if let Some(text) = default {
        fs::write(place("default.json"), text).unwrap();
    }
    let config = options.config.as_ref().map(|name| folder.path().join(name));
    let options = Options { config, ..options.clone() };
    let here = folder.path().to_str().unwrap();
    let variables = variables.iter().map(|&(name, value)| (name, value.replace("FOLDER", here)));
    let environment = Environment::new(variables.chain([("HOME", "/home/me".to_owned())]));
    Config::load_with_defaults(&options, &environment, &[place("absent"), place("default.json")])
}

/// Compares the part of the configuration that `part` shows.
fn check<T: PartialEq + std::fmt::Debug>(
    options: &Options,
    variables: &[(&str, &str)],
    part: impl Fn(&Config) -> T,
    expected: &T,
) {
    let (config, _) = load(Some(ONE_SERVER), options, variables).unwrap();
    assert_eq!(part(&config), *expected);
}

fn check_refused(options: &Options, variables: &[(&str, &str)], told: &str) {
    let remarks = load(Some(ONE_SERVER), options, variables).unwrap_err();
    assert!(remarks.to_string().starts_with(told), "{remarks}");
}

/// The servers of a file in `/tmp` with this text, and what is told of it.
pub(super) fn servers(text: &str) -> (Vec<Arc<Server>>, Remarks) {
    servers_of(text, None)
}

/// The same; as mcpo reads it where its folder is named.
pub(super) fn servers_of(text: &str, of_mcpo: Option<&Path>) -> (Vec<Arc<Server>>, Remarks) {
    let environment = Environment::new([("PATH", "/usr/bin:/bin"), ("TOKEN", "secret")]);
    let settings = BridgeSettings::unset();
    let (folder, is_of_mcpo) = (of_mcpo.unwrap_or(Path::new("/tmp")), of_mcpo.is_some());
    let (environment, settings, is_start) = (&environment, &settings, true);
    let around = FileContext { folder, environment, settings, is_of_mcpo, is_start };
    let mut remarks = Remarks::default();
    let servers = file::read(Path::new("mcp-servers.json"), text, &around, &mut remarks);
    (servers, remarks)
}

#[test]
fn a_header_from_a_variable_is_hidden_and_a_short_word_is_not() {
    let file = r#"{"mcpServers": {"app": {"url": "ws://127.0.0.1:7400", "headers":
        {"X-Project": "work", "X-Studio": "in ${env:STUDIO}"}}}}"#;
    let (config, _) = load(Some(file), &Options::default(), &[("STUDIO", "sesame-8")]).unwrap();
    let headers = &config.servers[0].app.as_ref().unwrap().headers.typed;
    let secrets: Vec<_> = headers.iter().map(AppHeader::secret).collect();
    assert_eq!(secrets, [None, Some(b"in sesame-8" as &[u8])]);
}

fn first_name(config: &Config) -> String {
    config.servers[0].name.to_string()
}

fn listening(listen: &str) -> Options {
    Options { listen: Some(listen.to_owned()), ..Options::default() }
}

#[test]
fn options_win_over_variables_and_these_over_defaults() {
    let port = |config: &Config| config.settings.listen[0].port();
    let variable = ("MCPO_LISTEN", "127.0.0.1:2");
    check(&Options::default(), &[], port, &8080);
    check(&Options::default(), &[variable], port, &2);
    check(&listening("127.0.0.1:3"), &[variable], port, &3);
    let log_level = Some("trace".to_owned());
    let options = Options { log_level, ..Options::default() };
    check(
        &options,
        &[("MCPO_LOG_LEVEL", "ERROR")],
        |config| config.settings.log_level,
        &LogLevel(Level::TRACE),
    );
}

#[test]
fn calls_of_mcpo_end_late_unless_told_otherwise() {
    let of_mcpo = Options { mcpo: Some(McpoOptions::default()), ..Options::default() };
    let limits =
        |config: &Config| (config.servers[0].timeout.as_secs(), config.servers[0].max_in_flight);
    check(&of_mcpo, &[], limits, &(86_400, 1024));
    check(&of_mcpo, &[("MCPO_TIMEOUT", "9")], limits, &(9, 1024));
    check(&Options::default(), &[], limits, &(300, 64));
}

#[test]
fn a_mistake_in_an_entry_of_mcpo_is_one_entry_less_at_its_start_and_no_change_later() {
    let file = r#"{"mcpServers": {"a": {"command": "sh"}, "b": {"command": "sh", "args": "-c"},
        "far": {"url": "https://example.org/mcp"}}}"#;
    let mcpo = Some(McpoOptions::default());
    let start = Options { mcpo, ..Options::default() };
    let (config, remarks) = load(Some(file), &start, &[]).unwrap();
    assert_eq!((config.servers.len(), remarks.heaviest()), (1, Some(Weight::BrokenServer)));
    let again = Options { is_running: true, ..start.clone() };
    assert_eq!(load(Some(file), &again, &[]).unwrap_err().heaviest(), Some(Weight::Mistake));
    // What is there that mcpo has, and this has not, keeps nothing from changing.
    let file = file.replace("\"-c\"", "[\"-c\"]");
    assert_eq!(load(Some(&file), &again, &[]).unwrap().0.servers.len(), 2);
    let none = r#"{"mcpServers": {"far": {"url": "https://example.org/mcp"}}}"#;
    let told = load(Some(none), &start, &[]).unwrap_err().to_string();
    assert!(told.contains("has no server that can be served"), "{told}");
}

#[test]
fn mcpo_starts_without_a_key_to_ask_for() {
    let options =
        Options { mcpo: Some(McpoOptions::default()), strict_auth: true, ..Options::default() };
    let (_, remarks) = load(Some(ONE_SERVER), &options, &[]).unwrap();
    assert!(remarks.to_string().contains("--strict-auth: is ignored"), "{remarks}");
}

#[test]
fn a_typed_server_takes_the_place_of_a_file() {
    let options = Options {
        command: ["sh", "-c", "x"].map(str::to_owned).to_vec(),
        port: Some(9),
        ..Options::default()
    };
    let variables =
        [("PATH", "/bin"), ("MCPO_CONFIG_FILE", "FOLDER/named.json"), ("MCPO_TIMEOUT", "7")];
    let (config, _) = load(Some(ONE_SERVER), &options, &variables).unwrap();
    assert_eq!(config.source, ConfigSource::CommandLine);
    assert_eq!(config.settings.listen, ["127.0.0.1:9".parse().unwrap()]);
    assert_eq!(config.settings.rest.single, None, "it is below its name, as others are");
    let [server] = &config.servers[..] else { panic!("one server") };
    assert_eq!(
        (server.name.as_str(), server.timeout.as_secs(), server.mode),
        ("x", 7, Mode::Stateless)
    );
}

#[test]
fn a_named_file_wins_over_the_one_that_lies_there() {
    let named = ("MCPO_CONFIG_FILE", "FOLDER/named.json");
    check(&Options::default(), &[], first_name, &"shell".to_owned());
    check(&Options::default(), &[named], first_name, &"named".to_owned());
    let options = Options { config: Some("named.json".into()), ..Options::default() };
    check(&options, &[("MCPO_CONFIG_FILE", "absent")], first_name, &"named".to_owned());
}

#[test]
fn without_a_file_there_is_the_demo() {
    let (config, remarks) = load(None, &Options::default(), &[]).unwrap();
    let demo = ConfigSource::Demo { made_key: None };
    assert_eq!((config.source, remarks.is_empty()), (demo, true));
    let [demo] = &config.servers[..] else { panic!("one server") };
    assert_eq!(demo.name.as_str(), "demo");
    assert_eq!(demo.program, Ok(std::env::current_exe().unwrap()));
    assert_eq!(demo.args, [Template::plain("demo")]);
    assert_eq!(demo.mode, Mode::Stateless);
}

#[test]
fn a_named_file_that_is_missing_is_a_mistake() {
    let options = Options { config: Some("absent".into()), ..Options::default() };
    check_refused(&options, &[], "command line: 1 mistake\n  --config: cannot read `/");
    let variable = [("MCPO_CONFIG_FILE", "FOLDER/absent")];
    let told = "environment: 1 mistake\n  MCPO_CONFIG_FILE: cannot read `/";
    check_refused(&Options::default(), &variable, told);
}

#[test]
fn mistakes_of_every_place_are_told_together() {
    let told = "command line: 1 mistake\n  --listen: expected an address and a port such as \
                127.0.0.1:8080, found \"here\"\nenvironment: 1 mistake\n  MCPO_TIMEOUT: ";
    check_refused(&listening("here"), &[("MCPO_TIMEOUT", "soon")], told);
    let remarks = load(Some("{}"), &listening("here"), &[]).unwrap_err();
    assert_eq!(remarks.iter().count(), 2);
}

#[test]
fn strangers_are_let_in_only_on_purpose() {
    let told = "command line: 1 mistake\n  --listen: 0.0.0.0:80 can be reached";
    check_refused(&listening("0.0.0.0:80"), &[], told);
    let told = "environment: 1 mistake\n  MCPO_LISTEN: [::]:80 can be reached";
    check_refused(&Options::default(), &[("MCPO_LISTEN", "127.0.0.1:80,[::]:80")], told);
    for loopback in ["127.8.8.8:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
        check(&listening(loopback), &[], |config| config.settings.api_keys.len(), &0);
    }
    let insecure = Options { insecure: true, ..listening("0.0.0.0:80") };
    let (_, remarks) = load(None, &insecure, &[]).unwrap();
    assert_eq!(
        remarks.to_string(),
        "command line: 1 warning\n  \
         warning: --listen: whoever reaches 0.0.0.0:80 can use every server"
    );
}

#[test]
fn a_demo_that_strangers_reach_has_a_key_made_for_it() {
    let public = listening("0.0.0.0:80");
    let (config, remarks) = load(None, &public, &[]).unwrap();
    let ConfigSource::Demo { made_key: Some(made) } = config.source else { panic!("no key") };
    assert_eq!(config.settings.api_keys, [ApiKey { name: KeyName::Unnamed, key: made.clone() }]);
    assert!(made.expose().len() >= 32);
    let told = "command line: 1 warning\n  warning: --listen: 0.0.0.0:80 can be reached from other \
                machines, and there is no API key: the demo asks for one that is made at its start; set \
                MCPO_API_KEY for one of your own";
    assert_eq!(remarks.to_string(), told);
    let (again, _) = load(None, &public, &[]).unwrap();
    assert_ne!(again.source, ConfigSource::Demo { made_key: Some(made) });
    let own = [("MCPO_API_KEY", "12345678")];
    for (options, variables, keys) in [(&listening("127.0.0.1:80"), &[][..], 0), (&public, &own, 1)]
    {
        let (config, remarks) = load(None, options, variables).unwrap();
        assert_eq!(config.source, ConfigSource::Demo { made_key: None });
        assert_eq!((config.settings.api_keys.len(), remarks.is_empty()), (keys, true));
    }
}

#[test]
fn root_is_told_which_servers_nothing_keeps_apart() {
    let text = r#"{"mcpServers": {"a": {"command": "/bin/sh"}, "b": {"command": "/bin/sh"},
                                  "c": {"command": "/bin/sh", "isolation": "confined"}}}"#;
    let (config, _) = load(Some(text), &Options::default(), &[]).unwrap();
    let warning = config.warning_for_root().unwrap();
    assert!(warning.contains("processes of `a`, `b`, which"), "{warning}");
    let confined = text.replace(r#"sh"}"#, r#"sh", "isolation": "confined"}"#);
    let (config, _) = load(Some(&confined), &Options::default(), &[]).unwrap();
    assert_eq!(config.warning_for_root(), None);
}

#[test]
fn a_missing_program_breaks_only_its_server() {
    let text = r#"{"mcpServers": {"a": {"command": "/gone"}, "b": {"command": "/bin/sh"}}}"#;
    let (config, remarks) = load(Some(text), &Options::default(), &[]).unwrap();
    assert_eq!(remarks.heaviest(), Some(Weight::BrokenServer));
    assert!(remarks.need_repair());
    assert!(config.server("a").unwrap().program.is_err());
    assert!(config.server("b").unwrap().program.is_ok());
    assert!(config.server("c").is_none());
}

#[test]
fn the_timeout_of_all_holds_where_a_server_has_none() {
    let text = r#"{"mcpServers": {"a": {"command": "/bin/sh", "timeout": "1m"},
                                  "b": {"command": "/bin/sh"}}}"#;
    let (config, _) = load(Some(text), &Options::default(), &[("MCPO_TIMEOUT", "9")]).unwrap();
    let seconds = |name: &str| config.server(name).unwrap().timeout.as_secs();
    assert_eq!((seconds("a"), seconds("b")), (60, 9));
}

#[test]
fn what_holds_for_all_holds_where_a_server_says_nothing() {
    let text = r#"{"mcpServers": {
        "a": {"command": "/bin/sh", "mode": "stateful", "idle_timeout": 7,
              "max_processes_per_ip": 8, "max_processes_per_client": 9},
        "b": {"command": "/bin/sh", "mode": "stateful"}}}"#;
    let variables = [
        ("MCPO_STATEFUL_DEFAULT_IDLE_TIMEOUT", "1"),
        ("MCPO_STATEFUL_MAX_PROCESSES_PER_IP", "2"),
        ("MCPO_STATEFUL_MAX_PROCESSES_PER_CLIENT", "3"),
    ];
    let (config, _) = load(Some(text), &Options::default(), &variables).unwrap();
    let mode = |seconds, per_address, per_client| Mode::Stateful {
        idle: Duration::from_secs(seconds),
        per_address,
        per_client,
    };
    assert_eq!(config.server("a").unwrap().mode, mode(7, 8, 9));
    assert_eq!(config.server("b").unwrap().mode, mode(1, 2, 3));
}

#[test]
fn without_stateful_every_server_is_stateless_and_that_is_told() {
    let text = r#"{"mcpServers": {"a": {"command": "/bin/sh", "mode": "stateful"},
                                  "b": {"command": "/bin/sh"}}}"#;
    let variables = [("MCPO_STATEFUL_ENABLED", "false")];
    let (config, remarks) = load(Some(text), &Options::default(), &variables).unwrap();
    assert!(config.servers.iter().all(|server| server.mode == Mode::Stateless));
    assert_eq!(
        remarks.to_string(),
        "environment: 1 warning\n  warning: MCPO_STATEFUL_ENABLED: `a` would be stateful, \
         but forgets between calls what it knows"
    );
    let (_, remarks) = load(Some(ONE_SERVER), &Options::default(), &variables).unwrap();
    assert!(remarks.is_empty(), "{remarks}");
}

#[test]
fn the_key_of_the_command_line_wins_over_that_of_the_environment() {
    let names_and_keys = |config: &Config| {
        let shown = |key: &ApiKey| {
            (key.name.to_string(), String::from_utf8(key.key.expose().to_vec()).unwrap())
        };
        config.settings.api_keys.iter().map(shown).collect::<Vec<_>>()
    };
    let pair = |name: &str, key: &str| (name.to_owned(), key.to_owned());
    let variables = [("MCPO_API_KEY", "of-the-environment"), ("MCPO_API_KEYS", "a=of-alice")];
    let both = |key| vec![pair("default", key), pair("a", "of-alice")];
    check(&Options::default(), &variables, names_and_keys, &both("of-the-environment"));
    let options = Options { api_key: Some("of-the-line".to_owned()), ..Options::default() };
    check(&options, &variables, names_and_keys, &both("of-the-line"));
    let options = Options { api_key: Some("hunter 2".to_owned()), ..Options::default() };
    let told = "command line: 1 mistake, 1 warning\n  --api-key: expected a key of ASCII \
                letters, digits and signs, without spaces\n";
    check_refused(&options, &[], told);
}

#[test]
fn switches_of_the_command_line_count_as_those_of_the_environment() {
    let switches = |config: &Config| (config.settings.strict_auth, config.settings.hot_reload);
    let options = Options { strict_auth: true, hot_reload: true, ..Options::default() };
    let key = ("MCPO_API_KEY", "12345678");
    check(&options, &[key], switches, &(true, true));
    check(&Options::default(), &[key], switches, &(false, false));
    let variables = [key, ("MCPO_STRICT_AUTH", "on"), ("MCPO_HOT_RELOAD", "on")];
    check(&Options::default(), &variables, switches, &(true, true));
}

#[test]
fn folders_are_absolute() {
    let variables = [("MCPO_JOBS_DIR", "jobs"), ("MCPO_LOG_DIR", "log")];
    let here = std::env::current_dir().unwrap();
    let folders =
        |config: &Config| (config.settings.jobs_dir.clone(), config.settings.log_dir.clone());
    let expected = (here.join("jobs"), Some(here.join("log")));
    check(&Options::default(), &variables, folders, &expected);
}

#[test]
fn a_file_that_anyone_may_write_warns() {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, ONE_SERVER).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let options = Options { config: Some(file.path().into()), ..Options::default() };
    let (_, remarks) = load(None, &options, &[]).unwrap();
    assert!(remarks.to_string().contains("anyone on this machine"), "{remarks}");
}

fn load_settings(
    variables: &[(&str, &str)],
    file: &str,
) -> Result<(BridgeSettings, Remarks), Remarks> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcp-servers.json");
    fs::write(&path, file).unwrap();
    let variables = variables.iter().copied().chain([("HOME", "/home/me")]);
    let options = Options { is_silent: true, ..Options::default() };
    BridgeSettings::load_with_defaults(&options, &Environment::new(variables), &[path])
}

const JOBS: (&str, &str) = ("MCPO_JOBS_DIR", "/j");

#[test]
fn mistakes_elsewhere_do_not_keep_a_collection_from_its_work() {
    for (variable, file, told) in [
        (("MCPO_LISTEN", "0.0.0.0:80"), ONE_SERVER, ""),
        (("MCPO_TIMEOUT", "soon"), ONE_SERVER, "MCPO_TIMEOUT"),
        (("MCPO_STRICT_AUTH", "true"), ONE_SERVER, "MCPO_STRICT_AUTH"),
        (("MCPO_CONFIG_FILE", "/no/such/file"), ONE_SERVER, "/no/such/file"),
        (("MCPO_LOG_LEVEL", "info"), "{", "mcp-servers.json"),
        (("MCPO_LOG_LEVEL", "info"), r#"{"mcpServers": {"a": {}}}"#, "no `command`"),
    ] {
        let (settings, remarks) =
            load_settings(&[JOBS, ("MCPO_FILE_EXPIRY", "60"), variable], file)
                .unwrap_or_else(|remarks| panic!("{variable:?} {file}: {remarks}"));
        assert_eq!(settings.jobs_dir, Path::new("/j"));
        assert_eq!(settings.file_expiry, Duration::from_secs(60));
        let text = remarks.to_string();
        assert!(text.contains(told) && text.is_empty() == told.is_empty(), "{text}");
        assert!(remarks.iter().all(|remark| remark.weight == Weight::Warning), "{text}");
    }
}

#[test]
fn mistakes_that_may_cost_files_keep_a_collection_from_its_work() {
    for variable in [
        ("MCPO_JOBS_DIR", "/"),
        ("MCPO_FILE_EXPIRY", "soon"),
        ("MCPO_LOG_DIR", "/j/log"),
        ("MCPO_STATE_DIR", "/j/state"),
    ] {
        let remarks = load_settings(&[JOBS, variable], ONE_SERVER).unwrap_err();
        assert!(remarks.to_string().contains(variable.0), "{remarks}");
    }
}
