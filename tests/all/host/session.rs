//! The session: its files, who may reach them, and that they are gone when it is.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pontoon_host::{Session, Tool, Toolset};
use pontoon_tests::rig::wait_until;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{Program, SOON, bridge_command, failure, text, tools};
use crate::binaries;

#[test]
fn only_its_owner_can_reach_a_session() {
    let program = Program::start(&tools());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().mode() & 0o777;
    let session = program.session();
    assert_eq!(mode(session.socket_path()), 0o600);
    assert_eq!(mode(session.schema_path()), 0o600);
    assert_eq!(mode(session.socket_path().parent().unwrap()), 0o700);
    let config = session.mcp_server_config(&binaries().pontoon);
    assert_eq!(config["args"], json!(["ipc", session.socket_path(), session.schema_path()]));
}

#[test]
fn nothing_stays_however_a_session_ends() {
    let (told, mut hears) = mpsc::channel(8);
    let mut program = Program::start(&Toolset::new().with(watched(told)).unwrap());
    let mut client = program.bridge();
    // A bridge is connected and a call is under way.
    client.send_call(2, "watched", json!({}));
    assert_eq!(program.runtime.block_on(hears.recv()), Some("began"));
    program.end();
    assert_eq!(program.files(), 0);
    assert!(failure(&client.answer(2)["result"]).contains("not known"));
    // By a panic, by a task that is given up, and by being forgotten in order.
    let base = program.place.path().to_owned();
    let start = move || Session::start_in(std::slice::from_ref(&base), &[tools()]).unwrap();
    let begin = start.clone();
    let panicked = program.runtime.spawn(async move {
        let _session = begin();
        panic!("on purpose");
    });
    assert!(program.runtime.block_on(panicked).unwrap_err().is_panic());
    assert_eq!(program.files(), 0);
    let (begun, mut has_begun) = mpsc::channel(1);
    let begin = start.clone();
    let given_up = program.runtime.spawn(async move {
        let _session = begin();
        begun.send(()).await.unwrap();
        std::future::pending::<()>().await;
    });
    program.runtime.block_on(has_begun.recv()).unwrap();
    assert_eq!(program.files(), 1);
    given_up.abort();
    assert!(program.runtime.block_on(given_up).unwrap_err().is_cancelled());
    assert_eq!(program.files(), 0);
}

#[test]
fn two_sessions_and_several_bridges_do_not_touch_each_other() {
    let say = |word: &'static str| {
        Toolset::new().with(Tool::new("say", move |(), _| async move { word })).unwrap()
    };
    let (first, mut second) = (Program::start(&say("first")), Program::start(&say("second")));
    let mut clients = [first.bridge(), first.bridge(), second.bridge()];
    for (client, word) in clients.iter_mut().zip(["first", "first", "second"]) {
        assert_eq!(text(&client.call(1, "say", json!({}))), word);
    }
    second.end();
    let [mut one, _, mut other] = clients;
    assert_eq!(text(&one.call(2, "say", json!({}))), "first");
    assert!(failure(&other.call(2, "say", json!({}))).starts_with("IPCConnectionError"));
}

#[test]
fn two_toolsets_are_one_list_and_no_name_is_there_twice() {
    let named = |name| Toolset::new().with(Tool::new(name, |(), _| async {})).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _runtime = runtime.enter();
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let start = |sets: &[Toolset]| Session::start_in(&[place.path().to_owned()], sets);
    let both = start(&[named("a"), named("b")]).unwrap();
    let schema = std::fs::read_to_string(both.schema_path()).unwrap();
    assert!(schema.contains("\"a\"") && schema.contains("\"b\""), "{schema}");
    let twice = start(&[named("a"), named("a")]).unwrap_err().to_string();
    assert!(twice.contains("two of the toolsets have it"), "{twice}");
}

