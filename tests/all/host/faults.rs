//! What goes wrong around the bridge: bad arguments, bad files, a program that dies between two bytes.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use super::{bridge, bridge_command, failure, text};

/// Less than a program may take none of a message, and more than anything here needs.
const QUICK: Duration = Duration::from_secs(20);

/// A program that speaks frames by hand.
pub(super) struct ByHand {
    _place: tempfile::TempDir,
    pub(super) socket: PathBuf,
    pub(super) schema: PathBuf,
    listener: Option<UnixListener>,
}

impl ByHand {
    pub(super) fn new(answers_by_id: bool) -> Self {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let (socket, schema) = (place.path().join("s.sock"), place.path().join("schema.json"));
        let entry = json!([{
            "name": "t", "description": "", "input_schema": {"type": "object"}, "answers_by_id": answers_by_id,
        }]);
        std::fs::write(&schema, entry.to_string()).unwrap();
        let listener = Some(UnixListener::bind(&socket).unwrap());
        Self { _place: place, socket, schema, listener }
    }

    pub(super) fn accept(&self) -> UnixStream {
        self.listener.as_ref().unwrap().accept().unwrap().0
    }

    pub(super) fn bridge(&self) -> StdioServer {
        bridge(&self.socket, &self.schema)
    }

    /// Calls 1 and 2 of a client are under way: the connection, and both as the program got them.
    pub(super) fn two_calls(&self, client: &mut StdioServer) -> (UnixStream, [Value; 2]) {
        client.send_call(1, "t", json!({}));
        client.send_call(2, "t", json!({}));
        let mut stream = self.accept();
        let calls = [read_frame(&mut stream), read_frame(&mut stream)];
        (stream, calls)
    }
}

pub(super) fn read_frame(stream: &mut UnixStream) -> Value {
    try_read_frame(stream).unwrap()
}

pub(super) fn try_read_frame(stream: &mut UnixStream) -> std::io::Result<Value> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(serde_json::from_slice(&frame).unwrap())
}

pub(super) fn write_frame(stream: &mut UnixStream, frame: &str) {
    stream.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(frame.as_bytes()).unwrap();
}

pub(super) fn result(id: &Value, said: &str) -> String {
    json!({"id": id, "result": {"content": [{"type": "text", "text": said}]}}).to_string()
}

