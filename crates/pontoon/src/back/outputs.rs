//! What the tools of a server promise to give back (`outputSchema`), and which promises were not kept (H18).
//!
//! A client refuses the result of a tool that promises structured content and gives none, or other than it promised. A
//! tool of which a result does not fit is shown without its promise. Promises belong to the catalogue they were learnt
//! with: two people whose servers offer tools of one name are each judged by their own.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use pontoon_schema::Check;
use pontoon_wire::{json, string_value};
use serde_json::value::RawValue;
use tokio::sync::watch;

use crate::lock::Lock;

/// The promises of one server's tools that some catalogue has, by the names that clients see.
///
/// It keeps none alive itself. A tool that is learnt again, or by another person, with the same promise has the same
/// one: what was withdrawn stays so.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    known: Lock<HashMap<String, Vec<Weak<Promise>>>>,
    /// How many promises were withdrawn.
    withdrawn: watch::Sender<u64>,
}

/// The promises of the tools of one list, by the names that clients see and those that the server knows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Promises(HashMap<String, Arc<Promise>>);

/// What one tool promises to give back.
#[derive(Debug)]
pub(crate) struct Promise {
    schema: String,
    /// Made when it is first needed; `None` in it if nothing can be checked with the schema.
    check: OnceLock<Option<Check>>,
    is_withdrawn: AtomicBool,
}

impl Outputs {
    /// The promises of these tools, each a JSON text as clients see it.
    pub(crate) fn of<'t>(&self, tools: impl Iterator<Item = &'t str>) -> Promises {
        let mut known = self.known.lock();
        known.retain(|_, promises| {
            promises.retain(|it| it.strong_count() > 0);
            !promises.is_empty()
        });
        let promises = tools.filter_map(|tool| {
            let schema = json::find(tool.as_bytes(), "outputSchema")?;
            let schema = String::from_utf8_lossy(schema);
            let name = name_of(tool)?.into_owned();
            let of_name = known.entry(name.clone()).or_default();
            let same = of_name.iter().filter_map(Weak::upgrade).find(|it| it.schema == schema);
            let promise = same.unwrap_or_else(|| {
                let promise = Arc::new(Promise::new(schema.into_owned()));
                of_name.push(Arc::downgrade(&promise));
                promise
            });
            Some((name, promise))
        });
        Promises(promises.collect())
    }

    /// Shows a tool without its promise from now on.
    pub(crate) fn withdraw(&self, promise: &Promise) {
        if !promise.is_withdrawn.swap(true, Ordering::Relaxed) {
            self.withdrawn.send_modify(|count| *count += 1);
        }
    }

    /// Changes when a tool is shown without its promise that was shown with it before.
    pub(crate) fn withdrawals(&self) -> watch::Receiver<u64> {
        self.withdrawn.subscribe()
    }
}

impl Promises {
    /// What a tool promises, by either of its names.
    pub(crate) fn of(&self, tool: &str) -> Option<&Arc<Promise>> {
        self.0.get(tool)
    }

    /// Notes that the server knows a tool by another name than clients.
    pub(crate) fn also_called(&mut self, shown: &str, own: &str) {
        if let Some(promise) = self.0.get(shown).cloned() {
            self.0.entry(own.to_owned()).or_insert(promise);
        }
    }

    /// Adds those of another page of the same list.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The bytes of their texts.
    pub(crate) fn size(&self) -> usize {
        self.0.values().map(|promise| promise.schema.len()).sum()
    }

    /// The tools of the list, each a JSON text as clients see it, without promises that were not kept.
    pub(crate) fn kept<'t>(&self, mut tools: Vec<Cow<'t, str>>) -> Vec<Cow<'t, str>> {
        let is_withdrawn = |it: &Arc<Promise>| it.is_withdrawn.load(Ordering::Relaxed);
        if self.0.values().any(is_withdrawn) {
            for tool in &mut tools {
                let promise = name_of(tool).and_then(|name| self.of(&name));
                if promise.is_some_and(is_withdrawn) {
                    *tool = Cow::Owned(without_promise(tool));
                }
            }
        }
        tools
    }
}

impl Promise {
    fn new(schema: String) -> Self {
        Self { schema, check: OnceLock::new(), is_withdrawn: AtomicBool::new(false) }
    }

    fn check(&self) -> Option<&Check> {
        self.check.get_or_init(|| Check::new(&self.schema)).as_ref()
    }

    /// Whether a JSON text is surely what the tool promises.
    pub(crate) fn fits(&self, text: &str) -> bool {
        let is_json = serde_json::from_str::<&RawValue>(text).is_ok();
        is_json && self.check().is_some_and(|it| it.takes(text))
    }

    /// Whether a JSON text is surely something else.
    pub(crate) fn is_broken_by(&self, text: &str) -> bool {
        self.check().is_some_and(|it| !it.takes(text))
    }

    /// The JSON text as the tool promises it: a number for the text of one, and nothing for a null that may be left
    /// out. `None` if that does not do.
    pub(crate) fn fitted(&self, text: &str) -> Option<String> {
        self.check()?.fitted(text)
    }
}

