//! The servers behind the bridge: one that costs nothing, built here, and the demo server.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::client::tool_call;
use crate::process;
use crate::table::Goal;

/// A stdio server, and the call that is made again and again.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    /// How it is called on the command line and in the table.
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<&'static str>,
    /// The call, and what is in its answer.
    pub(crate) call: String,
    pub(crate) answer: &'static str,
}

impl Server {
    /// The server that costs nothing.
    pub(crate) fn cheap(program: &Path, args: &[&'static str]) -> Self {
        Self {
            name: "cheap",
            program: program.to_owned(),
            args: args.to_vec(),
            call: tool_call("echo", r#"{"text":"Hello, Ada!"}"#),
            answer: "Hello, Ada!",
        }
    }

    /// The demo server of this bridge.
    pub(crate) fn demo(pontoon: &Path) -> Self {
        Self {
            name: "demo",
            program: pontoon.to_owned(),
            args: vec!["demo"],
            call: tool_call("greet", r#"{"name":"Ada"}"#),
            answer: "Hello, Ada!",
        }
    }

    /// Runs it directly.
    pub(crate) fn command(&self) -> Command {
        process::command(&self.program, &self.args)
    }

    /// The goals are those of the server that costs nothing; beside the other one rows are only shown.
    pub(crate) fn goal(&self, goal: Goal) -> Goal {
        if self.name == "cheap" { goal } else { Goal::None }
    }

    /// How a load is called in the table.
    pub(crate) fn row(&self, what: &str, clients: usize) -> String {
        let clients = match clients {
            1 => "1 client".to_owned(),
            _ => format!("{clients} clients"),
        };
        match self.name {
            "cheap" => format!("{what}, {clients}"),
            name => format!("{what}, {clients}, {name}"),
        }
    }
}

/// Builds the server that costs nothing, linked statically: the loader alone would cost a start as much
/// again.
pub(crate) fn build_cheap(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = source.join("../../tests/src/bin/cheap-server/main.rs");
    let program = directory.join("cheap-server");
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let mut rustc = process::command(Path::new(&rustc), &["--edition=2024", "-O"]);
    rustc.args(["-C", "panic=abort", "-C", "strip=symbols", "-C", "relocation-model=static"]);
    rustc.args(["-C", "target-feature=+crt-static", "-o"]).args([&program, &source]);
    let output = rustc.output().expect("rustc is needed, as cargo has it");
    assert!(output.status.success(), "the cheap server could not be built: {rustc:?}");
    program
}
