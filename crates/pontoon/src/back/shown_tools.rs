//! Tools as clients see them: none that is switched off, and each with a schema that clients take.
//!
//! The catalogue shows them so, and so do the lists that children give themselves. Calls of tools that are switched
//! off are refused before any child.

use std::borrow::Cow;

use pontoon_wire::heal::HealMode;
use pontoon_wire::{Message, Rewrite, Slot, json, string_value};

use crate::config::Server;
use crate::observe::heals::HealLog;

/// The tool as clients of this server see it; `None` if they do not. What is wrong with it is noted, if that was not
/// done before.
pub(crate) fn shown<'t>(
    tool: &'t str,
    server: &Server,
    heals: Option<&HealLog>,
) -> Option<Cow<'t, str>> {
    let name = json::find(tool.as_bytes(), "name").and_then(string_value);
    if name.as_ref().is_some_and(|name| server.disabled_tools.iter().any(|it| it == name)) {
        return None;
    }
    if server.heal.default_mode() == HealMode::Off {
        return Some(Cow::Borrowed(tool));
    }
    let report = pontoon_schema::repair(tool, pontoon_schema::Profile::none());
    if let Some(heals) = heals {
        let name = name.unwrap_or_default();
        report.findings.iter().for_each(|finding| heals.note_schema(&name, finding));
    }
    match server.heal.default_mode() {
        HealMode::Repair => Some(report.tool),
        HealMode::Off | HealMode::Warn => Some(Cow::Borrowed(tool)),
    }
}

/// The answer to `tools/list` with the tools as clients see them.
pub(crate) fn in_answer(answer: Message, server: &Server, heals: &HealLog) -> Message {
    let Some(result) = answer.raw(Slot::Result) else { return answer };
    let Some(tools) = json::find(result, "tools").filter(|raw| raw.first() == Some(&b'[')) else {
        return answer;
    };
    let mut is_same = true;
    let mut all = Vec::new();
    for tool in json::elements(tools, 0..tools.len()) {
        let tool = std::str::from_utf8(&tools[tool]).expect("a message is UTF-8");
        let shown = shown(tool, server, Some(heals));
        is_same &= matches!(shown, Some(Cow::Borrowed(_)));
        all.extend(shown);
    }
    if is_same {
        return answer;
    }
    let start = tools.as_ptr() as usize - result.as_ptr() as usize;
    let end = start + tools.len();
    let shown = format!("[{}]", all.join(","));
    let changed = [&result[..start], shown.as_bytes(), &result[end..]].concat();
    Rewrite::new(answer).replace(Slot::Result, changed).into_message()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(heal: HealMode) -> Server {
        let plain = Server::new("demo".parse().unwrap(), Ok("/bin/demo".into()), Vec::new());
        let disabled_tools = vec!["b".to_owned(), "c".to_owned()];
        Server { heal: heal.into(), disabled_tools, ..plain }
    }

    #[track_caller]
    fn check(heal: HealMode, answer: &str, expected: &str, counts: &[(&'static str, u64)]) {
        let heals = HealLog::new("demo");
        let answer = Message::parse(answer.as_bytes()).unwrap();
        let changed = in_answer(answer, &server(heal), &heals);
        assert_eq!(std::str::from_utf8(changed.text()).unwrap(), expected);
        assert_eq!(heals.counts(), counts);
    }

    fn list(tools: &str) -> String {
        format!(r#"{{"id":1,"result":{{"x":1.0,"tools":[{tools}],"nextCursor":"b"}}}}"#)
    }

    const A: &str = r#"{"name":"a","inputSchema":{"type":"object"}}"#;

    #[test]
    fn what_is_disabled_is_left_out_and_the_rest_stays() {
        let tools = format!(r#"{A}, {{"t":"b","name":"\u0062"}},{A}"#);
        check(HealMode::Repair, &list(&tools), &list(&format!("{A},{A}")), &[]);
        check(HealMode::Off, &list(r#"{"name":"c"}"#), &list(""), &[]);
    }

    #[test]
    fn schemas_are_repaired_or_not_as_the_server_is_to_be_healed() {
        let broken = r#"{"name":"d","inputSchema":{"type":"object","properties":null}}"#;
        let whole = broken.replace("null", "{}");
        let counts = &[("S003", 1)];
        check(HealMode::Repair, &list(broken), &list(&whole), counts);
        check(HealMode::Warn, &list(broken), &list(broken), counts);
        check(HealMode::Off, &list(broken), &list(broken), &[]);
    }

    #[test]
    fn what_needs_no_change_gets_none() {
        for same in [
            list(&format!("{A} , {A}")).as_str(),
            r#"{"id":1,"result":{"tools":"b"}}"#,
            r#"{"id":1,"error":{"code":1,"message":"b"}}"#,
        ] {
            check(HealMode::Repair, same, same, &[]);
        }
    }
}
