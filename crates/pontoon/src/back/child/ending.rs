//! How a child goes: its input is closed already, the ladder is climbed down, and what it complained of is put
//! beside its files.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use pontoon_supervise::{Complaints, Exit, Ladder};
use pontoon_wire::heal::Heal;

use super::population::Leaving;
use super::process::Process;
use super::workspace::{Temporary, Workspace};
use crate::clock::now;
use crate::jobs::{Bounds, Held, Snapshot};

/// What a child leaves when it goes.
pub(crate) struct Remains {
    /// Whether it had ended before it was asked to, and not with success.
    pub(crate) is_abnormal: bool,
    /// Whether it still ran when it was asked to go.
    pub(crate) was_alive: bool,
    /// Whether a call of its own timed out.
    pub(crate) has_hung: bool,
    /// What lay in its job when it was ready.
    pub(crate) before: Option<Snapshot>,
    pub(crate) workspace: Option<Workspace>,
    /// Temporary files, which go when this is dropped.
    pub(crate) _temporary: Option<Temporary>,
    /// The claim on the state that it kept in memory.
    pub(crate) state: Option<Held>,
    pub(crate) complaints: Complaints,
    pub(crate) leaving: Leaving,
}

/// Stops a child, notes if its input's end was not enough (H27), and puts what it complained of beside
/// its files.
pub(crate) async fn stop(process: Process, mut remains: Remains) {
    if let Some(state) = remains.state.take() {
        // It blocks on the disk. Once the child is gone, nothing says any more that it has state.
        drop(tokio::task::spawn_blocking(move || drop(state)).await);
    }
    let ladder = Ladder::default();
    let asked = now();
    let exit = process.stop(&ladder).await;
    remains.leaving.process_ended();
    let is_in_time = now().duration_since(asked) < ladder.after_close;
    let population = Arc::clone(remains.leaving.population());
    if remains.was_alive && is_in_time {
        population.ends_by_itself.store(true, Ordering::Relaxed);
    }
    // A busy machine may be late with an end, and may leave a good server too little time for it.
    let is_made_to = matches!(exit, Exit::Signal(_)) && !is_in_time;
    if is_made_to && !population.ends_by_itself.load(Ordering::Relaxed) {
        population.heals.note(Heal::H27);
    }
    let was_killed = remains.has_hung && matches!(exit, Exit::Signal(_));
    population.metrics.child_exited(remains.is_abnormal || was_killed);
    let (lines, how) = (remains.complaints.lines_after(0), exit.to_string());
    let is_orderly = exit == Exit::Code(0);
    let written = match &remains.workspace {
        Some(Workspace::Job(own)) if own.is_kept() => {
            let is_current = |it: &Snapshot| it.is_surely_current(own.job.files());
            let before = remains.before.filter(|before| !is_current(before));
            // Of a child that ended in order, without a word and without a file there is nothing to tell.
            if is_orderly && lines.is_empty() && before.is_none() {
                return;
            }
            let own = Arc::clone(own);
            tokio::task::spawn_blocking(move || {
                if !lines.is_empty() {
                    own.job.write_log(&lines);
                }
                let files = before.and_then(|before| {
                    Snapshot::made_in(own.job.files(), Bounds::default(), &before, &[]).ok()
                });
                let exit = Some(how).filter(|_| !is_orderly);
                own.job.note_exit(exit, files.unwrap_or_default());
            })
        }
        // Many that are asked to go need a signal, which is not worth a line for each.
        Some(Workspace::Session(space)) if remains.is_abnormal || !lines.is_empty() => {
            let space = Arc::clone(space);
            tokio::task::spawn_blocking(move || space.write_log(&lines, &how, SystemTime::now()))
        }
        _ => return,
    };
    // The workspace is let go of last: until then it counts as in use.
    drop(written.await);
}
