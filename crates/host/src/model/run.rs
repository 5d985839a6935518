//! One run of the CLI for one request: started, listened to, and ended with all it has started.
//!
//! Dropping a [`Run`] gives the request up: its files are gone at once, and the CLI is asked to end, and made to
//! after [`PATIENCE`].

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use pontoon_supervise::{Child, ChildInput, ChildOutput, Command, Ladder, Spawner};
use pontoon_wire::framing::lines::Lines;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::command::{INITIALIZE, Wish, find_cli};
use super::control::Control;
use super::error::ModelError;
use super::message::{CliMessage, Envelope, Event, read_json};
use super::offer::{Files, Offer, Offered, filtered};
use super::outcome::Notes;
use super::registered::Registered;
use super::request::Request;
use super::settings::Settings;
use crate::bridge;
use crate::ipc::{Place, usual_directories};
use crate::protocol::IpcError;

/// How long the CLI may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// The longest line of the CLI's: results of tools are repeated in them.
const MAX_LINE_BYTES: usize = 64 * 1024 * 1024;

/// How many messages may wait for the CLI to read them.
const WAITING: usize = 256;

/// A running request.
#[derive(Debug)]
pub(super) struct Run {
    /// Gone once the run is finished.
    child: Option<Child>,
    /// What starts and ends the CLI.
    spawner: Option<Spawner>,
    output: ChildOutput,
    lines: Lines,
    /// Owns the CLI's input: dropping it ends that.
    writing: AbortOnDropHandle<()>,
    control: Control,
    /// Gone once the run is finished.
    files: Option<Files>,
    offered: Option<Offered>,
    output_schema: Option<Value>,
    timeout: Option<(Instant, Duration)>,
    notes: Notes,
    /// The CLI has had its say, good or bad.
    has_result: bool,
}

/// A message of the CLI's, and what it means.
pub(super) type Said = (Value, Vec<Event>);

