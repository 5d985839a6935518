//! Tools as clients see them: none that is switched off, each with a schema and a name that clients take, and how calls
//! of them are led back to what the server knows.
//!
//! The catalogue shows them so, and so do the lists that children give themselves. Calls of tools that are switched
//! off are refused before any child.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pontoon_schema::{Fault, Plan, Report, repair_list};
use pontoon_wire::heal::HealMode;
use pontoon_wire::{Message, Rewrite, Slot, json, string_value};

use super::outputs::{Outputs, Promises};
use crate::config::Server;
use crate::observe::heals::HealLog;

/// What calls of the tools that clients see need, by the names of the tools: those that clients see, and the server's
/// own.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShownTools {
    plans: HashMap<String, Arc<Plan>>,
    /// The server's own names of tools that are switched off by the names that clients would see.
    hidden: HashSet<String>,
    promises: Promises,
}

impl ShownTools {
    /// What a call of this tool needs, if anything.
    pub(crate) fn plan(&self, tool: &str) -> Option<&Arc<Plan>> {
        self.plans.get(tool)
    }

    /// The tools that have other names than the server knows: shown, its own.
    pub(crate) fn renamed(&self) -> impl Iterator<Item = (&str, &str)> {
        let plans = self.plans.iter();
        plans.filter_map(|(name, plan)| {
            plan.name.as_deref().filter(|own| own != name).map(|own| (name.as_str(), own))
        })
    }

    /// Whether a tool is switched off, though this is not the name it is switched off by.
    pub(crate) fn is_hidden(&self, tool: &str) -> bool {
        self.hidden.contains(tool)
    }

    /// What the results of its tools are promised to be.
    pub(crate) fn promises(&self) -> &Promises {
        &self.promises
    }

    /// Notes what the tools of the list promise, as clients see them.
    pub(crate) fn note_promises<'t>(
        &mut self,
        tools: impl Iterator<Item = &'t str>,
        outputs: &Outputs,
    ) {
        let mut promises = outputs.of(tools);
        self.renamed().for_each(|(shown, own)| promises.also_called(shown, own));
        self.promises = promises;
    }

    /// Adds those of another page of the same list.
    pub(crate) fn extend(&mut self, other: Self) {
        self.promises.extend(other.promises);
        self.hidden.extend(other.hidden);
        self.plans.extend(other.plans);
    }

    fn add(&mut self, mut report: Report<'_>, server: &Server) {
        if server.heal.schema(Fault::Arguments.code()) != HealMode::Repair {
            report.plan.leave_types();
        }
        if report.plan.is_empty() {
            return;
        }
        let Some(shown) = name(&report.tool) else { return };
        let plan = Arc::new(report.plan);
        if let Some(original) = &plan.name {
            self.plans.entry(original.clone()).or_insert_with(|| Arc::clone(&plan));
        }
        self.plans.insert(shown.into_owned(), plan);
    }
}

/// The tools of a list as clients of this server see them. What is wrong with them is noted, if that was not done
/// before.
pub(crate) fn show<'t>(
    tools: impl Iterator<Item = &'t str>,
    server: &Server,
    heals: Option<&HealLog>,
) -> (Vec<Cow<'t, str>>, ShownTools) {
    let is_on = |tool: &&str| {
        let disabled = &server.disabled_tools;
        disabled.is_empty() || name(tool).is_none_or(|name| !disabled.iter().any(|it| *it == name))
    };
    let tools: Vec<_> = tools.filter(|tool| is_on(tool)).collect();
    let (mut all, mut shown) = (Vec::new(), ShownTools::default());
    if !server.heal.repairs_schemas() && heals.is_none() {
        all.extend(tools.into_iter().map(Cow::Borrowed));
        return (all, shown);
    }
    let profile = server.profile.of_server(server.name.as_str());
    let reports = repair_list(tools.iter().copied(), &profile);
    for (report, tool) in reports.into_iter().zip(tools) {
        let name = name(tool).unwrap_or_default();
        let mut is_left = !server.heal.repairs_schemas();
        for finding in &report.findings {
            let mode = server.heal.schema(finding.fault.code());
            is_left |= finding.repair.is_some() && mode != HealMode::Repair;
            if let Some(heals) = heals.filter(|_| mode != HealMode::Off) {
                heals.note_schema(&name, finding);
            }
        }
        // A tool with a fault that is not to be repaired is shown as its server wrote it.
        if is_left {
            all.push(Cow::Borrowed(tool));
        } else if !is_on(&&*report.tool) {
            shown.hidden.insert(name.into_owned());
        } else if report.is_shown {
            all.push(report.tool.clone());
            shown.add(report, server);
        }
    }
    (all, shown)
}

fn name(tool: &str) -> Option<Cow<'_, str>> {
    json::find(tool.as_bytes(), "name").and_then(string_value)
}

