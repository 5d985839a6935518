//! A bridge whose client or program takes nothing for a while: it hears the other one, it loses nothing, and it
//! does nothing while there is nothing to do.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pontoon_tests::rig::wait_until;
use rustix::fs::{OFlags, fcntl_getfl};
use serde_json::{Value, json};

use super::faults::{ByHand, read_frame, result, write_frame};
use super::{SOON, bridge_command, failure, text};

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

    /// Reads so many messages, and that there are no more, and gives them in the order of their ids.
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

    /// It does nothing for a while.
    fn assert_rests(&self, state: &str) {
        // What it was given it may still do.
        sleep(Duration::from_millis(300));
        let (began, before) = (Instant::now(), self.worked());
        sleep(Duration::from_millis(500));
        let (worked, time) = (self.worked() - before, began.elapsed());
        assert!(worked < time / 4, "{state}: it worked {worked:?} in {time:?}");
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
