//! The Rust of README.md and docs/ as it stands there, so that it compiles. `tests/docs/snippets.py` compares the lines.

#![allow(clippy::print_stdout, reason = "the pages show it")]
#![allow(dead_code, reason = "most of it needs a person, a port or a model, and is compiled only")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use pontoon_host::{Pump, Session, Tool, Toolset, WebSocketOptions, WebSocketServer};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    number: i64,
}

/// README.md, "Functions of your own program".
#[rustfmt::skip]
async fn a_total() -> Result<Session, Box<dyn Error>> {
    let total = Arc::new(AtomicI64::new(0));
    let add = Tool::with_context("add", &total, |total, Add { number }, _| async move {
        total.fetch_add(number, Ordering::Relaxed) + number
    });
    let session = Session::start(&[Toolset::new().with(add.description("Adds to a total."))?])?;
    println!("{}", session.mcp_server_config("pontoon".as_ref()));
    Ok(session)
}

async fn orders(toolset: Toolset) -> Result<String, Box<dyn Error>> {
    use pontoon_host::model::Model;
    let model = Model::default();
    model.set_agent_toolsets(&[toolset])?;
    let response = model.request("Add up the orders of today.").await?;
    Ok(response.text)
}

/// docs/live-app.md, "In Rust".
struct App(Vec<(String, [f64; 2])>);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NewObject {
    name: String,
    position: [f64; 2],
}

impl App {
    fn add(&mut self, name: String, position: [f64; 2]) -> usize {
        self.0.push((name, position));
        self.0.len()
    }

    fn is_open(&self) -> bool {
        self.0.len() < 1000
    }

    fn draw(&self) {}
}

#[rustfmt::skip]
fn an_application(mut app: App) -> Result<(), Box<dyn Error>> {
    let pump = Pump::<App>::new();
    let add = pump.tool("add_object", |app, NewObject { name, position }, _| app.add(name, position));
    let tools = Toolset::new().with(add.description("Puts an object into the patch."))?;
    let server = WebSocketServer::start("my-app", &[tools], WebSocketOptions { port: 7400, ..WebSocketOptions::default() })?;
    println!("{} {}", server.url(), server.token().unwrap_or_default());
    while app.is_open() {
        app.draw();
        pump.run_pending(&mut app);
    }
    Ok(())
}

/// docs/host-tools.md, "From nothing to a tool".
#[rustfmt::skip]
mod from_nothing {
use pontoon_host::{Session, Tool, Toolset};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Greet {
    /// Who is greeted.
    name: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let greet = Tool::new("greet", |Greet { name }, _| async move { format!("Hello, {name}!") });
    let session = Session::start(&[Toolset::new().with(greet.description("Greets a person."))?])?;
    println!("{}", session.mcp_server_config("pontoon".as_ref()));
    tokio::signal::ctrl_c().await?;
    session.stop().await;
    Ok(())
}
}

/// docs/host-tools.md, "Asking Claude Code from your program".
mod asking {
    use std::error::Error;

    use pontoon_host::Toolset;

    async fn ask(toolset: Toolset) -> Result<(), Box<dyn Error>> {
        use pontoon_host::model::Model;

        let model = Model::default();
        model.set_agent_toolsets(&[toolset])?;
        let response = model.request("What is 2 + 40? Use the tool.").await?;
        println!("{}", response.text);
        Ok(())
    }
}

#[tokio::test]
async fn the_program_of_the_readme_tells_how_a_client_reaches_it() {
    let session = a_total().await.unwrap();
    let config = session.mcp_server_config("pontoon".as_ref()).to_string();
    assert!(config.contains(r#""type":"stdio""#) && config.contains(r#""ipc""#), "{config}");
    session.stop().await;
}
