//! An answer that is shown while it is written, with the tools that are used on the way.
//!
//! ```text
//! cargo run -p pontoon-host --features model --example streaming -- "What time is it? Use the tool."
//! ```

#![allow(clippy::print_stdout, reason = "it is what the example shows")]

use std::io::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use pontoon_host::model::{Event, Model};
use pontoon_host::{Tool, Toolset, bridge};

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    // Claude Code starts this program as the bridge to its tools.
    if let Some(exit) = bridge::dispatch() {
        return Ok(exit);
    }
    tokio::runtime::Runtime::new()?.block_on(ask())?;
    Ok(ExitCode::SUCCESS)
}

async fn ask() -> Result<(), Box<dyn std::error::Error>> {
    let now = Tool::new("now", |(), _| async {
        SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs())
    });
    let now = now.description("Gives the seconds since 1970.").read_only(true);
    let model = Model::default();
    model.set_agent_toolsets(&[Toolset::new().with(now)?])?;
    let prompt = std::env::args().nth(1).unwrap_or("What time is it? Use the tool.".to_owned());
    let mut events = model.request_stream(prompt);
    while let Some(event) = events.next().await {
        match event? {
            Event::Started(started) => println!("[{} tools]", started.tools.len()),
            Event::TextDelta(text) => print!("{text}"),
            Event::ToolUse { name, input, .. } => println!("[uses {name} with {input}]"),
            Event::ToolResult { is_error, .. } => {
                println!("[{}]", if is_error { "failed" } else { "done" })
            }
            Event::Done(outcome) => println!("\n[{} turns]", outcome.1.turns),
            _ => {}
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}
