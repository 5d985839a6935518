//! A tool that works on the main thread, as windows and many documents want it: the main thread has a loop of its
//! own, and takes work from the tools as it takes events.
//!
//! ```text
//! cargo run -p pontoon-host --features model --example window -- "Write a haiku into the window."
//! ```

#![allow(clippy::print_stdout, reason = "it is what the example shows")]

use std::process::ExitCode;
use std::sync::mpsc;

use pontoon_host::model::Model;
use pontoon_host::{Tool, ToolError, Toolset, bridge};
use tokio::sync::oneshot;

/// What the main thread has: it could not be sent to another thread.
struct Window {
    lines: std::rc::Rc<std::cell::RefCell<Vec<String>>>,
}

/// What the main thread is asked to do.
type Work = Box<dyn FnOnce(&Window) + Send>;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Line {
    /// The line to write.
    text: String,
}

/// Writes a line to the window, and gives how many it has.
async fn write(to_window: mpsc::Sender<Work>, line: String) -> Result<usize, ToolError> {
    let (answer, answered) = oneshot::channel();
    let work = move |window: &Window| {
        let mut lines = window.lines.borrow_mut();
        lines.push(line);
        // The call may have been given up.
        let _ = answer.send(lines.len());
    };
    let gone = || ToolError::new("the window is closed");
    to_window.send(Box::new(work)).map_err(|_| gone())?;
    answered.await.map_err(|_| gone())
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    // Claude Code starts this program as the bridge to its tools.
    if let Some(exit) = bridge::dispatch() {
        return Ok(exit);
    }
    let (to_window, work) = mpsc::channel::<Work>();
    let asking = std::thread::spawn(move || ask(to_window));

    // The loop of the window. It ends when no tool is left that could ask.
    let window = Window { lines: std::rc::Rc::default() };
    for work in work {
        work(&window);
    }
    let answer = asking.join().expect("it does not panic")?;
    println!("{answer}");
    println!("The window has {} lines.", window.lines.borrow().len());
    Ok(ExitCode::SUCCESS)
}

#[tokio::main(flavor = "current_thread")]
async fn ask(to_window: mpsc::Sender<Work>) -> Result<String, String> {
    let line = Tool::new("write_line", move |Line { text }, _| write(to_window.clone(), text));
    let line = line.description("Writes a line into the window, and gives how many it has.");
    let tools = Toolset::new().with(line).map_err(|error| error.to_string())?;
    let model = Model::default();
    model.set_agent_toolsets(&[tools]).map_err(|error| error.to_string())?;
    let prompt = std::env::args().nth(1).unwrap_or("Write a haiku into the window.".to_owned());
    model.request(prompt).await.map(|response| response.text).map_err(|error| error.to_string())
}
