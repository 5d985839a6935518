//! `pontoon init` and `pontoon check --start`: a configuration that is written, is right, and starts.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::{Said, run, run_with};
use crate::binaries;

const FILE: &str = "mcp-servers.json";

/// A folder with programs of these names that do nothing, for PATH.
fn programs(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let program = folder.path().join(name);
        fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// Runs with programs of these names in PATH, and this home.
fn run_among(place: &Path, programs: &Path, words: &[&str]) -> Said {
    run_with(place, words, |command| {
        command.env("PATH", programs).env("HOME", place);
    })
}

#[test]
fn every_known_server_is_written_and_passes_the_check() {
    let tools = programs(&["uvx", "npx"]);
    let place = tempfile::tempdir().unwrap();
    let listed = run_among(place.path(), tools.path(), &["init", "--list"]);
    let names: Vec<_> = listed.out.lines().map(|line| line.split(' ').next().unwrap()).collect();
    assert!(names.len() >= 8 && names.contains(&"time"), "{listed:?}");
    let written = run_among(place.path(), tools.path(), &[&["init"], &names[..]].concat());
    assert_eq!(written.code, Some(0), "{written:?}");
    for line in ["wrote mcp-servers.json: ", "  pontoon check --start ", "  pontoon serve "] {
        assert!(written.out.contains(line), "{line:?} is not in {written:?}");
    }
    let checked = run_among(place.path(), tools.path(), &["check"]);
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), ""), "{checked:?}");
    for name in names {
        assert!(checked.out.contains(&format!("  {name}: ")), "{name}: {checked:?}");
    }
}

#[test]
fn the_versions_of_known_servers_are_those_that_tests_run() {
    let tools = programs(&["uvx", "npx"]);
    let place = tempfile::tempdir().unwrap();
    let names = ["everything", "excel", "fetch", "filesystem", "memory", "powerpoint", "time"];
    let written = run_among(place.path(), tools.path(), &[&["init"], &names[..]].concat());
    assert_eq!(written.code, Some(0), "{written:?}");
    let text = fs::read_to_string(place.path().join(FILE)).unwrap();
    let installs = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/installs");
    let installs = fs::read_dir(installs).unwrap().flat_map(|install| {
        let install = install.unwrap().path();
        ["requirements.txt", "package.json"].map(|file| install.join(file))
    });
    let pinned: Vec<_> = installs.filter_map(|file| fs::read_to_string(file).ok()).collect();
    let mut count = 0;
    for word in text.split('"') {
        let wanted = match (word.split_once("=="), word.rsplit_once('@')) {
            (Some(_), _) => format!("{word}\n"),
            (None, Some((package, version))) if package.starts_with('@') => {
                format!("\"{package}\": \"{version}\"")
            }
            _ => continue,
        };
        count += 1;
        assert!(pinned.iter().any(|file| file.contains(&wanted)), "{wanted:?} is not pinned");
    }
    assert_eq!(count, names.len(), "{text}");
}

#[test]
fn what_is_not_installed_is_told() {
    let tools = programs(&["npx"]);
    let place = tempfile::tempdir().unwrap();
    let written = run_among(place.path(), tools.path(), &["init", "time", "memory"]);
    assert!(written.out.contains("install uvx first: it is a part of uv"), "{written:?}");
    assert!(!written.out.contains("install npx"), "{written:?}");
}

#[test]
fn nothing_is_overwritten_without_a_word() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join(FILE);
    fs::write(&file, "mine").unwrap();
    let refused = run(place.path(), &["init", "demo"]);
    assert!(refused.code == Some(1) && refused.err.contains("--force"), "{refused:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let other = run(place.path(), &["init", "demo", "--output", "other.json"]);
    assert!(
        other.code == Some(0) && other.out.contains("pontoon serve --config other.json"),
        "{other:?}"
    );
    let forced = run(place.path(), &["init", "demo", "--force"]);
    assert!(
        forced.code == Some(0) && fs::read_to_string(&file).unwrap().contains("demo"),
        "{forced:?}"
    );
}

