//! The children of one server that are kept, for conversations or for everybody: which of them takes a call.
//!
//! An anonymous address may have several, as `max_processes_per_ip` says. A client that begins too
//! many conversations loses the one it left alone longest; one whose are all at work has to wait.

use std::sync::Arc;
use std::time::Duration;

use pontoon_wire::Era;
use pontoon_wire::heal::Heal;

use super::demand::{Demand, Use};
use super::head_start::HeadStarts;
use super::kept_child::{KeptChild, KeptFor};
use super::kept_key::{KeptKey, ServerNumber};
use super::start_pauses::StartPauses;
use super::table::{KeptTable, Slot, SlotInUse};
use crate::back::child::launcher::Launcher;
use crate::back::child::ready::ReadyChild;
use crate::back::child::workspace::{Reserved, Workspace, blocking};
use crate::back::conversation::WaitsForPerson;
use crate::back::conversation::abilities::Abilities;
use crate::back::conversation::handshake::Opening;
use crate::call::CallError;
use crate::client::{Client, Key, Principal};
use crate::clock::{Stage, now};
use crate::config::Mode;
use crate::jobs::{Claim, Held, JobError};
use crate::observe::metrics::Limit;

/// A conversation that comes back sooner has not been at another replica.
const LEFT_ALONE: Duration = Duration::from_millis(50);

/// How long a replica that is about to end may still be asked for the state of a conversation: as
/// long as proxies may use their connections to it, and a second more.
const HANDOVER: Duration = Duration::from_secs(4);

/// The kept children of one server.
#[derive(Debug)]
pub struct KeptChildren {
    launcher: Arc<Launcher>,
    head_starts: Arc<HeadStarts>,
    table: Arc<KeptTable>,
    number: ServerNumber,
    queue_wait: Duration,
    /// Of a process that is everybody's, for each era.
    legacy_pauses: StartPauses,
    modern_pauses: StartPauses,
}

/// A kept child in use.
#[derive(Debug)]
pub struct KeptLease {
    /// The child.
    pub child: Arc<KeptChild>,
    slot: SlotInUse,
    wanted_for: Use,
}

impl KeptLease {
    /// Says that its call waits for a person until the guard is dropped. Others may want a child of
    /// their own meanwhile.
    pub(crate) fn wait_for_person(&self) -> WaitsForPerson<'_> {
        let waits = self.child.wait_for_person();
        self.slot.freed.notify_waiters();
        waits
    }

    /// Ends the child if it answers nothing any more. Calls that come meanwhile wait for what is
    /// found: one that hangs gets none of them.
    pub(crate) async fn end_if_it_hangs(&self) {
        let _others_wait = self.slot.children.lock().await;
        // Several of its calls may have timed out together.
        let is_given_up = self.child.is_ending() || self.child.is_retired();
        if !is_given_up && !self.child.is_responsive().await {
            self.child.give_up();
        }
    }
}

impl Drop for KeptLease {
    fn drop(&mut self) {
        if self.wanted_for != Use::Listen {
            self.child.end_call();
        }
    }
}

/// What is to be done for a call.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// This child takes it.
    Use(usize),
    /// Another child is started.
    Start,
    /// All children have as much to do as they may.
    Wait,
}

/// Decides by the number of calls that each fit child has, if it may be given more at all.
fn choose(calls: &[Option<usize>], max_children: usize, max_in_flight: usize) -> Choice {
    let open = || calls.iter().enumerate().filter_map(|(at, calls)| Some((at, (*calls)?)));
    let Some((at, least)) = open().min_by_key(|(_, calls)| *calls) else {
        // All of them wait for a person, and such calls are limited elsewhere. This one need not wait for that.
        return Choice::Start;
    };
    match least {
        0 => Choice::Use(at),
        _ if open().count() < max_children => Choice::Start,
        _ if least < max_in_flight => Choice::Use(at),
        _ => Choice::Wait,
    }
}