#[test]
fn a_tool_that_would_cost_all_others_is_refused_as_it_is_added() {
    let check = |tool: Tool, expected: &str| {
        let refused = Toolset::new().with(tool).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    };
    let raw = |schema| Tool::raw("raw", schema, |_, _| async {});
    check(Tool::new("", |(), _| async {}), "1 to 64 letters");
    check(Tool::new("dot.name", |(), _| async {}), "1 to 64 letters");
    check(Tool::new("list", |_: Vec<u8>, _| async {}), "take a struct");
    let list = Tool::new("list", |(), _| async {}).output::<Vec<u8>>();
    check(list, "its structured result is not an object");
    check(raw(json!([])), "not an object");
    check(raw(json!({"type": "object", "properties": []})), "`properties`");
    check(raw(json!({"type": "object", "anyOf": []})), "`anyOf` at the top");
    check(raw(json!({"type": "object", "properties": {"a": {"type": "notatype"}}})), "not valid");
}

/// A tool that tells when it begins and when it is dropped.
fn watched(told: mpsc::Sender<&'static str>) -> Tool {
    struct Guard(mpsc::Sender<&'static str>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.try_send("dropped");
        }
    }
    Tool::new("watched", move |(), _| {
        let guard = Guard(told.clone());
        async move {
            let _ = guard.0.try_send("began");
            std::future::pending::<()>().await;
        }
    })
}

#[test]
fn a_call_that_is_given_up_ends_in_the_program_and_is_answered_no_more() {
    let (told, mut hears) = mpsc::channel(8);
    let set = tools();
    set.add(watched(told)).unwrap();
    let program = Program::start(&set);
    let mut client = program.bridge();
    let mut hear =
        || program.runtime.block_on(async { tokio::time::timeout(SOON, hears.recv()).await });
    client.send_call(7, "watched", json!({}));
    assert_eq!(hear(), Ok(Some("began")));
    client.notify("notifications/cancelled", &json!({"requestId": 7, "reason": "enough"}));
    assert_eq!(hear(), Ok(Some("dropped")));
    assert_eq!(text(&client.call(8, "echo", json!({"text": "on"}))), "on");
    // So it is when the client ends.
    client.send_call(9, "watched", json!({}));
    assert_eq!(hear(), Ok(Some("began")));
    assert!(client.unheard().is_empty());
    drop(client);
    assert_eq!(hear(), Ok(Some("dropped")));
}

#[test]
fn mcp_can_be_spoken_on_the_socket_itself() {
    let program = Program::start(&tools());
    let mut stream = UnixStream::connect(program.session().socket_path()).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut say = |line: &str| {
        stream.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        while answer.last() != Some(&b'\n') {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.push(byte[0]);
        }
        serde_json::from_slice::<Value>(&answer).unwrap()
    };
    let hello = say(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#,
    );
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hi"}}}"#;
    assert_eq!(text(&say(call)["result"]), "hi");
    assert_eq!(say("nonsense")["error"]["code"], -32700);
    assert_eq!(text(&say(call)["result"]), "hi");
}

#[test]
fn a_bridge_ends_with_its_parent_though_its_input_stays_open() {
    let program = Program::start(&tools());
    let session = program.session();
    let bridge = bridge_command(session.socket_path(), session.schema_path());
    // The shell starts the bridge, tells its pid and is killed; the pipe to the bridge is ours and stays.
    #[expect(clippy::disallowed_methods, reason = "it is a client's to start the bridge")]
    let mut shell = std::process::Command::new("/bin/sh");
    let script = "\"$@\" <&3 & echo \"{\\\"pid\\\":$!}\"; exec 3<&-; wait";
    shell
        .args(["-c", &format!("exec 3<&0; {script}"), "sh"])
        .arg(bridge.get_program())
        .args(bridge.get_args());
    let mut client = pontoon_tests::stdio::StdioServer::start(&mut shell);
    let pid =
        client.wait_for("the pid", |message| message["pid"].is_number())["pid"].as_u64().unwrap();
    assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    let shell = client.pid();
    pontoon_tests::rig::send_signal(shell, rustix::process::Signal::KILL).unwrap();
    let pid = u32::try_from(pid).unwrap();
    wait_until("the bridge ends", Duration::from_secs(20), || {
        pontoon_tests::rig::processes::read(pid).is_none()
    });
}

