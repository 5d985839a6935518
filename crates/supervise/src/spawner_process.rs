//! The spawner process: starts children, ends what they leave behind, and reports.
//!
//! It has one thread and one loop: see who ended, end the orphans of those, tell, wait. It never
//! waits for anything but news, so a slow exec or a stopped program delays no other child.
//! How a child is launched is in `launch`; whose an orphan is, in `orphans`.

mod inbox;
mod settle;
mod sleep;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};

use crate::Exit;
use crate::cgroup::{Fresh, Leftovers};
use crate::command::Packed;
use crate::confine::Means;
use crate::frame::{Number, Order, Report, Step};
use crate::launch::{Launch, Outcome};
use crate::orphans::{Orphans, Owner};
use crate::unix::{self, Ended, STREAMS};

use self::inbox::{Inbox, Next};
use self::settle::settle_in;
use self::sleep::{FdSet, sleep};

/// Turns this process, just forked or just run, with every signal blocked, into the spawner.
pub(crate) fn run(socket: OwnedFd, mut means: Means) -> ! {
    // A panic may not unwind into the code of the program this is a copy of.
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let (socket, ordinary) = settle_in(socket);
        means.ordinary = ordinary;
        let mut spawner_process = Nursery::new(socket, means);
        let served = catch_unwind(AssertUnwindSafe(|| spawner_process.serve()));
        spawner_process.end_all();
        served.is_ok()
    }));
    // SAFETY: ends the process without running the exit handlers of the program.
    unsafe { libc::_exit(if matches!(ran, Ok(true)) { 0 } else { 70 }) }
}

struct Nursery {
    socket: OwnedFd,
    means: Means,
    inbox: Inbox,
    /// Reports the socket did not take yet. While there are any, no order is taken.
    outbox: Vec<u8>,
    /// The unreaped leaders by pid; signals go to these only.
    leaders: HashMap<pid_t, Leader>,
    /// The launches under way, by their descriptors.
    launching: Vec<(RawFd, pid_t)>,
    pids: HashMap<Number, pid_t>,
    ending: Vec<Ending>,
    orphans: Orphans,
    /// The cgroups of children that ended which could not be removed yet.
    leftovers: Leftovers,
    /// Whether processes may have been adopted that nobody looked at.
    look_at_orphans: bool,
    /// Whether processes may have ended that nobody looked at.
    more_ended: bool,
    /// Not before then: looking takes longer the more children there are, and when many end at
    /// once, one look for several of them is enough.
    next_look: Instant,
    /// False once nothing is below this process, not even an orphan.
    has_children: bool,
}

struct Leader {
    child: Number,
    stage: Stage,
    is_trusted: bool,
    cgroup: Option<Fresh>,
    /// Whether what it leaves behind is counted.
    counts_left: bool,
    /// How long those had computed that it started and that are reaped.
    computed: Duration,
}

enum Stage {
    Launching(Launch),
    Running,
    Failed,
}

/// A child whose leader is reaped, while the rest of its tree may still be dying.
struct Ending {
    child: Number,
    exit: Exit,
    patience: Instant,
    cgroup: Option<Fresh>,
    /// How long it and all it started had computed, as far as that is reaped.
    computed: Duration,
}

/// A process in an uninterruptible wait outlives its SIGKILL; its child is reported all the same.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often trees that are dying are looked at, should a signal fail to tell.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// After so many others get their turn: processes may be forked as fast as they are reaped.
const REAPED_AT_ONCE: usize = 256;

impl Nursery {
    fn new(socket: OwnedFd, means: Means) -> Self {
        Self {
            socket,
            means,
            inbox: Inbox::default(),
            outbox: Vec::new(),
            leaders: HashMap::new(),
            launching: Vec::new(),
            pids: HashMap::new(),
            ending: Vec::new(),
            orphans: Orphans::adopt(),
            leftovers: Leftovers::new(),
            look_at_orphans: false,
            more_ended: false,
            next_look: Instant::now(),
            has_children: false,
        }
    }

