//! A tool that asks another agent: a second model with a task, settings and tools of its own.
//!
//! ```text
//! cargo run -p pontoon-host --features model --example member_agent -- "Have the poet write about rain."
//! ```

#![allow(clippy::print_stdout, reason = "it is what the example shows")]

use std::process::ExitCode;

use pontoon_host::model::{Model, Settings};
use pontoon_host::{Tool, Toolset, bridge};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Task {
    /// What the member is asked to do.
    task: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Word {
    /// The word that is looked for.
    word: String,
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    // Claude Code starts this program as the bridge to its tools.
    if let Some(exit) = bridge::dispatch() {
        return Ok(exit);
    }
    tokio::runtime::Runtime::new()?.block_on(ask())?;
    Ok(ExitCode::SUCCESS)
}

/// An agent that has a tool of its own.
fn poet() -> Result<Model, Box<dyn std::error::Error>> {
    let rhyme =
        Tool::new("rhyme", |Word { word }, _| async move { format!("{word}, brain, train") });
    let poet = Model::new(Settings {
        system_prompt: Some("You are a poet. You answer with a poem and nothing else.".to_owned()),
        ..Settings::default()
    });
    poet.set_agent_toolsets(&[Toolset::new().with(rhyme.description("Gives rhymes."))?])?;
    Ok(poet)
}

async fn ask() -> Result<(), Box<dyn std::error::Error>> {
    let poet = poet()?;
    // When the outer model gives the call up, the poet's request is given up with it.
    let ask_poet = Tool::new("ask_poet", move |Task { task }, _| {
        let poet = poet.clone();
        async move { poet.request(task).await.map(|response| response.text) }
    });
    let leader = Model::default();
    let tools = Toolset::new().with(ask_poet.description("Asks the poet of the team."))?;
    leader.set_agent_toolsets(&[tools])?;
    let prompt = std::env::args().nth(1).unwrap_or("Have the poet write about rain.".to_owned());
    println!("{}", leader.request(prompt).await?.text);
    Ok(())
}
