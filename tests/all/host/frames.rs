//! Bad frames to a session: each gets a clear error, and the connection and the session live on.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

use super::{Program, SOON, text, tools};

struct Wire(UnixStream);

impl Wire {
    fn connect(program: &Program) -> Self {
        let stream = UnixStream::connect(program.session().socket_path()).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(stream)
    }

    fn send(&mut self, frame: &[u8]) {
        self.0.write_all(&u32::try_from(frame.len()).unwrap().to_be_bytes()).unwrap();
        self.0.write_all(frame).unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).unwrap();
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame).unwrap();
        serde_json::from_slice(&frame).unwrap()
    }

    fn ask(&mut self, frame: &str) -> Value {
        self.send(frame.as_bytes());
        self.receive()
    }
}

const ECHO: &str = r#"{"method":"call_tool","params":{"name":"echo","arguments":{"text":"on"}}}"#;

#[test]
fn the_messages_of_the_seed_work_as_they_are() {
    let program = Program::start(&tools());
    let mut wire = Wire::connect(&program);
    let answer = wire.ask(ECHO);
    assert_eq!(answer.to_string(), r#"{"result":{"content":[{"type":"text","text":"on"}]}}"#);
    let failed = wire.ask(r#"{"method":"call_tool","params":{"name":"fails","arguments":{}}}"#);
    assert_eq!(
        failed.to_string(),
        r#"{"error":{"message":"the disk is full","type":"ToolExecutionError"}}"#
    );
    let tools = wire.ask(r#"{"method":"list_tools"}"#);
    assert_eq!(tools["result"]["tools"][0]["name"], "echo");
    let with_id = wire.ask(r#"{"id":7,"method":"list_tools"}"#);
    assert_eq!(with_id["id"], 7);
}

#[test]
fn calls_without_an_id_are_answered_in_their_order() {
    let program = Program::start(&tools());
    let mut wire = Wire::connect(&program);
    for n in 0..50 {
        let tool = if n % 2 == 0 { "shout" } else { "echo" };
        wire.send(
            format!(r#"{{"method":"call_tool","params":{{"name":"{tool}","arguments":{{"text":"{n}"}}}}}}"#).as_bytes(),
        );
    }
    for n in 0..50 {
        assert_eq!(text(&wire.receive()["result"]), n.to_string());
    }
    // What needs no call waits for its turn, too.
    wire.send(ECHO.as_bytes());
    wire.send(b"nonsense");
    wire.send(br#"{"method":"list_tools"}"#);
    assert_eq!(text(&wire.receive()["result"]), "on");
    assert!(wire.receive()["error"].is_object());
    assert!(wire.receive()["result"]["tools"].is_array());
}

#[test]
fn an_id_may_be_used_again_after_its_call_was_given_up() {
    let program = Program::start(&tools());
    let mut wire = Wire::connect(&program);
    for _ in 0..100 {
        wire.send(br#"{"id":1,"method":"call_tool","params":{"name":"waits","arguments":{}}}"#);
        wire.send(br#"{"method":"cancel","params":{"id":1}}"#);
        wire.send(ECHO.replacen('{', r#"{"id":1,"#, 1).as_bytes());
        let answer = wire.receive();
        assert_eq!((text(&answer["result"]), &answer["id"]), ("on", &serde_json::json!(1)));
    }
}

#[test]
fn a_bad_frame_is_refused_and_the_next_one_served() {
    let program = Program::start(&tools());
    let mut wire = Wire::connect(&program);
    wire.ask(ECHO);
    let unreadable = "the message cannot be read";
    for (frame, expected) in [
        (b"".as_slice(), unreadable),
        (b"nonsense", unreadable),
        (b"[]", unreadable),
        (b"{\"method\":\"call_tool\"", unreadable),
        (b"{\"method\":\"call_\xff\xfe\"}", unreadable),
        (b"{}", "`method` is missing"),
        (b"{\"method\":7}", "`method` is missing"),
        (b"{\"method\":\"fly\"}", "there is no method `fly`"),
        (b"{\"method\":\"call_tool\"}", "`params.name` is not"),
        (b"{\"method\":\"call_tool\",\"params\":{\"name\":7}}", "`params.name` is not"),
        (
            b"{\"method\":\"call_tool\",\"params\":{\"name\":\"echo\",\"arguments\":[1]}}",
            "is not an object",
        ),
        (b"{\"id\":\"x\",\"method\":\"call_tool\"}", "`id` is not a whole number"),
    ] {
        wire.send(frame);
        let answer = wire.receive();
        let said = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(said.contains(expected), "{}: {said}", String::from_utf8_lossy(frame));
        assert_eq!(text(&wire.ask(ECHO)["result"]), "on");
    }
    // One that is too long is skipped.
    let size = 12 << 20;
    wire.0.write_all(&u32::try_from(size).unwrap().to_be_bytes()).unwrap();
    wire.0.write_all(&vec![b'x'; size]).unwrap();
    let answer = wire.receive();
    assert_eq!(answer["error"]["type"], "IPCMessageSizeError", "{answer}");
    assert_eq!(text(&wire.ask(ECHO)["result"]), "on");
}

#[test]
fn half_a_frame_and_then_silence_takes_nothing_from_others() {
    let program = Program::start(&tools());
    let halves: Vec<_> = (0..100)
        .map(|n| {
            let mut wire = Wire::connect(&program);
            wire.0.write_all(&[0, 0x9f, 0xff, 0xff][..n % 5]).unwrap();
            wire
        })
        .collect();
    assert_eq!(text(&Wire::connect(&program).ask(ECHO)["result"]), "on");
    drop(halves);
    assert_eq!(text(&Wire::connect(&program).ask(ECHO)["result"]), "on");
}

#[test]
fn equal_ids_at_the_same_time_are_refused() {
    let program = Program::start(&tools());
    let mut wire = Wire::connect(&program);
    let meet = r#"{"id":1,"method":"call_tool","params":{"name":"meet","arguments":{}}}"#;
    wire.send(meet.as_bytes());
    let refused = wire.ask(meet);
    assert!(
        refused["error"]["message"].as_str().unwrap().contains("under way already"),
        "{refused}"
    );
    let other = wire.ask(&meet.replace("\"id\":1", "\"id\":2"));
    let ids = [other["id"].as_u64(), wire.receive()["id"].as_u64()];
    assert!(ids.contains(&Some(1)) && ids.contains(&Some(2)), "{ids:?}");
}
