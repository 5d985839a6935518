//! The report as a text to give to the server's author: what is wrong, who minds, how to mend it.

use std::fmt::Write as _;

use pontoon_schema::Severity;

use super::super::examination::Examination;
use super::super::symptom::Symptom;
use super::super::words::number;

/// The text about one server.
pub fn markdown(report: &Examination) -> String {
    let title = match &report.server_info {
        Some((name, version)) if !name.is_empty() => format!("{name} {version}"),
        _ => report.target.clone(),
    };
    let mut out = format!("# What to mend in {}\n\n", title.trim());
    let _ = writeln!(
        out,
        "`pontoon doctor` {} looked at `{}`: {}.",
        env!("CARGO_PKG_VERSION"),
        report.target,
        report.verdict()
    );
    let lacking: Vec<_> = report.clients.iter().filter(|it| it.straight < report.tools).collect();
    if !lacking.is_empty() {
        out += "\n| client | tools it shows now | known |\n|---|---|---|\n";
        for view in lacking {
            let (straight, tools) = (view.straight, report.tools);
            let _ = writeln!(out, "| {} | {straight} of {tools} | {} |", view.title, view.basis);
        }
    }
    let symptoms = report.sorted();
    for (severity, heading) in [
        (Severity::Error, "Faults that cost clients tools or answers"),
        (Severity::Warning, "Faults that some clients mind"),
    ] {
        let all: Vec<_> = symptoms.iter().filter(|it| it.severity == severity).collect();
        if all.is_empty() {
            continue;
        }
        let _ = write!(out, "\n## {heading}\n");
        all.iter().for_each(|symptom| out += &section(symptom));
    }
    let notes = symptoms.iter().filter(|it| it.severity == Severity::Information).count();
    if notes > 0 {
        let _ = write!(
            out,
            "\nBesides, there are {} that are good to know and harm nothing (`--json`).\n",
            number(notes, "remark")
        );
    }
    out
}

fn section(symptom: &Symptom) -> String {
    let mut out = format!("\n### {}: {}\n\n", symptom.code, symptom.what);
    if let Some(evidence) = &symptom.evidence {
        let _ = writeln!(out, "Seen: {evidence}.\n");
    }
    for place in &symptom.places {
        let _ = writeln!(out, "- `{}`, at `{}`", place.tool, place.pointer);
    }
    if !symptom.places.is_empty() {
        out.push('\n');
    }
    if !symptom.minds.is_empty() {
        let _ = writeln!(out, "Minded by {}.\n", symptom.minds.join(", "));
    }
    let _ = writeln!(out, "**Fix.** {}", symptom.fix);
    out
}
