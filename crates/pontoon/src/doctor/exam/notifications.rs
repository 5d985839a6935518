//! Notifications are sent, which nothing may answer (seed 003, problem 1).

use std::time::Duration;

use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::symptom::Symptom;
use crate::doctor::visit::Visit;
use bytes::Bytes;
use pontoon_wire::heal::Heal;
use pontoon_wire::{Era, envelope, method};

/// How long an answer that should not come may take.
const PAUSE: Duration = Duration::from_millis(200);

/// Sends notifications, and hears whether they are answered.
pub(super) async fn look(visit: &Visit, patience: Duration, report: &mut Examination) {
    if visit.era == Era::Modern {
        return;
    }
    // `initialized` may have been answered already, which is heard with the next answer.
    visit.link.say(Bytes::from(envelope::notification(
        method::CANCELLED,
        "{\"requestId\":987654321,\"reason\":\"the doctor tries a notification\"}",
    )));
    visit.link.say(Bytes::from(envelope::plain_notification("notifications/roots/list_changed")));
    tokio::time::sleep(PAUSE).await;
    let pinged = visit.ask(method::PING, "{}", patience).await;
    let answers = visit.heals("H08");
    if answers > 0 {
        let evidence = format!("it answered {answers} of 3 notifications");
        report.found(Symptom::of_heal(Heal::H08, Some(evidence)));
    } else if !pinged.is_end() {
        report.well(Aspect::Requests, "notifications are not answered");
    }
}
