//! A program that is itself an MCP server: `claude mcp add greeter -- cargo run -q -p pontoon-host --example greeter`

use pontoon_host::{Tool, Toolset, serve_stdio};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Greet {
    name: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let greet = Tool::new("greet", |Greet { name }, _| async move { format!("Hello, {name}!") });
    serve_stdio("greeter", &[Toolset::new().with(greet.description("Greets a person."))?]).await?;
    Ok(())
}
