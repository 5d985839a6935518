//! A bridge whose client or program takes nothing for a while: it hears the other one, it loses nothing, and it
//! does nothing while there is nothing to do.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Duration;

use pontoon_tests::rig::{holds_within, wait_until};
use rustix::fs::{OFlags, fcntl_getfl};
use serde_json::{Value, json};

use super::faults::{ByHand, read_frame, result, write_frame};
use super::{SOON, bridge_command, failure, text};

/// Long enough to see that a process works all the time.
const WHILE: Duration = Duration::from_millis(400);

/// A client that reads when it wants to.
struct SlowReader {
    bridge: Child,
    input: Option<ChildStdin>,
}

impl SlowReader {
    fn start(program: &ByHand) -> Self {
        let mut command = bridge_command(&program.socket, &program.schema);
        let mut bridge = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self { input: bridge.stdin.take(), bridge }
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().expect("it is open"), "{message}").unwrap();
    }

    fn call(&mut self, id: u32, arguments: &Value) {
        let params = json!({"name": "t", "arguments": arguments});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}));
    }

    /// Reads `count` messages, makes sure that the bridge says no more, and gives them in the order of their ids.
    fn read(mut self, count: usize) -> Vec<Value> {
        let output = BufReader::new(self.bridge.stdout.take().expect("it is read once"));
        let mut lines = output.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
        let mut said: Vec<Value> = lines.by_ref().take(count).collect();
        drop(self.input.take());
        said.extend(lines);
        assert_eq!(said.len(), count);
        assert!(self.bridge.wait().unwrap().success());
        said.sort_by_key(|message| message["id"].as_u64());
        said
    }

    /// How long the bridge has worked.
    fn worked(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.bridge.id())).unwrap();
        let after_name = stat.rsplit(')').next().unwrap();
        let ticks = after_name.split(' ').skip(12).take(2).map(|it| it.parse::<u64>().unwrap());
        Duration::from_secs_f64(
            ticks.sum::<u64>() as f64 / rustix::param::clock_ticks_per_second() as f64,
        )
    }

    /// Waits until it has done what it was given to do, and does nothing.
    fn assert_rests(&self, state: &str) {
        wait_until(&format!("the bridge to rest while {state}"), SOON, || {
            let before = self.worked();
            !holds_within(WHILE, || self.worked() - before > WHILE / 4)
        });
    }
}

impl Drop for SlowReader {
    fn drop(&mut self) {
        let _ = self.bridge.kill();
        let _ = self.bridge.wait();
    }
}

/// More than any pipe holds.
fn long() -> String {
    "x".repeat(3 << 20)
}