    /// Serves until the program ends its side of the socket.
    fn serve(&mut self) {
        self.means.sweep();
        loop {
            if self.flush().is_err() {
                return;
            }
            let ready = self.wait();
            for pid in ready.launches {
                self.finish_launch(pid);
            }
            // Asking the kernel who ended takes longer the more children there are.
            if ready.ended {
                self.reap();
            }
            self.end_orphans();
            if ready.orders {
                match self.take_order() {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return,
                }
            }
        }
    }

    /// Takes one order, if there is one: between two of them others get their turn. `false` when
    /// there will be no more.
    fn take_order(&mut self) -> io::Result<bool> {
        match self.inbox.next(&self.socket)? {
            Next::Order(order) => self.obey(order),
            Next::Nothing => {}
            Next::End => return Ok(false),
        }
        Ok(true)
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Spawn { child, .. } => match self.launch(child) {
                Ok((launch, cgroup)) => {
                    let pid = launch.pid;
                    self.has_children = true;
                    self.pids.insert(child, pid);
                    self.launching.push((launch.descriptor(), pid));
                    let is_trusted = launch.is_trusted;
                    let stage = Stage::Launching(launch);
                    let counts_left = false;
                    let computed = Duration::ZERO;
                    let leader = Leader { child, stage, is_trusted, cgroup, counts_left, computed };
                    self.leaders.insert(pid, leader);
                }
                Err((step, errno)) => self.report(Report::Failed { child, step, errno }),
            },
            Order::CountLeft { child } => {
                let leader = self.pids.get(&child).and_then(|pid| self.leaders.get_mut(pid));
                leader.into_iter().for_each(|leader| leader.counts_left = true);
            }
            Order::Signal { child, signal } => {
                if let Some(pid) = self.pids.get(&child) {
                    signal_tree(*pid, signal);
                    if signal == libc::SIGKILL {
                        let leader = self.leaders.get(pid);
                        leader.iter().flat_map(|leader| &leader.cgroup).for_each(Fresh::kill);
                    }
                }
            }
        }
    }

    fn launch(&mut self, child: Number) -> Result<(Launch, Option<Fresh>), (Step, c_int)> {
        let (bytes, streams) = self.inbox.take_spawn();
        let launch = match (Packed::parse(&bytes), streams) {
            (Some(command), Some(streams)) => self.launch_command(child, &command, &streams),
            // The kernel drops descriptors on the way when this process may not have more.
            (_, None) => Err((Step::Receive, libc::EMFILE)),
            (None, _) => Err((Step::Receive, libc::EBADMSG)),
        };
        self.inbox.reuse(bytes);
        launch
    }

    fn launch_command(
        &mut self,
        child: Number,
        command: &Packed<'_>,
        streams: &[OwnedFd; STREAMS],
    ) -> Result<(Launch, Option<Fresh>), (Step, c_int)> {
        let mut cgroup = self.means.fresh_cgroup(child, command)?;
        let tag = self.orphans.tag(child);
        match Launch::begin(command, streams, tag, &self.means, cgroup.as_ref()) {
            Ok(launch) => {
                cgroup.iter_mut().for_each(Fresh::close);
                Ok((launch, cgroup))
            }
            Err(failure) => {
                self.leftovers.take(cgroup);
                Err(failure)
            }
        }
    }

    /// Reports how the launch of `pid` went, once it did.
    fn finish_launch(&mut self, pid: pid_t) {
        let Some(leader) = self.leaders.get_mut(&pid) else { return };
        if let Some(report) = leader.finish_launch() {
            let is_trusted = leader.is_trusted;
            self.launching.retain(|(_, other)| *other != pid);
            self.report(report);
            // Told first, for a call waits for it. That nobody listens any more is found out later, too.
            let _ = self.flush();
            if !is_trusted {
                self.means.let_go_first(pid);
            }
        }
    }

    /// Reaps those that ended. A leader takes its group with it.
    fn reap(&mut self) {
        self.more_ended = false;
        for _ in 0..REAPED_AT_ONCE {
            let pid = match unix::peek_ended() {
                Ended::Child(pid) => pid,
                Ended::None => return,
                Ended::NoChildren => {
                    self.has_children = false;
                    return;
                }
            };
            self.look_at_orphans = true;
            // Its end is the end of its launch, if that was not seen yet.
            self.finish_launch(pid);
            let Some(leader) = self.leaders.remove(&pid) else {
                self.reap_orphan(pid);
                continue;
            };
            self.pids.remove(&leader.child);
            if leader.counts_left {
                self.count_left(leader.child);
            }
            // The leader is not reaped yet, so nobody else can have its number for a group.
            // A process forked at this moment is either in the group or not forked.
            let _ = unix::signal_group(pid, libc::SIGKILL);
            let (mut exit, own) = unix::reap_counted(pid);
            let Leader { child, stage, cgroup, computed, .. } = leader;
            if let Some(cgroup) = &cgroup {
                cgroup.kill();
                if !exit.is_success() && cgroup.was_out_of_memory() {
                    exit = Exit::OutOfMemory;
                }
            }
            if matches!(stage, Stage::Failed) {
                self.leftovers.take(cgroup);
            } else {
                let patience = Instant::now() + PATIENCE;
                let computed = computed + own;
                self.ending.push(Ending { child, exit, patience, cgroup, computed });
            }
        }
        self.more_ended = true;
    }

    /// Reaps an orphan. What it had computed counts for the child that it came from.
    fn reap_orphan(&mut self, pid: pid_t) {
        // Asked first: with the process its tag is gone.
        let owner = self.orphans.owner(pid);
        let (_, computed) = unix::reap_counted(pid);
        let Owner::Child(child) = owner else { return };
        let leader = self.pids.get(&child).and_then(|pid| self.leaders.get_mut(pid));
        let ending = self.ending.iter_mut().find(|ending| ending.child == child);
        let sum = leader.map(|it| &mut it.computed).or(ending.map(|it| &mut it.computed));
        sum.into_iter().for_each(|sum| *sum += computed);
    }

    /// Tells how many processes a child left, which has just ended: those that still run.
    fn count_left(&mut self, child: Number) {
        let mut adopted = Vec::new();
        self.orphans.for_each(|pid| adopted.push(pid));
        adopted.retain(|pid| !self.leaders.contains_key(pid));
        let is_left = |pid: &&pid_t| {
            matches!(self.orphans.owner(**pid), Owner::Child(owner) if owner == child)
                && Orphans::is_running(**pid)
        };
        let count = adopted.iter().filter(is_left).count();
        self.report(Report::Left { child, count: u32::try_from(count).unwrap_or(u32::MAX) });
    }

    /// Kills the orphans of children that ended, and reports the children that have none left.
    ///
    /// All that a child started is below some process that was adopted and wears its tag, so when
    /// there is no such process, there is nothing left of the child.
    fn end_orphans(&mut self) {
        if !self.look_at_orphans {
            return;
        }
        let began = Instant::now();
        if began < self.next_look {
            return;
        }
        self.look_at_orphans = false;
        let mut orphans = Vec::new();
        if self.has_children {
            self.orphans.for_each(|pid| {
                if !self.leaders.contains_key(&pid) {
                    orphans.push(pid);
                }
            });
        }
        let mut dying = Vec::new();
        for pid in orphans {
            let spared = match self.orphans.owner(pid) {
                Owner::Child(child) => {
                    dying.push(child);
                    self.pids.contains_key(&child)
                }
                Owner::Unknown => !self.pids.is_empty(),
            };
            if !spared {
                let _ = unix::signal_process(pid, libc::SIGKILL);
            }
        }
        let now = Instant::now();
        self.next_look = now + (now - began);
        for ending in std::mem::take(&mut self.ending) {
            if dying.contains(&ending.child) && now < ending.patience {
                self.ending.push(ending);
            } else {
                let Ending { child, exit, computed, cgroup, .. } = ending;
                self.leftovers.take(cgroup);
                self.report(Report::Ended { child, exit, computed });
            }
        }
    }

    fn report(&mut self, report: Report) {
        self.outbox.extend(report.encode());
    }

    /// Sends what the socket takes. An error means that nobody listens any more.
    fn flush(&mut self) -> io::Result<()> {
        while !self.outbox.is_empty() {
            match unix::send(self.socket.as_fd(), &self.outbox, &[]) {
                Ok(sent) => drop(self.outbox.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until the socket or a launch has news, a process ended, or it is time to look again.
    fn wait(&mut self) -> Ready {
        let orders = self.socket.as_raw_fd();
        let mut readable = FdSet::new();
        let mut writable = FdSet::new();
        if self.outbox.is_empty() {
            readable.insert(orders);
        } else {
            writable.insert(orders);
        }
        self.launching.iter().for_each(|(fd, _)| readable.insert(*fd));
        let timeout = if self.more_ended {
            Some(Duration::ZERO)
        } else if self.look_at_orphans {
            Some(self.next_look.saturating_duration_since(Instant::now()))
        } else {
            let is_more = !self.ending.is_empty() || self.leftovers.are_left();
            is_more.then_some(LOOK_AGAIN)
        };
        match sleep(&mut readable, &mut writable, timeout) {
            Ok(count) if count > 0 => {
                let is_ready = |(fd, pid): &(RawFd, pid_t)| readable.contains(*fd).then_some(*pid);
                Ready {
                    orders: readable.contains(orders),
                    launches: self.launching.iter().filter_map(is_ready).collect(),
                    // With other news about, the kernel keeps that signal to itself.
                    ended: self.more_ended || unix::is_child_signal_pending(),
                }
            }
            // Time to look again, or interrupted because a process ended.
            _ => {
                self.leftovers.sweep();
                self.look_at_orphans |= !self.ending.is_empty();
                Ready { orders: false, launches: Vec::new(), ended: true }
            }
        }
    }

    /// Kills everything below this process, and returns when nothing is left.
    fn end_all(&mut self) {
        for (pid, leader) in &self.leaders {
            signal_tree(*pid, libc::SIGKILL);
            leader.cgroup.iter().for_each(Fresh::kill);
        }
        for ending in self.ending.drain(..) {
            self.leftovers.take(ending.cgroup);
        }
        loop {
            for _ in 0..REAPED_AT_ONCE {
                let Ended::Child(pid) = unix::peek_ended() else { break };
                let leader = self.leaders.remove(&pid);
                if leader.is_some() {
                    let _ = unix::signal_group(pid, libc::SIGKILL);
                }
                unix::reap(pid);
                self.leftovers.take(leader.and_then(|leader| leader.cgroup));
            }
            self.leftovers.sweep();
            // Whatever was adopted since, of whomever.
            let mut left = self.leaders.len();
            self.orphans.for_each(|pid| {
                left += 1;
                let _ = unix::signal_process(pid, libc::SIGKILL);
            });
            if left == 0 && !self.leftovers.are_left() {
                return;
            }
            let _ = sleep(&mut FdSet::new(), &mut FdSet::new(), Some(LOOK_AGAIN));
        }
    }
}

impl Leader {
    /// Moves on when the launch is over, and gives the report of it.
    fn finish_launch(&mut self) -> Option<Report> {
        let Stage::Launching(launch) = &self.stage else { return None };
        let child = self.child;
        let pid = launch.pid.cast_unsigned();
        let (stage, report) = match launch.outcome()? {
            Outcome::Running => (Stage::Running, Report::Started { child, pid }),
            Outcome::Failed(step, errno) => (Stage::Failed, Report::Failed { child, step, errno }),
        };
        self.stage = stage;
        Some(report)
    }
}

/// Signals an unreaped leader and its group.
fn signal_tree(leader: pid_t, signal: c_int) {
    // Before it has its group, or when it left it, the leader is signalled alone. SIGKILL goes to
    // both, as a group without its leader may exist.
    if unix::signal_group(leader, signal).is_err() || signal == libc::SIGKILL {
        let _ = unix::signal_process(leader, signal);
    }
}

/// What there is to do.
struct Ready {
    orders: bool,
    launches: Vec<pid_t>,
    ended: bool,
}
