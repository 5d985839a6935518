//! The spawner as the program sees it: started, then asked for children.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use tokio::net::unix::pipe;
use tokio::sync::oneshot;

use crate::child::Child;
use crate::command::{self, Command};
use crate::confine::Means;
use crate::error::SpawnError;
use crate::executed::{self, RunError};
use crate::frame::{FRAME_BYTES, Number};
use crate::spawner_client::{self, Awaited, Entry, Handles, LeftBehind, SpawnerClient};
use crate::stop::{self, Descent, Ladder};
use crate::support::Support;
use crate::unix::{self, STREAMS};
use crate::{spawner_process, stderr};

/// A handle to the spawner process. When the last one is dropped, and the last [`Child`], the
/// spawner ends, and everything it started with it.
#[derive(Clone, Debug)]
pub struct Spawner {
    handles: Arc<Handles>,
}

/// A spawner process that was forked or run, and is not yet served by a runtime.
///
/// Dropping it ends the process.
#[derive(Debug)]
pub struct Starting {
    /// Gone once it is attached.
    socket: Option<OwnedFd>,
    pid: u32,
    support: Support,
}

impl Spawner {
    /// Forks the spawner process. Call it first in `main`; a library uses [`Spawner::run`].
    ///
    /// A fork copies the calling thread only: a lock held by another thread at this moment stays
    /// locked in the copy for ever, and descriptors of other threads may slip in. The spawner
    /// uses none of either, but the standard library beneath it might.
    ///
    /// # Errors
    ///
    /// When the system gives no sockets or no process.
    pub fn start() -> io::Result<Starting> {
        // Both sides know the same, as the spawner is a copy.
        let means = Means::look();
        let support = means.support.clone();
        let (ours, theirs) = unix::socket_pair()?;
        // Blocked before the fork, so that no signal finds the spawner without its own mask.
        let before = unix::block_signals(&unix::all_signals());
        // SAFETY: the new process only runs `spawner_process::run`, which does not return and touches
        // nothing of this one but memory that is its own copy.
        let pid = match unix::check(unsafe { libc::fork() }) {
            Ok(0) => {
                drop(ours);
                spawner_process::run(theirs, means)
            }
            result => result,
        };
        unix::block_signals(&before);
        Ok(Starting { socket: Some(ours), pid: pid?.cast_unsigned(), support })
    }

    /// Runs an executable that calls [`serve_stdin`](crate::serve_stdin) when it is given these
    /// arguments. May be called in any thread of any program, at any time.
    ///
    /// It waits for the executable, some milliseconds and never longer than 5 s. The process has a
    /// session of its own, so that no Ctrl-C reaches it, and keeps nothing of the program but its
    /// standard error and, for its trusted children, its umask and limit of core dumps.
    ///
    /// # Errors
    ///
    /// [`RunError`] tells what cannot be executed from what is no spawner, or one of another version.
    pub fn run(program: &Path, args: &[OsString]) -> Result<Starting, RunError> {
        let (socket, pid, support) = executed::run(program, args)?;
        Ok(Starting { socket: Some(socket), pid: pid.cast_unsigned(), support })
    }

    /// Starts a child, and gives it once it runs its program.
    ///
    /// Cancel safe: when this future is dropped before it is done, the child is killed.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] names the step that failed. No process is left then. A restriction that
    /// cannot be given is such a failure; see [`Support::soften`] for taking less.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its I/O and time drivers.
    pub async fn spawn(&self, command: &Command) -> Result<Child, SpawnError> {
        if let Some(restriction) = self.support().missing(command).first().copied() {
            return Err(SpawnError::Impossible { program: command.program.clone(), restriction });
        }
        let mut order = vec![0; FRAME_BYTES];
        command::pack(command, &mut order)
            .map_err(|refusal| SpawnError::unpackable(command, refusal))?;
        let length = order.len() - FRAME_BYTES;
        let client = &self.handles.client;
        let permit = Arc::clone(&client.starting).acquire_owned().await;
        let permit = permit.map_err(|_| SpawnError::SpawnerGone)?;

        let pipes = |source| SpawnError::Pipes { program: command.program.clone(), source };
        let (ours, theirs) = Streams::new().map_err(pipes)?;
        let theirs = Arc::new(theirs);
        let (report, reported) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let left = LeftBehind::default();
        let entry = Entry {
            launch: Some(Awaited { report, _streams: Arc::clone(&theirs), _permit: permit }),
            end,
            left: left.clone(),
            computed: command.computed.clone(),
        };
        let child = client.enter(entry).ok_or(SpawnError::SpawnerGone)?;
        // From here on, leaving means killing.
        let abandoned = KillOnDrop { client, child };
        client.order_spawn(child, order, theirs);

        let result = reported.await.map_err(|_| SpawnError::SpawnerGone)?;
        let pid =
            result.map_err(|(step, errno)| SpawnError::failed(command, length, step, errno))?;
        let streams = ours.attach().map_err(pipes)?;
        std::mem::forget(abandoned);
        let (input, output, complaints) = streams;
        let (complaints, exit) = stderr::drain(complaints, ended);
        let handles = Arc::clone(&self.handles);
        Ok(Child::new(handles, child, pid, (input, output), complaints, exit, left))
    }

