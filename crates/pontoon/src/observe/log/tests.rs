//! What holds of the log as a whole: every line parses, none is forged, no secret gets out.

use std::path::Path;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::observe::trace::Traces;

const CANARY: &str = "canary-3f9a-token";

/// The lines that `work` logs, parsed.
fn logged(work: impl FnOnce()) -> Vec<Value> {
    let metrics = Arc::new(Metrics::default());
    let written = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&written);
    let told = |count| Style::Json.render(&lost(count));
    let queue = LineQueue::start("test", &metrics, told, move |lines| {
        into.lock().unwrap().extend_from_slice(lines);
        Ok(())
    });
    let queue = queue.unwrap();
    let layer = LogLayer {
        sinks: vec![LogSink { style: Style::Json, level: Level::TRACE, queue: Arc::clone(&queue) }],
        troubles: Arc::default(),
        secrets: Secrets::default(),
    };
    layer.secrets.hide([CANARY.as_bytes()]);
    let subscriber = tracing_subscriber::registry().with(LevelFilter::INFO).with(layer);
    tracing::subscriber::with_default(subscriber, work);
    queue.finish(Duration::from_secs(60));
    let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
    assert!(!written.contains(CANARY), "{written}");
    assert!(!written.contains("\\u00"), "no control, not even escaped: {written}");
    written.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// What `work` logs, without time and place.
fn check(work: impl FnOnce(), expected: &[Value]) {
    let mut lines = logged(work);
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        let time = line.shift_remove("timestamp").expect("each line has its time");
        assert_eq!(time.as_str().unwrap().len(), "1970-01-01T00:00:01.000042Z".len());
        assert_eq!(line.shift_remove("target").unwrap(), module_path!());
    }
    assert_eq!(lines, expected);
}

#[test]
fn fields_keep_their_kinds() {
    let error = io::Error::other("deep");
    check(
        || {
            tracing::warn!(server = %"a", pid = 7, load = 0.5, is_new = true, name = ?"x", "no child");
            tracing::error!(error = &error as &dyn Error, "failed");
            tracing::debug!("not at this level");
        },
        &[
            json!({
                "level": "WARNING", "message": "no child", "server": "a", "pid": 7, "load": 0.5,
                "is_new": true, "name": "\"x\"",
            }),
            json!({"level": "ERROR", "message": "failed", "error": "deep"}),
        ],
    );
}

#[test]
fn a_list_of_texts_is_a_list() {
    let (added, none) = (vec!["bad".to_owned(), "say \"x\"".to_owned()], Vec::<String>::new());
    check(
        || tracing::info!(?added, removed = ?none, codes = ?[1, 2], "taken over"),
        &[json!({
            "level": "INFO", "message": "taken over", "added": ["bad", "say \"x\""], "removed": [],
            "codes": "[1, 2]",
        })],
    );
}

#[test]
fn lines_of_a_request_have_its_trace_id() {
    let trace = Traces::default().of([]);
    let id = trace.id().to_string();
    check(
        || {
            let span = trace.span();
            let _in_request = span.enter();
            let inner = tracing::info_span!("call", server = "a", message = "not the message");
            let _in_call = inner.enter();
            tracing::info!(server = "b", "done");
            tracing::info!(trace_id = "forged", "told");
        },
        &[
            json!({"level": "INFO", "message": "done", "trace_id": id, "server": "b", "field_message": "not the message"}),
            json!({"level": "INFO", "message": "told", "trace_id": "forged", "server": "a", "field_message": "not the message"}),
        ],
    );
}

#[test]
fn a_span_may_learn_more() {
    check(
        || {
            let span = tracing::info_span!("call", user_token = 5, job = tracing::field::Empty);
            span.record("job", format_args!("j\n{CANARY}"));
            span.in_scope(|| tracing::info!("done"));
        },
        &[
            json!({"level": "INFO", "message": "done", "user_token": "[hidden]", "job": "j [hidden]"}),
        ],
    );
}

#[test]
fn no_line_can_be_forged() {
    let forged = "x\"}\n{\"level\":\"ERROR\",\"message\":\"forged\"}\r\n\u{1b}[2K\u{202e}";
    check(
        || tracing::info!(line = forged, also = ?forged, "{forged}"),
        &[json!({
            "level": "INFO",
            "message": "x\"} {\"level\":\"ERROR\",\"message\":\"forged\"}  ",
            "line": "x\"} {\"level\":\"ERROR\",\"message\":\"forged\"}  ",
            "also": "\"x\\\"}\\n{\\\"level\\\":\\\"ERROR\\\",\\\"message\\\":\\\"forged\\\"}\\r\\n\\u{1b}[2K\\u{202e}\"",
        })],
    );
}

#[test]
fn no_secret_gets_out() {
    let header = format!("Bearer {CANARY}");
    check(
        || {
            tracing::info!(token = "x", api_key = 5, authorization = ?header, "call with {CANARY}");
            tracing::info!(line = header, other = %"Bearer somebody-elses", "stderr");
        },
        &[
            json!({
                "level": "INFO", "message": "call with [hidden]", "token": "[hidden]",
                "api_key": "[hidden]", "authorization": "[hidden]",
            }),
            json!({
                "level": "INFO", "message": "stderr", "line": "Bearer [hidden]",
                "other": "Bearer [hidden]",
            }),
        ],
    );
}

#[test]
fn a_flood_in_one_field_is_cut() {
    let lines = logged(|| tracing::info!(line = "x".repeat(1 << 20), "stderr"));
    assert!(lines[0]["line"].as_str().unwrap().len() < 9 * 1024);
}

#[test]
fn the_file_gets_every_line_and_its_troubles_are_told_on_the_console() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = Arc::new(Metrics::default());
    let told = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&told);
    let console = LineQueue::start(
        "test",
        &metrics,
        |_| String::new(),
        move |lines| {
            into.lock().unwrap().push_str(std::str::from_utf8(lines).unwrap());
            Ok(())
        },
    );
    let console = console.unwrap();
    let layer = LogLayer {
        sinks: vec![LogSink {
            style: Style::Json,
            level: Level::TRACE,
            queue: Arc::clone(&console),
        }],
        troubles: Arc::default(),
        secrets: Secrets::default(),
    };
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let start = |folder: &Path| {
        let (name, dispatch) = (folder.display().to_string(), dispatch.clone());
        let tell = move |error: Option<&io::Error>| {
            tracing::dispatcher::with_default(&dispatch, || tell(&name, error));
        };
        start_file(LogPlace::Folder(folder), &metrics, tell).unwrap()
    };
    let logs = folder.path().join("logs");
    let file = start(&logs);
    file.push("{\"a\":1}".into());
    file.finish(Duration::from_secs(60));
    let name = std::fs::read_dir(&logs).unwrap().next().unwrap().unwrap().path();
    assert!(name.to_str().unwrap().ends_with(&format!("-{}.log", std::process::id())));
    assert_eq!(std::fs::read_to_string(name).unwrap(), "{\"a\":1}\n");

    let broken = folder.path().join("file");
    std::fs::write(&broken, "").unwrap();
    let file = start(&broken);
    file.push("lost".into());
    file.finish(Duration::from_secs(60));
    console.finish(Duration::from_secs(60));
    assert_eq!(metrics.log_lines_dropped.count(), 1);
    let told = told.lock().unwrap();
    assert_eq!(told.lines().count(), 1);
    assert!(told.contains("the log file cannot be written"), "{told}");
}
