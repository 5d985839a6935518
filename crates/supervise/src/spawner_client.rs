//! The client of the spawner process: orders out, reports in, and which children there are.
//!
//! Orders are written where they are given, without a task between; one task reads the reports
//! and writes what the socket would not take at once.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::command::ComputedTime;
use crate::exit::Exit;
use crate::frame::{FRAME_BYTES, Number, Order, Report, Step};
use crate::support::Support;
use crate::unix::{self, STREAMS};

/// How many children may be on their way at once. More wait for their turn.
const STARTING_AT_ONCE: usize = 64;

/// What the handles and the task share.
#[derive(Debug)]
pub(crate) struct SpawnerClient {
    socket: AsyncFd<OwnedFd>,
    pub(crate) pid: u32,
    outbox: Mutex<Vec<Parcel>>,
    /// Tells the task that the socket did not take all of the outbox.
    outbox_waits: Notify,
    roster: Mutex<Roster>,
    pub(crate) living: watch::Sender<usize>,
    /// Whether the spawner has ended.
    pub(crate) is_gone: watch::Sender<bool>,
    /// Whether its process is no longer in the process table either.
    pub(crate) is_reaped: watch::Sender<bool>,
    pub(crate) starting: Arc<Semaphore>,
}

/// What all handles hold together: with the last of them the orders end.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) client: Arc<SpawnerClient>,
    pub(crate) support: Support,
}

impl Handles {
    /// Sends a signal to the group of a child, if it has not ended.
    pub(crate) fn signal(&self, child: Number, signal: i32) {
        self.client.signal(child, signal);
    }

    /// Asks to be told what a child leaves behind.
    pub(crate) fn count_left(&self, child: Number) {
        self.client.order(child, Order::CountLeft { child });
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.client.end_orders();
    }
}

/// An order on its way.
#[derive(Debug)]
struct Parcel {
    child: Number,
    bytes: Vec<u8>,
    sent: usize,
    streams: Option<Arc<[OwnedFd; STREAMS]>>,
}

/// The children that were ordered and have not ended.
#[derive(Debug)]
struct Roster {
    next: Number,
    entries: HashMap<Number, Entry>,
    is_open: bool,
}

/// Who waits for news of a child.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) launch: Option<Awaited>,
    pub(crate) end: oneshot::Sender<Exit>,
    pub(crate) left: LeftBehind,
    pub(crate) computed: ComputedTime,
}

/// How many processes a child left behind, once that is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftBehind(Arc<OnceLock<u32>>);

impl LeftBehind {
    pub(crate) fn told(&self) -> Option<u32> {
        self.0.get().copied()
    }
}

/// What is kept until the spawner says how a launch went.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) report: oneshot::Sender<Result<u32, (Step, i32)>>,
    /// Some systems lose descriptors that are closed while they are on their way.
    pub(crate) _streams: Arc<[OwnedFd; STREAMS]>,
    /// Held here and not in the future, as a launch goes on when nobody waits for it any more.
    pub(crate) _permit: OwnedSemaphorePermit,
}

impl SpawnerClient {
    /// A client of the spawner `pid` at the other end of `socket`, which must be non-blocking.
    pub(crate) fn new(socket: OwnedFd, pid: u32) -> io::Result<Self> {
        // SAFETY: the socket stays open, and the same, for as long as it is registered: it is owned
        // by the registration, which nobody takes it out of.
        let socket = unsafe { AsyncFd::register(socket) }?;
        Ok(Self {
            socket,
            pid,
            outbox: Mutex::default(),
            outbox_waits: Notify::new(),
            roster: Mutex::new(Roster { next: 1, entries: HashMap::new(), is_open: true }),
            living: watch::Sender::new(0),
            is_gone: watch::Sender::new(false),
            is_reaped: watch::Sender::new(false),
            starting: Arc::new(Semaphore::new(STARTING_AT_ONCE)),
        })
    }

    /// Ends the orders: the spawner then ends everything it started, and itself.
    pub(crate) fn end_orders(&self) {
        unix::shut_down_sending(self.socket.get_ref());
    }

