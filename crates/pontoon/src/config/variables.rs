//! What the variables of our environment set, and the options of the command line that mean the same.
//!
//! What each variable means is in `settings.rs`. Options are taken over by the same function, so that they
//! accept the same.

use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::nearest::unknown;
use super::options::Options;
use super::remarks::{RemarkPlace, Remarks, Weight};
use super::secret::is_own_secret;
use super::settings::{BridgeSettings, REFUSED_VARIABLES, VARIABLES};
use super::traces;
use super::values::{absolute, quoted};
use crate::plain_file::{self, FileKind};

/// Variables that a bridge sets for its servers; one of them may well be another Pontoon.
const VARIABLES_OF_CHILDREN: &[&str] = &["MCPO_JOB_ID", "MCPO_WORKDIR"];

/// A secret longer than this is another file than was meant.
const LONGEST_SECRET: u64 = 64 << 10;

/// What environment and command line set, the command line winning; what is wrong goes to `remarks`.
pub(super) fn settings(
    options: &Options,
    environment: &Environment,
    remarks: &mut Remarks,
) -> BridgeSettings {
    let mut settings = read(environment, remarks);
    if settings.state_dir.is_none() {
        let message = "neither it nor HOME is set, so what is learnt about the servers is not kept";
        remarks.add(Weight::Warning, RemarkPlace::Environment, "MCPO_STATE_DIR", message);
    }
    let of_mcpo = options.mcpo.as_ref();
    let (prefix, root) =
        of_mcpo.map_or((&None, &None), |mcpo| (&mcpo.path_prefix, &mcpo.root_path));
    let origins = &options.cors_allow_origins;
    let origins = (!origins.is_empty()).then(|| origins.join(","));
    let port = options.port.map(|port| format!("127.0.0.1:{port}"));
    for (option, text, variable) in [
        ("--listen", &options.listen, "MCPO_LISTEN"),
        ("--port", &port, "MCPO_LISTEN"),
        ("--cors-allow-origins", &origins, "MCPO_ALLOWED_ORIGINS"),
        ("--log-level", &options.log_level, "MCPO_LOG_LEVEL"),
        ("--api-key", &options.api_key, "MCPO_API_KEY"),
        ("--path-prefix", prefix, "MCPO_PATH_PREFIX"),
        ("--root-path", root, "MCPO_ROOT_PATH"),
    ] {
        let Some(text) = text else { continue };
        if let Err(mistake) = take(&mut settings, variable, text) {
            remarks.add(Weight::Mistake, RemarkPlace::CommandLine, option, mistake);
        }
    }
    settings.traces = traces::read(environment, remarks);
    settings.take_tls(options);
    settings
}

/// What `environment` sets; what is wrong with it goes to `remarks`.
pub(super) fn read(environment: &Environment, remarks: &mut Remarks) -> BridgeSettings {
    let mut settings =
        BridgeSettings { state_dir: cache_dir(environment), ..BridgeSettings::unset() };
    for (name, value) in environment.with_prefix("MCPO_") {
        let mut tell =
            |weight, message| remarks.add(weight, RemarkPlace::Environment, name, message);
        let secret = name.strip_suffix("_FILE").filter(|name| is_own_secret(name));
        let is_known = VARIABLES.iter().any(|variable| variable.name == name);
        let outcome = match (value, secret) {
            (Some(file), Some(secret)) => take_file(&mut settings, environment, secret, file),
            (Some(value), None) if is_known => take(&mut settings, name, value),
            (None, _) if is_known || secret.is_some() => Err("is not UTF-8 text".to_owned()),
            _ if REFUSED_VARIABLES.contains(&name) => {
                Err("not supported by this version".to_owned())
            }
            _ if VARIABLES_OF_CHILDREN.contains(&name) => Ok(()),
            _ => {
                let known = VARIABLES.iter().map(|variable| variable.name);
                tell(Weight::Warning, unknown("variable", name, known));
                Ok(())
            }
        };
        if let Err(mistake) = outcome {
            tell(Weight::Mistake, mistake);
        }
    }
    let twins = ["MCPO_STATEFUL_MAX_PROCESSES_PER_CHAT", "MCPO_STATEFUL_MAX_PROCESSES_PER_IP"];
    let [chat, address] = twins.map(|name| environment.text(name).filter(|it| !it.is_empty()));
    if chat.is_some() && address.is_some() && chat != address {
        let message = format!("is the same as {}, which says otherwise", twins[1]);
        remarks.add(Weight::Mistake, RemarkPlace::Environment, twins[0], message);
    }
    settings
}

