//! A hundred thousand damaged frames, to a session and to a bridge: each message that wants an answer gets one, what
//! comes after them is served, and memory does not grow.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use pontoon_tests::rig::processes::peak_resident_bytes;
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use super::faults::{ByHand, read_frame, result, try_read_frame};
use super::{SOON, bridge_command};

const FRAMES: usize = 100_000;

/// More than either process needs, and less than it would have if it kept the frames.
const ENOUGH_MEMORY: u64 = 64 << 20;

/// The same damage each time.
struct Damage(u64);

impl Damage {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    /// The frame of this text, cut off or with another byte in it, or only as many bytes of anything.
    fn frame(&mut self, text: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        match self.below(4) {
            0 => bytes.truncate(self.below(text.len())),
            1 => bytes.iter_mut().for_each(|byte| *byte = self.below(256) as u8),
            2 => bytes.extend_from_slice(&text.as_bytes()[self.below(text.len())..]),
            _ => bytes[self.below(text.len())] = self.below(256) as u8,
        }
        frame(&bytes)
    }
}

fn frame(text: &[u8]) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes(), text].concat()
}

#[test]
fn a_session_answers_every_damaged_frame_and_lives_on() {
    const AT_ONCE: usize = 50;
    let place = tempfile::Builder::new().prefix("ph").tempdir_in("/tmp").unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with its input")]
    let mut command = Command::new(env!("CARGO_BIN_EXE_host-program"));
    command.arg(place.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let mut ready = [0; 6];
    program.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let mut stream = UnixStream::connect(socket_in(place.path())).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let call = r#"{"method":"call_tool","params":{"name":"nothing","arguments":{}}}"#;
    let mut damage = Damage(0x5eed);
    for _ in 0..FRAMES / AT_ONCE {
        let frames: Vec<_> = (0..AT_ONCE).flat_map(|_| damage.frame(call)).collect();
        stream.write_all(&frames).unwrap();
        for _ in 0..AT_ONCE {
            let answer = read_frame(&mut stream);
            assert!(answer["error"].is_object() || answer["result"].is_object(), "{answer}");
        }
    }
    stream.write_all(&frame(call.as_bytes())).unwrap();
    let answer = read_frame(&mut stream);
    assert!(answer["result"]["content"].is_array(), "{answer}");
    let peak = peak_resident_bytes(program.id()).unwrap();
    assert!(peak < ENOUGH_MEMORY, "{peak}");
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}

/// The socket of a session in this directory.
fn socket_in(place: &Path) -> std::path::PathBuf {
    let files =
        |directory: &Path| std::fs::read_dir(directory).unwrap().map(|it| it.unwrap().path());
    let mut all = files(place).flat_map(|directory| files(&directory).collect::<Vec<_>>());
    all.find(|path| path.extension().is_some_and(|it| it == "sock")).unwrap()
}

#[test]
fn a_bridge_answers_every_call_whatever_the_program_says() {
    const EACH: usize = 20;
    let program = ByHand::new(true);
    let mut command = bridge_command(&program.socket, &program.schema);
    // It complains of each connection that it gives up.
    let mut client = StdioServer::start(command.stderr(Stdio::null()));
    let mut damage = Damage(0x5eed);
    let mut connection = None;
    for round in 0..FRAMES / EACH {
        client.send_call(round, "t", json!({}));
        let (mut stream, call) = take_call(&program, connection.take());
        let answer = result(&call["id"], "there");
        let mut frames: Vec<_> = (0..EACH).flat_map(|_| damage.frame(&answer)).collect();
        frames.extend(frame(answer.as_bytes()));
        // The bridge may close the connection before it has read all.
        let _ = stream.write_all(&frames);
        let told = client.answer(round);
        assert!(told["result"]["content"].is_array() || told["error"].is_object(), "{told}");
        connection = Some(stream);
    }
    assert_eq!(client.unheard(), Vec::<Value>::new(), "one answer is enough");
    let peak = peak_resident_bytes(client.pid()).unwrap();
    assert!(peak < ENOUGH_MEMORY, "{peak}");
    assert!(client.finish().success());
}

/// The next call, on the connection that there is or on another.
fn take_call(program: &ByHand, connection: Option<UnixStream>) -> (UnixStream, Value) {
    if let Some(mut stream) = connection
        && let Ok(call) = read_call(&mut stream)
    {
        return (stream, call);
    }
    let mut stream = program.accept();
    let call = read_call(&mut stream).unwrap();
    (stream, call)
}

fn read_call(stream: &mut UnixStream) -> std::io::Result<Value> {
    loop {
        let message = try_read_frame(stream)?;
        if message["method"] == "call_tool" {
            return Ok(message);
        }
    }
}