/// Lets go of children whose conversation has gone on at another replica since their last call: what
/// they have in memory is not how it stands.
async fn forget_outdated(children: &mut Vec<Arc<KeptChild>>) {
    let now = now();
    let was_left_alone = |child: &Arc<KeptChild>| {
        child.in_flight() == 0 && child.ages(now).1 >= LEFT_ALONE && child.state.is_some()
    };
    // They have one folder, and all of them are outdated or none is.
    let Some(child) = children.iter().find(|child| was_left_alone(child)).cloned() else { return };
    let looking =
        tokio::task::spawn_blocking(move || child.state.as_ref().is_some_and(Held::is_outdated));
    if looking.await.unwrap_or(false) {
        children.clear();
    }
}

/// Whether a child may be given another call of this client.
fn takes_calls(child: &KeptChild, client: &Client) -> bool {
    !child.is_waiting(client) && !child.is_retired()
}

/// Lets go of the newest idle children that are more than there may be: those that were started
/// while others waited for a person.
fn trim(children: &mut Vec<Arc<KeptChild>>, client: &Client, max_children: usize) {
    let mut extra = children.iter().filter(|child| takes_calls(child, client)).count();
    for at in (0..children.len()).rev() {
        if extra <= max_children {
            return;
        }
        if children[at].in_flight() == 0 && takes_calls(&children[at], client) {
            children.remove(at);
            extra -= 1;
        }
    }
}

impl KeptChildren {
    /// None yet. A call waits for its turn on a child at most `queue_wait`.
    pub(crate) fn new(
        launcher: Arc<Launcher>,
        head_starts: Arc<HeadStarts>,
        table: Arc<KeptTable>,
        queue_wait: Duration,
    ) -> Self {
        let number = table.add_server();
        let (legacy_pauses, modern_pauses) = Default::default();
        Self { launcher, head_starts, table, number, queue_wait, legacy_pauses, modern_pauses }
    }

    /// A kept child for this client, started if need be.
    pub(crate) async fn lease(&self, demand: &Demand<'_>) -> Result<KeptLease, CallError> {
        let Demand { wanted_for, client, child_era, .. } = *demand;
        let key = self.key(client, child_era);
        let max_children = match (wanted_for, key.is_conversation(), self.launcher.server.mode) {
            (Use::Call | Use::Again, false, Mode::Stateful { per_address, .. }) => per_address,
            _ => 1,
        };
        let slot = self.enter(&key, &client.person.principal)?;
        match self.lease_in(&slot, demand, max_children).await {
            Ok(child) => Ok(KeptLease { child, slot, wanted_for }),
            Err(error) => {
                drop(slot);
                self.table.forget_empty(&key);
                Err(error)
            }
        }
    }

