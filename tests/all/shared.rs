//! One process for everybody: each client has its own answers from it, none hears of another, and it is replaced
//! without a word.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pontoon_tests::client::{Client, Connection, ERAS, Era, Legacy, Modern, Response, Speaker};
use pontoon_tests::rig::{Plan, Rig, Server, bridge_command, processes, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::limits::{Refusal, check, metric, refused};
use crate::{binaries, fixture, fixture_of, plan, rude, shell};

const USER: &str = "X-OpenWebUI-User-Id";
const SOON: Duration = Duration::from_secs(10);
/// The whole stop ladder: two seconds after the end of the input, ten after SIGTERM.
const LADDER: Duration = Duration::from_secs(16);
const LONG: u64 = 60_000;

const LOG: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"a secret"}}"#;
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"your name?","requestedSchema":{"type":"object","properties":{}}}}"#;
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
const UPDATED: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"test://a"}}"#;

/// A bridge behind a front end that says who its users are.
fn with_users(server: Server) -> Plan {
    plan([server]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.1")
}

/// A server with one process for everybody, which speaks the legacy era alone.
fn shared() -> Server {
    fixture_of("legacy", "shared")
}

fn user(rig: &Rig, era: Era, name: &str) -> Client {
    Client::new(era, &rig.endpoint("fixture")).with_header(USER, name)
}

fn tell(client: &mut impl Speaker, tool: &str) -> String {
    let response = client.call(1, tool, json!({}));
    response.tool_text().unwrap_or_else(|| panic!("{tool}: {}", response.text()))
}

fn pid(client: &mut impl Speaker) -> u32 {
    tell(client, "pid").parse().unwrap()
}

/// Begins a call that takes long, as the one with this number.
fn busy(rig: &Rig, client: &impl Speaker, calls: u64) -> Connection {
    let connection = client.send_call(7, "wait", json!({"ms": LONG}));
    rig.wait_for_gauge("running", calls);
    connection
}

fn finish(connection: Connection) -> Response {
    connection.begin().unwrap().finish().unwrap().0
}

fn is_gone(pid: u32) -> bool {
    processes::read(pid).is_none()
}

#[test]
fn two_users_with_the_same_ids_have_their_own_answers_from_one_process() {
    let rig = with_users(shared()).start();
    let pids: HashSet<u32> = thread::scope(|scope| {
        let calling = (0..8).map(|number| {
            let rig = &rig;
            scope.spawn(move || {
                let mut client = user(rig, ERAS[number % 2], ["ada", "ben"][number / 4]);
                for id in 0..20 {
                    let text = format!("{number} says {id}");
                    let answer = client.call(id, "echo", json!({"text": text}));
                    assert_eq!(answer.tool_text(), Some(text), "{}", answer.text());
                    assert_eq!(answer.answer()["id"], id);
                }
                let pid = pid(&mut client);
                client.end();
                pid
            })
        });
        let calling: Vec<_> = calling.collect();
        calling.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(pids.len(), 1, "{pids:?}");
    rig.wait_for_children(1);
    rig.stop();
}

#[test]
fn it_is_there_before_the_first_call_and_counts_as_no_request() {
    let rig = with_users(shared()).start();
    rig.wait_for_children(1);
    let ahead = rig.children()[0].pid;
    let mut ada = user(&rig, Era::Legacy, "ada");
    assert_eq!(pid(&mut ada), ahead);
    let open = busy(&rig, &ada, 1);
    assert_eq!(rig.gauge("permits_in_use"), 0, "that counts processes for requests");
    assert_eq!(metric(&rig, r#"pontoon_children{server="fixture",mode="shared"}"#), 1);
    assert_eq!(rig.health()["servers"]["fixture"]["mode"], "shared");
    assert_eq!(rig.health()["stateful_processes"]["used"], 0, "nor those for conversations");
    drop(open);
    ada.end();
    rig.stop();
    assert!(is_gone(ahead));
}

#[test]
fn calls_on_a_process_that_dies_are_each_told_once_and_the_next_has_a_new_one() {
    let rig = with_users(shared()).start();
    let mut clients = ["ada", "ben", "eve"].map(|name| user(&rig, Era::Legacy, name));
    let before = pid(&mut clients[0]);
    let open: Vec<_> = (1..).zip(&clients).map(|(calls, it)| busy(&rig, it, calls)).collect();
    send_signal(before, Signal::KILL).unwrap();
    for answer in open.into_iter().map(finish) {
        assert_eq!(answer.told_status(), 502, "{}", answer.text());
        assert!(answer.text().contains("before it answered"), "{}", answer.text());
        assert!(!answer.text().contains("memory"), "{}", answer.text());
    }
    let after: HashSet<_> = clients.iter_mut().map(pid).collect();
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(!after.contains(&before));
    clients.into_iter().for_each(Client::end);
    rig.stop();
}

#[test]
fn a_process_that_was_killed_while_idle_is_not_missed() {
    let rig = with_users(shared()).start();
    for era in ERAS {
        let mut ada = user(&rig, era, "ada");
        let before = pid(&mut ada);
        send_signal(before, Signal::KILL).unwrap();
        // Until it is gone it may have read a call, which is then not made again.
        wait_until("it is gone", SOON, || is_gone(before));
        assert_ne!(pid(&mut ada), before);
        ada.end();
    }
    rig.stop();
}

#[test]
fn a_process_that_answers_nothing_is_replaced() {
    let rig = with_users(shared().with("timeout", "1s")).start();
    let [mut ada, mut ben] = ["ada", "ben"].map(|name| user(&rig, Era::Legacy, name));
    let before = pid(&mut ada);
    send_signal(before, Signal::STOP).unwrap();
    let answer = ada.call(1, "echo", json!({"text": "x"}));
    assert_eq!(answer.told_status(), 504, "{}", answer.text());
    // It is asked for a sign of life for longer than a call may take here.
    wait_until("others are served again", SOON, || {
        ben.call(2, "echo", json!({"text": "x"})).tool_text().is_some()
    });
    assert_ne!(pid(&mut ben), before);
    // It was told to end, which it hears when it goes on; on a slow machine it was made to by now.
    let _ = send_signal(before, Signal::CONT);
    wait_until("it ends", LADDER, || is_gone(before));
    ada.end();
    ben.end();
    rig.stop();
}

/// With so many calls at once, and all of them under way.
fn full(queue_wait: &str) -> (Rig, Vec<(Client, Connection)>) {
    let plan = with_users(shared().with("max_in_flight", 2));
    let rig = plan.variable("MCPO_QUEUE_WAIT", queue_wait).start();
    let open = (1..).zip(["ada", "ben"]).map(|(calls, name)| {
        let client = user(&rig, Era::Legacy, name);
        let connection = busy(&rig, &client, calls);
        (client, connection)
    });
    let open = open.collect();
    (rig, open)
}

#[test]
fn over_max_in_flight_a_call_is_refused_with_when_to_come_back() {
    let (rig, open) = full("0");
    for era in ERAS {
        let mut eve = user(&rig, era, "eve");
        let answer = eve.call(3, "echo", json!({"text": "x"}));
        let text = "busy: all 2 calls that may run at once are running (max_in_flight of a server whose one process all \
                    clients share)";
        check(&answer, era, 3, &Refusal { status: 429, code: -31429, retry_after: Some(5), text });
        eve.end();
    }
    assert_eq!(refused(&rig, "in_flight"), 2);
    for (mut client, connection) in open {
        client.give_up(7, connection);
        client.end();
    }
    rig.stop();
}

#[test]
fn over_max_in_flight_a_call_waits_for_its_turn() {
    let (rig, open) = full("20");
    let eve = user(&rig, Era::Legacy, "eve");
    let waiting = eve.send_call(3, "echo", json!({"text": "x"}));
    wait_until("it waits", SOON, || metric(&rig, "pontoon_waiting_calls") == 1);
    for (mut client, connection) in open {
        client.give_up(7, connection);
        client.end();
    }
    assert_eq!(finish(waiting).tool_text().as_deref(), Some("x"));
    eve.end();
    rig.stop();
}

#[test]
fn a_user_who_wants_all_of_it_leaves_a_part_to_others() {
    let rig = with_users(shared().with("max_in_flight", 4)).start();
    let [mut ada, mut ben] = ["ada", "ben"].map(|name| user(&rig, Era::Legacy, name));
    let open: Vec<_> = (1..=3).map(|calls| busy(&rig, &ada, calls)).collect();
    let answer = ada.call(1, "echo", json!({"text": "x"}));
    assert_eq!(answer.told_status(), 429, "{}", answer.text());
    assert!(answer.text().contains("this client has as many calls"), "{}", answer.text());
    assert_eq!(refused(&rig, "share"), 1);
    assert_eq!(ben.call(1, "echo", json!({"text": "x"})).tool_text().as_deref(), Some("x"));
    drop(open);
    ada.end();
    ben.end();
    rig.stop();
}

#[test]
fn one_who_cancels_hurts_no_other() {
    let rig = with_users(shared()).start();
    let [mut ada, mut ben] = ["ada", "ben"].map(|name| user(&rig, Era::Legacy, name));
    let before = pid(&mut ada);
    let adas = busy(&rig, &ada, 1);
    let bens = ben.send_call(7, "wait", json!({"ms": 300}));
    ada.give_up(7, adas);
    assert_eq!(finish(bens).status(), 200, "the same id, and not cancelled");
    assert_eq!(pid(&mut ben), before);
    ada.end();
    ben.end();
    rig.stop();
}

#[test]
fn what_it_says_in_the_call_of_one_is_never_heard_by_another() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| -> PathBuf { place.path().join(name) };
    let touch = |path: &Path| fs::write(path, "").unwrap();
    let rig = plan([rude("plays", "shared")]).start();
    let [ada, ben] = [(); 2].map(|()| Legacy::open(&rig.endpoint("rude")));
    let [hears_of_ada, hears_of_ben] = [&ben, &ada].map(|session| session.listen(None));
    let steps = |steps: &[Value]| json!({"steps": steps});
    let said = [LOG, UPDATED, CHANGED, QUESTION].map(|line| json!(line));
    let of_ada = [&[json!({"until": file("go")})], &said[..], &[json!({"hear": "q"})]].concat();
    let adas = ada.send_call(1, "play", steps(&of_ada));
    rig.wait_for_gauge("running", 1);
    let bens = ben.send_call(1, "play", steps(&[json!({"until": file("end")})]));
    rig.wait_for_gauge("running", 2);
    touch(&file("go"));
    let heard = finish(adas);
    assert!(heard.tool_text().unwrap().contains("no call of a client is open"), "{}", heard.text());
    touch(&file("end"));
    for (whose, response) in [("Ada's", heard), ("Ben's", finish(bens))] {
        assert_eq!(response.messages().unwrap().len(), 1, "{whose}: {}", response.text());
    }
    // With Ben's gone, a question can only be Ada's, and she could answer it.
    let alone = ada.send_call(2, "play", steps(&[json!(QUESTION), json!({"hear": "q"})]));
    let alone = finish(alone);
    assert!(alone.tool_text().unwrap().contains("none of them can be asked"), "{}", alone.text());
    ada.end();
    ben.end();
    for mut stream in [hears_of_ada, hears_of_ben] {
        assert_eq!(stream.next_message().unwrap(), None, "a session hears of no process");
    }
    rig.stop();
}

#[test]
fn there_are_no_subscriptions_to_resources_but_to_what_the_server_offers() {
    let rig = with_users(shared()).start();
    let mut ada = Legacy::open(&rig.endpoint("fixture"));
    let offered = &ada.initialized["capabilities"];
    assert!(offered["resources"].is_object(), "{offered}");
    assert_eq!(offered["resources"].get("subscribe"), None, "{offered}");
    assert_eq!(offered["tools"].get("listChanged"), None, "{offered}");
    let answer = ada.ask(1, "resources/subscribe", json!({"uri": "test://static-text"}));
    assert!(answer.error_text().contains("has no subscriptions"), "{}", answer.text());
    ada.end();
    let ben = Modern::new(&rig.endpoint("fixture"));
    let wanted =
        json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["test://a"]}});
    let mut stream = ben.send(1, "subscriptions/listen", wanted).begin().unwrap();
    let taken = stream.next_message().unwrap().unwrap();
    assert_eq!(taken["params"]["notifications"], json!({"toolsListChanged": true}), "{taken}");
    drop(stream);
    rig.stop();
}

#[test]
fn a_modern_server_asks_with_its_answer_which_is_its_clients() {
    let rig = with_users(fixture_of("modern", "shared")).start();
    let [mut ada, mut ben] =
        ["ada", "ben"].map(|it| Modern::with(&rig.endpoint("fixture"), &[(USER, it)]));
    let call = |more: Value| {
        let mut params = json!({"name": "ask", "arguments": {"question": "Well?"}});
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let asked = ada.ask(1, "tools/call", call(json!({}))).answer();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert_eq!(ben.call(1, "echo", json!({"text": "x"})).tool_text().as_deref(), Some("x"));
    let response = json!({"action": "accept", "content": {"answer": "yes"}});
    let mut more = json!({"inputResponses": {"ask": response}});
    if let Some(state) = asked["result"].get("requestState") {
        more["requestState"] = state.clone();
    }
    let answer = ada.ask(2, "tools/call", call(more));
    assert_eq!(answer.tool_text().as_deref(), Some("accept:yes"), "{}", answer.text());
    rig.wait_for_children(1);
    drop((ada, ben));
    rig.stop();
}

#[test]
fn each_era_has_a_process() {
    let rig = with_users(fixture("shared")).start();
    let pids = ERAS.map(|era| {
        let pids: HashSet<_> = ["ada", "ben"]
            .into_iter()
            .map(|name| {
                let mut client = user(&rig, era, name);
                let pid = pid(&mut client);
                client.end();
                pid
            })
            .collect();
        assert_eq!(pids.len(), 1, "{era:?}");
        pids
    });
    assert!(pids[0].is_disjoint(&pids[1]));
    rig.wait_for_children(2);
    rig.stop();
}

#[test]
fn the_key_without_a_name_is_served() {
    let rig = plan([shared()]).variable("MCPO_API_KEY", "the-key-of-all").start();
    let key = [("Authorization", "Bearer the-key-of-all")];
    let mut modern = Modern::with(&rig.endpoint("fixture"), &key);
    let mut legacy = Legacy::open_with(&rig.endpoint("fixture"), &key);
    assert_eq!(pid(&mut modern), pid(&mut legacy));
    assert_eq!(rig.health().get("note").filter(|note| !note.is_null()), None);
    legacy.end();
    drop(modern);
    rig.stop();
}

#[test]
fn another_configuration_has_another_process_and_open_calls_finish_with_theirs() {
    let rig = with_users(shared()).start();
    let mut ada = Modern::new(&rig.endpoint("fixture"));
    let before = pid(&mut ada);
    let open = ada.send_call(7, "wait", json!({"ms": 1000}));
    rig.wait_for_gauge("running", 1);
    rig.write_config(&[shared().with("max_in_flight", 3)]);
    rig.signal(Signal::HUP);
    wait_until("another serves", SOON, || pid(&mut ada) != before);
    assert_eq!(finish(open).status(), 200);
    wait_until("the old one goes", LADDER, || is_gone(before));
    rig.wait_for_children(1);
    drop(ada);
    rig.stop();
}

#[test]
fn it_works_in_a_folder_of_its_own_that_goes_with_it_and_its_calls_have_no_job() {
    let rig = with_users(shared()).start();
    let mut ada = Modern::new(&rig.endpoint("fixture"));
    let folder: Value = serde_json::from_str(&tell(&mut ada, "folder")).unwrap();
    assert_eq!(folder["names"], json!([]), "{folder}");
    assert_eq!(folder["tmp"], "writable");
    let written = ada.call(2, "write_file", json!({"name": "a.txt", "text": "a"}));
    assert_eq!(
        written.answer()["result"]["content"].as_array().unwrap().len(),
        1,
        "no link: {}",
        written.text()
    );
    assert_eq!(written.head.header("X-MCPO-Job-Id"), None);
    let cwd = PathBuf::from(folder["cwd"].as_str().unwrap());
    assert!(cwd.join("a.txt").exists());
    let environment = tell(&mut ada, "environment");
    assert!(
        !environment.contains("MCPO_WORKDIR") && !environment.contains("MCPO_JOB_ID"),
        "{environment}"
    );
    drop(ada);
    rig.stop();
    assert!(!cwd.exists());
}

#[test]
fn one_that_does_not_start_is_not_tried_for_each_call() {
    let place = tempfile::tempdir().unwrap();
    let (broken, starts) = (place.path().join("broken"), place.path().join("starts"));
    let script = format!(
        "echo >>{}; test -e {} && exit 7; exec FIXTURE --era legacy",
        starts.display(),
        broken.display()
    );
    let rig = with_users(shell(&script, "shared")).start();
    let mut ada = Modern::new(&rig.endpoint("shell"));
    let running = pid(&mut ada);
    fs::write(&broken, "").unwrap();
    let count = || fs::read_to_string(&starts).unwrap().lines().count();
    let before = count();
    send_signal(running, Signal::KILL).unwrap();
    let told = ada.call(1, "pid", json!({}));
    assert_eq!(told.told_status(), 502, "{}", told.text());
    let answers: Vec<_> = (0..20).map(|id| ada.call(id, "pid", json!({})).text()).collect();
    assert!(answers.iter().any(|it| it.contains("the next start is tried in")), "{answers:?}");
    let tries = count() - before;
    assert!((1..10).contains(&tries), "{tries} starts for 21 calls");
    fs::remove_file(&broken).unwrap();
    wait_until("it is well again", 3 * SOON, || {
        ada.call(1, "pid", json!({})).tool_text().is_some()
    });
    drop(ada);
    rig.stop();
}

#[test]
fn commands_know_it_and_a_key_that_cannot_work_with_it_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("mcp-servers.json");
    let server = json!({"command": binaries().fixture_server, "mode": "shared"});
    let pontoon = |arguments: &[&str], more: &Value| {
        let mut server = server.clone();
        server.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(&config, json!({"mcpServers": {"fixture": server}}).to_string()).unwrap();
        let mut command = bridge_command(&binaries().pontoon, place.path());
        let output = command.args(arguments).arg("--config").arg(&config).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout) + &text(&output.stderr))
    };
    let (is_fine, said) = pontoon(&["check"], &json!({}));
    assert!(is_fine && said.contains("shared by all clients, idle 1800 s"), "{said}");
    let (is_fine, said) = pontoon(&["call", "fixture", "echo", "text=hello"], &json!({}));
    assert!(is_fine && said.contains("hello"), "{said}");
    let (is_fine, said) = pontoon(&["tools", "fixture"], &json!({}));
    assert!(is_fine && said.contains("echo"), "{said}");
    for command in ["check", "serve"] {
        let (is_fine, said) = pontoon(&[command], &json!({"workspace": "session"}));
        assert!(!is_fine, "{said}");
        assert!(
            said.contains("fixture.workspace: a shared process works in a folder of its own"),
            "{said}"
        );
        assert!(said.contains("leave it out, or use `\"mode\": \"stateless\"`"), "{said}");
    }
}

/// Complains of every call by what it was told, and ends at the tool `end`.
const COMPLAINING: &str = r#"
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%[,\}]*}
        case $line in
            *'"initialize"'*) answer='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}' ;;
            *'"tools/list"'*) answer='{"tools":[{"name":"say","inputSchema":{"type":"object"}}]}' ;;
            *'"end"'*) exit 3 ;;
            *'"tools/call"'*) echo "$line" >&2; answer='{"content":[]}' ;;
            *) continue ;;
        esac
        printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$answer"
    done
"#;

#[test]
fn what_it_complained_of_is_not_told_to_the_one_in_whose_call_it_ends() {
    let rig = plan([shell(COMPLAINING, "shared")]).start();
    let endpoint = rig.endpoint("shell");
    let (mut ada, mut ben) = (Legacy::open(&endpoint), Legacy::open(&endpoint));
    let said = ada.call(1, "say", json!({"text": "a secret of Ada"}));
    assert!(said.answer()["result"].is_object(), "{}", said.text());
    let told = ben.call(1, "end", json!({})).text();
    assert!(told.contains("exited with code 3") && !told.contains("secret"), "{told}");
    ada.end();
    ben.end();
    rig.stop();
}
