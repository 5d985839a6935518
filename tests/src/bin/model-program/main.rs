//! A program that asks the Claude Code command once: `model-program CLI PROMPT`. It has one tool, `echo`.
//!
//! It says `ok` and the text of the answer, or `error` and why there is none.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this whole program is a test")]

use pontoon_host::model::{Model, Settings};
use pontoon_host::{Tool, Toolset};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let (cli, prompt) = (args.next().expect("a CLI"), args.next().expect("a prompt"));
    let echo = Tool::new("echo", |Text { text }, _| async move { text });
    let model = Model::new(Settings { cli: Some(cli.into()), ..Settings::default() });
    model.set_agent_toolsets(&[Toolset::new().with(echo).unwrap()]).unwrap();
    match model.request(prompt).await {
        Ok(response) => println!("ok {}", response.text),
        Err(error) => println!("error {error}"),
    }
}