    async fn lease_in(
        &self,
        slot: &Slot,
        demand: &Demand<'_>,
        max_children: usize,
    ) -> Result<Arc<KeptChild>, CallError> {
        let Demand { wanted_for, client, child_era, clock } = *demand;
        let max_in_flight = match wanted_for {
            Use::Call | Use::Again if !self.launcher.server.mode.is_shared() => {
                self.launcher.server.max_in_flight
            }
            // Those that all share were counted when they were admitted, for each client.
            Use::Call | Use::Again | Use::Listen => usize::MAX,
        };
        let give_up = now() + self.queue_wait;
        loop {
            // Made before looking, so that nothing that happens meanwhile is missed.
            let freed = slot.freed.notified();
            {
                let mut children = slot.children.lock().await;
                self.bury(&mut children).await.into_iter().for_each(|how| slot.lose(how));
                match slot.take_loss() {
                    Some(how) if demand.hears_of_loss() => return Err(self.state_lost(&how)),
                    // It was no conversation of theirs, so none of them has lost it.
                    Some(_) if client.key == Key::Everyone => {}
                    Some(how) => slot.lose(how),
                    None => {}
                }
                forget_outdated(&mut children).await;
                trim(&mut children, client, max_children);
                let calls: Vec<_> = children
                    .iter()
                    .map(|child| takes_calls(child, client).then(|| child.in_flight()))
                    .collect();
                let child = match choose(&calls, max_children, max_in_flight) {
                    Choice::Use(at) => {
                        let child = Arc::clone(&children[at]);
                        child.refeed(client);
                        Some(child)
                    }
                    Choice::Start => {
                        self.launcher.check_stopping()?;
                        let kept_for = self.kept_for(&client.person.principal)?;
                        let starting = Box::pin(self.start(demand, slot));
                        let started = match &kept_for {
                            KeptFor::Conversation(_) => starting.await?,
                            KeptFor::Everyone => self.pauses(child_era).start(starting).await?,
                        };
                        let child = Arc::new(KeptChild::new(started, kept_for));
                        children.push(Arc::clone(&child));
                        Some(child)
                    }
                    Choice::Wait => None,
                };
                if let Some(child) = child {
                    if wanted_for != Use::Listen {
                        // Counted before another call chooses.
                        child.begin_call();
                    }
                    return Ok(child);
                }
            }
            let left = give_up.saturating_duration_since(now());
            clock.enter(Stage::Place);
            let freed = tokio::time::timeout(left, freed).await;
            clock.enter(Stage::Starting);
            if freed.is_err() {
                self.launcher.machine.metrics.refused(Limit::InFlight);
                let server = &self.launcher.server;
                let what = format!(
                    "busy: {} calls are under way in this conversation with the server `{}` (max_in_flight)",
                    server.max_in_flight, server.name
                );
                return Err(CallError::Busy { what, retry_after_seconds: 5 });
            }
        }
    }

    /// Starts a child that will be kept for this client, and lets its session hear what it says.
    async fn start(&self, demand: &Demand<'_>, slot: &Slot) -> Result<ReadyChild, CallError> {
        let Demand { client, child_era, clock, .. } = *demand;
        let opening = Opening::for_client(client, child_era);
        let ahead = self.head_starts.take(client).await;
        let workspace = match ahead.as_ref().and_then(|ahead| ahead.workspace()) {
            Some(workspace) => workspace,
            None => self.launcher.workspace_for(client).await?,
        };
        let state = self.claim_state(&workspace, demand, slot).await?;
        let reserved = Reserved::new(state, &self.launcher.machine.endings);
        let opened = self.head_starts.open(ahead, &opening, client, clock);
        let mut child = match Box::pin(opened).await {
            Some(child) => child,
            None => Box::pin(self.launcher.start_for(workspace, &opening, client, clock)).await?,
        };
        child.state = reserved.take();
        child.feed(client);
        Ok(child)
    }

    /// Says that a process keeps state in this workspace from now on. If one did that ended with its bridge,
    /// or that another replica has, a call fails with that; anything else goes on.
    async fn claim_state(
        &self,
        workspace: &Workspace,
        demand: &Demand<'_>,
        slot: &Slot,
    ) -> Result<Option<Held>, CallError> {
        let Workspace::Session(space) = workspace else { return Ok(None) };
        let give_up = now() + HANDOVER;
        loop {
            let (space, is_patient) = (Arc::clone(space), now() < give_up);
            let claim = blocking(move || {
                let claim = space.hold(is_patient);
                claim.map_err(|source| JobError::Io { what: "open a session", source })
            });
            match claim.await.map_err(|error| self.launcher.machine.no_workspace(&error))? {
                Claim::Held(held) => return Ok(Some(held)),
                Claim::Elsewhere => return Err(CallError::Stopping),
                Claim::Leaving => tokio::time::sleep(Duration::from_millis(50)).await,
                Claim::Lost => {
                    let how = "its bridge was restarted, or another replica has it";
                    if demand.hears_of_loss() {
                        return Err(self.state_lost(how));
                    }
                    // Noted before anything else can fail.
                    slot.lose(how.to_owned());
                }
            }
        }
    }