#[test]
fn a_session_that_ended_is_told_though_a_thread_of_a_tool_goes_on() {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    let (told, mut hears) = mpsc::channel(8);
    let stuck = Tool::blocking("stuck", move |(), call| {
        let _ = told.try_send("began");
        let _ = released.lock().unwrap().recv_timeout(SOON);
        call.progress(1.0, None, None);
    });
    let mut program = Program::start(&Toolset::new().with(stuck).unwrap());
    let mut client = program.bridge();
    client.send(1, "tools/call", &json!({"name": "stuck", "_meta": {"progressToken": 1}}));
    assert_eq!(program.runtime.block_on(hears.recv()), Some("began"));
    program.end();
    assert!(failure(&client.answer(1)["result"]).contains("not known"));
    release.send(()).unwrap();
    assert!(client.finish().success());
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Patience {
    waits: bool,
}

#[test]
fn a_call_that_took_too_long_gives_its_place_to_the_next() {
    let timeout = Duration::from_secs(1);
    let narrow = Tool::new("narrow", |Patience { waits }, _| async move {
        if waits {
            std::future::pending::<()>().await;
        }
        "in"
    });
    // A thread cannot be dropped: its place is taken until it is done.
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let held = Tool::blocking("held", move |Patience { waits }, _| {
        if waits {
            released.lock().unwrap().recv().unwrap();
        }
        "in"
    });
    let tools = [narrow, held].into_iter().fold(Toolset::new(), |set, tool| {
        set.with(tool.max_concurrency(1).timeout(timeout)).unwrap()
    });
    let program = Program::start(&tools);
    let mut client = program.bridge();
    let timed_out =
        |result: &Value| assert!(failure(result).starts_with("TimeoutError"), "{result}");
    timed_out(&client.call(1, "narrow", json!({"waits": true})));
    assert_eq!(text(&client.call(2, "narrow", json!({"waits": false}))), "in");
    timed_out(&client.call(3, "held", json!({"waits": true})));
    timed_out(&client.call(4, "held", json!({"waits": false})));
    release.send(()).unwrap();
    assert_eq!(text(&client.call(5, "held", json!({"waits": false}))), "in");
    assert!(client.finish().success());
}

#[test]
fn another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can be another user");
        return;
    }
    let program = Program::start(&tools());
    let socket = program.session().socket_path();
    // The files would let everyone in.
    for (path, mode) in
        [(program.place.path(), 0o755), (socket.parent().unwrap(), 0o755), (socket, 0o666)]
    {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let call = "import socket, struct, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
request = b'{\"method\":\"list_tools\"}'
try:
    s.sendall(struct.pack('>I', len(request)) + request)
    print('answered' if s.recv(4) else 'refused')
except (BrokenPipeError, ConnectionResetError):
    print('refused')
";
    let as_user = |user: u32| {
        #[expect(clippy::disallowed_methods, reason = "it ends before this returns")]
        let mut command = std::process::Command::new("python3");
        let output =
            command.args(["-c", call]).arg(socket).current_dir("/").uid(user).gid(user).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(as_user(0), "answered\n");
    assert_eq!(as_user(65_534), "refused\n");
    assert_eq!(as_user(0), "answered\n");
}

#[test]
fn a_list_of_any_size_reaches_the_client() {
    let tools = Toolset::new();
    for number in 0..300 {
        let tool = Tool::new(format!("tool_{number}"), |(), _| async {});
        tools.add(tool.description("x".repeat(4000))).unwrap();
    }
    let program = Program::start(&tools);
    assert!(std::fs::metadata(program.session().schema_path()).unwrap().len() > 1_000_000);
    let mut client = program.bridge();
    client.initialize();
    let listed = client.ask(1, "tools/list", &json!({}))["result"].take();
    assert_eq!(listed["tools"].as_array().unwrap().len(), 300);
}
