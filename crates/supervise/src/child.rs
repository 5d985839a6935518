//! A running child: its streams, its end, and the ways to bring it about.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::exit::Exit;
use crate::frame::Number;
use crate::spawner_client::{Handles, LeftBehind};
use crate::stderr::Complaints;
use crate::stop::{self, Descent, Ladder};

/// Where a child reads from. Dropping it is the end of its input.
pub type ChildInput = pipe::Sender;

/// Where a child writes to.
pub type ChildOutput = pipe::Receiver;

/// A running child. Dropping it stops the child in the background, by the default [`Ladder`], or
/// kills it at once where there is no runtime to do that.
#[derive(Debug)]
pub struct Child {
    handles: Arc<Handles>,
    number: Number,
    pid: u32,
    streams: Option<(ChildInput, ChildOutput)>,
    complaints: Complaints,
    exit: watch::Receiver<Option<Exit>>,
    /// The stop that has begun, so that one that was cancelled goes on where it was.
    descent: Option<Descent>,
    has_outlived: Arc<AtomicBool>,
    left: LeftBehind,
}

impl Child {
    pub(crate) fn new(
        handles: Arc<Handles>,
        number: Number,
        pid: u32,
        streams: (ChildInput, ChildOutput),
        complaints: Complaints,
        exit: watch::Receiver<Option<Exit>>,
        left: LeftBehind,
    ) -> Self {
        Self {
            handles,
            number,
            pid,
            streams: Some(streams),
            complaints,
            exit,
            descent: None,
            has_outlived: Arc::default(),
            left,
        }
    }

    /// Its pid. Once the child has ended, another process may have the same.
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// Its input and output, the first time.
    pub fn take_streams(&mut self) -> Option<(ChildInput, ChildOutput)> {
        self.streams.take()
    }

    /// What it writes to its standard error, which is read whether anyone asks or not.
    pub fn complaints(&self) -> Complaints {
        self.complaints.clone()
    }

    /// How it ends, once it and all it started have ended and its last complaints are in.
    /// Many can wait. Cancel safe.
    pub fn exited(&self) -> impl Future<Output = Exit> + Send + use<> {
        exited(self.exit.clone())
    }

    /// How it ended, if it has.
    pub fn try_exit(&self) -> Option<Exit> {
        let exit = *self.exit.borrow();
        exit.or_else(|| self.exit.has_changed().is_err().then_some(Exit::Unknown))
    }

    /// Kills it and all it started, now.
    pub fn kill(&self) {
        self.handles.signal(self.number, libc::SIGKILL);
    }

    /// Kills it and all it started once it has lived for this long from now.
    pub fn limit_life(&self, life: Duration) {
        let has_outlived = Arc::clone(&self.has_outlived);
        self.kill_after(life, move || has_outlived.store(true, Ordering::Release));
    }

    /// Asks its process group to end, and kills it and all it started if that was in vain for so
    /// long.
    pub fn end_within(&self, patience: Duration) {
        self.terminate();
        self.kill_after(patience, || {});
    }

    fn kill_after(&self, patience: Duration, note: impl FnOnce() + Send + 'static) {
        let (exited, handles, number) = (self.exited(), Arc::clone(&self.handles), self.number);
        tokio::spawn(async move {
            if tokio::time::timeout(patience, exited).await.is_err() {
                note();
                handles.signal(number, libc::SIGKILL);
            }
        });
    }

    /// Has it counted what it leaves behind when it ends.
    pub fn count_left_behind(&self) {
        self.handles.count_left(self.number);
    }

    /// How many processes that it had started still ran when it ended; known once it has, if that was to be
    /// counted and this system shows it.
    pub fn left_behind(&self) -> Option<u32> {
        self.left.told()
    }

    /// Whether it was killed because it had lived as long as it may.
    pub fn has_outlived(&self) -> bool {
        self.has_outlived.load(Ordering::Acquire)
    }

    /// Asks its process group to end.
    pub fn terminate(&self) {
        self.handles.signal(self.number, libc::SIGTERM);
    }

    /// Stops it: its input ends, unless it was taken and is still held; then it gets SIGTERM, then
    /// SIGKILL. Gives how it ended, or [`Exit::Unknown`] when it survived even that for 5 s.
    ///
    /// Cancel safe: the stop goes on in the background, from where it was.
    pub async fn stop(mut self, ladder: &Ladder) -> Exit {
        // Input closes first: a well-behaved server exits at its end.
        self.streams = None;
        let descent = self.descent.insert(Descent::new(*ladder, now()));
        let (handles, number) = (&self.handles, self.number);
        let exited = exited(self.exit.clone());
        let exit = stop::descend(descent, exited, |signal| handles.signal(number, signal)).await;
        exit.unwrap_or(Exit::Unknown)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.try_exit().is_some() {
            return;
        }
        self.streams = None;
        let Ok(runtime) = Handle::try_current() else {
            self.kill();
            return;
        };
        let mut descent =
            self.descent.take().unwrap_or_else(|| Descent::new(Ladder::default(), now()));
        let exited = exited(self.exit.clone());
        let stopping = Stopping { handles: Arc::clone(&self.handles), number: self.number };
        runtime.spawn(async move {
            let signal = |signal| stopping.handles.signal(stopping.number, signal);
            stop::descend(&mut descent, exited, signal).await;
        });
    }
}

/// A stop in the background. A runtime that ends drops it, and then there is no time left.
struct Stopping {
    handles: Arc<Handles>,
    number: Number,
}

impl Drop for Stopping {
    fn drop(&mut self) {
        // Nothing happens to a child that has ended.
        self.handles.signal(self.number, libc::SIGKILL);
    }
}

/// Resolves when the child has ended. A sender that is gone knew the end no more than we.
async fn exited(mut exit: watch::Receiver<Option<Exit>>) -> Exit {
    exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit).unwrap_or(Exit::Unknown)
}

/// The time as the runtime sees it, so that tests can stop the clock.
fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}
