//! Servers that are tasks of a test, each at the other end of the pipes of a child. No process is started, so the
//! test may stop the clock.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use pontoon_supervise::{ChildInput, ChildOutput, Exit, Ladder, Support};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe::{Receiver, Sender, pipe};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What a server of a test does from its start to its end.
type ServeTask = dyn Fn(ServerEnd) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// The servers of a test.
#[derive(Clone)]
pub struct InMemoryServers {
    serve: Arc<ServeTask>,
    support: Support,
    started: Arc<AtomicU32>,
    living: Arc<watch::Sender<usize>>,
    /// Kills all of them.
    all_killed: CancellationToken,
}

impl std::fmt::Debug for InMemoryServers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InMemoryServers").field("started", &self.started).finish_non_exhaustive()
    }
}

impl InMemoryServers {
    /// Every process that is started does this, and ends with it.
    pub(crate) fn new<F>(serve: impl Fn(ServerEnd) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let serve: Arc<ServeTask> = Arc::new(move |end| Box::pin(serve(end)));
        Self {
            serve,
            support: Support::default(),
            started: Arc::default(),
            living: Arc::default(),
            all_killed: CancellationToken::new(),
        }
    }

    /// How many were started.
    pub(crate) fn started(&self) -> u32 {
        self.started.load(Ordering::Relaxed)
    }

    /// How many live.
    pub(crate) fn living(&self) -> usize {
        *self.living.borrow()
    }

    /// Waits until `count` processes live.
    pub(crate) async fn until_living(&self, count: usize) {
        drop(self.living.subscribe().wait_for(|living| *living == count).await);
    }

    pub(super) async fn stop_all(&self) {
        self.all_killed.cancel();
        self.until_living(0).await;
    }

    pub(super) fn support(&self) -> &Support {
        &self.support
    }

    pub(super) fn start(&self) -> InMemoryProcess {
        let (input, their_input) = pipe().expect("a pipe");
        let (their_output, output) = pipe().expect("a pipe");
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let end =
            ServerEnd { number, lines: BufReader::new(their_input).lines(), output: their_output };
        let (exit, exited) = watch::channel(None);
        let killed = self.all_killed.child_token();
        let (serving, kill) = ((self.serve)(end), killed.clone());
        let living = Arc::clone(&self.living);
        living.send_modify(|living| *living += 1);
        tokio::spawn(async move {
            let how = tokio::select! {
                () = serving => Exit::Code(0),
                () = kill.cancelled() => Exit::Signal(9),
            };
            exit.send_replace(Some(how));
            living.send_modify(|living| *living -= 1);
        });
        let has_outlived = Arc::default();
        InMemoryProcess { number, streams: Some((input, output)), exited, killed, has_outlived }
    }
}

/// The server's end of the pipes.
pub(crate) struct ServerEnd {
    /// Which process it is, counted from one.
    pub(crate) number: u32,
    lines: Lines<BufReader<Receiver>>,
    output: Sender,
}

impl ServerEnd {
    /// The next line of its input; `None` at the end.
    pub(crate) async fn next_line(&mut self) -> Option<String> {
        self.lines.next_line().await.ok().flatten()
    }

    /// The next message in a `Content-Length` frame, of which this line is the head; `None` if it is another line.
    pub(crate) async fn next_in_frame(&mut self, head: &str) -> Option<String> {
        let length = head.strip_prefix("Content-Length: ")?.parse().ok()?;
        self.next_line().await?;
        let mut text = vec![0; length];
        self.lines.get_mut().read_exact(&mut text).await.ok()?;
        String::from_utf8(text).ok()
    }

    /// Writes a message to its output in such a frame.
    pub(crate) async fn say_in_frame(&mut self, text: &str) {
        let frame = format!("Content-Length: {}\r\n\r\n{text}", text.len());
        let _ = self.output.write_all(frame.as_bytes()).await;
    }

    /// Writes a line to its output.
    pub(crate) async fn say(&mut self, line: &str) {
        // The bridge may be gone, as it may be for a process.
        let _ = self.output.write_all(format!("{line}\n").as_bytes()).await;
    }
}

/// A task in place of a process.
#[derive(Debug)]
pub(crate) struct InMemoryProcess {
    number: u32,
    streams: Option<(ChildInput, ChildOutput)>,
    exited: watch::Receiver<Option<Exit>>,
    killed: CancellationToken,
    has_outlived: Arc<AtomicBool>,
}

impl Drop for InMemoryProcess {
    fn drop(&mut self) {
        self.killed.cancel();
    }
}

impl InMemoryProcess {
    pub(super) fn id(&self) -> u32 {
        self.number
    }

    pub(super) fn take_streams(&mut self) -> Option<(ChildInput, ChildOutput)> {
        self.streams.take()
    }

    pub(super) async fn exited(&self) -> Exit {
        let mut exited = self.exited.clone();
        let exit = exited.wait_for(Option::is_some).await;
        exit.ok().and_then(|exit| *exit).unwrap_or(Exit::Unknown)
    }

    pub(super) fn try_exit(&self) -> Option<Exit> {
        *self.exited.borrow()
    }

    pub(super) fn kill(&self) {
        self.killed.cancel();
    }

    /// A task hears no signal, so it has all of this time.
    pub(super) fn end_within(&self, patience: Duration) {
        let killed = self.killed.clone();
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            killed.cancel();
        });
    }

    pub(super) fn limit_life(&self, life: Duration) {
        let (killed, has_outlived) = (self.killed.clone(), Arc::clone(&self.has_outlived));
        tokio::spawn(async move {
            tokio::time::sleep(life).await;
            has_outlived.store(true, Ordering::Release);
            killed.cancel();
        });
    }

    pub(super) fn has_outlived(&self) -> bool {
        self.has_outlived.load(Ordering::Acquire)
    }

    pub(super) async fn stop(self, ladder: &Ladder) -> Exit {
        if let Ok(exit) = tokio::time::timeout(ladder.after_close, self.exited()).await {
            return exit;
        }
        self.kill();
        self.exited().await
    }
}
