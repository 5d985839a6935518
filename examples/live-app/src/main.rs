//! A small application with a life of its own, in the manner of a patcher: it is started and closed by a person, has its
//! state in memory, and does everything on its main thread. An MCP client can use its functions meanwhile.
//!
//! ```text
//! cargo run -p live-app
//! ```

#![allow(clippy::print_stdout, reason = "the terminal is the window of this application")]

mod patches;
mod tools;

use std::error::Error;
use std::io::BufRead;
use std::sync::mpsc;
use std::time::Duration;

use patches::App;
use pontoon_host::{AppToken, Pump, Toolset, WebSocketOptions, WebSocketServer};

const HELP: &str = "commands: close, restart (of the server), hang SECONDS [TOOL], add TOOL, remove TOOL, log TEXT";

/// What the main thread is woken for.
enum Event {
    Typed(String),
    Call,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = options()?;
    let pump = Pump::<App>::new();
    let tools = tools::all(&pump)?;
    let (tell, events) = mpsc::sync_channel(64);
    let tell_call = tell.clone();
    pump.wake_with(move || {
        println!("a call waits");
        // If there is no room, the main thread is awake.
        let _ = tell_call.try_send(Event::Call);
    });
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if tell.send(Event::Typed(line)).is_err() {
                return;
            }
        }
    });
    let mut server = Some(serve(&tools, &options)?);
    // Where clients find it, also after a restart.
    options.port = server.as_ref().map_or(0, WebSocketServer::port);
    println!("{HELP}");

    // The loop of the application. Everything that changes it happens here.
    let mut app = App::with_a_demo();
    while let Ok(event) = events.recv() {
        if let Event::Typed(line) = event {
            let (command, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            match command {
                "close" => break,
                "restart" => {
                    // First the old one ends: they have one port.
                    drop(server.take());
                    server = Some(serve(&tools, &options)?);
                }
                "hang" => {
                    let (seconds, tool) = rest.split_once(' ').unwrap_or((rest, ""));
                    let time = Duration::from_secs(seconds.parse().unwrap_or(10));
                    match tool {
                        "" => app.hang(time),
                        tool => app.hangs_at = Some((tool.to_owned(), time)),
                    }
                }
                "add" => match tools.add(tools::further(&pump, rest)) {
                    Ok(()) => println!("added {rest}"),
                    Err(error) => println!("{error}"),
                },
                "remove" if tools.remove(rest) => println!("removed {rest}"),
                "log" => app.log(rest.to_owned()),
                "" => {}
                _ => println!("{HELP}"),
            }
        }
        pump.run_pending(&mut app);
    }
    // Calls that still wait hear that they were not made, and then clients hear that the application closes.
    drop(pump);
    drop(server);
    Ok(())
}

/// What was typed and set: `--port PORT`, `--origin ORIGIN` of a web page that may connect, and `LIVE_APP_TOKEN`.
fn options() -> Result<WebSocketOptions, Box<dyn Error>> {
    let mut options = WebSocketOptions { port: 7400, ..WebSocketOptions::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{word}` has no value"))?;
        match word.as_str() {
            "--port" => options.port = value.parse()?,
            "--origin" => options.origins.push(value),
            _ => return Err(format!("`{word}` is unknown: --port and --origin are not").into()),
        }
    }
    if let Ok(token) = std::env::var("LIVE_APP_TOKEN") {
        options.token = AppToken::Given(token);
    }
    Ok(options)
}

fn serve(tools: &Toolset, options: &WebSocketOptions) -> Result<WebSocketServer, Box<dyn Error>> {
    let server = WebSocketServer::start("live-app", std::slice::from_ref(tools), options.clone())?;
    println!("listens on {}", server.url());
    if std::env::var_os("LIVE_APP_TOKEN").is_none() {
        println!("token {}", server.token().unwrap_or_default());
    }
    Ok(server)
}
