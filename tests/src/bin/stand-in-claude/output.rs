//! What the stand-in writes: messages to its starter, complaints, and the record.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// The version that it claims to be.
pub(crate) const VERSION: &str = "2.1.325";

/// The way to the starter, a line at a time.
#[derive(Debug, Default)]
pub(crate) struct Output(Mutex<()>);

impl Output {
    pub(crate) fn write(&self, message: &Value) {
        self.write_line(&message.to_string());
    }

    pub(crate) fn write_line(&self, line: &str) {
        let _alone = self.0.lock();
        let mut output = std::io::stdout().lock();
        let written = output.write_all(format!("{line}\n").as_bytes());
        if written.and_then(|()| output.flush()).is_err() {
            // The starter reads no more.
            std::process::exit(1);
        }
    }
}

/// Writes a line to stderr.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Adds a line to the record, if there is one.
pub(crate) fn record(entry: &Value) {
    let Some(path) = std::env::var_os("STAND_IN_RECORD") else { return };
    let mut entry = entry.clone();
    entry["pid"] = Value::from(std::process::id());
    // One write, since several of us may have the same record.
    let file = OpenOptions::new().append(true).create(true).open(path);
    if file.and_then(|mut file| file.write_all(format!("{entry}\n").as_bytes())).is_err() {
        complain("the record cannot be written");
        std::process::exit(1);
    }
}

/// An id that looks like the real ones.
pub(crate) fn fresh_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    format!("{now:08x}-{:04x}-4000-8000-{:012x}", count & 0xffff, std::process::id())
}
