//! Tools that show one process from another: what it keeps, where it works, how it was started.
//!
//! | tool | arguments | what it does |
//! | --- | --- | --- |
//! | `tally` | | gives how often it was called in this process |
//! | `arguments` | | gives its command line, as a JSON array |
//! | `folder` | | gives `{"cwd", "names", "tmp", "socket"}`: where it works, what lies there, and whether a temporary file and a browser's socket could be made |
//! | `leave` | | answers, and exits with 0 at once |

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::{Pace, Tool, nothing};
use crate::call::Outcome;
use crate::message::text;

pub(super) fn tools() -> Vec<Tool> {
    let tool = |name, description, run| {
        let (schema, pace) = (nothing(), Pace::Quick);
        Tool { name, description, schema, pace, run }
    };
    vec![
        tool("tally", "Counts its calls.", |call| {
            let before = call.server.tally.fetch_add(1, Ordering::Relaxed);
            Ok(text((before + 1).to_string()))
        }),
        tool("arguments", "The command line.", |_| {
            let arguments: Vec<_> = std::env::args().skip(1).collect();
            Ok(text(json!(arguments).to_string()))
        }),
        tool("folder", "Where it works.", |_| folder()),
        tool("leave", "Answers and goes.", |call| {
            call.server.is_leaving.store(true, Ordering::Relaxed);
            Ok(text("goodbye"))
        }),
    ]
}

fn folder() -> Outcome {
    let cwd = std::env::current_dir().unwrap_or_default();
    let mut names: Vec<_> = std::fs::read_dir(&cwd)
        .map(|entries| entries.flatten().map(|it| it.file_name().to_string_lossy().into_owned()))
        .map(Iterator::collect)
        .unwrap_or_default();
    names.sort();
    let probe = std::env::temp_dir().join("probe");
    let tmp = std::fs::write(&probe, "x").and_then(|()| std::fs::remove_file(&probe));
    let tmp: Value = tmp.map_or_else(|error| json!(error.to_string()), |()| json!("writable"));
    let socket = socket().map_or_else(|error| json!(error.to_string()), |()| json!("bound"));
    Ok(text(json!({ "cwd": cwd, "names": names, "tmp": tmp, "socket": socket }).to_string()))
}

/// Makes a socket where Chromium does, and leaves it.
fn socket() -> std::io::Result<()> {
    let folder = std::env::temp_dir().join(".org.chromium.Chromium.XXXXXX");
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("SingletonSocket");
    drop(std::fs::remove_file(&path));
    std::os::unix::net::UnixListener::bind(path).map(drop)
}
