//! The least that a bridge from WebSocket to pipes can be: a child for each WebSocket, each frame a line, each line a frame.
//!
//! It looks at no message, keeps no books and has no limits. A bridge that does more costs more; what it costs more than
//! this is its own.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;

use bytes::BytesMut;
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::process::{self, Running};

/// Serves WebSockets, with a child of this command behind each.
pub(crate) fn serve(command: &[String]) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let command = command.to_vec();
    let serving = async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound just above");
        writeln!(io::stdout(), "{address}").expect("the bench reads it");
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a TCP socket");
            tokio::spawn(relay(stream, start(&command)));
        }
    };
    // In a task, like the bridge's: the thread of `block_on` costs another hop.
    runtime.block_on(async { tokio::spawn(serving).await.expect("it serves until it is killed") })
}

/// A child with its pipes.
fn start(command: &[String]) -> (Running, Sender, Receiver) {
    let (program, args) = command.split_first().expect("the bench names a program");
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let mut running = Running::start(&mut process::command(Path::new(program), &args));
    let input = OwnedFd::from(running.0.stdin.take().expect("piped"));
    let output = OwnedFd::from(running.0.stdout.take().expect("piped"));
    let input = Sender::from_owned_fd(input).expect("a pipe");
    (running, input, Receiver::from_owned_fd(output).expect("a pipe"))
}

async fn relay(stream: TcpStream, (_running, mut input, mut output): (Running, Sender, Receiver)) {
    let config = WebSocketConfig::default().read_buffer_size(8 * 1024);
    let accepted = tokio_tungstenite::accept_async_with_config(stream, Some(config)).await;
    let Ok(mut socket) = accepted else { return };
    let (mut lines, mut request) = (BytesMut::new(), Vec::new());
    loop {
        tokio::select! {
            frame = socket.next() => {
                let Some(Ok(Frame::Text(text))) = frame else { return };
                request.clear();
                request.extend_from_slice(text.as_bytes());
                request.push(b'\n');
                if input.write_all(&request).await.is_err() {
                    return;
                }
            }
            read = output.read_buf(&mut lines) => {
                let Ok(1..) = read else { return };
                while let Some(end) = lines.iter().position(|byte| *byte == b'\n') {
                    let mut line = lines.split_to(end + 1);
                    line.truncate(end);
                    let text = line.freeze().try_into().expect("a server writes text");
                    if socket.send(Frame::Text(text)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}
