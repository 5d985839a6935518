//! Its lists, read twice to their ends: pages, order, and names that come again.

use std::collections::HashSet;
use std::time::Duration;

use pontoon_schema::{Fault, Severity};
use pontoon_wire::{Era, Message, Slot, json, method};
use serde_json::value::RawValue;

use crate::call::list_member;
use crate::doctor::aspect::Aspect;
use crate::doctor::examination::{DumpedPage, Examination};
use crate::doctor::judge;
use crate::doctor::options::ExamOptions;
use crate::doctor::sign::Sign;
use crate::doctor::symptom::Symptom;
use crate::doctor::visit::{Said, Visit};
use crate::doctor::words::{number, tool_name};

/// As many pages are read of a list that has something new on each.
const MAX_PAGES: usize = 100;

/// What was read of a list.
#[derive(Debug, Default)]
struct ReadList {
    items: Vec<String>,
    pages: Vec<DumpedPage>,
    /// What is wrong with its pages.
    fault: Option<String>,
    /// Whether a page was not answered at all.
    is_silent: bool,
    /// Whether there were more pages than are read.
    goes_on: bool,
}

/// Reads all lists, and gives the tools as they came. `None` if it hung at one: then it answers nothing any more.
pub(super) async fn look(
    visit: &Visit,
    options: &ExamOptions,
    report: &mut Examination,
) -> Option<Vec<String>> {
    let patience = options.patience;
    let names_tools = visit.has_capability("tools");
    let first = read(visit, method::LIST_TOOLS, patience).await;
    let tools = match first {
        Ok(list) => list,
        Err(said) if names_tools => {
            let evidence = format!("tools/list: {}", said.words());
            report.found(Symptom::of_sign(Sign::ListFails, Some(evidence)));
            let has_hung = hangs(visit, options, &said, method::LIST_TOOLS, report).await;
            return (!has_hung).then(Vec::new);
        }
        Err(said) => {
            report.found(Symptom::of_sign(Sign::NoTools, None));
            if hangs(visit, options, &said, method::LIST_TOOLS, report).await {
                return None;
            }
            ReadList::default()
        }
    };
    if !names_tools && !tools.items.is_empty() {
        let evidence = format!("tools/list gives {} of them all the same", tools.items.len());
        report.found(Symptom::of_sign(Sign::Unnamed, Some(evidence)));
    }
    if names_tools && tools.items.is_empty() {
        report.found(Symptom::of_sign(Sign::NoTools, None));
    }
    if let Some(fault) = &tools.fault {
        let symptom = judge::symptom(Fault::Pages, &options.profiles());
        report.found(Symptom { evidence: Some(fault.clone()), ..symptom });
    }
    note_length(&tools, method::LIST_TOOLS, report);
    let pages = tools.pages.len();
    report.dump.extend(tools.pages);
    report.tools = tools.items.len();
    if !tools.items.is_empty() && tools.fault.is_none() {
        let on = if pages > 1 { format!(" on {pages} pages") } else { String::new() };
        let text = format!("{}{on}", number(tools.items.len(), "tool"));
        report.well(Aspect::Lists, text);
        note_order(visit, &tools.items, patience, report).await;
    }
    let is_silent = tools.is_silent;
    if is_silent && hangs(visit, options, &Said::Silence, method::LIST_TOOLS, report).await {
        return None;
    }
    let is_well = others(visit, options, report).await;
    is_well.then_some(tools.items)
}

/// Whether it answers nothing any more after this answer to a list: one ping has to be answered.
async fn hangs(
    visit: &Visit,
    options: &ExamOptions,
    said: &Said,
    list: &str,
    report: &mut Examination,
) -> bool {
    let (small, probe) = (options.small(), alive(visit));
    if !matches!(said, Said::Silence)
        || !matches!(visit.ask(probe, "{}", small).await, Said::Silence)
    {
        return false;
    }
    let evidence = format!(
        "`{list}` had no answer within {} s, and then `{probe}` none within {} s",
        options.patience.as_secs_f32(),
        small.as_secs_f32()
    );
    report.found(Symptom::of_sign(Sign::Hangs, Some(evidence)));
    true
}

/// What every server of its era answers at once.
fn alive(visit: &Visit) -> &'static str {
    match visit.era {
        Era::Legacy => method::PING,
        Era::Modern => method::DISCOVER,
    }
}

