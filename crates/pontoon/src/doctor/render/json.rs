//! The report for programs. Its fields are stable: new ones may come, none changes its meaning.

use serde_json::{Value, json};

use super::super::examination::{ClientView, Examination};
use super::super::symptom::Symptom;

/// The form of the report, which grows when a field changes its meaning.
const FORM: u32 = 1;

/// The reports of some servers, with the exit code that they give.
pub fn json(reports: &[Examination], exit_code: u8) -> Value {
    json!({
        "doctor": FORM,
        "pontoon": env!("CARGO_PKG_VERSION"),
        "exit_code": exit_code,
        "servers": reports.iter().map(of_server).collect::<Vec<_>>(),
    })
}

fn of_server(report: &Examination) -> Value {
    let milliseconds = |time: Option<std::time::Duration>| {
        time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    };
    let unexamined =
        report.unexamined.as_ref().map(|it| json!({"why": it.why, "advice": it.advice}));
    let info = report.server_info.as_ref();
    let info = info.map(|(name, version)| json!({"name": name, "version": version}));
    let recommendation = report.recommendation.as_ref().map(|it| {
        let reasons = it.reasons.iter();
        let reasons: Vec<_> = reasons
            .map(|it| json!({"key": it.key, "why": it.why, "is_guess": it.is_guess}))
            .collect();
        json!({"name": it.name, "entry": it.entry, "reasons": reasons})
    });
    json!({
        "name": report.name,
        "target": report.target,
        "verdict": report.verdict(),
        "unexamined": unexamined,
        "server_info": info,
        "start_ms": milliseconds(report.start),
        "end_ms": milliseconds(report.end),
        "eras": report.eras,
        "versions": report.versions,
        "tools": report.tools,
        "findings": report.sorted().into_iter().map(finding).collect::<Vec<_>>(),
        "observations": report.observations,
        "clients": report.clients.iter().map(client).collect::<Vec<_>>(),
        "recommendation": recommendation,
    })
}

fn finding(symptom: &Symptom) -> Value {
    json!({
        "code": symptom.code,
        "severity": symptom.severity.as_str(),
        "aspect": symptom.aspect,
        "what": symptom.what,
        "evidence": symptom.evidence,
        "places": symptom.places,
        "minds": symptom.minds,
        "fix": symptom.fix,
        "pontoon": symptom.here,
    })
}

fn client(view: &ClientView) -> Value {
    let lost = view.lost.iter().map(|(tool, codes)| json!({"tool": tool, "codes": codes}));
    json!({
        "profile": view.profile,
        "title": view.title,
        "basis": view.basis,
        "visible": view.straight,
        "visible_through_pontoon": view.through,
        "needs_profile": view.needs_profile,
        "loses_all": view.loses_all,
        "limit": view.limit,
        "lost": lost.collect::<Vec<_>>(),
    })
}
