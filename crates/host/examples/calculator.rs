//! A tool in Claude Code that keeps a running total in this program's memory.
//!
//! Start it, and add what it prints to a client:
//! `cargo run -p pontoon-host --example calculator`

#![allow(clippy::print_stdout, reason = "it is what the example shows")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use pontoon_host::{Session, Tool, Toolset};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    /// The number to add.
    number: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let total = Arc::new(AtomicI64::new(0));
    let add = Tool::with_context("add", &total, |total, Add { number }, _| async move {
        total.fetch_add(number, Ordering::Relaxed) + number
    });
    let tools = Toolset::new().with(add.description("Adds to a total, and gives the total."))?;
    let session = Session::start(&[tools])?;
    let config = serde_json::json!({"mcpServers": {"calculator": session.mcp_server_config("pontoon".as_ref())}});
    println!("{config}");
    tokio::signal::ctrl_c().await?;
    session.stop().await;
    Ok(())
}