    /// Takes dead children out. Says how one of them ended with what it kept in memory.
    async fn bury(&self, children: &mut Vec<Arc<KeptChild>>) -> Option<String> {
        for child in children.iter().filter(|child| !child.is_fit() && !child.is_ending()) {
            // Its pipes close a moment before its end is known, and what its client hears depends on that.
            child.exit_within(Duration::from_secs(1)).await;
        }
        let mut lost = None;
        children.retain(|child| {
            let is_fit = child.is_fit();
            if !is_fit {
                self.launcher.heals.note(Heal::H28);
                self.learn_from_end(child);
                // One that closed its pipes and runs on is of no use.
                if !child.is_ending() {
                    child.kill();
                }
            }
            if !is_fit && child.is_untold_loss() {
                lost = Some(child.epitaph());
            }
            is_fit
        });
        lost
    }

    /// A process of everybody's that ends before it has answered anything did not really start.
    fn learn_from_end(&self, child: &KeptChild) {
        if !self.launcher.server.mode.is_shared() {
            return;
        }
        match child.has_answered() || child.is_ending() {
            true => self.pauses(child.era).recover(),
            false => {
                let (server, how) = (&self.launcher.server.name, child.epitaph());
                let why =
                    format!("the server `{server}` did not start: {how} before it answered a call");
                self.pauses(child.era).fail(&why, now());
            }
        }
    }

    /// Says that a start of everybody's process took too long.
    pub(crate) fn note_failed_start(&self, era: Era, why: &str) {
        self.pauses(era).fail(why, now());
    }

    /// The pauses between starts in this era.
    fn pauses(&self, era: Era) -> &StartPauses {
        match era {
            Era::Legacy => &self.legacy_pauses,
            Era::Modern => &self.modern_pauses,
        }
    }

    /// What a client hears of the process that kept its state, which has ended like this.
    fn state_lost(&self, how: &str) -> CallError {
        let server = &self.launcher.server.name;
        tracing::warn!(%server, how, "a kept child ended; its client is told");
        let how = self.launcher.told(how);
        CallError::StateLost(format!(
            "the process of the server `{server}` that kept the state of this conversation has ended ({how}), and what it \
             had in memory is lost. This call was not made. Call again to go on with a new process: open or make \
             again what you need first",
        ))
    }

    /// Room for one more kept child of this client.
    fn kept_for(&self, owner: &Principal) -> Result<KeptFor, CallError> {
        if self.launcher.server.mode.is_shared() {
            return Ok(KeptFor::Everyone);
        }
        if let Some(place) = self.table.take_place(owner) {
            return Ok(KeptFor::Conversation(place));
        }
        self.launcher.machine.metrics.refused(Limit::TotalProcesses);
        let (used, limit) = self.table.used();
        let what = match used < limit {
            true => format!(
                "busy: this client has as many processes kept as one may, of {limit} in all \
                 (MCPO_STATEFUL_MAX_TOTAL_PROCESSES)"
            ),
            false => format!(
                "busy: all {limit} processes that may be kept for conversations are in use \
                 (MCPO_STATEFUL_MAX_TOTAL_PROCESSES)"
            ),
        };
        Err(CallError::Busy { what, retry_after_seconds: 60 })
    }

    /// Under what the child of this client is kept.
    fn key(&self, client: &Client, era: Era) -> KeptKey {
        let is_told_once = era == Era::Legacy && client.key.is_shared();
        KeptKey {
            server: self.number,
            key: client.key.clone(),
            era,
            person: self.launcher.person_hash(&client.person),
            abilities: is_told_once.then(|| Abilities::of(&client.capabilities)),
        }
    }