/// Takes one value over, or says what is wrong with it. A secret is not told.
pub(super) fn take(settings: &mut BridgeSettings, name: &str, value: &str) -> Result<(), String> {
    let variable = VARIABLES.iter().find(|variable| variable.name == name);
    let variable = variable.expect("only variables of the table are asked for");
    (variable.read)(settings, value).map_err(|expected| match is_own_secret(name) {
        true => format!("expected {expected}"),
        false => format!("expected {expected}, found {}", quoted(value)),
    })
}

/// Takes a secret over from the file that holds it, as containers have it.
fn take_file(
    settings: &mut BridgeSettings,
    environment: &Environment,
    name: &str,
    file: &str,
) -> Result<(), String> {
    if environment.get(name).is_some_and(|value| !value.is_empty()) {
        return Err(format!("{name} is set too, leave one out"));
    }
    let text = plain_file::read_text(Path::new(file), FileKind::Named, LONGEST_SECRET);
    let text = text.map_err(|error| format!("cannot read `{file}`: {error}"))?;
    // An editor ends the last line; the end of a line is no part of a secret.
    take(settings, name, text.trim_end_matches(['\r', '\n']))
        .map_err(|expected| format!("`{file}`: {expected}"))?;
    settings.secret_files.push(absolute(Path::new(file)));
    Ok(())
}

