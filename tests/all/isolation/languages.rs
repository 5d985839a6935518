//! Real interpreters under `confined` and `user`: they start, find their modules, and write files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use pontoon_tests::client::Speaker;
use pontoon_tests::rig::Server;
use serde_json::json;

use super::{ADA, Place, client, is_root};

/// A server with the one tool `attempt`, which writes a file and reads one that it may not.
const PYTHON: [(&str, &str); 2] = [
    (
        "server.py",
        r#"
import json, sys
from tools import attempt
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    tools = [{"name": "attempt", "inputSchema": {"type": "object"}}]
    result = {
        "initialize": lambda: {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                               "serverInfo": {"name": "python", "version": "1"}},
        "tools/list": lambda: {"tools": tools},
        "tools/call": lambda: {"content": [{"type": "text", "text": attempt(**message["params"]["arguments"])}]},
    }.get(message["method"], dict)()
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#,
    ),
    (
        "tools.py",
        r#"
import os, ssl, subprocess, tempfile, threading
def attempt(path):
    ssl.create_default_context()
    thread = threading.Thread(target=lambda: None); thread.start(); thread.join()
    subprocess.run(["/bin/true"], check=True)
    with tempfile.NamedTemporaryFile("w") as scratch: scratch.write("x")
    with open("made.txt", "w") as made: made.write("made")
    try:
        with open(path) as file: return "read " + file.read()
    except PermissionError: return "refused"
"#,
    ),
];

const NODE: [(&str, &str); 2] = [
    (
        "server.js",
        r#"
const { attempt } = require('./tools.js');
const answers = {
  'initialize': () => ({ protocolVersion: '2025-06-18', capabilities: { tools: {} },
                         serverInfo: { name: 'node', version: '1' } }),
  'tools/list': () => ({ tools: [{ name: 'attempt', inputSchema: { type: 'object' } }] }),
  'tools/call': (params) => ({ content: [{ type: 'text', text: attempt(params.arguments.path) }] }),
};
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) return;
  const result = (answers[method] || (() => ({})))(params);
  process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id, result }) + '\n');
});
"#,
    ),
    (
        "tools.js",
        r#"
const fs = require('fs'), os = require('os');
exports.attempt = (path) => {
  os.cpus(); process.memoryUsage();
  require('child_process').execFileSync('/bin/true');
  fs.writeFileSync(os.tmpdir() + '/scratch', 'x');
  fs.writeFileSync('made.txt', 'made');
  try { return 'read ' + fs.readFileSync(path, 'utf8'); } catch (error) {
    if (error.code !== 'EACCES') throw error;
    return 'refused';
  }
};
"#,
    ),
];

/// Where a program of this name is, by its short name only: what the test found is not told.
fn is_here(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[track_caller]
fn check(level: &str, program: &str, files: &[(&str, &str)]) {
    if !is_here(program) {
        println!("skipped: there is no {program} here");
        return;
    }
    let place = Place::new();
    let folder = place.path("script");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o644)).unwrap();
    }
    let script = folder.join(files[0].0).display().to_string();
    let isolation = json!({"level": level, "read": [folder]});
    // By its name, as people write it: it may be the real one, a link, or a script that chooses one.
    let server = Server::new("script", &PathBuf::from(program), &[&script]);
    let rig = place.plan([server.with("isolation", isolation)]).start();
    let config = rig.directory().join("mcp-servers.json");
    let response = client(&rig, "script", ADA).call(1, "attempt", json!({"path": config}));
    assert_eq!(response.tool_text().as_deref(), Some("refused"), "{}", response.text());
    let job = response.head.header("x-mcpo-job-id").unwrap_or_else(|| panic!("{response:?}"));
    assert_eq!(rig.get(&format!("/files/{job}/made.txt")).text(), "made");
    let response = client(&rig, "script", ADA).call(1, "attempt", json!({"path": script}));
    assert_eq!(response.tool_text(), Some(format!("read {}", files[0].1)));
    rig.stop();
}

#[test]
fn a_python_server_runs_confined() {
    check("confined", "python3", &PYTHON);
}

#[test]
fn a_node_server_runs_confined() {
    check("confined", "node", &NODE);
    if is_root() {
        check("user", "node", &NODE);
    }
}
