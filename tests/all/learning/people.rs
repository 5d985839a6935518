//! Servers that need something of the person who calls: learnt with each person's own values.

use std::io::Write;
use std::time::{Duration, Instant};

use pontoon_tests::client::{Legacy, Modern, Response, Speaker};
use pontoon_tests::rig::{Plan, Rig, Server, bridge_command, wait_until};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::{SOON, state};
use crate::{binaries, plan, shell};

const USER: &str = "X-OpenWebUI-User-Id";
const KEY: &str = "X-Key";

const ADA: Headers = &[(USER, "ada"), (KEY, "token-of-ada")];
const BEN: Headers = &[(USER, "ben"), (KEY, "token-of-ben")];
const EVE: Headers = &[(USER, "eve"), (KEY, "token-of-eve")];

type Headers = &'static [(&'static str, &'static str)];

/// A server that starts only with a token that it accepts, and has a tool of that name.
struct Guarded {
    accepted: NamedTempFile,
    starts: NamedTempFile,
}

impl Guarded {
    fn accepting(people: &[Headers]) -> Self {
        let new = || NamedTempFile::new().unwrap();
        let mut guarded = Self { accepted: new(), starts: new() };
        people.iter().for_each(|person| guarded.accept(person));
        guarded
    }

    fn accept(&mut self, person: Headers) {
        writeln!(self.accepted, "{}", person[1].1).unwrap();
    }

    fn starts(&self) -> usize {
        std::fs::read_to_string(self.starts.path()).unwrap().lines().count()
    }

    fn server(&self, mode: &str) -> Server {
        let script = r#"echo x >> "$STARTS"
grep -qx "$TOKEN" "$ACCEPTED" || { echo "the token '$TOKEN' is refused" >&2; exit 3; }
exec FIXTURE --label="$TOKEN""#;
        let env = json!({
            "TOKEN": "${header:X-Key}", "ACCEPTED": self.accepted.path(), "STARTS": self.starts.path(),
        });
        shell(script, mode).with("env", env).that_may_fail()
    }

    fn rig(&self, mode: &str) -> Rig {
        let rig = behind_proxy(self.server(mode)).start();
        rig.wait_for_state("shell", "waiting");
        rig
    }
}

