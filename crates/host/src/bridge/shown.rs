//! The tools of a schema file as clients take them, and calls of them as the program knows them.
//!
//! A client refuses tools whose schemas are not valid, or all of them at once. What is enforced is for the program to
//! say: it knows its schemas.

use std::borrow::Cow;
use std::collections::HashMap;

use pontoon_schema::{Fault, Finding, Plan, Severity, repair};
use pontoon_wire::heal::HealMode;
use pontoon_wire::{Kind, Message, Rewrite, Slot, json, method, quoted, string_value};

use super::arguments::Showing;
use crate::schema_file::SchemaFile;

/// Tools as a client sees them.
#[derive(Debug)]
pub(super) struct ShownTools {
    /// As `tools/list` gives them: a JSON array.
    pub(super) list: String,
    /// What calls need, by the names that the client sees.
    plans: HashMap<String, Plan>,
}

impl ShownTools {
    /// The tools of a schema file, shown so. What is wrong with them is noted by the names that the program has for them.
    pub(super) fn of(
        schema: &SchemaFile,
        showing: &Showing,
        mut note: impl FnMut(&str, &Finding, HealMode),
    ) -> Self {
        let mut plans = HashMap::new();
        let tools = schema.tools.as_bytes();
        let mut shown = Vec::new();
        for range in json::elements(tools, 0..tools.len()) {
            let tool = &schema.tools[range];
            let mut report = repair(tool, showing.profile);
            let mut is_left = false;
            for finding in &report.findings {
                let mode = showing.mode(finding.fault);
                is_left |= finding.repair.is_some() && mode != HealMode::Repair;
                if mode != HealMode::Off {
                    note(&name_of(tool).unwrap_or_default(), finding, mode);
                }
            }
            // A tool with a fault that is not to be repaired is shown as its program wrote it.
            if is_left {
                shown.push(Cow::Borrowed(tool));
                continue;
            }
            if showing.mode(Fault::Arguments) != HealMode::Repair {
                report.plan.leave_types();
            }
            let name = name_of(&report.tool);
            if let Some(name) = name.filter(|_| !report.plan.is_empty()) {
                plans.insert(name.into_owned(), report.plan);
            }
            shown.push(report.tool);
        }
        Self { list: format!("[{}]", shown.join(",")), plans }
    }

    /// A message of the client, with the names and arguments of the program if it calls a tool.
    pub(super) fn led_back(&self, message: Message) -> Message {
        if message.kind() != Kind::Request || message.method() != method::CALL_TOOL {
            return message;
        }
        let Some(plan) = message.string(Slot::Name).and_then(|name| self.plans.get(&*name)) else {
            return message;
        };
        let arguments = message.raw(Slot::Arguments).and_then(|raw| std::str::from_utf8(raw).ok());
        let fitted = match arguments.map(|arguments| plan.arguments(arguments)) {
            Some(Ok(Cow::Owned(fitted))) => Some(fitted),
            _ => None,
        };
        let mut rewrite = Rewrite::new(message.clone());
        if let Some(original) = &plan.name {
            rewrite = rewrite.replace(Slot::Name, quoted(original));
        }
        if let Some(fitted) = fitted {
            rewrite = rewrite.replace(Slot::Arguments, fitted);
        }
        // What would be nested too deep stays what it was.
        rewrite.try_into_message().unwrap_or(message)
    }
}

fn name_of(tool: &str) -> Option<Cow<'_, str>> {
    json::find(tool.as_bytes(), "name").and_then(string_value)
}

