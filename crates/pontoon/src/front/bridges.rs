//! Other bridges of this user, which share this one's connection to an application: each is a client on a socket, with a
//! message on each line.

use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use tokio::net::UnixStream;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use super::stdio::StdioFront;
use crate::back::remote::sharing::MeetingPoint;
use crate::clock::{now, since};
use crate::lock::Lock;
use crate::session::Sessions;
use crate::session::entry::Entry;

/// As many bridges may share a connection.
const MAX_BRIDGES: usize = 64;

/// From when on one that says nothing makes room for another, where there is none left.
const SILENCE: Duration = Duration::from_secs(2);

/// How long a bridge without a call may take to go after the word to leave.
const GOING: Duration = Duration::from_millis(300);

/// How long those with calls may.
const GRACE: Duration = Duration::from_secs(30);

/// The pause after a connection that could not be taken, for want of descriptors perhaps.
const FAULT: Duration = Duration::from_millis(100);

/// The other bridges that are here.
#[derive(Debug)]
pub struct Bridges {
    sessions: Arc<Sessions>,
    entry: Arc<Entry>,
    max_message: usize,
    /// Those that are here; `None` once they were sent away, and no other may come.
    visitors: Lock<Option<Vec<ConnectedBridge>>>,
    tasks: TaskTracker,
}

/// One that came.
#[derive(Debug)]
struct ConnectedBridge {
    front: Weak<StdioFront>,
    came: Instant,
    task: AbortHandle,
}

impl ConnectedBridge {
    /// Sends it away if it has said nothing for long: a bridge introduces itself at once. Whether it went.
    fn make_room(&self) -> bool {
        let Some(front) = self.front.upgrade() else { return true };
        if !front.is_unused() || since(self.came) < SILENCE {
            return false;
        }
        self.task.abort();
        front.leave();
        true
    }
}

impl Bridges {
    /// None is here yet. Their messages may be this long.
    pub fn new(sessions: Arc<Sessions>, entry: Arc<Entry>, max_message: usize) -> Self {
        let (visitors, tasks) = (Lock::new(Some(Vec::new())), TaskTracker::new());
        Self { sessions, entry, max_message, visitors, tasks }
    }

    /// Takes the bridges that come, as long as it is polled.
    pub async fn serve(&self, point: &MeetingPoint) {
        let mut listener = point.listener().await;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                // The files of the first were removed.
                new = point.listener() => {
                    listener = new;
                    continue;
                }
            };
            match accepted {
                Ok((stream, _)) => {
                    if let Err(why) = self.take(stream) {
                        tracing::warn!(%why, "another bridge was sent away");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a bridge could not come");
                    tokio::time::sleep(FAULT).await;
                }
            }
        }
    }

    fn take(&self, stream: UnixStream) -> io::Result<()> {
        // The folder of the socket is closed to others already.
        if stream.peer_cred()?.uid() != geteuid().as_raw() {
            return Err(io::Error::other("it is not this user's"));
        }
        let mut visitors = self.visitors.lock();
        let visitors = visitors.as_mut().ok_or_else(|| io::Error::other("this bridge leaves"))?;
        visitors.retain(|visitor| visitor.front.strong_count() > 0);
        if visitors.len() >= MAX_BRIDGES
            && let Some(at) = visitors.iter().position(ConnectedBridge::make_room)
        {
            visitors.remove(at);
        }
        if visitors.len() >= MAX_BRIDGES {
            return Err(io::Error::other(format!("{MAX_BRIDGES} bridges are here already")));
        }
        let (sessions, entry) = (Arc::clone(&self.sessions), Arc::clone(&self.entry));
        let front = Arc::new(StdioFront::of_bridge(sessions, entry, self.max_message));
        let (weak, came) = (Arc::downgrade(&front), now());
        let task = self.tasks.spawn(async move {
            let (input, output) = stream.into_split();
            front.serve(input, output).await;
        });
        visitors.push(ConnectedBridge { front: weak, came, task: task.abort_handle() });
        Ok(())
    }

    /// Sends the bridges away: they make no more calls here, and those that are open are answered.
    pub async fn leave(&self) {
        self.tasks.close();
        let visitors = self.visitors.lock().take().unwrap_or_default();
        let fronts: Vec<_> = visitors.iter().filter_map(|it| it.front.upgrade()).collect();
        fronts.iter().for_each(|front| front.say_leaving());
        if tokio::time::timeout(GOING, self.tasks.wait()).await.is_ok() {
            return;
        }
        // One that has stopped does not go by itself.
        fronts.iter().for_each(|front| front.finish());
        drop(fronts);
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            tracing::warn!("calls of other bridges are still open; their outcome is unknown");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

    use super::*;
    use crate::app::test_bridge::{TestBridge, ToolServer};

    const INITIALIZE: &str = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\
        \"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\
        \"clientInfo\":{\"name\":\"bridge\",\"version\":\"1\"}}}\n";

    #[tokio::test(start_paused = true)]
    async fn a_bridge_that_is_late_is_sent_on_when_it_introduces_itself_and_no_other_is_taken() {
        let bridge = TestBridge::start(ToolServer::of_both_eras().servers(), |_, _| {});
        bridge.until_known().await;
        let sessions = Arc::clone(&bridge.site.sessions);
        let bridges = Bridges::new(sessions, bridge.entry(), 1 << 20);
        let (late, ours) = UnixStream::pair().unwrap();
        bridges.take(ours).unwrap();
        let late = async {
            // It has said nothing when all were told.
            tokio::task::yield_now().await;
            let why = bridges.take(UnixStream::pair().unwrap().1).unwrap_err();
            assert_eq!(why.to_string(), "this bridge leaves");
            let mut late = BufReader::new(late);
            late.write_all(INITIALIZE.as_bytes()).await.unwrap();
            let mut lines = late.lines();
            let mut heard = Vec::new();
            while heard.len() < 2
                && let Some(line) = lines.next_line().await.unwrap()
            {
                heard.push(line);
            }
            // In whatever order: it listens before it asks.
            let has = |words: &str| heard.iter().any(|line| line.contains(words));
            assert!(has("\"result\"") && has("notifications/pontoon/leaving"), "{heard:?}");
        };
        tokio::join!(bridges.leave(), late);
    }
}