/// The answer to `tools/list` with the tools as clients see them, and what calls of them need.
pub(crate) fn in_answer(
    answer: Message,
    server: &Server,
    heals: &HealLog,
    outputs: &Outputs,
) -> (Message, Option<ShownTools>) {
    let Some(result) = answer.raw(Slot::Result) else { return (answer, None) };
    let Some(tools) = json::find(result, "tools").filter(|raw| raw.first() == Some(&b'[')) else {
        return (answer, None);
    };
    let text = std::str::from_utf8(tools).expect("a message is UTF-8");
    let listed: Vec<_> = json::elements(tools, 0..tools.len()).map(|range| &text[range]).collect();
    let (all, mut shown) = show(listed.iter().copied(), server, Some(heals));
    shown.note_promises(all.iter().map(AsRef::as_ref), outputs);
    let all = shown.promises.kept(all);
    let is_same = all.len() == listed.len() && all.iter().all(|it| matches!(it, Cow::Borrowed(_)));
    if is_same {
        return (answer, Some(shown));
    }
    let start = tools.as_ptr() as usize - result.as_ptr() as usize;
    let end = start + tools.len();
    let all = format!("[{}]", all.join(","));
    let changed = [&result[..start], all.as_bytes(), &result[end..]].concat();
    // What a repair would nest too deep stays as it is.
    match Rewrite::new(answer.clone()).replace(Slot::Result, changed).try_into_message() {
        Ok(changed) => (changed, Some(shown)),
        Err(_) => (answer, None),
    }
}

#[cfg(test)]
mod tests {
    use pontoon_schema::Profile;

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
        let (changed, _) = in_answer(answer, &server(heal), &heals, &Outputs::default());
        assert_eq!(std::str::from_utf8(changed.text()).unwrap(), expected);
        assert_eq!(heals.counts(), counts);
    }

    fn list(tools: &str) -> String {
        format!(r#"{{"id":1,"result":{{"x":1.0,"tools":[{tools}],"nextCursor":"b"}}}}"#)
    }

    const A: &str = r#"{"name":"a","inputSchema":{"type":"object","properties":{}}}"#;
    const E: &str = r#"{"name":"e","inputSchema":{"type":"object","properties":{}}}"#;

    #[test]
    fn what_is_disabled_is_left_out_and_the_rest_stays() {
        let tools = format!(r#"{A}, {{"t":"b","name":"\u0062"}},{E}"#);
        check(HealMode::Repair, &list(&tools), &list(&format!("{A},{E}")), &[]);
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
    fn of_two_tools_with_one_name_the_first_is_shown_and_one_without_a_name_is_not() {
        let tools = format!(
            r#"{A},{{"name":"","inputSchema":{{}}}},{},{E}"#,
            A.replace("{}", "{\"x\":{}}")
        );
        check(
            HealMode::Repair,
            &list(&tools),
            &list(&format!("{A},{E}")),
            &[("S002", 1), ("S003", 1), ("S014", 2)],
        );
    }

    #[test]
    fn calls_of_a_tool_are_led_back_by_either_of_its_names() {
        let tool = r#"{"name":"get it","inputSchema":{"type":"object","properties":{"$top":{"type":"integer"}}}}"#;
        let (all, shown) = show([tool].into_iter(), &server(HealMode::Repair), None);
        let name = name(&all[0]).unwrap();
        for name in [&*name, "get it"] {
            let plan = shown.plan(name).unwrap();
            assert_eq!(plan.name.as_deref(), Some("get it"));
            assert_eq!(plan.arguments(r#"{"top":"5"}"#).unwrap(), r#"{"$top":5}"#);
        }
        assert!(shown.plan("other").is_none());
    }

    #[test]
    fn what_a_repair_would_nest_too_deep_stays_as_it_is() {
        let deep = format!("{}{{}}{}", r#"{"allOf":"#.repeat(61), "}".repeat(61));
        let schema = format!(r#"{{"type":"object","allOf":{deep}}}"#);
        let text = list(&format!(r#"{{"name":"d","inputSchema":{schema}}}"#));
        let answer = Message::parse(text.as_bytes()).unwrap();
        let server = Server { profile: Profile::none(), ..server(HealMode::Repair) };
        let (changed, _) = in_answer(answer, &server, &HealLog::new("demo"), &Outputs::default());
        assert_eq!(std::str::from_utf8(changed.text()).unwrap(), text);
    }

    #[test]
    fn what_needs_no_change_gets_none() {
        for same in [
            list(&format!("{A} , {E}")).as_str(),
            r#"{"id":1,"result":{"tools":"b"}}"#,
            r#"{"id":1,"error":{"code":1,"message":"b"}}"#,
        ] {
            check(HealMode::Repair, same, same, &[]);
        }
    }
}