impl Run {
    pub(super) async fn start(
        settings: &Settings,
        registered: Option<Registered>,
        request: &Request,
        is_streamed: bool,
    ) -> Result<Self, ModelError> {
        // One that is too far away to be a time is none.
        let timeout =
            settings.timeout.and_then(|after| Some((Instant::now().checked_add(after)?, after)));
        settings.check()?;
        let registered = filtered(registered, request)?;
        let cli = find_cli(settings.cli.as_deref())?;
        let bridge = bridge::find(settings.bridge.as_deref())?;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |source: io::Error| IpcError::Io { what, source }
        };
        let place = Place::make(&usual_directories())
            .map_err(failed("no directory for the files of the request can be made"))?;
        let (to_cli, for_cli) = mpsc::channel(WAITING);
        let mut offer = Offer::new(registered, settings, place, &bridge, &to_cli)?;
        let sdk = offer.sdk.take();
        let server =
            offer.offered.as_ref().map(|offered| (offered.server.as_str(), &offered.entry));
        let wish = Wish { settings, request, server, is_streamed };
        let command = Command {
            program: cli,
            args: wish
                .arguments(offer.files.place())
                .map_err(failed("the files of the request cannot be written"))?,
            env: settings.environment.variables(),
            directory: Some(
                settings
                    .working_directory
                    .as_ref()
                    .map_or_else(std::env::current_dir, std::path::absolute)
                    .map_err(failed("the working directory is not known"))?,
            ),
            trusted: true,
            ..Command::default()
        };
        let opening = wish.opening().map(|message| Bytes::from(format!("{message}\n")));
        let starting = start_child(bridge, &command);
        let (spawner, mut child) = within(timeout, starting)
            .await
            .map_err(|after| ModelError::Timeout { after, diagnosis: Box::default() })??;
        let (input, output) = child.take_streams().expect("it was just started");
        let writing = tokio::spawn(write(input, opening.into(), for_cli));
        Ok(Self {
            child: Some(child),
            spawner: Some(spawner),
            output,
            lines: Lines::new(MAX_LINE_BYTES),
            writing: AbortOnDropHandle::new(writing),
            control: Control::new(to_cli, sdk, settings.permission.clone()),
            files: Some(offer.files),
            offered: offer.offered,
            output_schema: request.output_schema.clone(),
            timeout,
            notes: Notes::default(),
            has_result: false,
        })
    }

    /// The next message of the CLI's. The last one has [`Event::Done`].
    ///
    /// # Errors
    ///
    /// [`ModelError`] when there will be no result. The run has to be finished then.
    pub(super) async fn next(&mut self) -> Result<Said, ModelError> {
        match within(self.timeout, self.listen()).await {
            Ok(said) => said,
            Err(after) => Err(self.too_late(after)),
        }
    }

    /// Hands something on, for as long as the request may take.
    pub(super) async fn within<T>(&self, work: impl Future<Output = T>) -> Result<T, ModelError> {
        within(self.timeout, work).await.map_err(|after| self.too_late(after))
    }

    fn too_late(&self, after: Duration) -> ModelError {
        ModelError::Timeout { after, diagnosis: self.notes.diagnosis(self.stderr()) }
    }

    async fn listen(&mut self) -> Result<Said, ModelError> {
        loop {
            while let Some(line) = self.lines.next_line() {
                let Ok(line) = line else {
                    return Err(
                        self.cli_error("the CLI wrote a line of more than 64 MiB".to_owned())
                    );
                };
                if let Some(said) = self.take(&line).await? {
                    return Ok(said);
                }
            }
            let read = self.output.read_buf(self.lines.buffer()).await;
            if read.unwrap_or(0) == 0 {
                // The last line may have no end.
                let said = match self.lines.finish() {
                    Some(line) => self.take(&line).await?,
                    None => None,
                };
                return match said {
                    Some(said) => Ok(said),
                    None => Err(self.ended().await),
                };
            }
        }
    }

    /// Takes a line. Questions of the CLI are answered and not passed on.
    async fn take(&mut self, line: &[u8]) -> Result<Option<Said>, ModelError> {
        let Ok(envelope) = serde_json::from_slice::<Envelope<'_>>(line) else {
            // Something that the CLI has started may write there too.
            self.notes.unknown_messages += u64::from(!line.trim_ascii().is_empty());
            return Ok(None);
        };
        match (envelope.kind.as_str(), envelope.request_id, envelope.request) {
            ("control_request", Some(id), Some(request)) => self.control.answer(&id, request).await,
            ("control_cancel_request", Some(id), _) => self.control.withdraw(&id),
            ("control_response", ..) => self.answered(line)?,
            _ => {
                let Some(message) = read_json(line) else {
                    self.notes.unknown_messages += 1;
                    return Ok(None);
                };
                let events = self.events(&message)?;
                return Ok(Some((message, events)));
            }
        }
        Ok(None)
    }

    /// An answer to what we have asked.
    fn answered(&self, line: &[u8]) -> Result<(), ModelError> {
        let answer = read_json(line).unwrap_or_default();
        let response = &answer["response"];
        if response["request_id"] == INITIALIZE && response["subtype"] == "error" {
            let why = response["error"].as_str().unwrap_or("it does not say why");
            return Err(self.cli_error(format!("the CLI refuses to begin: {why}")));
        }
        Ok(())
    }

    fn events(&mut self, message: &Value) -> Result<Vec<Event>, ModelError> {
        let events = match CliMessage::read(message) {
            CliMessage::Started(started) => {
                self.offered.iter().try_for_each(|offered| offered.check(&started))?;
                vec![Event::Started(started)]
            }
            CliMessage::Events(events) => events,
            CliMessage::Result(result) => {
                self.has_result = true;
                let schema = self.output_schema.as_ref();
                vec![Event::Done(Box::new(self.notes.outcome(result, schema, self.stderr())?))]
            }
            CliMessage::Unknown => {
                self.notes.unknown_messages += 1;
                Vec::new()
            }
        };
        events.iter().for_each(|event| self.notes.take(event));
        Ok(events)
    }

    /// The CLI has closed its output before it had a result.
    async fn ended(&self) -> ModelError {
        let Some(child) = &self.child else {
            return self.cli_error("the CLI has ended".to_owned());
        };
        match tokio::time::timeout(PATIENCE, child.exited()).await {
            Ok(exit) => self.cli_error(format!("the CLI ended without a result: {exit}")),
            Err(_) => self.cli_error("the CLI closed its output without a result".to_owned()),
        }
    }

    fn cli_error(&self, what: String) -> ModelError {
        ModelError::Cli { what, diagnosis: self.notes.diagnosis(self.stderr()) }
    }

    fn stderr(&self) -> Vec<String> {
        self.child.as_ref().map(|child| child.complaints().last_lines()).unwrap_or_default()
    }

    /// Ends the run and waits until nothing is left of it. A CLI that has had its say is given time to end by
    /// itself: it keeps the session, to be resumed.
    pub(super) async fn finish(mut self) {
        self.writing.abort();
        let after_close = if self.has_result { PATIENCE } else { Duration::ZERO };
        let ladder = Ladder { after_close, after_terminate: PATIENCE };
        if let Some(child) = self.child.take() {
            let mut last_words = [0; 4096];
            // It may be about to say more, and cannot end before it has.
            let drain = async {
                while self.output.read(&mut last_words).await.is_ok_and(|read| read > 0) {}
                std::future::pending::<()>().await;
            };
            tokio::select! {
                _ = child.stop(&ladder) => {}
                () = drain => {}
            }
        }
        if let Some(spawner) = self.spawner.take() {
            let _ = tokio::time::timeout(PATIENCE, spawner.end()).await;
        }
        self.control.stop().await;
        if let Some(Files::Session(session)) = self.files.take() {
            session.stop().await;
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let (Some(child), Ok(_)) = (&self.child, Handle::try_current()) {
            child.end_within(PATIENCE);
        }
    }
}

/// What comes of `work`, or how long it was given.
async fn within<T>(
    timeout: Option<(Instant, Duration)>,
    work: impl Future<Output = T>,
) -> Result<T, Duration> {
    match timeout {
        None => Ok(work.await),
        Some((deadline, after)) => tokio::time::timeout_at(deadline, work).await.map_err(|_| after),
    }
}

async fn start_child(bridge: PathBuf, command: &Command) -> Result<(Spawner, Child), ModelError> {
    // It waits for a process to begin.
    let starting = tokio::task::spawn_blocking(move || bridge::start_spawner(&bridge)).await;
    let starting =
        starting.map_err(|_| IpcError::BridgeStartup("the runtime is ending".to_owned()))??;
    let spawner = starting.attach().map_err(|source| IpcError::Io {
        what: "the process that starts the CLI cannot be reached".to_owned(),
        source,
    })?;
    let child = spawner.spawn(command).await?;
    Ok((spawner, child))
}

/// Writes to the CLI until it is gone.
async fn write(mut input: ChildInput, opening: Vec<Bytes>, mut more: mpsc::Receiver<Bytes>) {
    for message in opening {
        if input.write_all(&message).await.is_err() {
            return;
        }
    }
    while let Some(message) = more.recv().await {
        if input.write_all(&message).await.is_err() {
            return;
        }
    }
}
