//! One connection of a bridge to the program: frames, as the seed of the protocol has them, or MCP itself,
//! line by line. The first byte tells: no frame is so long that its length begins with anything but zero.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use pontoon_wire::framing::frames::Frames;
use pontoon_wire::framing::lines::Lines;
use pontoon_wire::{Message, Slot, json, string_value};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::outbox::Outbox;
use crate::mcp::{McpClient, Out};
use crate::protocol::{self, IpcError, MAX_MESSAGE_SIZE, frame};
use crate::running::{Outcome, Running, Wanted, to_json};
use crate::tools::{Progress, Tools};

/// A bridge that stops in the middle of a message for so long is cut off.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many requests without an id may wait for their turn.
const MAX_IN_ORDER: usize = 64;

/// Serves a connection until it ends or is stopped; then its calls are given up.
pub(super) async fn serve(
    stream: UnixStream,
    tools: Tools,
    changes: watch::Receiver<u64>,
    stop: CancellationToken,
) {
    let _stop = stop.clone().drop_guard();
    let (mut inbox, stream) = stream.into_split();
    let outbox = Arc::new(Outbox::new(stream));
    let mut first = BytesMut::new();
    let is_mcp = tokio::select! {
        () = stop.cancelled() => return,
        read = read_some(&mut inbox, &mut first) => match read {
            Ok(1..) => matches!(first[0], b'{' | b' ' | b'\n' | b'\r' | b'\t'),
            _ => return,
        },
    };
    let served = match is_mcp {
        true => serve_mcp(inbox, &outbox, first, &tools, changes, &stop).await,
        false => serve_frames(inbox, &outbox, first, tools, changes, &stop).await,
    };
    if let Err(error) = served {
        tracing::debug!(%error, "the connection of a bridge ended");
    }
    // A thread of a tool may still hold on to it.
    outbox.close();
}