    /// Enters a child and gives its number, or `None` when the spawner has ended.
    pub(crate) fn enter(&self, entry: Entry) -> Option<Number> {
        let mut roster = lock(&self.roster);
        if !roster.is_open {
            return None;
        }
        let number = roster.next;
        roster.next += 1;
        roster.entries.insert(number, entry);
        self.count(&roster);
        Some(number)
    }

    fn count(&self, roster: &Roster) {
        self.living.send_replace(roster.entries.len());
    }

    /// Orders the child that was entered as `child`. `bytes` begins with room for a frame, then
    /// comes the packed command.
    pub(crate) fn order_spawn(
        &self,
        child: Number,
        mut bytes: Vec<u8>,
        streams: Arc<[OwnedFd; STREAMS]>,
    ) {
        let length = u32::try_from(bytes.len() - FRAME_BYTES).unwrap_or(u32::MAX);
        bytes[..FRAME_BYTES].copy_from_slice(&Order::Spawn { child, length }.encode());
        self.send(Parcel { child, bytes, sent: 0, streams: Some(streams) });
    }

    /// Sends a signal to the group of a child, if it has not ended.
    pub(crate) fn signal(&self, child: Number, signal: i32) {
        self.order(child, Order::Signal { child, signal });
    }

    fn order(&self, child: Number, order: Order) {
        // A child that has ended needs no order; the spawner would ignore it anyway.
        if lock(&self.roster).entries.contains_key(&child) {
            let bytes = order.encode().to_vec();
            self.send(Parcel { child, bytes, sent: 0, streams: None });
        }
    }

    /// Sends a signal to the groups of all children.
    pub(crate) fn signal_all(&self, signal: i32) {
        let children: Vec<Number> = lock(&self.roster).entries.keys().copied().collect();
        for child in children {
            self.signal(child, signal);
        }
    }

    /// Sends an order now, or as soon as the socket takes it. Needs no runtime.
    fn send(&self, parcel: Parcel) {
        let mut outbox = lock(&self.outbox);
        outbox.push(parcel);
        // An error is told by the reading side, which sees the same end.
        if let Err(error) = self.flush(&mut outbox)
            && error.kind() == io::ErrorKind::WouldBlock
        {
            self.outbox_waits.notify_one();
        }
    }

    /// Writes what the socket takes of the outbox.
    ///
    /// The locks are taken in this order only: the outbox, then the roster.
    fn flush(&self, outbox: &mut Vec<Parcel>) -> io::Result<()> {
        let socket = self.socket.get_ref().as_fd();
        let mut whole = 0;
        let mut result = Ok(());
        'parcels: for parcel in outbox.iter_mut() {
            while parcel.sent < parcel.bytes.len() {
                let streams = parcel.streams.as_deref().map_or(&[][..], |streams| &streams[..]);
                match unix::send(socket, &parcel.bytes[parcel.sent..], streams) {
                    Ok(size) => {
                        parcel.sent += size;
                        parcel.streams = None;
                    }
                    // The kernel may lack what descriptors need on their way. Only this start
                    // fails then, and nothing of it was sent.
                    Err(error) if parcel.streams.is_some() && is_shortage(&error) => {
                        let errno = error.raw_os_error().unwrap_or(libc::ENOMEM);
                        let child = parcel.child;
                        self.hear(Report::Failed { child, step: Step::Receive, errno });
                        break;
                    }
                    Err(error) => {
                        result = Err(error);
                        break 'parcels;
                    }
                }
            }
            whole += 1;
        }
        outbox.drain(..whole);
        result
    }

    /// Writes what is left in the outbox. Cancel safe: what was written is taken out with it.
    async fn write_rest(&self) -> io::Result<()> {
        loop {
            if lock(&self.outbox).is_empty() {
                self.outbox_waits.notified().await;
                continue;
            }
            let mut ready = self.socket.writable().await?;
            let result = self.flush(&mut lock(&self.outbox));
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                // The reading side says how it ended.
                Err(_) => pending().await,
            }
        }
    }

    /// Acts on a report.
    fn hear(&self, report: Report) {
        let mut roster = lock(&self.roster);
        match report {
            Report::Started { child, pid } => {
                if let Some(launch) = roster.entries.get_mut(&child).and_then(|e| e.launch.take()) {
                    // Nobody waiting means it was abandoned, and is being killed.
                    let _ = launch.report.send(Ok(pid));
                }
            }
            Report::Failed { child, step, errno } => {
                if let Some(launch) = roster.entries.remove(&child).and_then(|e| e.launch) {
                    let _ = launch.report.send(Err((step, errno)));
                }
            }
            Report::Left { child, count } => {
                if let Some(entry) = roster.entries.get(&child) {
                    let _ = entry.left.0.set(count);
                }
            }
            Report::Ended { child, exit, computed } => {
                if let Some(entry) = roster.entries.remove(&child) {
                    entry.computed.add(computed);
                    let _ = entry.end.send(exit);
                }
            }
        }
        self.count(&roster);
    }

    /// Ends all dealings with the spawner: whoever waits hears that nobody knows.
    fn close(&self) {
        self.end_orders();
        self.starting.close();
        lock(&self.outbox).clear();
        let mut roster = lock(&self.roster);
        roster.is_open = false;
        roster.entries.clear();
        self.count(&roster);
        self.is_gone.send_replace(true);
    }
}

