//! The report for people: grouped, the fix beside each fault, as wide as the terminal.

use std::fmt::Write as _;

use pontoon_schema::Severity;
use pontoon_wire::heal::Heal;

use super::super::aspect::Aspect;
use super::super::examination::{ClientView, Examination};
use super::super::recommend::Recommendation;
use super::super::symptom::Symptom;

/// So many places of one fault are named.
const PLACES: usize = 3;

/// The narrowest and the widest that text is set.
const NARROWEST: usize = 24;
const WIDEST: usize = 100;

/// How a report is set.
#[derive(Debug, Clone, Copy)]
pub struct Sheet {
    /// How many letters a line has.
    pub width: usize,
    /// Whether it is painted.
    pub has_colour: bool,
}

impl Sheet {
    fn paint(self, code: &str, text: &str) -> String {
        match self.has_colour {
            true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            false => text.to_owned(),
        }
    }

    /// A text behind a mark, its lines under each other. The mark has its own colour.
    fn item(self, indent: usize, mark: &str, colour: &str, text: &str) -> String {
        let width = self.width.clamp(NARROWEST, WIDEST);
        // Where there is little room, what is nested stands less far in.
        let indent = if width < 50 { indent / 2 } else { indent };
        let hang = indent + if mark.is_empty() { 0 } else { mark.chars().count() + 1 };
        let mut out = String::new();
        for (at, line) in wrapped(text, width.saturating_sub(hang).max(10)).iter().enumerate() {
            let before = match at {
                0 if !mark.is_empty() => {
                    format!("{}{} ", " ".repeat(indent), self.paint(colour, mark))
                }
                _ => " ".repeat(hang),
            };
            out += format!("{before}{line}").trim_end();
            out.push('\n');
        }
        out
    }
}

/// The report of one server.
pub fn people(report: &Examination, sheet: Sheet) -> String {
    let mut out = sheet
        .paint("1", &wrapped(&heading(report), sheet.width.clamp(NARROWEST, WIDEST)).join("\n"));
    out.push('\n');
    if let Some(unexamined) = &report.unexamined {
        out += &sheet.item(2, "✗", "31", &unexamined.why);
        out += &sheet.item(4, "fix:", "36", &unexamined.advice);
        report.symptoms.iter().for_each(|symptom| out += &fault(symptom, sheet));
        return out;
    }
    let symptoms = report.sorted();
    for aspect in Aspect::ALL {
        let observed: Vec<_> =
            report.observations.iter().filter(|it| it.aspect == aspect).collect();
        let found: Vec<_> = symptoms.iter().filter(|it| it.aspect == aspect).collect();
        if observed.is_empty() && found.is_empty() {
            continue;
        }
        let _ = write!(out, "\n{}\n", sheet.paint("1", aspect.title()));
        for it in observed {
            out += &match it.was_checked {
                true => sheet.item(2, "✓", "32", &it.text),
                false => sheet.item(2, "-", "2", &it.text),
            };
        }
        found.iter().for_each(|symptom| out += &fault(symptom, sheet));
    }
    out += &clients(report, sheet);
    if let Some(recommendation) = &report.recommendation {
        out += &entry(recommendation, sheet);
    }
    let colour = match (report.count(Severity::Error), report.count(Severity::Warning)) {
        (0, 0) => "32",
        (0, _) => "33",
        _ => "31",
    };
    let verdict = wrapped(&report.verdict(), sheet.width.clamp(NARROWEST, WIDEST)).join("\n");
    let _ = write!(out, "\n{}\n", sheet.paint(&format!("1;{colour}"), &verdict));
    out
}

fn heading(report: &Examination) -> String {
    match &report.server_info {
        Some((name, version)) if !name.is_empty() => {
            format!("{}: {name} {version}", report.target).trim_end().to_owned()
        }
        _ => report.target.clone(),
    }
}

fn fault(symptom: &Symptom, sheet: Sheet) -> String {
    let (mark, colour) = match symptom.severity {
        Severity::Error => ("✗", "31"),
        Severity::Warning => ("!", "33"),
        Severity::Information => ("·", "36"),
    };
    let mut out = sheet.item(2, mark, colour, &format!("{} {}", symptom.code, symptom.what));
    if let Some(evidence) = &symptom.evidence {
        out += &sheet.item(4, "", "", evidence);
    }
    for place in symptom.places.iter().take(PLACES) {
        out += &sheet.item(4, "at", "2", &format!("{} {}", place.tool, place.pointer));
    }
    if let rest @ 1.. = symptom.places.len().saturating_sub(PLACES) {
        out += &sheet.item(4, "", "", &format!("and {rest} more"));
    }
    let is_minded = symptom.severity > Severity::Information;
    if is_minded && !symptom.minds.is_empty() {
        let some: Vec<_> = symptom.minds.iter().take(PLACES).cloned().collect();
        let some = more(&some, symptom.minds.len());
        out += &sheet.item(4, "minded by", "2", &some);
    }
    // What is only good to know of schemas needs no fix; of messages it may.
    if is_minded || Heal::named(symptom.code).is_some() {
        out += &sheet.item(4, "fix:", "36", &symptom.fix);
    }
    out
}

