//! A program with two sessions that waits to be ended by a signal: `host-program DIRECTORY [early|late]`.
//!
//! With a second word it handles SIGINT itself, from before or after it asked for the clean-up: it says
//! `handled` and lives on. It says `ready` first, and ends with its input.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this whole program is a test")]

use std::io::Read;
use std::path::PathBuf;

use pontoon_host::{Session, Tool, Toolset};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() {
    let mut args = std::env::args_os().skip(1);
    let place = PathBuf::from(args.next().expect("a directory"));
    let own_handler = args.next().unwrap_or_default();
    let tools = || {
        let tool = Tool::new("nothing", |(), _| async {});
        [Toolset::new().with(tool).unwrap()]
    };
    let start = || Session::start_in(std::slice::from_ref(&place), &tools()).unwrap();
    let _sessions = [start(), start()];
    let mut handled = (own_handler == "early").then(|| signal(SignalKind::interrupt()).unwrap());
    pontoon_host::clean_up_on_signals().unwrap();
    if own_handler == "late" {
        handled = Some(signal(SignalKind::interrupt()).unwrap());
    }
    println!("ready");
    if let Some(mut handled) = handled {
        tokio::spawn(async move {
            while handled.recv().await.is_some() {
                println!("handled");
            }
        });
    }
    let until_end = || std::io::stdin().read(&mut [0]);
    tokio::task::spawn_blocking(until_end).await.unwrap().unwrap();
}
