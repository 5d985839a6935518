//! The tools of a schema file as clients take them, and calls of them as the program knows them.
//!
//! A client refuses tools whose schemas are not valid, or all of them at once. What is enforced is for the program to
//! say: it knows its schemas.

use std::borrow::Cow;
use std::collections::HashMap;

use pontoon_schema::{Plan, Profile, repair};
use pontoon_wire::{Kind, Message, Rewrite, Slot, json, method, quoted, string_value};

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
    pub(super) fn of(schema: &SchemaFile) -> Self {
        let mut plans = HashMap::new();
        let tools = schema.tools.as_bytes();
        let mut shown = Vec::new();
        for range in json::elements(tools, 0..tools.len()) {
            let report = repair(&schema.tools[range], Profile::common());
            let name = json::find(report.tool.as_bytes(), "name").and_then(string_value);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(schema: &str) -> ShownTools {
        ShownTools::of(&SchemaFile::parse(schema.as_bytes()).unwrap())
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