#[test]
fn without_a_name_there_is_a_sample_that_starts() {
    let place = tempfile::tempdir().unwrap();
    let written = run_with(place.path(), &["init"], |command| {
        command.env("HOME", place.path());
    });
    assert_eq!(written.code, Some(0), "{written:?}");
    let started = run(place.path(), &["check", "--start", "--json"]);
    assert_eq!(started.code, Some(0), "{started:?}");
    let told: Value = serde_json::from_str(&started.out).unwrap();
    let demo = &told["servers"][0];
    assert_eq!(
        (&demo["name"], &demo["outcome"], &demo["tools"]),
        (&json!("demo"), &json!("ready"), &json!(6))
    );
    let greeted = run(place.path(), &["call", "demo", "greet", "name=Ada"]);
    assert_eq!(greeted.out, "Hello, Ada!\n", "{greeted:?}");
}

#[test]
fn a_command_is_written_as_it_was_typed_and_starts() {
    let place = tempfile::tempdir().unwrap();
    let fixture = binaries().fixture_server.display().to_string();
    let written = run(place.path(), &["init", "--", &fixture, "--start-delay-ms", "1"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let started = run(place.path(), &["check", "--start"]);
    assert!(
        started.code == Some(0) && started.out.contains("  fixture-server: ready in "),
        "{started:?}"
    );
}

#[test]
fn what_other_clients_have_is_taken_over_without_their_secrets() {
    let tools = programs(&["npx", "docker"]);
    let place = tempfile::tempdir().unwrap();
    let write = |path: &str, value: &Value| {
        let file = place.path().join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, value.to_string()).unwrap();
    };
    let github = json!({"command": "docker", "args": ["run", "github"], "env": {"GITHUB_TOKEN": "sesame-1"}});
    write(".mcp.json", &json!({"mcpServers": {"github": github}}));
    write(
        ".claude.json",
        &json!({"mcpServers": {"github": {"command": "other"}, "far": {"type": "http", "url": "https://h/mcp"}}}),
    );
    let desktop = json!({"command": "npx", "args": ["-y", "x", "--api-key", "sesame-2"]});
    write(
        ".config/Claude/claude_desktop_config.json",
        &json!({"mcpServers": {"my server": desktop}}),
    );
    fs::create_dir(place.path().join(".vscode")).unwrap();
    let code = "{\n // a comment\n \"servers\": {\"files\": {\"command\": \"npx\", \"args\": [\"${workspaceFolder}\"]},},\n}";
    fs::write(place.path().join(".vscode/mcp.json"), code).unwrap();
    let written = run_among(place.path(), tools.path(), &["init"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let text = fs::read_to_string(place.path().join(FILE)).unwrap();
    assert!(!format!("{text}{written:?}").contains("sesame"), "{text}");
    for says in [
        "${env:GITHUB_TOKEN}",
        "\"my-server\"",
        "\"files-server\"",
        &place.path().display().to_string(),
    ] {
        assert!(text.contains(says), "{says} is not in {text}");
    }
    for says in ["GITHUB_TOKEN", "MY_SERVER_SECRET_1"] {
        assert!(written.out.contains(says), "{says}: {written:?}");
    }
    for says in ["\"far\"", "over HTTP", "one of that name already"] {
        assert!(written.err.contains(says), "{says}: {written:?}");
    }
    let checked = run_with(place.path(), &["check"], |command| {
        command
            .env("PATH", tools.path())
            .env("GITHUB_TOKEN", "secret-1")
            .env("MY_SERVER_SECRET_1", "secret-2");
    });
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let one = run_among(place.path(), tools.path(), &["init", "github", "--force"]);
    assert!(one.code == Some(0) && one.out.contains("wrote mcp-servers.json: github\n"), "{one:?}");
}

#[test]
fn secrets_inside_of_words_stay_out_of_the_file_and_of_the_terminal() {
    let tools = programs(&["npx"]);
    let place = tempfile::tempdir().unwrap();
    let args = [
        "mcp-remote",
        "https://x/mcp?api_key=sesame",
        "--header",
        "Authorization: Bearer sesame",
        "--env=A_TOKEN=sesame",
    ];
    let env = json!({"PAT": "${NOPE:-sesame}", "LEVEL": "debug"});
    let servers = json!({
        "a": {"command": "npx", "args": args, "env": env},
        "b": {"command": "env API_KEY=sesame foo"},
        "c": {"command": "x\u{1b}]0;owned\u{7}"},
        "d": {"command": "npx", "args": ["${env:\u{1b}[31mEVIL}"]},
    });
    let file = place.path().join(".mcp.json");
    fs::write(file, json!({"mcpServers": servers}).to_string()).unwrap();
    let written = run_among(place.path(), tools.path(), &["init"]);
    assert_eq!(written.code, Some(0), "{written:?}");
    let text = fs::read_to_string(place.path().join(FILE)).unwrap();
    assert!(!format!("{text}{written:?}").contains("sesame"), "{text}{written:?}");
    for kept in ["Authorization: Bearer ${env:A_SECRET_2}", "--env=A_TOKEN=${env:", "debug"] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
    for says in [
        "  A_SECRET_2               what follows \"Authorization: Bearer \" in argument 4 there, in ",
        "look through mcp-servers.json before you share it: what looks like a secret was left out",
        "install the program of c first",
    ] {
        assert!(written.out.contains(says), "{says}: {written:?}");
    }
    for says in ["\"b\" of ", "seems to hold a secret", "no name of a variable"] {
        assert!(written.err.contains(says), "{says}: {written:?}");
    }
    let both = format!("{}{}", written.out, written.err);
    assert!(!both.contains(|c: char| c.is_control() && c != '\n'), "{written:?}");
}

#[test]
fn the_file_is_its_owners_alone_and_no_link_is_followed() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join(FILE);
    let mode = || fs::symlink_metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(run(place.path(), &["init", "demo"]).code, Some(0));
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(run(place.path(), &["init", "demo", "--force"]).code, Some(0));
    assert_eq!(mode(), 0o600);
    // What a link leads to stays as it is.
    let precious = place.path().join("precious");
    fs::write(&precious, "mine").unwrap();
    fs::remove_file(&file).unwrap();
    symlink(&precious, &file).unwrap();
    assert_eq!(run(place.path(), &["init", "demo", "--force"]).code, Some(0));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    assert!(fs::symlink_metadata(&file).unwrap().is_file() && mode() == 0o600);
    let refused = run(place.path(), &["init", "demo", "--force", "--output", "/dev/null"]);
    assert!(refused.code == Some(1) && refused.err.contains("not a file"), "{refused:?}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 2, "nothing unfinished is left");
}

#[test]
fn a_check_that_starts_tells_of_each_server_how_it_went() {
    let place = tempfile::tempdir().unwrap();
    let silent = json!({"command": "/bin/sh", "args": ["-c", "exec sleep 60"]});
    let dead = json!({"command": "/bin/sh", "args": ["-c", "echo I am broken >&2; exit 3"]});
    let good = json!({"command": binaries().fixture_server});
    let away = json!({"url": "ws://127.0.0.1:1"});
    let personal = json!({"command": binaries().fixture_server, "env": {"USER_ID": "${user:id}"}});
    let servers =
        json!({"good": good, "dead": dead, "silent": silent, "away": away, "personal": personal});
    fs::write(place.path().join(FILE), json!({"mcpServers": servers}).to_string()).unwrap();
    let started = run(place.path(), &["check", "--start", "--timeout", "2s"]);
    assert_eq!(started.code, Some(1), "{started:?}");
    for line in [
        "  good: ready in ",
        "  dead: does not start: ",
        "I am broken",
        "  silent: does not start: it was not ready within 2 s",
        "  away: not there now",
        "  personal: not started",
    ] {
        assert!(started.out.contains(line), "{line:?} is not in {started:?}");
    }
    assert!(started.err.contains("error: 2 of 5 did not start"), "{started:?}");
}

#[test]
fn a_check_starts_a_server_although_it_was_learnt_before() {
    let place = tempfile::tempdir().unwrap();
    let fixture = binaries().fixture_server.display().to_string();
    let traces = place.path().join("starts");
    let script = format!("echo >> {}; exec {fixture}", traces.display());
    let servers = json!({"mcpServers": {"traced": {"command": "/bin/sh", "args": ["-c", script]}}});
    fs::write(place.path().join(FILE), servers.to_string()).unwrap();
    let mut starts = Vec::new();
    for _ in 0..2 {
        let started = run_with(place.path(), &["check", "--start"], |command| {
            command.env("MCPO_STATE_DIR", place.path().join("state"));
        });
        assert_eq!(started.code, Some(0), "{started:?}");
        starts.push(fs::read_to_string(&traces).unwrap().lines().count());
    }
    assert!(starts[0] > 0 && starts[1] == 2 * starts[0], "{starts:?}");
}