/// What clients show. Those of which the same is to be said stand together.
fn clients(report: &Examination, sheet: Sheet) -> String {
    if report.tools == 0 || report.clients.is_empty() {
        return String::new();
    }
    let mut groups: Vec<Vec<&ClientView>> = Vec::new();
    for view in &report.clients {
        let is_same = |group: &&mut Vec<&ClientView>| {
            let first = group[0];
            (first.straight, first.through, first.needs_profile, &first.lost, first.limit)
                == (view.straight, view.through, view.needs_profile, &view.lost, view.limit)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(view),
            None => groups.push(vec![view]),
        }
    }
    // The worst comes first.
    groups.sort_by_key(|group| group[0].straight);
    let mut out = format!("\n{}\n", sheet.paint("1", "Clients, by schemas"));
    groups.iter().for_each(|group| out += &clients_alike(report, group, sheet));
    if is_http(report) && report.clients.iter().any(|view| view.straight < report.tools) {
        out += &sheet.item(2, "-", "2", "Pontoon does not stand before servers of HTTP");
    }
    out
}

fn is_http(report: &Examination) -> bool {
    report.target.starts_with("http")
}

fn clients_alike(report: &Examination, group: &[&ClientView], sheet: Sheet) -> String {
    let (first, all) = (group[0], report.tools);
    let titles = group.iter().map(|view| view.title).collect::<Vec<_>>().join(", ");
    let visible = format!("{} of {all} tools will be visible in {titles}", first.straight);
    let basis = sheet.item(4, "", "", &bases(group));
    if first.straight == all {
        return sheet.item(2, "✓", "32", &visible) + &basis;
    }
    let (mark, colour) = if first.straight == 0 { ("✗", "31") } else { ("!", "33") };
    let through = if first.through == all { "all".to_owned() } else { first.through.to_string() };
    let through = match (first.needs_profile, group) {
        (false, _) => through,
        (true, [view]) => format!("{through} with \"profile\": {:?}", view.profile),
        (true, _) => format!("{through} with the \"profile\" of the client"),
    };
    let told = match is_http(report) {
        true => visible,
        false if first.through == 0 => format!("{visible}, and none through Pontoon"),
        false => format!("{visible}; through Pontoon {through}"),
    };
    let mut out = sheet.item(2, mark, colour, &told);
    let named = |(tool, codes): &(String, Vec<&str>)| format!("{tool} ({})", codes.join(", "));
    let lost: Vec<_> = first.lost.iter().take(PLACES).map(named).collect();
    if let Some(limit) = first.limit {
        let what =
            if first.straight == 0 { "and refuses a list that is longer" } else { "and no more" };
        out += &sheet.item(
            4,
            "",
            "",
            &format!("it takes {limit} tools at once, {what} (S025/too-many)"),
        );
    }
    let is_by_tools = first.loses_all && first.limit.is_none();
    let why = if is_by_tools { "each of these costs all tools" } else { "lost" };
    if !lost.is_empty() {
        out += &sheet.item(4, "", "", &format!("{why}: {}", more(&lost, first.lost.len())));
    }
    out + &basis
}

/// How it is known what clients show.
fn bases(group: &[&ClientView]) -> String {
    match group {
        [view] => view.basis.clone(),
        group => {
            let named: Vec<_> =
                group.iter().map(|it| format!("{} {}", it.title, it.basis)).collect();
            let is_one = group.iter().all(|it| it.basis == group[0].basis);
            match (is_one, group.len() > PLACES) {
                (true, _) => group[0].basis.replace(" its ", " their "),
                (false, false) => named.join("; "),
                (false, true) => {
                    let kinds = [
                        ("measured", "measured"),
                        ("by its published rules", "by published rules"),
                        ("by public copies", "by public copies of rules"),
                        ("by reports", "by reports"),
                    ];
                    let told = kinds.into_iter().filter_map(|(begin, words)| {
                        let known = group.iter().filter(|it| it.basis.starts_with(begin));
                        let titled = |it: &&ClientView| match it.basis.contains("scripted") {
                            true => format!("{} (before a scripted API)", it.title),
                            false => it.title.to_owned(),
                        };
                        let titles: Vec<_> = known.map(titled).collect();
                        (!titles.is_empty()).then(|| format!("{} {words}", titles.join(", ")))
                    });
                    let date = group[0].basis.rsplit(' ').next().unwrap_or_default();
                    format!("{}; {date}", told.collect::<Vec<_>>().join("; "))
                }
            }
        }
    }
}

