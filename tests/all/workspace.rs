//! Where a process works, and what it is told about who called: its folder, its files, its person.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use pontoon_tests::client::{Client, Connection, ERAS, Legacy, Modern, Speaker};
use pontoon_tests::rig::{Plan, Rig, Server, bridge_command, remove_in_use, wait_until};
use serde_json::{Value, json};

use crate::{binaries, fixture, plan, shell};

const SOON: Duration = Duration::from_secs(10);

type Headers<'a> = &'a [(&'a str, &'a str)];

const USER: &str = "X-OpenWebUI-User-Id";
const CHAT: &str = "X-OpenWebUI-Chat-Id";
const FROM: &str = "X-Forwarded-For";
const KEY: &str = "X-Key";

fn behind_proxy(server: Server) -> Plan {
    plan([server]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8")
}

fn client(rig: &Rig, headers: Headers<'_>) -> Modern {
    Modern::with(&rig.endpoint("fixture"), headers)
}

/// What a tool without arguments tells, as JSON.
fn tell(rig: &Rig, headers: Headers<'_>, tool: &str) -> Value {
    tell_through(&mut client(rig, headers), tool)
}

fn tell_through(client: &mut impl Speaker, tool: &str) -> Value {
    let response = client.call(1, tool, json!({}));
    let text = response.tool_text().unwrap_or_else(|| panic!("{tool}: {}", response.text()));
    serde_json::from_str(&text).unwrap()
}

fn write(rig: &Rig, headers: Headers<'_>, name: &str) {
    let response = client(rig, headers).call(1, "write_file", json!({"name": name, "text": "x"}));
    let text = response.tool_text().unwrap_or_default();
    assert_eq!(text, format!("wrote 1 bytes to {name}"), "{}", response.text());
}

/// The names that a person finds in the folder of the next process.
#[track_caller]
fn check_finds(rig: &Rig, headers: Headers<'_>, names: &[&str]) {
    let found = tell(rig, headers, "folder");
    let found: Vec<_> =
        found["names"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let visible: Vec<_> = found.into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(visible, names, "{headers:?}");
}

const ADA: Headers<'static> = &[(USER, "ada"), (CHAT, "c1")];

#[test]
fn each_request_has_an_empty_folder_of_its_own() {
    let rig = behind_proxy(fixture("stateless")).start();
    let mut seen = HashSet::new();
    for _ in 0..3 {
        write(&rig, ADA, "mine.txt");
        let folder = tell(&rig, ADA, "folder");
        check_finds(&rig, ADA, &[]);
        assert!(seen.insert(folder["cwd"].to_string()), "a folder was used twice");
    }
    rig.stop();
}

#[test]
fn the_files_of_a_chat_are_there_for_its_next_process_and_for_no_other_chat() {
    let server = fixture("stateless").with("workspace", "session");
    let rig = behind_proxy(server).start();
    write(&rig, ADA, "one.txt");
    write(&rig, ADA, "two.txt");
    check_finds(&rig, ADA, &["one.txt", "two.txt"]);
    for other in [
        &[(USER, "ada"), (CHAT, "c2")][..],
        &[(USER, "ben"), (CHAT, "c1")],
        &[(USER, "ada")],
        &[(CHAT, "c1")],
        &[(FROM, "198.51.100.1")],
        &[],
    ] {
        check_finds(&rig, other, &[]);
    }
    // Sessions of one chat share it, whatever era they are of.
    let mut session = Legacy::open_with(&rig.endpoint("fixture"), ADA);
    let response = session.call(1, "write_file", json!({"name": "three.txt", "text": "x"}));
    assert!(response.tool_text().is_some(), "{}", response.text());
    session.end();
    check_finds(&rig, ADA, &["one.txt", "three.txt", "two.txt"]);
    rig.wait_for_children(0);
    rig.stop();
}

#[test]
fn a_kept_process_works_where_its_chat_keeps_its_files() {
    let rig = behind_proxy(fixture("stateful").with("idle_timeout", 1)).start();
    write(&rig, ADA, "one.txt");
    // The process may go; the files of the chat do not.
    rig.wait_for_children(0);
    check_finds(&rig, ADA, &["one.txt"]);
    check_finds(&rig, &[(USER, "ben"), (CHAT, "c1")], &[]);
    rig.stop();
}

#[test]
fn a_folder_that_somebody_removed_fails_no_call() {
    let rig = behind_proxy(fixture("stateful").with("idle_timeout", 2)).start();
    write(&rig, ADA, "one.txt");
    let sessions = rig.directory().join("jobs/.sessions");
    for entry in std::fs::read_dir(sessions).unwrap() {
        remove_in_use(&entry.unwrap().path());
    }
    for id in 1..3 {
        let response = client(&rig, ADA).call(id, "echo", json!({"text": "x"}));
        assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
    }
    // The process has lost it for good; the next one works in a new one.
    rig.wait_for_children(0);
    check_finds(&rig, ADA, &[]);
    write(&rig, ADA, "two.txt");
    rig.stop();
}

#[test]
fn what_a_given_up_call_left_is_told_to_the_next() {
    // Each process leaves a file, whether its call is answered or not.
    let server = shell("echo x > \"of-$$.txt\"; exec FIXTURE", "stateless");
    let rig = behind_proxy(server.with("workspace", "session")).start();
    let mut client = Modern::with(&rig.endpoint("shell"), ADA);
    let told = |client: &mut Modern| {
        let response = client.call(1, "echo", json!({"text": "x"}));
        let text = response.text();
        assert_eq!(response.tool_text().as_deref(), Some("x"), "{text}");
        text.matches("\"type\":\"resource_link\"").count()
    };
    assert_eq!(told(&mut client), 1);
    let folder = std::fs::read_dir(rig.directory().join("jobs/.sessions")).unwrap().next();
    let folder = folder.unwrap().unwrap().path().join("files");
    for left in 2..4 {
        let hung = client.message(
            &json!(2),
            "tools/call",
            json!({"name": "wait", "arguments": {"ms": 60_000}}),
        );
        let mut connection = Connection::open(rig.address()).unwrap();
        connection.send(&client.request(&hung).bytes()).unwrap();
        let count = || std::fs::read_dir(&folder).unwrap().count();
        wait_until("it has left its file", SOON, || count() == left);
        drop(connection);
        rig.wait_for_children(0);
    }
    assert_eq!(told(&mut client), 3, "its own, and those of the calls that were given up");
    assert_eq!(told(&mut client), 1);
    rig.stop();
}

#[test]
fn a_process_that_removed_its_own_folder_is_heard_all_the_same() {
    for mode in ["stateless", "stateful"] {
        let rig = behind_proxy(shell("rm -r \"$PWD\"; exec FIXTURE", mode)).start();
        for era in ERAS {
            let mut client = Client::new(era, &rig.endpoint("shell"));
            let response = client.call(1, "echo", json!({"text": "x"}));
            assert_eq!(response.tool_text().as_deref(), Some("x"), "{mode}: {}", response.text());
            client.end();
        }
        rig.stop();
    }
}

#[test]
fn the_last_words_of_a_kept_process_lie_beside_its_files() {
    let rig = behind_proxy(fixture("stateful").with("idle_timeout", 1)).start();
    let logs = || -> Vec<std::path::PathBuf> {
        let sessions = std::fs::read_dir(rig.directory().join("jobs/.sessions")).unwrap();
        let logs = sessions.map(|it| it.unwrap().path().join("server.log"));
        logs.filter(|log| log.exists()).collect()
    };
    // One that goes without a word leaves none.
    write(&rig, ADA, "one.txt");
    rig.wait_for_children(0);
    assert_eq!(logs().len(), 0);
    for times in 1..3 {
        let ended = client(&rig, ADA).call(1, "crash", json!({}));
        assert_eq!(ended.status(), 502, "{}", ended.text());
        let text = || logs().pop().and_then(|log| std::fs::read_to_string(log).ok());
        wait_until("its words are written", SOON, || {
            let said = text().unwrap_or_default();
            said.matches("because it was asked to").count() == times
                && said.matches("the process exited with code 3]").count() == times
        });
    }
    let [log] = &logs()[..] else { panic!("there is one session") };
    assert_eq!(std::fs::metadata(log).unwrap().permissions().mode() & 0o777, 0o600);
    let name = log.parent().unwrap().file_name().unwrap().to_str().unwrap();
    for path in [format!("{name}/server.log"), format!(".sessions/{name}/server.log")] {
        assert_eq!(rig.get(&format!("/files/{path}")).status(), 404, "{path}");
    }
    // A process does not find it among its files.
    check_finds(&rig, ADA, &["one.txt"]);
    rig.stop();
}

#[test]
fn a_folder_that_was_chosen_is_where_the_process_starts() {
    let chosen = tempfile::tempdir().unwrap();
    let path = chosen.path().canonicalize().unwrap();
    let server = fixture("stateless").with("cwd", path.to_str().unwrap());
    let rig = behind_proxy(server).start();
    let folder = tell(&rig, ADA, "folder");
    assert_eq!(Path::new(folder["cwd"].as_str().unwrap()), path);
    assert_eq!(folder["tmp"], "writable");
    // Its workspace is still its own, and it is told where that is.
    let environment = tell(&rig, ADA, "environment");
    let workdir = Path::new(environment["MCPO_WORKDIR"].as_str().unwrap()).to_owned();
    assert!(workdir.starts_with(rig.directory().join("jobs")), "{}", workdir.display());
    rig.stop();
}

#[test]
fn a_process_is_told_where_it_works_and_has_its_own_room_for_temporary_files() {
    for (mode, workspace) in
        [("stateless", "job"), ("stateless", "session"), ("stateful", "session")]
    {
        let mut server = fixture(mode).with("workspace", workspace);
        server.args = vec!["--label=${MCPO_JOB_ID}".to_owned()];
        let server =
            server.with("env", json!({"OUT": "${MCPO_WORKDIR}/out", "JOB": "${MCPO_JOB_ID}"}));
        let plan = behind_proxy(server).variable("MCPO_BASE_URL", "https://tools.example.org/x");
        let rig = plan.start();
        let mut client = client(&rig, ADA);
        let response = client.call(1, "environment", json!({}));
        let environment: Value = serde_json::from_str(&response.tool_text().unwrap()).unwrap();
        let text = |name: &str| environment[name].as_str().unwrap_or_default().to_owned();
        let workdir = text("MCPO_WORKDIR");
        assert!(Path::new(&workdir).is_absolute(), "{environment}");
        assert_eq!(text("OUT"), format!("{workdir}/out"));
        assert_eq!(text("JOB"), text("MCPO_JOB_ID"));
        assert!(!text("JOB").is_empty());
        assert_eq!(text("MCPO_BASE_URL"), "https://tools.example.org/x");
        assert!(Path::new(&text("TMPDIR")).is_absolute(), "{environment}");
        if workspace == "job" {
            assert_eq!(Some(text("JOB").as_str()), response.head.header("x-mcpo-job-id"));
        } else {
            let arguments = tell_through(&mut client, "arguments");
            assert_eq!(arguments, json!([format!("--label={}", text("JOB"))]));
        }
        let folder = tell_through(&mut client, "folder");
        assert_eq!(folder["tmp"], "writable", "{mode} {workspace}");
        if workspace == "session" {
            assert_eq!(folder["cwd"], json!(workdir));
        }
        drop(client);
        rig.stop();
    }
}

/// A server whose processes are told who calls.
fn personal(mode: &str) -> Server {
    let mut server = fixture(mode);
    server.args = vec!["--label=${user:id}".to_owned()];
    server.with("env", json!({"CREDENTIAL": "${header:X-Key}", "MAIL": "${user:email}"}))
}

#[test]
fn what_belongs_to_a_person_reaches_that_persons_process_alone() {
    for mode in ["stateless", "stateful"] {
        let rig = behind_proxy(personal(mode)).start();
        let people: [Headers<'_>; 3] = [
            &[(USER, "ada"), (CHAT, "c"), (KEY, "first"), ("X-OpenWebUI-User-Email", "a@b.org")],
            &[(USER, "ben"), (CHAT, "c"), (KEY, "second")],
            &[(USER, "cyd"), (CHAT, "c")],
        ];
        let told = [("ada", "first", "a@b.org"), ("ben", "second", ""), ("cyd", "", "")];
        for _ in 0..2 {
            for (headers, (user, key, mail)) in people.iter().zip(told) {
                let arguments = tell(&rig, headers, "arguments");
                assert_eq!(arguments, json!([format!("--label={user}")]), "{mode}");
                let environment = tell(&rig, headers, "environment");
                assert_eq!(environment["CREDENTIAL"], key, "{mode} {user}");
                assert_eq!(environment["MAIL"], mail, "{mode} {user}");
            }
        }
        // What a header carries cannot become a second argument, or a line.
        let odd = "a --era=legacy \"b' $(c) ${env:PATH}";
        let environment = tell(&rig, &[(USER, "dot"), (CHAT, "c"), (KEY, odd)], "environment");
        assert_eq!(environment["CREDENTIAL"], odd);
        rig.stop();
    }
}

/// The tool of `tools/list` that tells for whom it was made.
fn own_tool(client: &mut impl Speaker) -> String {
    let answer = client.ask(1, "tools/list", json!({})).answer();
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let mut names = tools.iter().filter_map(|tool| tool["name"].as_str());
    names.find(|name| name.starts_with("of_")).unwrap_or_default().to_owned()
}

#[test]
fn what_a_server_offers_a_person_is_asked_once_and_told_to_that_person_alone() {
    for mode in ["stateless", "stateful"] {
        let script = "echo x >> \"$STARTS\"; exec FIXTURE --label=\"$WHO\"";
        let count = tempfile::NamedTempFile::new().unwrap();
        let env = json!({"WHO": "${user:id}${header:X-Key}", "STARTS": count.path()});
        let server = shell(script, mode).with("env", env);
        let rig = behind_proxy(server).start();
        let starts = || std::fs::read_to_string(count.path()).unwrap().lines().count();
        let learnt = starts();
        let modern = |headers| Modern::with(&rig.endpoint("shell"), headers);
        let people: [(Headers<'_>, &str); 3] = [
            (&[(USER, "ada"), (CHAT, "c1")], "of_ada"),
            (&[(USER, "ben"), (CHAT, "c1")], "of_ben"),
            (&[(USER, "ada"), (CHAT, "c1"), (KEY, "2")], "of_ada2"),
        ];
        for round in 0..3 {
            for (headers, own) in people {
                assert_eq!(own_tool(&mut modern(headers)), own, "{mode} {round}");
            }
        }
        // Another chat of the person needs no process of its own for it, but another era is asked.
        assert_eq!(own_tool(&mut modern(&[(USER, "ada"), (CHAT, "c2")])), "of_ada");
        assert_eq!(starts() - learnt, people.len(), "{mode}: a process for each person");
        for _ in 0..2 {
            let mut session = Legacy::open_with(&rig.endpoint("shell"), ADA);
            assert_eq!(own_tool(&mut session), "of_ada");
            session.end();
        }
        assert_eq!(starts() - learnt, people.len() + 1, "{mode}");
        rig.stop();
    }
}

#[test]
fn one_conversation_with_two_credentials_is_two_processes() {
    let rig = behind_proxy(personal("stateful")).start();
    let pid = |headers: Headers<'_>| tell(&rig, headers, "pid");
    let with = |key| [(USER, "ada"), (CHAT, "c1"), (KEY, key)];
    let first = pid(&with("first"));
    let second = pid(&with("second"));
    assert_ne!(first, second, "a process has one person's credential");
    assert_eq!((pid(&with("first")), pid(&with("second"))), (first, second));
    // An address is nobody in particular: there, not even the files are shared.
    let at = |key| [(FROM, "198.51.100.1"), (KEY, key)];
    assert_ne!(pid(&at("first")), pid(&at("second")));
    write(&rig, &at("first"), "mine.txt");
    check_finds(&rig, &at("first"), &["mine.txt"]);
    check_finds(&rig, &at("second"), &[]);
    rig.stop();
}

#[test]
fn somebody_with_many_credentials_has_no_more_processes_than_one_may() {
    let rig = behind_proxy(personal("stateful").with("max_processes_per_client", 2)).start();
    for number in 0..6 {
        let key = format!("key-{number}");
        tell(&rig, &[(FROM, "198.51.100.1"), (KEY, &key)], "pid");
    }
    rig.wait_for_children(2);
    assert_eq!(rig.health()["stateful_processes"]["used"], 2);
    rig.stop();
}

#[test]
fn what_a_person_may_see_is_for_their_own_process_to_say() {
    for mode in ["stateless", "stateful"] {
        let server = personal(mode).with("disabledTools", json!(["crash"]));
        let rig = behind_proxy(server).start();
        let tools = |response: &Value| -> Vec<String> {
            let tools = response.pointer("/result/tools").and_then(Value::as_array);
            let tools = tools.unwrap_or_else(|| panic!("{response}"));
            tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
        };
        for user in ["ada", "ben"] {
            let person: Headers<'_> = &[(USER, user), (CHAT, "c1")];
            let modern = client(&rig, person).ask(1, "tools/list", json!({})).answer();
            let mut session = Legacy::open_with(&rig.endpoint("fixture"), person);
            let legacy = session.ask(1, "tools/list", json!({})).answer();
            session.end();
            for tools in [tools(&modern), tools(&legacy)] {
                let own: Vec<_> = tools.iter().filter(|name| name.starts_with("of_")).collect();
                assert_eq!(own, [&format!("of_{user}")], "{mode}");
                assert!(tools.iter().any(|name| name == "echo"));
                assert!(!tools.iter().any(|name| name == "crash"), "{mode}: it is disabled");
            }
        }
        rig.stop();
    }
}

/// What `pontoon serve` says to a configuration with this server that it does not take.
#[track_caller]
fn check_refused(server: &Value, told: &str) {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mcp-servers.json");
    std::fs::write(&config, json!({"mcpServers": {"a": server}}).to_string()).unwrap();
    let mut command = bridge_command(&binaries().pontoon, folder.path());
    let output = command.arg("serve").arg("--config").arg(&config).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(told), "{told:?} is not in {said}");
}

#[test]
fn what_cannot_be_kept_is_refused_before_anything_starts() {
    let with = |key: &str, value: Value| {
        let mut server = json!({"command": "/bin/true", "args": [], key: value});
        if key == "warm" {
            server["workspace"] = json!("session");
        }
        server
    };
    check_refused(&with("args", json!(["${header:Proxy-Authorization}"])), "is not handed on");
    check_refused(&with("env", json!({"A": "${header:Cookie}"})), "is not handed on");
    check_refused(&with("args", json!(["${user:password}"])), "${user:email}");
    check_refused(
        &with("args", json!(["${env:NOT_SET_ANYWHERE}"])),
        "`NOT_SET_ANYWHERE` is not set",
    );
    check_refused(&with("env", json!({"A": "${env:MCPO_API_KEY}"})), "secret of Pontoon's own");
    check_refused(&with("warm", json!(2)), "warm");
    let mut personal = with("args", json!(["${user:id}"]));
    personal["warm"] = json!(1);
    check_refused(&personal, "warm");
}