#[test]
fn a_client_that_writes_all_before_it_reads_gets_all_answers() {
    let program = ByHand::new(true);
    let mut client = SlowReader::start(&program);
    client.call(0, &json!({}));
    let mut stream = program.accept();
    let call = read_frame(&mut stream);
    // The answer is on its way from here on, and the client does not take it.
    let answer = result(&call["id"], &long());
    let writer = std::thread::spawn(move || {
        write_frame(&mut stream, &answer);
        for _ in 1..=5 {
            let call = read_frame(&mut stream);
            write_frame(&mut stream, &result(&call["id"], "got it"));
        }
        stream
    });
    for id in 1..=5 {
        client.send(&json!({"jsonrpc": "2.0", "id": 10 + id, "method": "ping"}));
        client.call(id, &json!({"text": long()}));
    }
    let said = client.read(11);
    let ids: Vec<_> = said.iter().map(|message| message["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 11, 12, 13, 14, 15]);
    assert_eq!(text(&said[0]["result"]), long());
    assert!(said[1..6].iter().all(|answer| text(&answer["result"]) == "got it"));
    drop(writer.join());
}

#[test]
fn what_a_program_said_before_it_went_is_told_though_it_takes_nothing_more() {
    let program = ByHand::new(true);
    let mut client = SlowReader::start(&program);
    client.call(0, &json!({}));
    client.call(1, &json!({}));
    let mut stream = program.accept();
    let (first, second) = (read_frame(&mut stream), read_frame(&mut stream));
    write_frame(&mut stream, &result(&first["id"], &long()));
    // The client takes no more, so this is not read yet.
    write_frame(&mut stream, &result(&second["id"], "the last word"));
    drop(stream);
    client.assert_rests("the client does not read, and the program is gone");
    client.call(2, &json!({}));
    let mut stream = program.accept();
    let third = read_frame(&mut stream);
    write_frame(&mut stream, &result(&third["id"], "a new one"));
    let said = client.read(3);
    assert_eq!(text(&said[0]["result"]), long());
    assert_eq!(text(&said[1]["result"]), "the last word");
    assert_eq!(text(&said[2]["result"]), "a new one");
}

#[test]
fn a_late_answer_without_an_id_is_nobody_elses() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    client.send_call(1, "t", json!({}));
    let mut stream = program.accept();
    read_frame(&mut stream);
    client.notify("notifications/cancelled", &json!({"requestId": 1}));
    assert_eq!(read_frame(&mut stream)["method"], "cancel");
    client.send_call(2, "t", json!({}));
    read_frame(&mut stream);
    // It is the first one's.
    write_frame(&mut stream, r#"{"result":{"content":[{"type":"text","text":"first"}]}}"#);
    let told = client.answer(2);
    assert!(failure(&told["result"]).contains("not known"), "{told}");
    assert!(client.finish().success());
}

#[test]
fn an_unreadable_late_answer_costs_no_other_call() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    let (mut stream, [first, second]) = program.two_calls(&mut client);
    client.notify("notifications/cancelled", &json!({"requestId": 1}));
    assert_eq!(read_frame(&mut stream)["method"], "cancel");
    let half = format!(r#"{{"id":{},"result":{{"content":[],"x":"\ud800"}}}}"#, first["id"]);
    write_frame(&mut stream, &half);
    write_frame(&mut stream, &result(&second["id"], "second"));
    assert_eq!(text(&client.answer(2)["result"]), "second");
    assert!(client.finish().success());
}

#[test]
fn a_program_that_goes_on_talking_though_it_takes_nothing_is_left() {
    let program = ByHand::new(true);
    let mut client = program.bridge();
    // It takes longer to pass on than to say.
    let meta = json!({"progressToken": "x".repeat(1000)});
    client.send(1, "tools/call", &json!({"name": "t", "_meta": meta}));
    let mut stream = program.accept();
    let first = read_frame(&mut stream);
    stream.shutdown(Shutdown::Read).unwrap();
    let talks = std::thread::spawn(move || {
        let note = json!({"method": "progress", "params": {"id": first["id"], "progress": 1}});
        let note = note.to_string();
        let length = u32::try_from(note.len()).unwrap().to_be_bytes();
        let talk = [&length, note.as_bytes()].concat().repeat(1000);
        while stream.write_all(&talk).is_ok() {}
    });
    (0..2000).for_each(|_| _ = client.wait_for("progress", |_| true));
    client.send_call(2, "t", json!({}));
    let mut stream = program.accept();
    let second = read_frame(&mut stream);
    write_frame(&mut stream, &result(&second["id"], "second"));
    assert_eq!(text(&client.answer(2)["result"]), "second");
    assert!(failure(&client.answer(1)["result"]).contains("not known"));
    talks.join().unwrap();
    assert!(client.finish().success());
}

#[test]
fn a_call_that_was_not_sent_whole_is_sent_again_whatever_the_program_said() {
    for last_words in ["nonsense", r#"{"result":{}}"#] {
        let program = ByHand::new(true);
        let mut client = SlowReader::start(&program);
        (0..3).for_each(|id| client.call(id, &json!({})));
        let mut stream = program.accept();
        let first = read_frame(&mut stream);
        (0..2).for_each(|_| _ = read_frame(&mut stream));
        // The client does not read, so what follows is not read before the program is gone.
        write_frame(&mut stream, &result(&first["id"], &"x".repeat(300_000)));
        client.assert_rests("the client does not read");
        client.call(3, &json!({"text": long()}));
        client.assert_rests("the program does not read");
        write_frame(&mut stream, last_words);
        drop(stream);
        let mut stream = program.accept();
        let again = read_frame(&mut stream);
        write_frame(&mut stream, &result(&again["id"], "at last"));
        let said = client.read(4);
        assert!(said[1..3].iter().all(|told| failure(&told["result"]).contains("not known")));
        assert_eq!(text(&said[3]["result"]), "at last", "{last_words}");
    }
}

#[test]
fn a_client_that_reads_late_gets_what_was_said_before_it_left() {
    let program = ByHand::new(true);
    let mut client = SlowReader::start(&program);
    client.call(0, &json!({}));
    client.call(1, &json!({}));
    let mut stream = program.accept();
    let calls = [read_frame(&mut stream), read_frame(&mut stream)];
    let answers = calls.map(|call| result(&call["id"], &long()));
    let program = std::thread::spawn(move || {
        answers.iter().for_each(|answer| write_frame(&mut stream, answer));
    });
    client.assert_rests("one answer is not read, and the next one waits behind it");
    drop(client.input.take());
    // Longer than calls that are under way have.
    let ends = || client.bridge.try_wait().unwrap().is_some();
    assert!(!holds_within(Duration::from_millis(1500), ends), "its answers are not read");
    let said = client.read(2);
    assert!(said.iter().all(|answer| text(&answer["result"]) == long()));
    program.join().unwrap();
}

#[test]
fn a_bridge_ends_with_its_input_though_its_client_never_reads() {
    let program = ByHand::new(true);
    let mut client = SlowReader::start(&program);
    // Each answer has as long an id; then there is no room for more.
    for _ in 0..16 {
        let id = "x".repeat(1 << 20);
        client.send(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
    }
    client.send(&json!({"jsonrpc": "2.0", "id": "not read", "method": "ping"}));
    client.assert_rests("there is no room for answers");
    drop(client.input.take());
    wait_until("the bridge to end", SOON, || client.bridge.try_wait().unwrap().is_some());
}

#[test]
fn a_bridge_that_waits_does_nothing() {
    let program = ByHand::new(true);
    let mut client = SlowReader::start(&program);
    client.assert_rests("nothing was asked");
    client.call(0, &json!({}));
    let mut stream = program.accept();
    let call = read_frame(&mut stream);
    client.assert_rests("a call is under way");
    client.call(1, &json!({"text": long()}));
    client.assert_rests("the program does not read");
    write_frame(&mut stream, &result(&call["id"], &"x".repeat(100_000)));
    client.assert_rests("neither reads");
    drop(client.input.take());
    client.assert_rests("the input has ended");
}

#[test]
fn a_pipe_is_left_as_it_was() {
    let program = ByHand::new(true);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = bridge_command(&program.socket, &program.schema);
    command.stdin(Stdio::piped()).stdout(writer.try_clone().unwrap());
    let mut bridge = command.spawn().unwrap();
    drop(command);
    let mut input = bridge.stdin.take().unwrap();
    writeln!(input, r#"{{"jsonrpc":"2.0","id":1,"method":"ping"}}"#).unwrap();
    let mut answer = String::new();
    let mut reader = BufReader::new(reader);
    reader.read_line(&mut answer).unwrap();
    assert!(answer.contains("\"id\":1"), "{answer}");
    let waits = || !fcntl_getfl(&writer).unwrap().contains(OFlags::NONBLOCK);
    assert!(!waits(), "the bridge waits for a client that does not read");
    drop(input);
    wait_until("the bridge to end", SOON, || bridge.try_wait().unwrap().is_some());
    assert!(waits());
}