async fn read(visit: &Visit, list: &'static str, patience: Duration) -> Result<ReadList, Said> {
    let mut read = ReadList::default();
    let (mut cursor, mut cursors) = (None::<String>, HashSet::new());
    loop {
        let params =
            cursor.as_ref().map_or_else(|| "{}".to_owned(), |it| format!("{{\"cursor\":{it}}}"));
        let page = match visit.ask(list, &params, patience).await {
            Said::Result(page) => page,
            said if read.pages.is_empty() => return Err(said),
            said => {
                read.is_silent = matches!(said, Said::Silence);
                read.fault = Some(format!("page {}: {}", read.pages.len() + 1, said.words()));
                return Ok(read);
            }
        };
        let before = read.items.len();
        take(&page, list, &mut read);
        // As it was written: what was put right on the way is to be seen there.
        let written =
            visit.link.last_answer().filter(|it| it.has(Slot::Result)).unwrap_or(page.clone());
        let result = String::from_utf8_lossy(written.raw(Slot::Result).unwrap_or(b"{}"));
        if let Ok(result) = RawValue::from_string(result.into_owned()) {
            read.pages.push(DumpedPage { method: list, result });
        }
        let has_items = read.items.len() > before;
        if has_items
            && before > 0
            && read.items[before..].iter().all(|it| read.items[..before].contains(it))
        {
            read.items.truncate(before);
            read.fault = Some(format!("page {} repeats the one before", read.pages.len()));
            return Ok(read);
        }
        let next = page.raw(Slot::NextCursor).filter(|next| *next != b"null");
        let Some(next) = next.map(|next| String::from_utf8_lossy(next).into_owned()) else {
            return Ok(read);
        };
        if !cursors.insert(next.clone()) {
            read.fault = Some(format!("the cursor {next} comes again"));
            return Ok(read);
        }
        if read.pages.len() >= MAX_PAGES {
            read.goes_on = true;
            return Ok(read);
        }
        cursor = Some(next);
    }
}

fn take(page: &Message, list: &'static str, read: &mut ReadList) {
    let result = page.raw(Slot::Result).unwrap_or(b"{}");
    let array = json::find(result, list_member(list).unwrap_or_default()).unwrap_or(b"[]");
    for range in json::elements(array, 0..array.len()) {
        read.items.push(String::from_utf8_lossy(&array[range]).into_owned());
    }
}

/// Tells of a list that was not read to its end, which it may have.
fn note_length(read: &ReadList, list: &str, report: &mut Examination) {
    if read.goes_on {
        let text = format!("{list} has more than {MAX_PAGES} pages; the others were not read");
        report.skip(Aspect::Lists, text);
    }
}

/// Asks once more, and compares the order.
async fn note_order(visit: &Visit, tools: &[String], patience: Duration, report: &mut Examination) {
    let Ok(again) = read(visit, method::LIST_TOOLS, patience).await else { return };
    let names = |tools: &[String]| tools.iter().map(|it| tool_name(it)).collect::<Vec<_>>();
    let (first, second) = (names(tools), names(&again.items));
    if first == second {
        return report.well(Aspect::Lists, "the same tools in the same order, asked twice");
    }
    let (mut one, mut other) = (first.clone(), second.clone());
    one.sort_unstable();
    other.sort_unstable();
    let evidence = match one == other {
        true => "asked twice, it gave the same tools in another order".to_owned(),
        false => format!("asked twice, it gave {} and then {} tools", first.len(), second.len()),
    };
    report.found(Symptom::of_fault(Fault::Order, Some(evidence)));
}

/// The lists beside the tools. False if it hung at one.
async fn others(visit: &Visit, options: &ExamOptions, report: &mut Examination) -> bool {
    for (list, capability, word) in [
        (method::LIST_PROMPTS, "prompts", "prompt"),
        (method::LIST_RESOURCES, "resources", "resource"),
        (method::LIST_TEMPLATES, "resources", "template"),
    ] {
        if !visit.has_capability(capability) {
            continue;
        }
        let read = read(visit, list, options.patience).await;
        let silence = match &read {
            Ok(read) => read.is_silent,
            Err(said) => matches!(said, Said::Silence),
        };
        match read {
            Ok(read) => {
                let count = read.items.len();
                note_length(&read, list, report);
                report.dump.extend(read.pages);
                if let Some(fault) = read.fault {
                    // Of clients that were run none reads these by itself.
                    let symptom = Symptom::of_fault(Fault::Pages, Some(format!("{list}: {fault}")));
                    report.found(Symptom { severity: Severity::Warning, ..symptom });
                } else if count > 0 || list != method::LIST_TEMPLATES {
                    report.well(Aspect::Lists, number(count, word));
                }
            }
            // No capability promises templates, and many servers lack them.
            Err(Said::Error { .. }) if list == method::LIST_TEMPLATES => {}
            Err(said) => {
                let evidence = format!("{list}: {}", said.words());
                let symptom = Symptom::of_sign(Sign::ListFails, Some(evidence));
                report.found(Symptom { severity: Severity::Warning, ..symptom });
            }
        }
        if silence && hangs(visit, options, &Said::Silence, list, report).await {
            return false;
        }
    }
    true
}