/// Reads reports until the spawner ends.
pub(crate) fn serve(client: Arc<SpawnerClient>) -> impl Future<Output = ()> + Send {
    /// Also when the runtime ends and drops the task.
    struct Close(Arc<SpawnerClient>);
    impl Drop for Close {
        fn drop(&mut self) {
            self.0.close();
        }
    }
    // Made before the task begins: a runtime may end before that.
    let reap = Reap { pid: client.pid.cast_signed(), is_reaped: client.is_reaped.clone() };
    let close = Close(Arc::clone(&client));
    async move {
        if let Err(error) = read_reports(&client).await {
            tracing::error!(%error, pid = client.pid, "lost the spawner process");
        }
        drop(close);
        drop(client);
        // It has closed its socket, so it is gone or as good as.
        drop(reap);
    }
}

/// Collects the exit of the spawner, in a thread that outlives a runtime which is just ending.
struct Reap {
    pid: i32,
    is_reaped: watch::Sender<bool>,
}

impl Drop for Reap {
    fn drop(&mut self) {
        let (pid, is_reaped) = (self.pid, self.is_reaped.clone());
        let reap = move || {
            unix::reap(pid);
            is_reaped.send_replace(true);
        };
        // Without a thread it stays a zombie until the program ends.
        let _ = std::thread::Builder::new().stack_size(64 * 1024).spawn(reap);
    }
}

async fn read_reports(client: &SpawnerClient) -> io::Result<()> {
    let mut bytes = [0; 32 * FRAME_BYTES];
    let mut filled = 0;
    loop {
        tokio::select! {
            ready = client.socket.readable() => {
                let mut ready = ready?;
                let room = &mut bytes[filled..];
                let wanted = room.len();
                match unix::receive(client.socket.get_ref().as_fd(), room, &mut Vec::new()) {
                    Ok(0) => return Ok(()),
                    Ok(size) => {
                        filled += size;
                        // A short read has emptied the socket; the next bytes make it ready again.
                        if size < wanted {
                            ready.clear_ready();
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready.clear_ready();
                    }
                    Err(error) => return Err(error),
                }
            }
            result = client.write_rest() => result?,
        }
        let (frames, _) = bytes[..filled].as_chunks::<FRAME_BYTES>();
        let whole = frames.len() * FRAME_BYTES;
        for frame in frames {
            let report = Report::decode(frame).ok_or(io::ErrorKind::InvalidData)?;
            client.hear(report);
        }
        bytes.copy_within(whole..filled, 0);
        filled -= whole;
    }
}

fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::ETOOMANYREFS, libc::ENOMEM, libc::ENOBUFS, libc::EMFILE, libc::ENFILE];
    error.raw_os_error().is_some_and(|errno| shortages.contains(&errno))
}

/// No code panics while it holds one of these locks, and if it did, the data would still be whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
