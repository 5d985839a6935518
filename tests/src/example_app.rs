//! The application of `examples/live-app`, started, typed to, and killed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::rig::wait_until;

/// The token that it wants.
pub const TOKEN: &str = "the-token-of-the-example";
/// The variable with the token.
pub const TOKEN_VARIABLE: &str = "LIVE_APP_TOKEN";

/// How long a line may take before the test fails.
const SOON: Duration = Duration::from_secs(60);

/// An application that runs. It is killed when it is dropped.
#[derive(Debug)]
pub struct ExampleApp {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    port: u16,
}

impl ExampleApp {
    /// Starts it at this port, zero chooses one. It announces itself below `home`.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn start(program: &Path, home: &Path, port: u16, options: &[&str]) -> Self {
        let mut started = None;
        // A port that was ours a moment ago may be another's for a moment.
        wait_until("the application starts", SOON, || {
            started = Self::try_start(program, home, port, options);
            started.is_some()
        });
        started.expect("it was waited for")
    }

    fn try_start(program: &Path, home: &Path, port: u16, options: &[&str]) -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "it is killed when this is dropped")]
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string()]).args(options);
        command.env_clear().env("HOME", home).env(TOKEN_VARIABLE, TOKEN);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take().expect("piped");
        let mut app = Self { child, input, lines, port };
        let Ok(first) = app.lines.recv_timeout(SOON) else {
            app.child.wait().expect("it is our child");
            return None;
        };
        let end = first.strip_prefix("listens on ws://127.0.0.1:");
        let end = end.and_then(|end| end.strip_suffix('/')).unwrap_or_else(|| panic!("{first}"));
        app.port = end.parse().expect("a port");
        Some(app)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("ws://127.0.0.1:{}", self.port)
    }

    /// Types into its terminal.
    ///
    /// # Panics
    ///
    /// When it is gone.
    pub fn enter(&mut self, lines: &str) {
        self.input.write_all(format!("{lines}\n").as_bytes()).expect("it reads");
    }

    /// Waits until it shows this line.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn wait_for(&self, line: &str) {
        loop {
            match self.lines.recv_timeout(SOON) {
                Ok(shown) if shown == line => return,
                Ok(_) => {}
                Err(error) => panic!("`{line}` is not shown: {error}"),
            }
        }
    }

    /// Closes it as its user does, and waits for its end.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn close(mut self) {
        self.enter("close");
        assert!(self.child.wait().expect("it is our child").success());
    }
}

impl Drop for ExampleApp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
