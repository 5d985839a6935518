//! What starts a child's process, and the process itself. In tests it may be a task at the other end of its pipes.

use std::time::Duration;

use pontoon_supervise::{
    Child, ChildInput, ChildOutput, Command, Complaints, Exit, Ladder, SpawnError, Spawner, Support,
};

#[cfg(test)]
use super::in_memory::{InMemoryProcess, InMemoryServers};

/// What starts processes.
#[derive(Debug, Clone)]
pub enum Starter {
    /// The spawner process.
    Spawner(Spawner),
    /// Nothing: every server is an application that runs by itself.
    Nothing(Support),
    /// The test.
    #[cfg(test)]
    InMemory(InMemoryServers),
}

impl Starter {
    /// What this system can keep a child to.
    pub(crate) fn support(&self) -> &Support {
        match self {
            Self::Spawner(spawner) => spawner.support(),
            Self::Nothing(support) => support,
            #[cfg(test)]
            Self::InMemory(servers) => servers.support(),
        }
    }

    /// How many processes live, a helper not counted.
    pub fn living(&self) -> usize {
        match self {
            Self::Spawner(spawner) => spawner.living(),
            Self::Nothing(_) => 0,
            #[cfg(test)]
            Self::InMemory(servers) => servers.living(),
        }
    }

    /// Whether no process can be started any more, and none lives.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Spawner(spawner) => spawner.is_gone(),
            Self::Nothing(_) => false,
            #[cfg(test)]
            Self::InMemory(_) => false,
        }
    }

    /// Waits until that is so. Cancel safe.
    pub async fn gone(&self) {
        match self {
            Self::Spawner(spawner) => spawner.gone().await,
            Self::Nothing(_) => std::future::pending().await,
            #[cfg(test)]
            Self::InMemory(_) => std::future::pending().await,
        }
    }

    /// Stops every process by the ladder.
    pub async fn stop_all(&self, ladder: &Ladder) {
        match self {
            Self::Spawner(spawner) => spawner.stop_all(ladder).await,
            Self::Nothing(_) => {}
            #[cfg(test)]
            Self::InMemory(servers) => servers.stop_all().await,
        }
    }

    /// Starts a process. Cancel safe: when this is dropped before it is done, the process is killed.
    pub(crate) async fn start(&self, command: &Command) -> Result<Process, SpawnError> {
        match self {
            Self::Spawner(spawner) => spawner.spawn(command).await.map(Process::Spawned),
            Self::Nothing(_) => Err(SpawnError::SpawnerGone),
            #[cfg(test)]
            Self::InMemory(servers) => Ok(Process::InMemory(servers.start())),
        }
    }
}

/// The process of a child. Dropping it stops it in the background.
#[derive(Debug)]
pub(crate) enum Process {
    /// One that the spawner started.
    Spawned(Child),
    /// A task of the test.
    #[cfg(test)]
    InMemory(InMemoryProcess),
}

impl Process {
    pub(crate) fn id(&self) -> u32 {
        match self {
            Self::Spawned(child) => child.id(),
            #[cfg(test)]
            Self::InMemory(process) => process.id(),
        }
    }

    /// Its input and output, the first time.
    pub(crate) fn take_streams(&mut self) -> Option<(ChildInput, ChildOutput)> {
        match self {
            Self::Spawned(child) => child.take_streams(),
            #[cfg(test)]
            Self::InMemory(process) => process.take_streams(),
        }
    }

    /// What it writes to its standard error.
    pub(crate) fn complaints(&self) -> Complaints {
        match self {
            Self::Spawned(child) => child.complaints(),
            #[cfg(test)]
            Self::InMemory(_) => Complaints::default(),
        }
    }

    /// How it ends. Cancel safe.
    pub(crate) async fn exited(&self) -> Exit {
        match self {
            Self::Spawned(child) => child.exited().await,
            #[cfg(test)]
            Self::InMemory(process) => process.exited().await,
        }
    }

    /// How it ended, if it has.
    pub(crate) fn try_exit(&self) -> Option<Exit> {
        match self {
            Self::Spawned(child) => child.try_exit(),
            #[cfg(test)]
            Self::InMemory(process) => process.try_exit(),
        }
    }

    /// Kills it and all it started, now.
    pub(crate) fn kill(&self) {
        match self {
            Self::Spawned(child) => child.kill(),
            #[cfg(test)]
            Self::InMemory(process) => process.kill(),
        }
    }

    /// Asks it to end, and kills it and all it started if that was in vain for this long.
    pub(crate) fn end_within(&self, patience: Duration) {
        match self {
            Self::Spawned(child) => child.end_within(patience),
            #[cfg(test)]
            Self::InMemory(process) => process.end_within(patience),
        }
    }

    /// Kills it and all it started once it has lived for this long from now.
    pub(crate) fn limit_life(&self, life: Duration) {
        match self {
            Self::Spawned(child) => child.limit_life(life),
            #[cfg(test)]
            Self::InMemory(process) => process.limit_life(life),
        }
    }

    /// Whether it was killed because it had lived as long as it may.
    pub(crate) fn has_outlived(&self) -> bool {
        match self {
            Self::Spawned(child) => child.has_outlived(),
            #[cfg(test)]
            Self::InMemory(process) => process.has_outlived(),
        }
    }

    /// Has it counted what it leaves behind when it ends.
    pub(crate) fn count_left_behind(&self) {
        match self {
            Self::Spawned(child) => child.count_left_behind(),
            #[cfg(test)]
            Self::InMemory(_) => {}
        }
    }

    /// How many processes it left behind; known once it has ended, if that was to be counted and can be seen.
    pub(crate) fn left_behind(&self) -> Option<u32> {
        match self {
            Self::Spawned(child) => child.left_behind(),
            #[cfg(test)]
            Self::InMemory(_) => None,
        }
    }

    /// Stops it by the ladder: its input has ended already. Gives how it ended.
    pub(crate) async fn stop(self, ladder: &Ladder) -> Exit {
        match self {
            Self::Spawned(child) => child.stop(ladder).await,
            #[cfg(test)]
            Self::InMemory(process) => process.stop(ladder).await,
        }
    }
}