    /// The client's slot, if it may have one more conversation.
    fn enter(&self, key: &KeptKey, owner: &Principal) -> Result<SlotInUse, CallError> {
        let server = &self.launcher.server;
        let per_client = match server.mode {
            Mode::Stateful { per_client, .. } => per_client,
            Mode::Stateless | Mode::Shared { .. } => usize::MAX,
        };
        if let Some(slot) = self.table.enter(key, owner, &server.name, per_client) {
            return Ok(slot);
        }
        self.launcher.machine.metrics.refused(Limit::ProcessesPerClient);
        let hint = match owner {
            Principal::User(_) => "",
            _ => {
                ". If this is a front end with many users, let it forward who they are \
                 (ENABLE_FORWARD_USER_INFO_HEADERS in Open WebUI) and name it in MCPO_TRUSTED_PROXIES"
            }
        };
        let what = format!(
            "busy: all {per_client} conversations of this client with the server `{}` are at work \
             (max_processes_per_client){hint}",
            server.name
        );
        Err(CallError::Busy { what, retry_after_seconds: 5 })
    }

    /// The child kept for this client, if it runs. One that is everybody's is not this client's to command.
    pub(crate) fn find(&self, client: &Client, child_era: Era) -> Option<Arc<KeptChild>> {
        if !self.launcher.server.mode.is_stateful() {
            return None;
        }
        let slot = self.table.find(&self.key(client, child_era))?;
        let children = slot.children.try_lock().ok()?;
        children.iter().find(|child| child.is_fit() && !child.is_retired()).cloned()
    }

    /// Stops the children that a legacy session kept. A chat's child is not the session's.
    pub(crate) fn end_session(&self, id: &str) {
        let is_of_session = |key: &KeptKey, _: &Slot| matches!(&key.key, Key::Session(session) if session.as_ref() == id);
        self.table.let_go(self.number, is_of_session);
    }

    /// Stops the children that were idle for too long.
    pub(crate) fn stop_idle(&self) {
        let Some(idle) = self.launcher.server.mode.idle() else { return };
        let now = now();
        // What all share who say nothing of themselves, none of them can ask to have back.
        let is_stateful = self.launcher.server.mode.is_stateful();
        let stays = |key: &KeptKey| is_stateful && key.key == Key::Everyone;
        let stopped = self.table.let_go(self.number, |key, slot| {
            !stays(key)
                && !slot.is_in_use()
                && now.saturating_duration_since(slot.last_used()) >= idle
        });
        for owner in stopped {
            self.launcher.metrics.idle_timeout();
            let (server, who) = (&self.launcher.server.name, owner.to_string());
            tracing::info!(%server, who, ?idle, "stopped an idle child");
        }
    }

    /// Stops every kept child.
    pub(crate) fn end_all(&self) {
        self.table.let_go(self.number, |_, _| true);
    }

    /// The kept children, each with its conversation's name.
    pub(crate) fn all(&self) -> Vec<(String, Arc<KeptChild>)> {
        self.table.children_of(self.number)
    }

    /// Takes back the places of children that have ended by themselves.
    pub(crate) fn reclaim(&self) {
        self.table.reclaim(|server| server == self.number);
    }
}

impl Drop for KeptChildren {
    /// A call that was on its way while the server was taken out of the configuration may have started a child since.
    fn drop(&mut self) {
        self.end_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_child_is_used_and_another_started_only_when_all_are_busy() {
        assert_eq!(choose(&[], 1, 4), Choice::Start);
        assert_eq!(choose(&[Some(0)], 1, 4), Choice::Use(0));
        assert_eq!(choose(&[Some(2), Some(0)], 2, 4), Choice::Use(1));
        assert_eq!(choose(&[Some(1)], 2, 4), Choice::Start);
        assert_eq!(choose(&[Some(3), Some(1)], 2, 4), Choice::Use(1));
        assert_eq!(choose(&[Some(4), Some(4)], 2, 4), Choice::Wait);
    }

    #[test]
    fn a_child_that_waits_for_a_person_does_not_count() {
        assert_eq!(choose(&[None], 1, 4), Choice::Start);
        assert_eq!(choose(&[None, None], 1, 4), Choice::Start);
        assert_eq!(choose(&[None, Some(1)], 1, 4), Choice::Use(1));
    }
}