#[test]
fn bad_arguments_and_bad_files_are_one_clear_line_and_a_failure() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let check = |args: &[PathBuf], code: i32, expected: &str| {
        let mut command = bridge_command("".as_ref(), "".as_ref());
        #[expect(clippy::disallowed_methods, reason = "it ends before this returns")]
        let mut command = std::process::Command::new(command.arg("ipc").get_program());
        let output = command.arg("ipc").args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
        assert!(output.stdout.is_empty());
    };
    let socket = PathBuf::from("/nowhere.sock");
    check(&[], 2, "two arguments are needed, SOCKET and SCHEMA, not 0");
    check(std::slice::from_ref(&socket), 2, "not 1");
    let profile = |name: &str| [socket.clone(), "b.json".into(), "--profile".into(), name.into()];
    check(
        &profile("nobody"),
        2,
        "there is no profile `nobody`; there are: none, common, claude-code",
    );
    check(&profile("gemini"), 1, "cannot be read: No such file");
    check(&[socket.clone(), place.path().join("none")], 1, "cannot be read: No such file");
    check(&[socket.clone(), place.path().to_owned()], 1, "is not a file");
    check(&[socket.clone(), path("text", "hello")], 1, "is not a JSON array");
    check(&[socket.clone(), path("half", r#"[{"name":"a"}]"#)], 1, "missing field `input_schema`");
    let fifo = place.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    check(&[socket, fifo], 1, "is not a file");
}

#[test]
fn tools_are_shown_for_the_client_that_is_named_and_each_kind_of_repair_is_told_once() {
    let program = ByHand::new(true);
    let tool = |name: &str| {
        let at = json!({"type": ["int", "null"]});
        json!({"name": name, "input_schema": {"type": "object", "properties": {"at": at}}})
    };
    std::fs::write(&program.schema, json!([tool("a"), tool("b")]).to_string()).unwrap();
    let check = |options: &[&str], expected: Value, told: usize| {
        let mut command = bridge_command(&program.socket, &program.schema);
        let command = command.args(options).stdin(Stdio::piped());
        let mut bridge = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        writeln!(bridge.stdin.take().unwrap(), "{list}\n{list}").unwrap();
        let output = bridge.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let answers = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let shown = answers.map(|it| it["result"]["tools"][1]["inputSchema"]["properties"].clone());
        assert_eq!(shown.collect::<Vec<_>>(), [expected.clone(), expected]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said.matches("pontoon ipc: S008/type-word in `a`").count(), told, "{said}");
        assert_eq!(said.lines().count(), told, "{said}");
    };
    check(&[], json!({"at": {"type": ["integer", "null"]}}), 1);
    check(&["--profile", "gemini"], json!({"at": {"type": "integer", "nullable": true}}), 1);
    check(&["--heal", "off"], json!({"at": {"type": ["int", "null"]}}), 0);
}

#[test]
fn a_lost_connection_fails_what_is_under_way_and_the_next_call_connects_anew() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    let (mut stream, [first, second]) = program.two_calls(&mut client);
    write_frame(&mut stream, &result(&second["id"], "second"));
    assert_eq!(text(&client.answer(2)["result"]), "second");
    // It dies between two bytes of an answer.
    let answer = result(&first["id"], "first");
    stream.write_all(&u32::try_from(answer.len()).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&answer.as_bytes()[..9]).unwrap();
    drop(stream);
    let lost = client.answer(1);
    assert!(failure(&lost["result"]).starts_with("IPCConnectionError: "), "{lost}");
    assert!(
        failure(&lost["result"]).contains("whether the tool has done its work is not known"),
        "{lost}"
    );
    client.send_call(3, "t", json!({}));
    let mut stream = program.accept();
    let third = read_frame(&mut stream);
    write_frame(&mut stream, &result(&third["id"], "third"));
    assert_eq!(text(&client.answer(3)["result"]), "third");
    assert!(client.finish().success());
}

#[test]
fn a_program_that_closed_an_idle_connection_is_connected_again_without_a_word() {
    let program = ByHand::new(false);
    let mut client = program.bridge();
    for round in 0..20 {
        client.send_call(round, "t", json!({}));
        let mut stream = program.accept();
        let call = read_frame(&mut stream);
        write_frame(&mut stream, &result(&call["id"], "there"));
        assert_eq!(text(&client.answer(round)["result"]), "there");
    }
    assert!(client.finish().success());
}

#[test]
fn strange_answers_fail_their_call_and_no_other() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    client.send_call(0, "t", json!({}));
    let mut stream = program.accept();
    let mut call = read_frame(&mut stream);
    for (round, (answer, expected)) in [
        ("not json", "IPCError: the answer cannot be read"),
        ("", "IPCError: the answer cannot be read"),
        ("[]", "IPCError: the answer cannot be read"),
        (r#"{"id":ID,"error":{"message":"m","type":"T"}}"#, "T: m"),
        (r#"{"id":ID,"error":"words"}"#, "IPCError: the program's answer has neither"),
        (r#"{"id":ID,"result":7}"#, "IPCError: the program's answer has neither"),
    ]
    .into_iter()
    .enumerate()
    {
        // What is nobody's answer, and what is not known, does not matter.
        write_frame(&mut stream, r#"{"id":999999,"result":{"content":[]}}"#);
        write_frame(&mut stream, r#"{"method":"from_the_future","params":[]}"#);
        write_frame(&mut stream, r#"{"method":"progress","params":{"id":999999,"progress":1}}"#);
        write_frame(&mut stream, &answer.replace("ID", &call["id"].to_string()));
        let told = client.answer(round);
        assert!(failure(&told["result"]).starts_with(expected), "{answer}: {told}");
        client.send_call(round + 1, "t", json!({}));
        call = read_frame(&mut stream);
    }
    // A result without content gets what clients insist on; a pretty one is put on one line.
    let pretty = format!("{{\n  \"id\": {},\n  \"result\": {{\n}}\n}}", call["id"]);
    write_frame(&mut stream, &pretty);
    assert_eq!(client.answer(6)["result"], json!({"content": []}));
    assert_eq!(client.unheard(), Vec::<Value>::new());
    assert!(client.finish().success());
}

#[test]
fn an_unreadable_answer_costs_no_other_call() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    let (mut stream, [first, second]) = program.two_calls(&mut client);
    let half = format!(r#"{{"id":{},"result":{{"content":[],"x":"\ud800"}}}}"#, first["id"]);
    write_frame(&mut stream, &half);
    let told = client.answer(1);
    assert!(failure(&told["result"]).contains("cannot be read"), "{told}");
    // News without a number are no news.
    write_frame(
        &mut stream,
        &format!(r#"{{"method":"progress","params":{{"id":{}}}}}"#, second["id"]),
    );
    write_frame(&mut stream, &result(&second["id"], "second"));
    assert_eq!(text(&client.answer(2)["result"]), "second");
    assert!(client.finish().success());
}

#[test]
fn a_program_that_takes_no_connections_keeps_nobody_waiting() {
    let program = ByHand::new(false);
    let mut client = program.bridge();
    // Each call that is given up leaves a connection that was never accepted.
    for id in 0..200 {
        client.send_call(id, "t", json!({}));
        client.notify("notifications/cancelled", &json!({"requestId": id}));
    }
    assert_eq!(client.ask("still", "ping", &json!({}))["result"], json!({}));
    assert!(client.finish().success());
}

/// An argument that no socket holds.
fn large() -> String {
    "x".repeat(9 << 20)
}

/// A call with it. It is written by hand: to serialise it takes longer than all else, and a program that takes
/// nothing has 30 s.
fn send_large(client: &mut StdioServer, id: impl Into<Value>) {
    let (id, text) = (id.into(), large());
    let params = format!(r#"{{"name":"t","arguments":{{"text":"{text}"}}}}"#);
    client.send_line(&format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#
    ));
}

#[test]
fn a_client_is_heard_while_the_program_takes_nothing() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    send_large(&mut client, 1);
    let mut stream = program.accept();
    let began = Instant::now();
    assert_eq!(client.ask("still", "ping", &json!({}))["result"], json!({}));
    client.notify("notifications/cancelled", &json!({"requestId": 1}));
    client.send_call(2, "t", json!({}));
    assert_eq!(client.ask("there", "ping", &json!({}))["result"], json!({}));
    assert!(began.elapsed() < QUICK, "{:?}", began.elapsed());
    // Once the program listens, it hears all of it, and that nobody wants the first any more.
    let first = read_frame(&mut stream);
    assert_eq!(first["params"]["arguments"]["text"], large());
    let cancel = read_frame(&mut stream);
    assert_eq!(cancel, json!({"method": "cancel", "params": {"id": first["id"]}}));
    let second = read_frame(&mut stream);
    write_frame(&mut stream, &result(&second["id"], "second"));
    assert_eq!(text(&client.answer(2)["result"]), "second");
    assert!(client.finish().success());
}

#[test]
fn a_call_that_is_stuck_can_be_given_up_where_calls_go_one_at_a_time() {
    let program = ByHand::new(false);
    let mut client = program.bridge();
    let began = Instant::now();
    for round in 0..3 {
        send_large(&mut client, round);
        let _deaf = program.accept();
        client.notify("notifications/cancelled", &json!({"requestId": round}));
        client.send_call("next", "t", json!({}));
        let mut stream = program.accept();
        read_frame(&mut stream);
        write_frame(&mut stream, r#"{"result":{"content":[{"type":"text","text":"next"}]}}"#);
        assert_eq!(text(&client.answer("next")["result"]), "next");
        // The next call is to be stuck on a connection of its own.
        drop(stream);
    }
    assert!(began.elapsed() < QUICK, "{:?}", began.elapsed());
    assert!(client.finish().success());
}

#[test]
fn the_end_of_the_input_is_seen_while_the_program_takes_nothing() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    send_large(&mut client, 1);
    let _deaf = program.accept();
    let began = Instant::now();
    client.close_input();
    assert!(client.wait().success());
    assert!(began.elapsed() < QUICK, "{:?}", began.elapsed());
}

#[test]
fn calls_wait_for_a_deaf_program_up_to_a_limit() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    client.send_call(0, "t", json!({}));
    let _deaf = program.accept();
    // One is on its way, seven wait, and 64 MiB are full.
    (1..=9).for_each(|id| send_large(&mut client, id));
    let told = client.answer(9);
    assert!(failure(&told["result"]).contains("bytes of calls wait"), "{told}");
    assert_eq!(client.unheard(), Vec::<Value>::new());
    client.close_input();
    assert!(client.wait().success());
}

#[test]
fn an_answer_over_the_limit_is_told_and_skipped() {
    let program = ByHand::new(false);
    let mut client = program.bridge();
    client.send_call(1, "t", json!({}));
    let mut stream = program.accept();
    read_frame(&mut stream);
    let size = 11 << 20;
    stream.write_all(&u32::try_from(size).unwrap().to_be_bytes()).unwrap();
    stream.write_all(&vec![b' '; size]).unwrap();
    let told = client.answer(1);
    assert!(failure(&told["result"]).starts_with("IPCMessageSizeError: "), "{told}");
    client.send_call(2, "t", json!({}));
    read_frame(&mut stream);
    write_frame(&mut stream, r#"{"result":{"content":[{"type":"text","text":"on"}]}}"#);
    assert_eq!(text(&client.answer(2)["result"]), "on");
    assert!(client.finish().success());
}

#[test]
fn a_bridge_that_was_started_before_its_program_finds_it_later() {
    let mut program = ByHand::new(true);
    program.listener = None;
    std::fs::remove_file(&program.socket).unwrap();
    let mut client = program.bridge();
    let early = client.call(1, "t", json!({}));
    assert!(failure(&early).contains("cannot be reached"), "{early}");
    program.listener = Some(UnixListener::bind(&program.socket).unwrap());
    client.send_call(2, "t", json!({}));
    let mut stream = program.accept();
    let call = read_frame(&mut stream);
    write_frame(&mut stream, &result(&call["id"], "there"));
    assert_eq!(text(&client.answer(2)["result"]), "there");
    assert!(client.finish().success());
}

#[test]
fn a_client_that_is_done_is_not_waited_for_and_one_that_still_reads_gets_its_answer() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    client.send_call(1, "t", json!({}));
    let mut stream = program.accept();
    let call = read_frame(&mut stream);
    client.close_input();
    write_frame(&mut stream, &result(&call["id"], "last"));
    assert_eq!(text(&client.answer(1)["result"]), "last");
    assert!(client.wait().success());
}
