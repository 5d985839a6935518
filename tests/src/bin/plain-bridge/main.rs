//! A bridge that passes everything on as it is, as the one of seed 003 did: `plain-bridge ws://HOST:PORT`.
//!
//! Each line of its input becomes a frame, and each frame a line of its output. It repairs nothing.

use std::io::{BufRead, ErrorKind, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use tungstenite::{Error, Message, WebSocket};

/// How long a read waits before the other direction has its turn.
const TURN: Duration = Duration::from_millis(5);

fn main() {
    let url = std::env::args().nth(1).expect("an address");
    let stream = TcpStream::connect(url.trim_start_matches("ws://")).expect("the application runs");
    stream.set_nodelay(true).expect("a socket");
    let (mut socket, _) = tungstenite::client(&url, stream).expect("it speaks WebSocket");
    socket.get_ref().set_read_timeout(Some(TURN)).expect("a socket");
    let (lines, typed) = channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
        std::process::exit(0);
    });
    loop {
        for line in typed.try_iter() {
            socket.send(Message::text(line)).expect("the application takes it");
        }
        match next_frame(&mut socket) {
            Ok(Some(text)) => {
                let mut output = std::io::stdout().lock();
                writeln!(output, "{text}").and_then(|()| output.flush()).expect("the client reads");
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// The next frame of text, unless none has come by now.
fn next_frame(socket: &mut WebSocket<TcpStream>) -> Result<Option<String>, Error> {
    match socket.read() {
        Ok(Message::Text(text)) => Ok(Some(text.to_string())),
        Ok(_) => Ok(None),
        Err(Error::Io(error))
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