async fn serve_mcp(
    mut inbox: OwnedReadHalf,
    outbox: &Arc<Outbox>,
    first: BytesMut,
    tools: &Tools,
    mut changes: watch::Receiver<u64>,
    stop: &CancellationToken,
) -> io::Result<()> {
    let client =
        McpClient::new(tools, Out::Socket(Arc::clone(outbox)), "pontoon-host", stop.clone());
    let mut lines = Lines::new(MAX_MESSAGE_SIZE);
    *lines.buffer() = first;
    loop {
        while let Some(line) = lines.next_line() {
            match line {
                Ok(line) => client.take(line).await,
                Err(too_long) => tracing::warn!(%too_long, "a message of a client's was dropped"),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            flushed = outbox.flush() => flushed?,
            Ok(()) = changes.changed() => client.tell_changed().await,
            read = read_some(&mut inbox, lines.buffer()), if !outbox.is_full() => if read? == 0 {
                return Ok(());
            },
        }
    }
}

async fn serve_frames(
    mut inbox: OwnedReadHalf,
    outbox: &Arc<Outbox>,
    first: BytesMut,
    tools: Tools,
    mut changes: watch::Receiver<u64>,
    stop: &CancellationToken,
) -> io::Result<()> {
    let mut bridge = Bridge {
        outbox: Arc::clone(outbox),
        running: Running::new(tools.clone(), stop.clone()),
        tools,
        in_order: None,
        has_ids: false,
    };
    let mut frames = Frames::new(MAX_MESSAGE_SIZE);
    *frames.buffer() = first;
    loop {
        while let Some(frame) = frames.next_frame() {
            match frame {
                Ok(frame) => bridge.take(frame)?,
                Err(too_long) => bridge.refuse("", &too_long.into())?,
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            flushed = outbox.flush() => flushed?,
            Ok(()) = changes.changed(), if bridge.has_ids => bridge.send(&[b"{\"method\":\"tools_changed\"}"]),
            read = read_some(&mut inbox, frames.buffer()), if !outbox.is_full() => if read? == 0 {
                return Ok(());
            },
            // Not while we ourselves do not read.
            () = tokio::time::sleep(PATIENCE), if frames.is_inside() && !outbox.is_full() => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it stopped in the middle of a message"));
            }
        }
    }
}

/// What is answered in its turn.
enum InOrder {
    Call(Wanted),
    Ready(Bytes),
}

/// A bridge that sends frames.
struct Bridge {
    outbox: Arc<Outbox>,
    tools: Tools,
    running: Arc<Running>,
    /// Calls without an id, one after another.
    in_order: Option<mpsc::Sender<InOrder>>,
    /// It has sent an id, so it can tell apart what it is sent.
    has_ids: bool,
}

impl Bridge {
    fn take(&mut self, frame: BytesMut) -> io::Result<()> {
        let message = match Message::parse(frame) {
            Ok(message) => message,
            Err(error) => {
                return self.refuse(
                    "",
                    &IpcError::Protocol(format!("the message cannot be read: {error}")),
                );
            }
        };
        let id = match message.raw(Slot::Id) {
            None | Some(b"null") => None,
            Some(raw) => {
                match std::str::from_utf8(raw).ok().and_then(|raw| raw.parse::<u64>().ok()) {
                    Some(id) => Some(id),
                    None => {
                        return self.refuse(
                            "",
                            &IpcError::Protocol("`id` is not a whole number".to_owned()),
                        );
                    }
                }
            }
        };
        self.has_ids |= id.is_some();
        let member = id.map(|id| format!("\"id\":{id},")).unwrap_or_default();
        match message.method().as_ref() {
            "call_tool" => self.call(&message, id, &member),
            "list_tools" => {
                let entries = serde_json::to_vec(&self.tools.entries()).expect("schemas are JSON");
                self.answer(&member, &[b"{\"tools\":".as_slice(), &entries, b"}"].concat())
            }
            "cancel" => {
                let params = message.raw(Slot::Params).unwrap_or(b"{}");
                json::find(params, "id").into_iter().for_each(|id| self.running.cancel(id));
                Ok(())
            }
            "" => self.refuse(&member, &IpcError::Protocol("`method` is missing".to_owned())),
            other => {
                self.refuse(&member, &IpcError::Protocol(format!("there is no method `{other}`")))
            }
        }
    }

    fn call(&mut self, message: &Message, id: Option<u64>, member: &str) -> io::Result<()> {
        let Some(name) = message.string(Slot::Name) else {
            let error = IpcError::Protocol("`params.name` is not the name of a tool".to_owned());
            return self.refuse(member, &error);
        };
        let arguments = message.raw(Slot::Arguments).filter(|raw| *raw != b"null").unwrap_or(b"{}");
        if arguments.first() != Some(&b'{') {
            let error = IpcError::Protocol("`params.arguments` is not an object".to_owned());
            return self.refuse(member, &error);
        }
        let meta = json::find(message.text(), "meta").map(Bytes::copy_from_slice);
        let wanted = Wanted {
            id: id.map(|id| id.to_string().into()).unwrap_or_default(),
            name: name.into_owned(),
            arguments: Bytes::copy_from_slice(arguments),
            progress: id.filter(|_| wants_progress(meta.as_deref())).map(|id| self.progress_of(id)),
            meta,
        };
        let Some(_) = id else { return self.in_turn(InOrder::Call(wanted)) };
        let (outbox, member) = (Arc::clone(&self.outbox), member.to_owned());
        self.running.begin(wanted, move |outcome| {
            outbox.push(reply(&member, outcome));
            std::future::ready(())
        });
        Ok(())
    }

    /// Answers what has no id after all that came before it.
    fn in_turn(&mut self, next: InOrder) -> io::Result<()> {
        let in_order = self.in_order.get_or_insert_with(|| {
            let (sender, mut waiting) = mpsc::channel(MAX_IN_ORDER);
            let (running, outbox) = (Arc::clone(&self.running), Arc::clone(&self.outbox));
            let stop = self.running.stop_token();
            tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
                while let Some(next) = waiting.recv().await {
                    match next {
                        InOrder::Ready(answer) => outbox.push(answer),
                        InOrder::Call(wanted) => {
                            let outcome = running.make(wanted, stop.child_token()).await;
                            outbox.push(reply("", outcome));
                        }
                    }
                }
            }));
            sender
        });
        let full = |_| io::Error::other(format!("{MAX_IN_ORDER} requests without an id wait"));
        in_order.try_send(next).map_err(full)
    }

    fn progress_of(&self, id: u64) -> Progress {
        let outbox = Arc::clone(&self.outbox);
        Arc::new(move |members| {
            let text = format!("{{\"method\":\"progress\",\"params\":{{\"id\":{id},{members}}}}}");
            if let Ok(frame) = frame(&[text.as_bytes()]) {
                outbox.push_if_idle(frame.into());
            }
        })
    }

    fn answer(&mut self, id: &str, result: &[u8]) -> io::Result<()> {
        self.push(id, success(id, result))
    }

    fn refuse(&mut self, id: &str, error: &IpcError) -> io::Result<()> {
        self.push(id, failed(id, error.wire_type(), &error.to_string()))
    }

    fn push(&mut self, id: &str, answer: Bytes) -> io::Result<()> {
        if id.is_empty() && self.in_order.is_some() {
            return self.in_turn(InOrder::Ready(answer));
        }
        self.outbox.push(answer);
        Ok(())
    }

    fn send(&self, pieces: &[&[u8]]) {
        if let Ok(frame) = frame(pieces) {
            self.outbox.push(frame.into());
        }
    }
}