/// Some of these, and how many there are besides.
fn more(some: &[String], all: usize) -> String {
    match all.saturating_sub(some.len()) {
        0 => some.join(", "),
        more => format!("{} and {more} more", some.join(", ")),
    }
}

fn entry(recommendation: &Recommendation, sheet: Sheet) -> String {
    let keys = recommendation.entry.as_object().is_some_and(|it| !it.is_empty());
    if !keys && recommendation.reasons.is_empty() {
        return String::new();
    }
    let name = serde_json::json!(recommendation.name);
    let heading = match recommendation.is_addition {
        true => format!("To add to {name} in mcp-servers.json"),
        false => "For mcp-servers.json".to_owned(),
    };
    let mut out = format!("\n{}\n", sheet.paint("1", &heading));
    // What is pasted is not broken into lines of our own.
    let _ = match (recommendation.is_addition, keys) {
        (true, false) => Ok(()),
        (true, true) => {
            let entry = recommendation.entry.to_string();
            writeln!(out, "  {}", entry.trim_start_matches('{').trim_end_matches('}'))
        }
        (false, _) => writeln!(out, "  {name}: {}", recommendation.entry),
    };
    for reason in &recommendation.reasons {
        let guess = if reason.is_guess { " (a guess)" } else { "" };
        out += &sheet.item(2, &format!("{}:", reason.key), "36", &format!("{}{guess}", reason.why));
    }
    out
}

/// Text in lines of at most this many letters. A word that is longer has a line for itself, and is cut.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("there is one from the start");
            let used = line.chars().count();
            let space = usize::from(used > 0);
            if used + space + word.len() <= width {
                line.extend(std::iter::repeat_n(' ', space));
                line.extend(&word);
                break;
            }
            if used == 0 {
                line.extend(word.drain(..width));
            }
            lines.push(String::new());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_set_within_its_width() {
        assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("", 4), [""]);
        let sheet = Sheet { width: 30, has_colour: false };
        let item = sheet.item(4, "fix:", "36", &"word ".repeat(30));
        assert!(item.lines().all(|line| line.chars().count() <= 30), "{item}");
        assert!(item.starts_with("  fix: word"), "{item}");
    }

    #[test]
    fn a_report_fits_a_narrow_terminal_but_for_what_is_pasted() {
        let mut report = Examination {
            target: "a command with words ".repeat(4),
            tools: 2,
            ..Examination::default()
        };
        report.well(Aspect::Start, "it starts within a time that is told in many words");
        report.found(Symptom::of_heal(Heal::H08, Some("x".repeat(70))));
        report.clients.push(ClientView {
            profile: "claude-code",
            title: "Claude Code",
            basis: "measured with 1 on 2026-11-18".to_owned(),
            straight: 0,
            through: 2,
            lost: vec![("a_tool_with_a_name".to_owned(), vec!["S003/map"])],
            loses_all: true,
            limit: None,
            needs_profile: false,
        });
        for width in [30, 80] {
            let text = people(&report, Sheet { width, has_colour: false });
            let long: Vec<_> = text.lines().filter(|line| line.chars().count() > width).collect();
            assert!(long.is_empty(), "{width}: {long:?}");
            let painted = people(&report, Sheet { width, has_colour: true });
            assert!(painted.contains("\u{1b}[33m!\u{1b}[0m"), "{painted}");
        }
    }

    #[test]
    fn a_list_that_is_too_long_is_told_with_what_becomes_of_it() {
        let told = |straight: usize, loses_all: bool| {
            let view = ClientView {
                profile: "openai",
                title: "OpenAI",
                basis: "by reports of 2026-11-18".to_owned(),
                straight,
                through: straight,
                lost: Vec::new(),
                loses_all,
                limit: Some(128),
                needs_profile: false,
            };
            let report = Examination { tools: 129, clients: vec![view], ..Examination::default() };
            clients(&report, Sheet { width: 100, has_colour: false })
        };
        let refused = told(0, true);
        assert!(
            refused.contains("0 of 129 tools will be visible in OpenAI, and none through Pontoon"),
            "{refused}"
        );
        assert!(
            refused.contains(
                "it takes 128 tools at once, and refuses a list that is longer (S025/too-many)"
            ),
            "{refused}"
        );
        assert!(!refused.contains("each of these"), "{refused}");
        let cut = told(128, false);
        assert!(
            cut.contains("128 of 129 tools will be visible in OpenAI; through Pontoon 128"),
            "{cut}"
        );
        assert!(cut.contains("it takes 128 tools at once, and no more (S025/too-many)"), "{cut}");
    }
}
