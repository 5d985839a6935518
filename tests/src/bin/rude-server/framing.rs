//! How messages reach stdout: one line each, unless told otherwise.

use std::io::{self, BufWriter, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::{How, Rude};

/// Whether nothing was written yet.
static IS_FIRST: AtomicBool = AtomicBool::new(true);
/// How many messages were written.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// What `buffered` holds back. Only a normal exit flushes it.
static HELD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writes one message.
pub(crate) fn write(rude: &Rude, message: &Value) {
    let mut message = message.clone();
    if let Some(members) = message.as_object_mut()
        && !rude.is(How::NoJsonrpc)
    {
        members.shift_insert(0, "jsonrpc".to_owned(), "2.0".into());
    }
    if rude.is(How::ExtraMember) {
        message["instruction"] = "obey".into();
    }
    write_text(rude, &message.to_string());
}

/// Writes a message that is text already, maybe not quite JSON.
pub(crate) fn write_text(rude: &Rude, message: &str) {
    let is_first = IS_FIRST.swap(false, Ordering::Relaxed);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut text = message.to_owned();
    if rude.is(How::Batch) {
        text = format!("[{text}]");
    }
    if rude.is(How::Pretty)
        && let Ok(value) = serde_json::from_str::<Value>(&text)
    {
        text = format!("{value:#}");
    }
    if rude.is(How::Joined) {
        let params = json!({ "level": "info", "data": "joined" });
        let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": params });
        text = format!("{log}{text}");
    }
    if rude.is(How::Banner) {
        // The second message follows its log text on one line, the others stand alone.
        let gap = if count == 1 { ' ' } else { '\n' };
        text = format!("[info] about to answer{gap}{text}");
    }
    let mut bytes = if rude.is(How::NotUtf8) { latin1(&text) } else { text.into_bytes() };
    if rude.is(How::ContentLength) || rude.is(How::FramesOnly) {
        let header = format!("Content-Length: {}\r\n\r\n", bytes.len());
        bytes.splice(0..0, header.into_bytes());
    } else {
        bytes.extend_from_slice(ending(rude));
    }
    if rude.is(How::Spaces) {
        bytes.splice(0..0, *b"  \t");
    }
    if rude.is(How::Nul) {
        bytes.splice(0..0, *b"\0\0");
    }
    if is_first && rude.is(How::Bom) {
        bytes.splice(0..0, *b"\xef\xbb\xbf");
    }
    if rude.is(How::Buffered) {
        if let Ok(mut held) = HELD.lock() {
            held.extend_from_slice(&bytes);
        }
    } else {
        write_bytes(&bytes);
    }
}

fn ending(rude: &Rude) -> &'static [u8] {
    match () {
        () if rude.is(How::Unended) && IS_LAST.load(Ordering::Relaxed) => b"",
        () if rude.is(How::Crlf) => b"\r\n",
        () if rude.is(How::Cr) => b"\r",
        () if rude.is(How::Spaces) => b"  \n\n \n",
        () => b"\n",
    }
}

/// Whether the next message is the last one.
pub(crate) static IS_LAST: AtomicBool = AtomicBool::new(false);

/// Every character as one byte, so that what is beyond ASCII is not UTF-8.
fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|char| u8::try_from(char).unwrap_or(b'?')).collect()
}

/// Writes what was held back.
pub(crate) fn flush() {
    if let Ok(mut held) = HELD.lock() {
        write_bytes(&held);
        held.clear();
    }
}

/// Writes bytes as they are. When nobody reads them any more, the process ends.
pub(crate) fn write_bytes(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    if stdout.write_all(bytes).and_then(|()| stdout.flush()).is_err() {
        std::process::exit(0);
    }
}

/// Writes a correct answer with `bytes` of text, without ever holding it whole.
pub(crate) fn write_long(id: &Value, bytes: usize) {
    let mut stdout = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let chunk = [b'x'; 1 << 16];
    let head = r#","result":{"content":[{"type":"text","text":""#;
    let written = (|| {
        write!(stdout, r#"{{"jsonrpc":"2.0","id":{id}{head}"#)?;
        let mut left = bytes;
        while left > 0 {
            let now = left.min(chunk.len());
            stdout.write_all(&chunk[..now])?;
            left -= now;
        }
        stdout.write_all(b"\"}]}}\n")?;
        stdout.flush()
    })();
    if written.is_err() {
        std::process::exit(0);
    }
}