    /// How many children have not been reported as ended, those on their way included.
    pub fn living(&self) -> usize {
        *self.handles.client.living.borrow()
    }

    /// Stops all children, each of which should have lost its input already, and returns when
    /// none is left. Children that are started meanwhile are stopped with the others.
    ///
    /// Cancel safe: dropping it stops the stopping.
    pub async fn stop_all(&self, ladder: &Ladder) {
        let client = &self.handles.client;
        let mut living = client.living.subscribe();
        let ended = async {
            // The sender is in the client, which we hold.
            let _ = living.wait_for(|living| *living == 0).await;
        };
        let mut descent = Descent::new(*ladder, tokio::time::Instant::now().into_std());
        stop::descend(&mut descent, ended, |signal| client.signal_all(signal)).await;
    }

    /// The pid of the spawner process.
    pub fn pid(&self) -> u32 {
        self.handles.client.pid
    }

    /// Whether the spawner process has ended: no child can be started then, and all have ended.
    pub fn is_gone(&self) -> bool {
        *self.handles.client.is_gone.borrow()
    }

    /// Returns when the spawner process has ended. Cancel safe.
    pub async fn gone(&self) {
        // The sender is in the client, which we hold.
        let _ = self.handles.client.is_gone.subscribe().wait_for(|is_gone| *is_gone).await;
    }

    /// Gives this handle back. If it was the last, and no [`Child`] is left, the spawner ends; this returns when
    /// its process is gone.
    pub async fn end(self) {
        let mut is_reaped = self.handles.client.is_reaped.subscribe();
        drop(self);
        // A sender that is gone will say no more.
        let _ = is_reaped.wait_for(|is_reaped| *is_reaped).await;
    }

    /// What this system can keep a child to.
    pub fn support(&self) -> &Support {
        &self.handles.support
    }
}

impl Starting {
    /// Begins to serve the spawner, in a task of the current runtime. When that runtime ends, so
    /// do the spawner and all children.
    ///
    /// # Errors
    ///
    /// When the socket cannot be registered with the runtime.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its I/O driver.
    pub fn attach(mut self) -> io::Result<Spawner> {
        let pid = self.pid;
        let socket = self.socket.take().expect("taken only here, where `self` ends");
        // Without its socket it leaves at once.
        let reap = |_: &io::Error| {
            unix::reap(pid.cast_signed());
        };
        let client = SpawnerClient::new(socket, pid).inspect_err(reap)?;
        let client = Arc::new(client);
        tokio::spawn(spawner_client::serve(Arc::clone(&client)));
        let support = std::mem::take(&mut self.support);
        Ok(Spawner { handles: Arc::new(Handles { client, support }) })
    }

    /// The pid of the spawner process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What this system can keep a child to.
    pub fn support(&self) -> &Support {
        &self.support
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            drop(socket);
            // It has no children yet and leaves at once.
            unix::reap(self.pid.cast_signed());
        }
    }
}

/// Kills a child whose start nobody waits for any more.
struct KillOnDrop<'a> {
    client: &'a SpawnerClient,
    child: Number,
}

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        self.client.signal(self.child, libc::SIGKILL);
    }
}

/// Our ends of a child's streams.
struct Streams {
    input: OwnedFd,
    output: OwnedFd,
    complaints: OwnedFd,
}

impl Streams {
    /// Our ends, and those of the child in their order.
    fn new() -> io::Result<(Self, [OwnedFd; STREAMS])> {
        let (their_input, input) = unix::pipe()?;
        let (output, their_output) = unix::pipe()?;
        let (complaints, their_complaints) = unix::pipe()?;
        for ours in [&input, &output, &complaints] {
            unix::set_nonblocking(ours)?;
        }
        let theirs = [their_input, their_output, their_complaints];
        Ok((Self { input, output, complaints }, theirs))
    }

    /// Registers our ends with the runtime.
    fn attach(self) -> io::Result<(pipe::Sender, pipe::Receiver, pipe::Receiver)> {
        Ok((
            pipe::Sender::from_owned_fd_unchecked(self.input)?,
            pipe::Receiver::from_owned_fd_unchecked(self.output)?,
            pipe::Receiver::from_owned_fd_unchecked(self.complaints)?,
        ))
    }
}