fn wants_progress(meta: Option<&[u8]>) -> bool {
    let token = meta.and_then(|meta| json::find(meta, "progressToken"));
    token.is_some_and(|token| {
        string_value(token).is_some() || token.first().is_some_and(u8::is_ascii_digit)
    })
}

/// The frame that tells the outcome of a call.
fn reply(id: &str, outcome: Outcome) -> Bytes {
    match outcome {
        Ok(output) => success(id, &to_json(&output)),
        Err(error) => failed(id, &error.kind, &error.message),
    }
}

/// The frame with this result, or one that says that it is too long.
fn success(id: &str, result: &[u8]) -> Bytes {
    match frame(&[b"{", id.as_bytes(), b"\"result\":", result, b"}"]) {
        Ok(frame) => frame.into(),
        Err(too_long) => {
            failed(id, "IPCMessageSizeError", &format!("the result is too long: {too_long}"))
        }
    }
}

fn failed(id: &str, kind: &str, message: &str) -> Bytes {
    let text = protocol::error(id, kind, message);
    let framed = frame(&[text.as_bytes()]).or_else(|too_long| {
        let text = protocol::error(id, kind, &format!("its message is too long: {too_long}"));
        frame(&[text.as_bytes()])
    });
    framed.map(Bytes::from).expect("kinds are short")
}

/// Reads what there is. Cancel safe: nothing is read before it can be kept.
async fn read_some(inbox: &mut OwnedReadHalf, buffer: &mut BytesMut) -> io::Result<usize> {
    // Little while little comes, more while a long message grows.
    buffer.reserve(buffer.len().clamp(4 * 1024, 1024 * 1024));
    inbox.read_buf(buffer).await
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;
    use crate::{Tool, Toolset};

    #[tokio::test]
    async fn a_bridge_that_is_not_read_may_stop_in_the_middle_of_a_message() {
        const ANSWERS: u64 = 3;
        let (making, mut made) = mpsc::channel(8);
        let big = Tool::with_context("big", &Arc::new(making), |making, (), _| async move {
            making.try_send(()).unwrap();
            "x".repeat(9 << 20)
        });
        let tools = Tools::new(&[Toolset::new().with(big).unwrap()]).unwrap();
        let (mut bridge, ours) = UnixStream::pair().unwrap();
        let (_changes, changed) = watch::channel(0);
        let serving = tokio::spawn(serve(ours, tools, changed, CancellationToken::new()));
        for id in 0..ANSWERS {
            let call = format!(r#"{{"id":{id},"method":"call_tool","params":{{"name":"big"}}}}"#);
            bridge.write_all(&frame(&[call.as_bytes()]).unwrap()).await.unwrap();
        }
        for _ in 0..ANSWERS {
            made.recv().await.unwrap();
        }
        // More answers wait than there is room for, so that no more of this is read than was on its way.
        let message = frame(&[&[b' '; 9 << 20]]).unwrap();
        let rest = bridge.write_all(&message);
        tokio::time::timeout(Duration::from_millis(200), rest).await.expect_err("it is not read");
        tokio::time::pause();
        tokio::time::advance(2 * PATIENCE).await;
        tokio::time::resume();
        let (mut inbox, _keep) = bridge.into_split();
        let mut frames = Frames::new(MAX_MESSAGE_SIZE);
        for _ in 0..ANSWERS {
            while frames.next_frame().is_none() {
                assert_ne!(
                    read_some(&mut inbox, frames.buffer()).await.unwrap(),
                    0,
                    "it was cut off"
                );
            }
        }
        serving.abort();
    }
}
