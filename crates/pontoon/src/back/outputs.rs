//! What the tools of a server promise to give back (`outputSchema`), and which promises were not kept (H18).
//!
//! A client refuses the result of a tool that promises structured content and gives none. A tool of which no result fits is
//! shown without its promise.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pontoon_schema::Check;
use pontoon_wire::{Message, Rewrite, Slot, json, string_value};
use serde_json::value::RawValue;

use crate::lock::Lock;

/// The promises of one server's tools.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    is_filled: AtomicBool,
    has_withdrawn: AtomicBool,
    tools: Lock<HashMap<String, Output>>,
    /// The names that clients see, by those that the server knows, where these differ.
    shown: Lock<HashMap<String, String>>,
}

/// The promise of one tool.
#[derive(Debug)]
struct Output {
    schema: String,
    /// Made when it is first needed; `None` in it if nothing can be checked with the schema.
    check: Option<Option<Arc<Check>>>,
    is_withdrawn: bool,
}

impl Outputs {
    /// Notes the promises of these tools, each a JSON text. One that was withdrawn stays so until it changes.
    pub(crate) fn learn<'t>(&self, tools: impl Iterator<Item = &'t str>) {
        let mut known = self.tools.lock();
        for tool in tools {
            let Some(schema) = json::find(tool.as_bytes(), "outputSchema") else { continue };
            let Some(name) = name_of(tool) else { continue };
            let schema = String::from_utf8_lossy(schema);
            if known.get(name.as_ref()).is_none_or(|output| output.schema != schema) {
                let schema = schema.into_owned();
                let output = Output { schema, check: None, is_withdrawn: false };
                known.insert(name.into_owned(), output);
            }
        }
        self.is_filled.store(!known.is_empty(), Ordering::Relaxed);
    }

    /// Notes that the server knows a tool by another name than clients.
    pub(crate) fn also_called(&self, shown: &str, own: &str) {
        self.shown.lock().insert(own.to_owned(), shown.to_owned());
    }

    /// The name that clients see of a tool.
    fn shown(&self, tool: &str) -> String {
        self.shown.lock().get(tool).map_or(tool, String::as_str).to_owned()
    }

    /// Whether no tool promises anything.
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_filled.load(Ordering::Relaxed)
    }

    /// Whether this tool promises structured content.
    pub(crate) fn promises(&self, tool: &str) -> bool {
        self.tools.lock().contains_key(&self.shown(tool))
    }

    /// Whether a JSON text is what the tool promises.
    pub(crate) fn fits(&self, tool: &str, text: &str) -> bool {
        let shown = self.shown(tool);
        let check = {
            let mut tools = self.tools.lock();
            let Some(output) = tools.get_mut(&shown) else { return false };
            let schema = output.schema.as_str();
            output.check.get_or_insert_with(|| Check::new(schema).map(Arc::new)).clone()
        };
        serde_json::from_str::<&RawValue>(text).is_ok() && check.is_some_and(|it| it.takes(text))
    }

    /// Shows the tool without its promise from now on.
    pub(crate) fn withdraw(&self, tool: &str) {
        let shown = self.shown(tool);
        if let Some(output) = self.tools.lock().get_mut(&shown) {
            output.is_withdrawn = true;
            self.has_withdrawn.store(true, Ordering::Relaxed);
        }
    }

    /// The tool, a JSON text, without a promise that it does not keep.
    pub(crate) fn kept_promise<'t>(&self, tool: &'t str) -> Cow<'t, str> {
        if !self.has_withdrawn.load(Ordering::Relaxed) {
            return Cow::Borrowed(tool);
        }
        let is_withdrawn =
            |name: &str| self.tools.lock().get(name).is_some_and(|it| it.is_withdrawn);
        if !name_of(tool).is_some_and(|name| is_withdrawn(&name)) {
            return Cow::Borrowed(tool);
        }
        let text = tool.as_bytes();
        let is_kept = |key: &[u8]| string_value(key).is_none_or(|key| key != "outputSchema");
        let kept = json::entries(text, 0..text.len()).filter(|it| is_kept(&text[it.key.clone()]));
        let kept: Vec<_> = kept.map(|it| &tool[it.key.start..it.value.end]).collect();
        Cow::Owned(format!("{{{}}}", kept.join(",")))
    }

    /// The answer to `tools/list` with the tools that way.
    pub(crate) fn in_answer(&self, answer: Message) -> Message {
        if !self.has_withdrawn.load(Ordering::Relaxed) {
            return answer;
        }
        let Some(result) = answer.raw(Slot::Result) else { return answer };
        let Some(tools) = json::find(result, "tools").filter(|it| it.first() == Some(&b'[')) else {
            return answer;
        };
        let each = json::elements(tools, 0..tools.len()).map(|tool| {
            let tool = std::str::from_utf8(&tools[tool]).expect("a message is UTF-8");
            self.kept_promise(tool)
        });
        let shown = format!("[{}]", each.collect::<Vec<_>>().join(","));
        let start = tools.as_ptr() as usize - result.as_ptr() as usize;
        let rest = &result[start + tools.len()..];
        let changed = [&result[..start], shown.as_bytes(), rest].concat();
        Rewrite::new(answer).replace(Slot::Result, changed).into_message()
    }
}