/// Where caches belong; only absolute paths count, as the XDG specification has it.
fn cache_dir(environment: &Environment) -> Option<PathBuf> {
    let folder =
        |name: &str| environment.get(name).map(Path::new).filter(|path| path.is_absolute());
    folder("XDG_CACHE_HOME")
        .map(|cache| cache.join("pontoon"))
        .or_else(|| folder("HOME").map(|home| home.join(".cache/pontoon")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use tracing::Level;

    use super::super::allowed_origins::AllowedOrigins;
    use super::super::secret::{ApiKey, KeyName, SECRETS, Secret};
    use super::super::values::LogLevel;
    use super::*;

    fn check(variables: &[(&str, &str)], expected: &BridgeSettings, told: &[&str]) {
        let mut remarks = Remarks::default();
        let settings = read(&Environment::new(variables.iter().copied()), &mut remarks);
        assert_eq!(settings, *expected);
        let lines: Vec<String> = remarks.iter().map(ToString::to_string).collect();
        assert_eq!(lines, told);
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn unnamed(key: &str) -> ApiKey {
        ApiKey { name: KeyName::Unnamed, key: Secret::new(key) }
    }

    #[test]
    fn every_default_can_be_written() {
        assert_ne!(BridgeSettings::unset(), BridgeSettings::default());
    }

    /// Whether a setting is what its variable says.
    type IsSet = fn(&BridgeSettings) -> bool;

    /// One value for each variable, none of them its default, and what it sets.
    const EACH: &[(&str, &str, IsSet)] = &[
        ("MCPO_CONFIG_FILE", "a/b.json", |it| it.config_file == Some("a/b.json".into())),
        ("MCPO_HOT_RELOAD", "true", |it| it.hot_reload),
        ("MCPO_LISTEN", "localhost:1, [::1]:2", |it| {
            it.listen == ["127.0.0.1:1", "[::1]:2"].map(|it| it.parse().unwrap())
        }),
        ("MCPO_TLS_CERT", "a.pem", |it| it.tls_cert == Some("a.pem".into())),
        ("MCPO_TLS_KEY", "k.pem", |it| it.tls_key == Some("k.pem".into())),
        ("MCPO_ALLOWED_HOSTS", "Tools.example.org, b:80", |it| {
            it.allowed_hosts == ["tools.example.org", "b:80"]
        }),
        ("MCPO_ALLOWED_ORIGINS", "https://chat.example.org", |it| {
            it.allowed_origins == AllowedOrigins::These(vec!["https://chat.example.org".to_owned()])
        }),
        ("MCPO_API_KEY", "k1", |it| it.api_keys == [unnamed("k1")]),
        ("MCPO_API_KEYS", "alice=k2", |it| {
            it.api_keys == [ApiKey { name: KeyName::Named("alice".into()), key: Secret::new("k2") }]
        }),
        ("MCPO_STRICT_AUTH", "1", |it| it.strict_auth),
        ("MCPO_TRUSTED_PROXIES", "10.0.0.0/8, ::1", |it| {
            it.trusted_proxies == ["10.0.0.0/8", "::1"].map(|it| it.parse().unwrap())
        }),
        ("MCPO_OWUI_JWT_SECRET", "signed", |it| it.owui_jwt_secret == Some(Secret::new("signed"))),
        ("MCPO_OWUI_JWT_MAX_AGE", "2h", |it| it.owui_jwt_max_age == seconds(7200)),
        ("MCPO_JWT_HEADER", "X-Jwt", |it| it.identity.jwt == "x-jwt"),
        ("MCPO_USER_HEADER", "X-User", |it| it.identity.user == "x-user"),
        ("MCPO_EMAIL_HEADER", "X-Email", |it| it.identity.email == "x-email"),
        ("MCPO_NAME_HEADER", "X-Name", |it| it.identity.name == "x-name"),
        ("MCPO_ROLE_HEADER", "X-Role", |it| it.identity.role == "x-role"),
        ("MCPO_CHAT_HEADER", "X-Chat", |it| it.identity.chat == "x-chat"),
        ("MCPO_PATH_PREFIX", "tools", |it| it.rest.path_prefix == "/tools/"),
        ("MCPO_ROOT_PATH", "/bridge/", |it| it.rest.root_path == "/bridge"),
        ("MCPO_BARE_OPERATION_IDS", "yes", |it| it.rest.has_bare_ids),
        ("MCPO_MAX_CONCURRENT", "7777", |it| it.max_concurrent == 7777),
        ("MCPO_QUEUE_WAIT", "5s", |it| it.queue_wait == seconds(5)),
        ("MCPO_TIMEOUT", "2m", |it| it.timeout == seconds(120)),
        ("MCPO_MAX_BODY", "1MiB", |it| it.max_body == 1 << 20),
        ("MCPO_MAX_MESSAGE", "2000", |it| it.max_message == 2000),
        ("MCPO_MEMORY_BUDGET", "32MiB", |it| it.memory_budget == Some(32 << 20)),
        ("MCPO_STATEFUL_ENABLED", "false", |it| !it.stateful_enabled),
        ("MCPO_STATEFUL_DEFAULT_IDLE_TIMEOUT", "60", |it| it.idle == seconds(60)),
        ("MCPO_STATEFUL_MAX_PROCESSES_PER_CHAT", "3", |it| it.per_address == 3),
        ("MCPO_STATEFUL_MAX_PROCESSES_PER_IP", "3", |it| it.per_address == 3),
        ("MCPO_STATEFUL_MAX_PROCESSES_PER_CLIENT", "4", |it| it.per_client == 4),
        ("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", "5", |it| it.max_total_processes == 5),
        ("MCPO_STATEFUL_CLEANUP_INTERVAL", "6", |it| it.cleanup_interval == seconds(6)),
        ("MCPO_WARM_MEMORY", "2GiB", |it| it.warm_memory == 2 << 30),
        ("MCPO_JOBS_DIR", "/jobs", |it| it.jobs_dir == Path::new("/jobs")),
        ("MCPO_BASE_URL", "https://tools.example.org/", |it| {
            it.base_url == "https://tools.example.org"
        }),
        ("MCPO_LINK_SECRET", "0123456789abcdef", |it| {
            it.link_secret == Some(Secret::new("0123456789abcdef"))
        }),
        ("MCPO_SESSION_SECRET", "fedcba9876543210", |it| {
            it.session_secret == Some(Secret::new("fedcba9876543210"))
        }),
        ("MCPO_FILE_EXPIRY", "7d", |it| it.file_expiry == seconds(7 * 86_400)),
        ("MCPO_GC_INTERVAL", "10m", |it| it.gc_interval == seconds(600)),
        ("MCPO_STORE_PAYLOADS", "no", |it| !it.store_payloads),
        ("MCPO_MIN_FREE_DISK", "0", |it| it.min_free_disk == 0),
        ("MCPO_STATE_DIR", "state", |it| it.state_dir == std::path::absolute("state").ok()),
        ("MCPO_LOG_LEVEL", "Warning", |it| it.log_level == LogLevel(Level::WARN)),
        ("MCPO_LOG_DIR", "/log", |it| it.log_dir == Some("/log".into())),
    ];

    #[test]
    fn every_variable_sets_its_value() {
        for variable in VARIABLES {
            let tried = EACH.iter().any(|(name, ..)| *name == variable.name);
            assert!(tried, "{} is not tried", variable.name);
        }
        for (name, value, is_set) in EACH {
            let mut remarks = Remarks::default();
            let settings = read(&Environment::new([(*name, *value)]), &mut remarks);
            assert!(is_set(&settings) && remarks.is_empty(), "{name}: {settings:?} {remarks}");
            assert!(!is_set(&BridgeSettings::unset()), "{name}: {value} is its default");
        }
        let all = EACH.iter().map(|(name, value, _)| (*name, *value));
        let all = read(&Environment::new(all), &mut Remarks::default());
        let names: Vec<_> = all.api_keys.iter().map(|key| key.name.as_str()).collect();
        assert_eq!(names, ["default", "alice"], "the one without a name comes first");
    }

    #[test]
    fn every_wrong_value_is_told() {
        check(
            &[
                ("MCPO_LISTEN", "8080"),
                ("MCPO_MAX_CONCURRENT", "0"),
                ("MCPO_TIMEOUT", "soon"),
                ("MCPO_LOG_LEVEL", "loud"),
                ("MCPO_MAX_BODY", "10M"),
                ("MCPO_ALLOWED_HOSTS", "*"),
                ("MCPO_ALLOWED_ORIGINS", "chat.example.org"),
                ("MCPO_BASE_URL", "nginx"),
                ("MCPO_STRICT_AUTH", "maybe"),
                ("MCPO_TRUSTED_PROXIES", "*"),
                ("MCPO_USER_HEADER", "a b"),
            ],
            &BridgeSettings::unset(),
            &[
                "environment: MCPO_ALLOWED_HOSTS: expected host names such as tools.example.org, found \"*\"",
                "environment: MCPO_ALLOWED_ORIGINS: expected origins such as https://chat.example.org, or *, found \"chat.example.org\"",
                "environment: MCPO_BASE_URL: expected a URL such as https://tools.example.org, without a query, found \"nginx\"",
                "environment: MCPO_LISTEN: expected an address and a port such as 127.0.0.1:8080, found \"8080\"",
                "environment: MCPO_LOG_LEVEL: expected DEBUG, INFO, WARNING or ERROR, found \"loud\"",
                "environment: MCPO_MAX_BODY: expected bytes such as 1048576 or \"10MiB\", found \"10M\"",
                "environment: MCPO_MAX_CONCURRENT: expected a whole number from 1, found \"0\"",
                "environment: MCPO_STRICT_AUTH: expected true or false, found \"maybe\"",
                "environment: MCPO_TIMEOUT: expected seconds such as 300 or \"5m\", found \"soon\"",
                "environment: MCPO_TRUSTED_PROXIES: expected addresses or blocks of them such as 10.0.0.0/8, ::1, found \"*\"",
                "environment: MCPO_USER_HEADER: expected the name of a header, found \"a b\"",
            ],
        );
    }

    #[test]
    fn a_wrong_secret_is_not_told() {
        check(
            &[
                ("MCPO_API_KEY", "hunter 2"),
                ("MCPO_API_KEYS", "hunter2"),
                ("MCPO_LINK_SECRET", "hunter2"),
            ],
            &BridgeSettings::unset(),
            &[
                "environment: MCPO_API_KEY: expected a key of ASCII letters, digits and signs, without spaces",
                "environment: MCPO_API_KEYS: expected names and keys such as alice=KEY1,bob=KEY2",
                "environment: MCPO_LINK_SECRET: expected at least 16 bytes",
            ],
        );
        let is_known = |name: &str| VARIABLES.iter().any(|known| known.name == name);
        assert!(SECRETS.iter().all(|name| is_known(name)));
    }

    #[test]
    fn a_secret_may_lie_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap();
        fs::write(&file, "hunter2\r\n").unwrap();
        let api_keys = vec![unnamed("hunter2")];
        let secret_files = vec![path.into()];
        let expected = BridgeSettings {
            api_keys,
            secret_files: secret_files.clone(),
            ..BridgeSettings::unset()
        };
        check(&[("MCPO_API_KEY_FILE", path)], &expected, &[]);
        let owui_jwt_secret = Some(Secret::new("hunter2"));
        let expected = BridgeSettings { owui_jwt_secret, secret_files, ..BridgeSettings::unset() };
        check(&[("MCPO_OWUI_JWT_SECRET_FILE", path)], &expected, &[]);
        let told =
            format!("environment: MCPO_LINK_SECRET_FILE: `{path}`: expected at least 16 bytes");
        check(&[("MCPO_LINK_SECRET_FILE", path)], &BridgeSettings::unset(), &[&told]);
    }

    #[test]
    fn a_file_for_a_secret_is_read_or_told() {
        check(
            &[("MCPO_API_KEY_FILE", "/gone-7")],
            &BridgeSettings::unset(),
            &[
                "environment: MCPO_API_KEY_FILE: cannot read `/gone-7`: No such file or directory (os error 2)",
            ],
        );
        let twice =
            [("MCPO_LINK_SECRET", "0123456789abcdef"), ("MCPO_LINK_SECRET_FILE", "/gone-7")];
        let link_secret = Some(Secret::new("0123456789abcdef"));
        let told = "environment: MCPO_LINK_SECRET_FILE: MCPO_LINK_SECRET is set too, leave one out";
        check(&twice, &BridgeSettings { link_secret, ..BridgeSettings::unset() }, &[told]);
        let told = "environment: MCPO_API_KEY_FILE: cannot read `/dev/zero`: it is longer than 65536 bytes";
        check(&[("MCPO_API_KEY_FILE", "/dev/zero")], &BridgeSettings::unset(), &[told]);
    }

    #[test]
    fn two_names_for_one_number_agree() {
        let told = "environment: MCPO_STATEFUL_MAX_PROCESSES_PER_CHAT: is the same as \
                    MCPO_STATEFUL_MAX_PROCESSES_PER_IP, which says otherwise";
        let chat = ("MCPO_STATEFUL_MAX_PROCESSES_PER_CHAT", "2");
        let address = ("MCPO_STATEFUL_MAX_PROCESSES_PER_IP", "3");
        let per = |per_address| BridgeSettings { per_address, ..BridgeSettings::unset() };
        check(&[chat], &per(2), &[]);
        check(&[chat, address], &per(3), &[told]);
    }

    #[test]
    fn a_variable_of_another_version_is_refused_and_an_unknown_one_warns() {
        check(
            &[("MCPO_SESSION_STORE", "redis"), ("MCPO_TIMOUT", "5"), ("MCPO_BASE_URL", "")],
            &BridgeSettings::unset(),
            &[
                "environment: MCPO_SESSION_STORE: not supported by this version",
                "environment: MCPO_TIMOUT: unknown variable `MCPO_TIMOUT`, did you mean `MCPO_TIMEOUT`?",
            ],
        );
    }

    #[test]
    fn what_a_bridge_sets_for_its_servers_is_no_mistake() {
        check(&[("MCPO_JOB_ID", "5"), ("MCPO_WORKDIR", "/w")], &BridgeSettings::unset(), &[]);
    }

    #[test]
    fn the_state_is_kept_where_caches_belong() {
        let state = |state: &str| BridgeSettings {
            state_dir: Some(state.into()),
            ..BridgeSettings::unset()
        };
        check(&[("HOME", "/h")], &state("/h/.cache/pontoon"), &[]);
        check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")], &state("/c/pontoon"), &[]);
        check(&[("HOME", "/h"), ("XDG_CACHE_HOME", "c")], &state("/h/.cache/pontoon"), &[]);
        check(&[("HOME", "")], &BridgeSettings::unset(), &[]);
    }
}
