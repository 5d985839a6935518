//! What a server did over HTTP otherwise than it should.

use pontoon_schema::Severity;

use crate::back::remote::http::session::HttpManner;
use crate::doctor::aspect::Aspect;
use crate::doctor::examination::Examination;
use crate::doctor::room::ExamRoom;
use crate::doctor::symptom::Symptom;

/// Tells what was seen of it.
pub(super) fn note(room: &ExamRoom, report: &mut Examination) {
    if !room.patient.is_http {
        return;
    }
    let manners = room.manners.lock().clone();
    if manners.is_empty() {
        return report.well(Aspect::Framing, "answers of HTTP have the right kind and status");
    }
    for manner in manners {
        let (evidence, fix) = match manner {
            HttpManner::OtherType => (
                "JSON that is not called application/json",
                "Send `Content-Type: application/json`, or `text/event-stream` with events.",
            ),
            HttpManner::EmptyAnswer => (
                "200 and an empty body for a notification",
                "Answer a notification with 202 and no body.",
            ),
            HttpManner::LostSession => (
                "a session that it did not know any more, within one examination",
                "Keep sessions until they are deleted, and for all replicas together.",
            ),
            HttpManner::Moved => (
                "a redirection, which clients do not follow with a POST",
                "Serve the path that clients are told of, also with or without a slash at its end.",
            ),
        };
        report.found(Symptom {
            code: "H29",
            aspect: Aspect::Framing,
            severity: Severity::Warning,
            what: "HTTP otherwise than the protocol has it".to_owned(),
            evidence: Some(evidence.to_owned()),
            places: Vec::new(),
            minds: Vec::new(),
            fix: fix.to_owned(),
            here: "It is taken all the same.".to_owned(),
        });
    }
}
