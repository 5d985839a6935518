//! The test kit: the real binary in a rig, clients that speak bytes, and transcripts.
//!
//! Everything here blocks and uses threads: a test reads from top to bottom, and nothing of the
//! bridge's own runtime can hide a fault of the bridge. A kit that finds something wrong panics;
//! it is only ever called from tests.
//!
//! - [`example_app`] is the application of `examples/live-app`.
//! - [`live_app`] is an application that serves MCP by itself, and comes and goes.
//! - [`rig`] starts `pontoon serve` and fails the test if anything is left behind.
//! - [`claude`] is the real Claude Code command, with a model that is a script.
//! - [`client`] speaks HTTP/1.1 and both eras of the protocol, down to single bytes.
//! - [`collector`] takes the spans of traces.
//! - [`carried`] is a server for pipes behind a WebSocket.
//! - [`certificates`] are those of applications with TLS.
//! - [`cgroup`] is one with a limit on memory.
//! - [`disk`] is a small one, to be filled.
//! - [`metrics`] reads the page of `/metrics`, and is strict about it.
//! - [`program`] makes programs that can be run at once.
//! - [`proxy`] is one as companies have it.
//! - [`stdio`] talks to a server on its standard input and output.
//! - [`transcript`] reads and plays the conversations under `tests/transcripts`.

pub mod carried;
pub mod certificates;
pub mod cgroup;
pub mod claude;
pub mod client;
pub mod collector;
pub mod disk;
pub mod example_app;
pub mod live_app;
pub mod metrics;
pub mod program;
pub mod proxy;
pub mod rig;
pub mod seed_app;
pub mod stdio;
pub mod tls;
pub mod transcript;
