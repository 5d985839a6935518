//! The end of its input, and how long it takes to heed that.

use std::time::Duration;

use pontoon_supervise::Exit;
use pontoon_wire::heal::Heal;

use crate::back::child::process::Process;
use crate::clock::{now, since};
use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::options::ExamOptions;
use crate::doctor::recommend::Evidence;
use crate::doctor::room::ExamRoom;
use crate::doctor::sign::Sign;
use crate::doctor::symptom::Symptom;
use crate::doctor::visit::Visit;
use crate::doctor::words::milliseconds;

/// How long a server may take to end by itself, and to heed SIGTERM. Pontoon waits as long for the first.
const BY_ITSELF: Duration = Duration::from_secs(2);
const TERMINATED: Duration = Duration::from_secs(2);

/// After SIGKILL nothing is left but a process that is stuck in the kernel.
const KILLED: Duration = Duration::from_secs(5);

/// Closes its input, and sees how it ends. One that has ended in a probe is started once more for that.
pub(super) async fn look(
    visit: Visit,
    room: &ExamRoom,
    options: &ExamOptions,
    report: &mut Examination,
    evidence: &mut Evidence,
) {
    if visit.child().is_none() {
        return;
    }
    let visit = match visit.link.is_gone() {
        false => visit,
        true => {
            drop(visit);
            let Ok(mut again) = room.open().await else { return };
            if again.greet(options.patience).await.is_err() {
                return;
            }
            again
        }
    };
    let Some(process) = visit.child().and_then(|child| child.process.as_ref()) else { return };
    let asked = now();
    visit.link.close_input();
    let exit = tokio::time::timeout(BY_ITSELF, process.exited()).await;
    if let Ok(exit) = exit {
        report.end = Some(since(asked));
        evidence.ends_by_itself = true;
        let took = milliseconds(since(asked));
        note_left(process, report);
        return match exit {
            Exit::Code(0) => {
                report.well(Aspect::Ending, format!("ends with its input, within {took}"));
            }
            exit => report
                .well(Aspect::Ending, format!("ends with its input, within {took} (it {exit})")),
        };
    }
    process.end_within(TERMINATED);
    let exit = tokio::time::timeout(TERMINATED + KILLED, process.exited()).await;
    let how = match exit {
        Ok(Exit::Signal(libc_kill)) if libc_kill == rustix::process::Signal::KILL.as_raw() => {
            "it needed SIGKILL: it heeded neither the end of its input nor SIGTERM"
        }
        Ok(_) => "it needed SIGTERM",
        Err(_) => "it survived SIGKILL, so the system holds it",
    };
    let seconds = BY_ITSELF.as_secs();
    let evidence = format!("it still ran {seconds} s after the end of its input; {how}");
    report.found(Symptom::of_heal(Heal::H27, Some(evidence)));
    note_left(process, report);
}

fn note_left(process: &Process, report: &mut Examination) {
    if let Some(left @ 1..) = process.left_behind() {
        let words = if left == 1 { "1 process".to_owned() } else { format!("{left} processes") };
        let evidence = format!("{words} that it had started still ran when it had ended");
        report.found(Symptom::of_sign(Sign::LeftBehind, Some(evidence)));
    }
}
