//! A child that is ready for calls: a conversation, and the process that has it.
//!
//! Dropping it closes its input and lets it climb down the stop ladder in the background.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pontoon_supervise::{Exit, Ladder};

use super::ending::{Remains, stop};
use super::last_words::{ChildWords, told_of_silence};
use super::population::{Leaving, Living};
use super::process::Process;
use super::workspace::{Temporary, Workspace};
use crate::back::conversation::Conversation;
use crate::jobs::{Held, Snapshot};

/// A child that is ready for calls.
#[derive(Debug)]
pub struct ReadyChild {
    /// The conversation with it.
    pub conversation: Conversation,
    /// Taken when the child is stopped.
    pub(crate) process: Option<Process>,
    pub(crate) pid: u32,
    /// What it complains of.
    pub(crate) words: ChildWords,
    /// Whether it was started ahead of its call, and so may have died before that came.
    pub(crate) has_waited: bool,
    /// Whether it was told to end because it answered nothing any more.
    pub(crate) is_ending: AtomicBool,
    /// Whether a call of its own timed out.
    pub(crate) has_hung: AtomicBool,
    /// What lay in its job when it was ready.
    pub(crate) before: Option<Snapshot>,
    /// Counts it among the living; taken when it is stopped.
    pub(crate) living: Option<Living>,
    /// Where it works; taken when it is stopped.
    pub(crate) workspace: Option<Workspace>,
    /// Its temporary files; taken when it is stopped.
    pub(crate) temporary: Option<Temporary>,
    /// The claim on the state that it keeps in memory for its conversation; taken when it is stopped.
    pub(crate) state: Option<Held>,
}

impl std::ops::Deref for ReadyChild {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        &self.conversation
    }
}

impl Drop for ReadyChild {
    fn drop(&mut self) {
        // Abnormal is an end that was not asked for and that was no success. Once asked, a server may
        // end as it likes: many report a failure when their input closes.
        let exit = self.exit();
        let is_abnormal = exit.is_some_and(|exit| !exit.is_success());
        // Input closes first: a well-behaved server exits at its end.
        self.link.close_input();
        let (Some(process), Some(living)) = (self.process.take(), self.living.take()) else {
            return;
        };
        // Without a runtime the child's own handle kills it as it is dropped.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let endings = living.population().endings.clone();
            let remains = Remains {
                is_abnormal,
                was_alive: exit.is_none() && !self.is_ending(),
                has_hung: self.has_hung.load(Ordering::Acquire),
                before: self.before.take(),
                workspace: self.workspace.take(),
                _temporary: self.temporary.take(),
                state: self.state.take(),
                complaints: self.words.complaints.clone(),
                leaving: Leaving::new(living),
            };
            endings.spawn_on(stop(process, remains), &runtime);
        }
    }
}

impl ReadyChild {
    /// Its process id.
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.process.as_ref().and_then(Process::try_exit)
    }

    /// How the child ended and what it last complained of, waiting a moment for its exit.
    pub async fn obituary(&self) -> String {
        format!("{}{}", self.how_it_ended().await, self.words.told())
    }

    /// What to do about it if it says nothing to us.
    pub(crate) fn told_of_silence(&self) -> String {
        told_of_silence(self.words.last().into_iter().chain(self.link.noise()))
    }

    /// How the child ended, waiting a moment for that.
    pub(crate) async fn how_it_ended(&self) -> String {
        let how = self.exit_within(Duration::from_secs(1)).await;
        how.unwrap_or_else(|| "closed its pipes".to_owned())
    }

    /// How the child ended, if it does within this time.
    pub(crate) async fn exit_within(&self, patience: Duration) -> Option<String> {
        let process = self.process.as_ref()?;
        let exit = tokio::time::timeout(patience, process.exited()).await.ok()?;
        Some(match process.has_outlived() {
            true => "was killed when its time to live was over (`run_time`)".to_owned(),
            false => exit.to_string(),
        })
    }

    /// Kills the child and all it started, now.
    pub fn kill(&self) {
        self.process.iter().for_each(Process::kill);
    }

    /// Asks it to end because it answers nothing any more, or what it was started for is not wanted any more, and
    /// sees to it that it does. Nothing is given to it after that.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.process.iter().for_each(|it| it.end_within(Ladder::default().after_terminate));
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Whether a call can still be given to it.
    pub(crate) fn is_fit(&self) -> bool {
        !self.is_ending()
            && !self.link.is_gone()
            && self.process.as_ref().is_some_and(|process| process.try_exit().is_none())
    }

    /// The folder it works in.
    pub fn directory(&self) -> Option<&Path> {
        self.workspace.as_ref().map(Workspace::directory)
    }

    /// The folder of its temporary files.
    pub fn temporary_directory(&self) -> Option<&Path> {
        self.temporary.as_ref().map(Temporary::directory)
    }

    /// What lies in its job now.
    pub(crate) async fn scan(&self) -> Option<Snapshot> {
        self.workspace.as_ref()?.scan().await
    }
}

#[cfg(test)]
mod tests {
    use pontoon_wire::{Revision, method};

    use crate::back::child::in_memory::{InMemoryServers, ServerEnd};
    use crate::back::pair::{Pair, client, naming, result, serve_legacy};

    /// Makes a call on such a server, and gives whether its end needed more than the end of its input.
    async fn check(servers: InMemoryServers, is_healed: bool) {
        let pair = Pair::new(servers, |_| {});
        let ada = client(Revision::V2025_11_25, "ada", "{}");
        let answer = pair.call_tool(&ada, "x").await;
        assert!(answer.contains("result"), "{answer}");
        pair.until_ended().await;
        let healed = pair.back.heals.counts().iter().any(|(code, _)| *code == "H27");
        assert_eq!(healed, is_healed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ends_with_its_input_needs_no_more() {
        check(naming(), false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ignores_the_end_of_its_input_is_killed_and_that_is_noted() {
        let deaf = InMemoryServers::new(|end: ServerEnd| async move {
            let answer = |message: &pontoon_wire::Message, id: &str| {
                let is_call = message.method() == method::CALL_TOOL;
                is_call.then(|| result(id, "{}")).into_iter().collect()
            };
            serve_legacy(end, answer).await;
            std::future::pending::<()>().await;
        });
        check(deaf, true).await;
    }
}