fn name_of(tool: &str) -> Option<Cow<'_, str>> {
    json::find(tool.as_bytes(), "name").and_then(string_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREET: &str = r#"{"name":"greet","outputSchema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}},"x":1.0}"#;
    const PLAIN: &str = r#"{"name":"plain","inputSchema":{}}"#;

    fn outputs() -> Outputs {
        let outputs = Outputs::default();
        assert!(outputs.is_empty());
        outputs.learn([GREET, PLAIN].into_iter());
        outputs
    }

    #[test]
    fn a_text_fits_if_the_schema_says_so() {
        let outputs = outputs();
        assert!(!outputs.is_empty() && outputs.promises("greet") && !outputs.promises("plain"));
        for (text, fits) in [
            (r#"{"n":1}"#, true),
            (r#"{"n":"1"}"#, false),
            ("{}", false),
            ("{", false),
            ("1", false),
        ] {
            assert_eq!(outputs.fits("greet", text), fits, "{text}");
        }
        assert!(!outputs.fits("plain", "{}"));
        outputs.learn([r#"{"name":"odd","outputSchema":{"type":7}}"#].into_iter());
        assert!(!outputs.fits("odd", "{}"), "nothing fits what is no schema");
    }

    #[test]
    fn a_promise_that_was_not_kept_is_not_shown_until_it_changes() {
        let outputs = outputs();
        assert_eq!(outputs.kept_promise(GREET), GREET);
        outputs.withdraw("greet");
        let without = r#"{"name":"greet","x":1.0}"#;
        assert_eq!(outputs.kept_promise(GREET), without);
        assert_eq!(outputs.kept_promise(PLAIN), PLAIN);
        let list = |tools: &str| {
            Message::own(format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":1,"tools":[{tools}]}}}}"#
            ))
        };
        let shown = outputs.in_answer(list(&format!("{GREET}, {PLAIN}")));
        assert_eq!(shown.text(), list(&format!("{without},{PLAIN}")).text());
        outputs.learn([GREET].into_iter());
        assert_eq!(outputs.kept_promise(GREET), without, "it was learnt again");
        let other = r#"{"name":"greet","outputSchema":{}}"#;
        outputs.learn([other].into_iter());
        assert_eq!(outputs.kept_promise(other), other);
    }

    #[test]
    fn a_promise_that_is_too_much_to_be_checked_is_one_that_nothing_fits() {
        let outputs = Outputs::default();
        let chain: Vec<_> = (0..4500)
            .map(|n| format!(r##""d{n}":{{"$ref":"#/$defs/d{}"}}"##, n + 1))
            .chain([r#""d4500":{}"#.to_owned()])
            .collect();
        let ladder: Vec<_> = (0..40)
            .map(|n| {
                format!(
                    r##""d{n}":{{"allOf":[{{"$ref":"#/$defs/d{0}"}},{{"$ref":"#/$defs/d{0}"}}]}}"##,
                    n + 1
                )
            })
            .chain([r#""d40":{}"#.to_owned()])
            .collect();
        for (name, all) in [("chain", chain), ("ladder", ladder)] {
            let schema = format!(
                r##"{{"type":"object","$ref":"#/$defs/d0","$defs":{{{}}}}}"##,
                all.join(",")
            );
            let tool = format!(r#"{{"name":"{name}","outputSchema":{schema}}}"#);
            outputs.learn([tool.as_str()].into_iter());
            // It ends soon, and no stack overflows.
            let _ = outputs.fits(name, "{}");
        }
    }

    #[test]
    fn a_promise_is_known_by_the_name_that_the_server_has_for_its_tool() {
        let outputs = outputs();
        outputs.also_called("greet", "greet.it");
        assert!(outputs.promises("greet.it"));
        outputs.withdraw("greet.it");
        assert_ne!(outputs.kept_promise(GREET), GREET);
    }
}
