//! Fifteen lines to a tool of this program that Claude Code uses.
//!
//! ```text
//! cargo run -p pontoon-host --features model --example ask -- "What is 2 + 40? Use the tool."
//! ```

#![allow(clippy::print_stdout, reason = "it is what the example shows")]

use pontoon_host::model::Model;
use pontoon_host::{Tool, Toolset, bridge};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

fn main() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
    // Claude Code starts this program as the bridge to its tools.
    if let Some(exit) = bridge::dispatch() {
        return Ok(exit);
    }
    tokio::runtime::Runtime::new()?.block_on(ask())?;
    Ok(std::process::ExitCode::SUCCESS)
}

async fn ask() -> Result<(), Box<dyn std::error::Error>> {
    let add = Tool::new("add", |Add { a, b }, _| async move { a + b });
    let model = Model::default();
    model.set_agent_toolsets(&[Toolset::new().with(add.description("Adds two numbers."))?])?;
    let prompt = std::env::args().nth(1).unwrap_or("What is 2 + 40? Use the tool.".to_owned());
    println!("{}", model.request(prompt).await?.text);
    Ok(())
}