fn behind_proxy(server: Server) -> Plan {
    plan([server]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8")
}

fn modern(rig: &Rig, person: Headers) -> Modern {
    Modern::with(&rig.endpoint("shell"), person)
}

fn echo(client: &mut impl Speaker) -> Response {
    client.call(1, "echo", json!({"text": "x"}))
}

/// The client gets the tools of its person, and can call them.
#[track_caller]
fn check_serves(client: &mut impl Speaker, person: Headers) {
    let answer = client.ask(1, "tools/list", json!({})).answer();
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let own: Vec<_> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    let own: Vec<_> = own.iter().filter(|name| name.starts_with("of_")).collect();
    assert_eq!(own, [&format!("of_{}", person[1].1)]);
    let response = echo(client);
    assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
}

#[track_caller]
fn check_refused(rig: &Rig, person: Headers) {
    for response in
        [echo(&mut modern(rig, person)), modern(rig, person).ask(1, "tools/list", json!({}))]
    {
        assert_eq!(response.status(), 502, "{}", response.text());
        let told = response.error_text();
        assert!(told.contains("does not start") && told.contains("is refused"), "{told}");
    }
    // What a person brings is no one else's to read, not even in the last words of a process.
    assert!(!rig.log().contains(person[1].1), "{}", rig.log());
}

#[test]
fn a_server_that_needs_a_person_is_learnt_with_the_persons_own_values() {
    for mode in ["stateless", "stateful"] {
        let guarded = Guarded::accepting(&[ADA, BEN]);
        let rig = guarded.rig(mode);
        let health = rig.health();
        assert_eq!(health["status"], "ok", "{health}");
        let shown = &health["servers"]["shell"];
        assert_eq!(shown["error"], Value::Null, "{shown}");
        let note = shown["note"].as_str().unwrap_or_default();
        assert!(note.contains("learnt with the first person's values"), "{shown}");
        assert_eq!(rig.get("/ready").status(), 200);
        // The first one of all is refused, which is no other's business.
        check_refused(&rig, EVE);
        assert_eq!(state(&rig, "shell"), "waiting");
        check_serves(&mut modern(&rig, ADA), ADA);
        assert_eq!(state(&rig, "shell"), "ready");
        let mut session = Legacy::open_with(&rig.endpoint("shell"), BEN);
        check_serves(&mut session, BEN);
        session.end();
        check_refused(&rig, EVE);
        check_serves(&mut modern(&rig, ADA), ADA);
        rig.stop();
    }
}

#[test]
fn what_a_person_is_offered_is_asked_once() {
    let guarded = Guarded::accepting(&[ADA, BEN]);
    let rig = guarded.rig("stateless");
    let list = |person| modern(&rig, person).ask(1, "tools/list", json!({}));
    list(ADA);
    let learnt = guarded.starts();
    for _ in 0..3 {
        list(ADA);
        modern(&rig, ADA).ask(1, "server/discover", json!({}));
    }
    assert_eq!(guarded.starts(), learnt, "nothing is started for what is known");
    list(BEN);
    assert_eq!(guarded.starts(), learnt + 1, "the eras are known by then");
    rig.stop();
}

#[test]
fn a_tool_is_judged_by_what_it_promises_the_person_who_calls() {
    let rude = binaries().rude_server.display().to_string();
    let script = format!(
        "[ -n \"$TOKEN\" ] || exit 3\n\
         [ \"$TOKEN\" = token-of-ada ] && exec {rude} --how unfit-structured\n\
         exec {rude} --how no-structured"
    );
    let env = json!({"TOKEN": "${header:X-Key}"});
    for who_first in [[ADA, BEN], [BEN, ADA]] {
        let server = shell(&script, "stateless").with("env", env.clone()).that_may_fail();
        let rig = behind_proxy(server).start();
        rig.wait_for_state("shell", "waiting");
        let promises = |person| {
            let listed = modern(&rig, person).ask(1, "tools/list", json!({})).answer();
            listed["result"]["tools"][0].get("outputSchema").is_some()
        };
        assert!(who_first.map(promises) == [true, true]);
        // To Ada a `size` is promised to be a number, to Ben it is not.
        let call = |person| {
            let text = json!({"text": r#"{"text": "a", "size": "b"}"#});
            modern(&rig, person).call(1, "echo", text).answer()["result"].clone()
        };
        let of_ben = call(BEN);
        assert_eq!(of_ben["structuredContent"], json!({"text": "a", "size": "b"}), "{of_ben}");
        assert_eq!((promises(ADA), promises(BEN)), (true, true));
        call(ADA);
        assert_eq!((promises(ADA), promises(BEN)), (false, true));
        rig.stop();
    }
}

#[test]
fn a_person_who_was_refused_is_tried_again_later_and_with_another_value_at_once() {
    let mut guarded = Guarded::accepting(&[ADA]);
    let rig = guarded.rig("stateless");
    check_refused(&rig, EVE);
    let changed: Headers = &[(USER, "eve"), (KEY, "token-of-ada")];
    check_serves(&mut modern(&rig, changed), changed);
    guarded.accept(EVE);
    wait_until("eve is let in", SOON, || echo(&mut modern(&rig, EVE)).status() == 200);
    check_serves(&mut modern(&rig, EVE), EVE);
    rig.stop();
}

#[test]
fn what_a_server_says_of_itself_is_what_it_says_to_the_person() {
    // Without a token it starts and offers less, as real ones do.
    let script = r#"[ -n "$TOKEN" ] && exec FIXTURE --tells-directory; exec FIXTURE --era legacy"#;
    let server = shell(script, "stateless").with("env", json!({"TOKEN": "${header:X-Key}"}));
    let rig = behind_proxy(server).start();
    let instructions = |person| {
        let discovered = modern(&rig, person).ask(1, "server/discover", json!({})).answer();
        let session = Legacy::open_with(&rig.endpoint("shell"), person);
        let opened = session.initialized.clone();
        session.end();
        [&discovered["result"], &opened].map(|it| it["instructions"].as_str().unwrap().to_owned())
    };
    for told in instructions(ADA) {
        assert!(told.contains("It works in"), "{told}");
    }
    for told in instructions(&[(USER, "nobody"), (KEY, "")]) {
        assert!(!told.contains("It works in"), "{told}");
    }
    rig.stop();
}

#[test]
fn the_banner_and_check_say_whose_values_are_used() {
    let guarded = Guarded::accepting(&[ADA]);
    let rig = guarded.rig("stateless");
    let told = "learnt with each person's values";
    assert!(rig.stderr().contains(told), "{}", rig.stderr());
    let checked = bridge_command(&binaries().pontoon, rig.directory())
        .args(["check", "--config", "mcp-servers.json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && said.contains(told), "{said}");
    rig.stop();
}

#[test]
fn a_server_whose_lists_changed_is_learnt_again_with_each_persons_values() {
    let label = NamedTempFile::new().unwrap();
    let script = r#"[ -n "$TOKEN" ] || exit 3
exec FIXTURE --era legacy --label="$(cat "$LABEL")-$TOKEN""#;
    let env = json!({"TOKEN": "${header:X-Key}", "LABEL": label.path()});
    let rig = behind_proxy(shell(script, "stateless").with("env", env).that_may_fail()).start();
    rig.wait_for_state("shell", "waiting");
    let has = |person, tool: &str| {
        modern(&rig, person).ask(1, "tools/list", json!({})).text().contains(tool)
    };
    std::fs::write(label.path(), "old").unwrap();
    assert!(has(ADA, "of_old-token-of-ada") && has(BEN, "of_old-token-of-ben"));
    std::fs::write(label.path(), "new").unwrap();
    assert!(has(ADA, "of_old-token-of-ada"), "what is known is not asked again");
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let subscriber = modern(&rig, BEN);
    let mut stream = subscriber.send("sub", "subscriptions/listen", wanted).begin().unwrap();
    let acknowledged = stream.next_message().unwrap().unwrap();
    modern(&rig, ADA).call(1, "test_trigger_tool_change", json!({}));
    let told = stream.next_message().unwrap().unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{acknowledged}{told}");
    assert!(has(BEN, "of_new-token-of-ben"), "who is told of a change has it");
    drop((stream, subscriber));
    wait_until("ada has the new tool", SOON, || has(ADA, "of_new-token-of-ada"));
    rig.stop();
}

/// The fixture for a person, which is silent after something else than `initialize` came first and was refused.
const SILENT: &str = r#"[ -n "$TOKEN" ] || exit 3
read -r first
case "$first" in
*'"initialize"'*) { printf '%s\n' "$first"; cat; } | FIXTURE --era legacy ;;
*) id=$(printf '%s' "$first" | sed 's/.*"id":\([^,}]*\).*/\1/')
   printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id"
   trap 'echo x > "$ASKED"; exit 0' TERM
   while read -r _; do :; done
   echo x > "$ASKED" ;;
esac"#;

/// Such a server, and the file into which the silent process writes when it is asked to end, by a signal or by the end of its input.
fn silent() -> (Rig, NamedTempFile) {
    let asked = NamedTempFile::new().unwrap();
    let env = json!({"TOKEN": "${header:X-Key}", "ASKED": asked.path()});
    let rig = behind_proxy(shell(SILENT, "stateless").with("env", env).that_may_fail()).start();
    rig.wait_for_state("shell", "waiting");
    (rig, asked)
}

#[test]
fn a_process_that_is_silent_after_the_probe_keeps_no_person_waiting() {
    let (rig, _asked) = silent();
    let began = Instant::now();
    let listed = modern(&rig, ADA).ask(1, "tools/list", json!({}));
    assert!(listed.text().contains("echo"), "{}", listed.text());
    // A handshake may take 60 s, and the shortest wait for an era is 10 s.
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    rig.stop();
}

#[test]
fn a_process_that_is_not_asked_to_the_end_can_tidy_up() {
    let (rig, asked) = silent();
    modern(&rig, ADA).ask(1, "tools/list", json!({}));
    wait_until("it is asked to end", SOON, || asked.path().metadata().unwrap().len() > 0);
    rig.stop();
}