/// What is said of a fault in a tool, in one line; `None` if it is only good to know.
pub(super) fn fault_line(tool: &str, finding: &Finding, mode: HealMode) -> Option<String> {
    let Finding { fault, place, repair } = finding;
    let done = match repair.as_ref().filter(|_| mode == HealMode::Repair) {
        Some(repair) => format!("repaired: {}", repair.what),
        None => "left as it is, though clients may refuse it".to_owned(),
    };
    let line = format!("{} in `{tool}` at {place}: {}; {done}", fault.id(), fault.meaning());
    // Names are the program's own words, and this is one line of a terminal.
    let plain = line.replace(char::is_control, " ");
    (fault.severity() > Severity::Information).then_some(plain)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::arguments::BridgeArguments;
    use super::*;

    fn shown(schema: &str) -> ShownTools {
        shown_with(&[], schema).0
    }

    /// The same for a bridge that is started with these options, and what is noted.
    fn shown_with(options: &[&str], schema: &str) -> (ShownTools, Vec<String>) {
        let words = ["a.sock", "b.json"].iter().chain(options).map(OsString::from);
        let showing = BridgeArguments::read(words).unwrap().showing;
        let schema = SchemaFile::parse(schema.as_bytes()).unwrap();
        let mut lines = Vec::new();
        let shown = ShownTools::of(&schema, &showing, |tool, finding, mode| {
            lines.extend(fault_line(tool, finding, mode));
        });
        (shown, lines)
    }

    #[test]
    fn tools_are_shown_for_the_client_that_is_named_and_repaired_as_it_is_wanted() {
        let written = r#"{"name":"get it","input_schema":{"type":"object","properties":{"at":{"type":["string","null"]},"$top":{"type":"int"}}}}"#;
        let list = |options: &[&str]| shown_with(options, &format!("[{written}]"));
        let (common, lines) = list(&[]);
        assert!(common.list.contains(r#""at":{"type":["string","null"]}"#), "{}", common.list);
        let codes: Vec<_> = lines.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(codes, ["S008/type-word", "S013/key", "S014/name-letters"], "{lines:?}");
        assert!(
            lines[0].contains(" in `get it` at /inputSchema/properties/$top/type: "),
            "{lines:?}"
        );
        let (gemini, _) = list(&["--profile", "gemini"]);
        assert!(!gemini.list.contains(r#"["string","null"]"#), "{}", gemini.list);
        let (valid, _) = list(&["--profile", "none"]);
        assert!(valid.list.contains(r#""name":"get it""#), "{}", valid.list);
        assert!(valid.list.contains(r#""$top":{"type":"integer"}"#), "{}", valid.list);
        for (options, is_told) in [(["--heal", "warn"], true), (["--heal", "off"], false)] {
            let (left, lines) = list(&options);
            assert!(left.list.contains(r#""$top":{"type":"int"}"#), "{}", left.list);
            assert_eq!(!lines.is_empty(), is_told, "{lines:?}");
        }
        let forged = written.replace("get it", "a\\nb\\u001b[31m");
        let (_, lines) = shown_with(&[], &format!("[{forged}]"));
        assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{lines:?}");
        let (left, _) = list(&["--heal", "S013=off"]);
        assert!(left.list.contains(r#""name":"get it""#), "{}", left.list);
    }

    #[test]
    fn a_client_sees_tools_that_it_takes_and_the_program_gets_what_it_knows() {
        let shown = shown(
            r#"[{"name":"get it","input_schema":{"properties":{"$top":{"type":"int"},"at":{"type":"array","items":["type","number"]}}}}]"#,
        );
        let name = string_value(json::find(&shown.list.as_bytes()[1..], "name").unwrap()).unwrap();
        assert!(name.starts_with("get_it_"), "{name}");
        assert!(shown.list.contains(r#""top":{"type":"integer"}"#), "{}", shown.list);
        assert!(shown.list.contains(r#""items":{"type":"number"}"#), "{}", shown.list);
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{{"top":"3","at":"[1,2.50]"}}}}}}"#
        );
        let led_back = shown.led_back(Message::parse(call.as_bytes()).unwrap());
        assert_eq!(
            std::str::from_utf8(led_back.text()).unwrap(),
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get it","arguments":{"$top":3,"at":[1,2.50]}}}"#
        );
    }

    #[test]
    fn what_needs_nothing_is_passed_on_as_it_is() {
        let tool = r#"{"name":"a","description":"d","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}"#;
        let shown = shown(&format!("[{}]", tool.replace("inputSchema", "input_schema")));
        assert_eq!(shown.list, format!("[{tool}]"));
        for same in [
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{ "n" : 1 }}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a","arguments":{"n":"1"}}}"#,
        ] {
            let message = shown.led_back(Message::parse(same.as_bytes()).unwrap());
            assert_eq!(std::str::from_utf8(message.text()).unwrap(), same);
        }
    }
}