fn without_promise(tool: &str) -> String {
    let text = tool.as_bytes();
    let is_kept = |key: &[u8]| string_value(key).is_none_or(|key| key != "outputSchema");
    let kept = json::entries(text, 0..text.len()).filter(|it| is_kept(&text[it.key.clone()]));
    let kept: Vec<_> = kept.map(|it| &tool[it.key.start..it.value.end]).collect();
    format!("{{{}}}", kept.join(","))
}

fn name_of(tool: &str) -> Option<Cow<'_, str>> {
    json::find(tool.as_bytes(), "name").and_then(string_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREET: &str = r#"{"name":"greet","outputSchema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"},"m":{"type":"string"}}},"x":1.0}"#;
    const PLAIN: &str = r#"{"name":"plain","inputSchema":{}}"#;
    const OTHER: &str = r#"{"name":"greet","outputSchema":{"type":"object","required":["m"]}}"#;

    fn shown(promises: &Promises, tool: &str) -> String {
        promises.kept(vec![tool.into()])[0].clone().into_owned()
    }

    fn promises(outputs: &Outputs, tools: &[&str]) -> Promises {
        outputs.of(tools.iter().copied())
    }

    #[test]
    fn a_text_fits_if_the_schema_says_so() {
        let promises = promises(&Outputs::default(), &[GREET, PLAIN]);
        assert!(promises.of("plain").is_none());
        let promise = promises.of("greet").unwrap();
        for (text, fits) in
            [(r#"{"n":1}"#, true), (r#"{"n":"1"}"#, false), ("{}", false), ("1", false)]
        {
            assert_eq!((promise.fits(text), promise.is_broken_by(text)), (fits, !fits), "{text}");
        }
        assert!(!promise.fits("{"));
        let odd = promises_of_odd();
        let odd = odd.of("odd").unwrap();
        assert!(
            !odd.fits("{}") && !odd.is_broken_by("{}"),
            "nothing is known of what is no schema"
        );
    }

    fn promises_of_odd() -> Promises {
        promises(&Outputs::default(), &[r#"{"name":"odd","outputSchema":{"type":7}}"#])
    }

    #[test]
    fn what_does_not_fit_is_made_to_where_its_meaning_stays() {
        let promises = promises(&Outputs::default(), &[GREET]);
        let fitted = |text| promises.of("greet").unwrap().fitted(text);
        assert_eq!(fitted(r#"{"n":"1","m":null,"k":1.50}"#).unwrap(), r#"{"n":1,"k":1.50}"#);
        assert_eq!(fitted(r#"{"n":"one"}"#), None);
        assert_eq!(fitted(r#"{"n":null}"#), None);
        assert_eq!(promises_of_odd().of("odd").unwrap().fitted(r#"{"n":"1"}"#), None);
    }

    #[test]
    fn a_promise_that_was_not_kept_is_not_shown_until_it_changes() {
        let outputs = Outputs::default();
        let first = promises(&outputs, &[GREET, PLAIN]);
        assert_eq!(shown(&first, GREET), GREET);
        outputs.withdraw(first.of("greet").unwrap());
        let without = r#"{"name":"greet","x":1.0}"#;
        assert_eq!(shown(&first, GREET), without);
        assert_eq!(shown(&first, PLAIN), PLAIN);
        let again = promises(&outputs, &[GREET]);
        assert_eq!(shown(&again, GREET), without, "it was learnt again");
        let changed = promises(&outputs, &[OTHER]);
        assert_eq!(shown(&changed, OTHER), OTHER);
    }

    #[test]
    fn tools_of_one_name_are_judged_each_by_the_list_they_are_in() {
        let outputs = Outputs::default();
        let [ada, ben] = [GREET, OTHER].map(|tool| promises(&outputs, &[tool]));
        let does_fit = |promises: &Promises| promises.of("greet").unwrap().fits(r#"{"n":1}"#);
        assert!(does_fit(&ada) && !does_fit(&ben));
        outputs.withdraw(ben.of("greet").unwrap());
        assert_eq!(shown(&ada, GREET), GREET);
        assert_eq!(shown(&ben, OTHER), r#"{"name":"greet"}"#);
    }

    #[test]
    fn promises_go_with_the_lists_they_were_in() {
        let outputs = Outputs::default();
        for number in 0..100 {
            drop(promises(&outputs, &[&GREET.replace("greet", &number.to_string())]));
        }
        let last = promises(&outputs, &[GREET]);
        assert_eq!(outputs.known.lock().len(), 1);
        for number in 0..100 {
            let tool = GREET.replace("\"n\"", &format!("\"{number}\""));
            drop(promises(&outputs, &[&tool]));
        }
        assert!(outputs.known.lock()["greet"].len() <= 2);
        drop(last);
    }

    #[test]
    fn a_promise_that_is_too_much_to_be_checked_is_one_that_nothing_fits() {
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
            let promises = promises(&Outputs::default(), &[&tool]);
            // It ends soon, and no stack overflows.
            let promise = promises.of(name).unwrap();
            assert!(!promise.is_broken_by("{}") && promise.fitted("{\"n\":null}").is_none());
        }
    }

    #[test]
    fn a_promise_is_known_by_the_name_that_the_server_has_for_its_tool() {
        let outputs = Outputs::default();
        let mut promises = promises(&outputs, &[GREET]);
        promises.also_called("greet", "greet.it");
        outputs.withdraw(promises.of("greet.it").unwrap());
        assert_ne!(shown(&promises, GREET), GREET);
    }
}
