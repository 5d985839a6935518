//! The examination: which probes are made, in which order, and on which connections.
//!
//! One connection is opened and asked everything; others are opened for what a connection can be asked only once. A
//! server that ends or hangs costs the probes that follow on that connection, and is told so. Each wait has an end.

mod calls;
mod clients;
mod ending;
mod eras;
mod http;
mod lists;
mod notifications;
mod parallel;
mod requests;
mod schemas;
mod size;
pub(super) mod step;
mod traces;
mod versions;

use std::time::Duration;

use pontoon_schema::{Profile, Severity};
use pontoon_wire::heal::Heal;
use pontoon_wire::{Message, Slot};
use serde_json::Value;

use self::eras::ModernLook;
use self::step::ExamStep;
use super::aspect::Aspect;
use super::examination::{Examination, Unexamined, text_of};
use super::options::ExamOptions;
use super::recommend::{self, Evidence};
use super::room::{ExamRoom, NoVisit};
use super::sign::Sign;
use super::symptom::Symptom;
use super::visit::Visit;
use super::words::{milliseconds, short};
use crate::back::conversation::handshake::HandshakeError;
use crate::beside::beside;

/// From this on a start is slow, and from this on clients give up.
const SLOW_START: Duration = Duration::from_secs(5);
const TOO_SLOW_START: Duration = Duration::from_secs(30);

/// Examines a server. `tell` hears what is being done.
pub async fn examine(
    room: &ExamRoom,
    options: &ExamOptions,
    tell: &(dyn Fn(ExamStep) + Sync),
) -> Examination {
    let mut report = Examination {
        name: room.patient.name().to_owned(),
        target: room.patient.shown.clone(),
        ..Examination::default()
    };
    if let Err(unexamined) = look_at(room, options, tell, &mut report).await {
        report.unexamined = Some(unexamined);
    }
    report
}

async fn look_at(
    room: &ExamRoom,
    options: &ExamOptions,
    tell: &(dyn Fn(ExamStep) + Sync),
    report: &mut Examination,
) -> Result<(), Unexamined> {
    tell(ExamStep::Start);
    let visit = open(room, options, report).await?;
    let start = visit.age();
    report.start = Some(start);
    note_start(room.patient.is_program(), start, report);
    let mut evidence = Evidence { start, ..Evidence::default() };
    probe(&visit, options, tell, report, &mut evidence).await;
    tell(ExamStep::Traces);
    traces::look(&visit, &mut evidence).await;
    tell(ExamStep::End);
    ending::look(visit, room, options, report, &mut evidence).await;
    tell(ExamStep::Versions);
    versions::look(room, options, start, report).await;
    eras::look(room, options, start, report).await;
    http::note(room, report);
    report.recommendation = (!room.patient.is_http)
        .then(|| recommend::recommend(&room.patient, mixes(report), &evidence));
    Ok(())
}

/// Opens the connection that is asked everything.
async fn open(
    room: &ExamRoom,
    options: &ExamOptions,
    report: &mut Examination,
) -> Result<Visit, Unexamined> {
    let opened = tokio::time::timeout(options.patience, room.open()).await;
    let mut visit = match opened {
        Ok(Ok(visit)) => visit,
        Ok(Err(error)) => return Err(unopened(&error)),
        Err(_) => return Err(slow(options)),
    };
    let greeted = visit.greet(options.patience).await;
    let hello = match greeted {
        Ok(hello) => hello,
        Err(why) => return without_handshake(room, options, visit, &why, report).await,
    };
    report.eras.push("legacy");
    note_hello(&hello, report);
    Ok(visit)
}

/// A server that refuses `initialize` may speak the modern era alone.
async fn without_handshake(
    room: &ExamRoom,
    options: &ExamOptions,
    visit: Visit,
    why: &HandshakeError,
    report: &mut Examination,
) -> Result<Visit, Unexamined> {
    let age = visit.age();
    let told = format!("{why}{}", words_of_end(&visit, why).await);
    let noise = visit.link.noise();
    drop(visit);
    if let HandshakeError::Refused(_) | HandshakeError::Silent(_) = why {
        let patience = age.min(options.patience) + options.small();
        if let ModernLook::Speaks(visit, discovered) = eras::discover(room, patience).await {
            report.eras.push("modern");
            note_hello(&discovered, report);
            return Ok(*visit);
        }
    }
    if let HandshakeError::Refused(text) = why
        && !text.starts_with("HTTP ")
    {
        report.found(Symptom::of_sign(Sign::NoHandshake, Some(told.clone())));
    }
    let told = match noise {
        Some(said) => format!("{told}; what it wrote begins with {:?}", short(&said)),
        None => told,
    };
    let advice = match why {
        HandshakeError::Refused(text)
            if text.starts_with("HTTP 401") || text.starts_with("HTTP 403") =>
        {
            "it wants to know who asks: show a token with --token-env NAME, --token-file FILE or --token-command COMMAND, or a header with --header 'NAME: VALUE'"
        }
        HandshakeError::Refused(text) if text.starts_with("HTTP ") => {
            "look whether this is the address of MCP over HTTP, often /mcp; the older transport of two addresses (SSE) is not examined"
        }
        HandshakeError::Silent(_) => {
            "look whether this is the command of an MCP server on standard input and output: some want an argument such as `stdio` for that"
        }
        HandshakeError::Gone => {
            "start it by hand and look at what it says; with --cwd DIR it starts in that folder"
        }
        HandshakeError::Refused(_) | HandshakeError::Echo => {
            "look whether this is an MCP server, and which versions it speaks"
        }
    };
    Err(Unexamined { why: told, advice: advice.to_owned() })
}

async fn words_of_end(visit: &Visit, why: &HandshakeError) -> String {
    match why {
        HandshakeError::Gone => {
            visit.end_words().await.map(|words| format!(": {}", words.trim())).unwrap_or_default()
        }
        HandshakeError::Silent(_) => {
            visit.child().map(|child| child.words.told()).unwrap_or_default()
        }
        HandshakeError::Refused(_) | HandshakeError::Echo => String::new(),
    }
}

fn unopened(error: &NoVisit) -> Unexamined {
    Unexamined { why: ExamRoom::told(error), advice: error.advice() }
}

fn slow(options: &ExamOptions) -> Unexamined {
    let seconds = options.patience.as_secs_f32();
    Unexamined {
        why: format!("it could not be opened within {seconds} s"),
        advice: "give it longer with --timeout TIME".to_owned(),
    }
}

/// Judges the tools for each client, beside this task if that takes long, for it hears Ctrl-C.
async fn judge_tools(
    tools: Vec<String>,
    profiles: Vec<&'static Profile>,
    report: &mut Examination,
) -> Vec<String> {
    let bytes = tools.iter().map(String::len).sum::<usize>() * profiles.len();
    let mut judged = std::mem::take(report);
    let judge = move || {
        schemas::look(&tools, &profiles, &mut judged);
        clients::look(&tools, &profiles, &mut judged);
        (tools, judged)
    };
    let (tools, judged) = beside(bytes, judge).await;
    *report = judged;
    tools
}

fn note_start(is_program: bool, start: Duration, report: &mut Examination) {
    let took = milliseconds(start);
    let what = if is_program { "starts" } else { "answers" };
    if start < SLOW_START {
        return report.well(Aspect::Start, format!("{what} within {took}"));
    }
    let mut symptom = Symptom::of_sign(Sign::SlowStart, Some(format!("it took {took}")));
    if start > TOO_SLOW_START {
        symptom.severity = Severity::Error;
    }
    report.found(symptom);
}

/// What the server said of itself as it was opened.
fn note_hello(hello: &Message, report: &mut Examination) {
    let result = hello.raw(Slot::Result).unwrap_or(b"{}");
    let result: Value = serde_json::from_slice(result).unwrap_or_default();
    let info = match result["serverInfo"].is_object() {
        true => result["serverInfo"].clone(),
        false => hello
            .raw(Slot::ResultServerInfo)
            .and_then(|info| serde_json::from_slice(info).ok())
            .unwrap_or_default(),
    };
    if info.is_object() {
        report.server_info = Some((text_of(&info["name"]), text_of(&info["version"])));
    }
    if let Some(version) = result["protocolVersion"].as_str() {
        report.versions.push(version.to_owned());
    }
}

/// Asks all that one connection can be asked.
async fn probe(
    visit: &Visit,
    options: &ExamOptions,
    tell: &(dyn Fn(ExamStep) + Sync),
    report: &mut Examination,
    evidence: &mut Evidence,
) {
    let small = options.small();
    tell(ExamStep::Notifications);
    notifications::look(visit, small, report).await;
    tell(ExamStep::Lists);
    let Some(tools) = lists::look(visit, options, report).await else {
        note_heals(visit, report);
        let text = "the rest was not tried: it answers nothing any more";
        return report.skip(Aspect::Requests, text);
    };
    tell(ExamStep::Tools);
    let tools = judge_tools(tools, options.profiles(), report).await;
    evidence.note_tools(&tools);
    tell(ExamStep::Unknown);
    requests::look(visit, small, report).await;
    tell(ExamStep::Calls);
    calls::look(visit, options, &tools, report, evidence).await;
    tell(ExamStep::Parallel);
    let calls = calls::repeatable(options, &tools);
    parallel::look(visit, options, !tools.is_empty(), &calls, report).await;
    note_heals(visit, report);
    if options.probe_size > 0 {
        tell(ExamStep::LongMessage);
        size::look(visit, options, report).await;
    } else {
        report.skip(Aspect::Requests, "the length of messages was not tried (--probe-size)");
    }
}

/// Tells what had to be healed on the way, but for what a probe has told.
fn note_heals(visit: &Visit, report: &mut Examination) {
    let mut is_clean = true;
    for heal in Heal::ALL {
        let count = visit.heals(heal.code());
        // What HTTP has to do with is told by `http`, each manner by itself.
        if count == 0 || *heal == Heal::H29 {
            continue;
        }
        let symptom = Symptom::of_heal(*heal, None);
        is_clean &= symptom.aspect != Aspect::Framing;
        if report.symptoms.iter().any(|known| known.code == heal.code()) {
            continue;
        }
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let evidence = match visit.link.noise() {
            Some(said) if heal.code() == "H01" => {
                format!("seen {times}; the first begins with {:?}", short(&said))
            }
            _ => format!("seen {times}"),
        };
        report.found(Symptom { evidence: Some(evidence), ..symptom });
    }
    if is_clean {
        let what = if visit.child().is_some() { "standard output has" } else { "it sends" };
        report.well(Aspect::Framing, format!("{what} messages and nothing else"));
    }
}

/// Whether it mixes up answers.
fn mixes(report: &Examination) -> bool {
    report.symptoms.iter().any(|it| it.code == Sign::MixedAnswers.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_start_is_an_error_where_clients_give_up() {
        let severity = |seconds: u64| {
            let mut report = Examination::default();
            note_start(true, Duration::from_secs(seconds), &mut report);
            report.symptoms.first().map(|it| (it.code, it.severity))
        };
        assert_eq!(severity(4), None);
        assert_eq!(severity(5), Some(("D01", Severity::Warning)));
        assert_eq!(severity(30), Some(("D01", Severity::Warning)));
        assert_eq!(severity(31), Some(("D01", Severity::Error)));
    }
}
