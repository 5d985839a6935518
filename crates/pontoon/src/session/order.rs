//! The order of tools, which stays what it was when they were first learnt (S026): clients show them in it, and the
//! caches of models go by it.
//!
//! It is looked at when a catalogue is learnt, so no call and no list has to.

use std::borrow::Cow;
use std::collections::HashMap;

use pontoon_schema::Fault;
use pontoon_wire::heal::HealMode;
use pontoon_wire::method;
use serde_json::value::RawValue;

use super::catalog::{Catalog, Facts, name_of};
use crate::config::Server;
use crate::observe::heals::HealLog;

/// The place of a tool that was not there before: after all that were.
const NEW: usize = usize::MAX;

impl Catalog {
    /// Puts the tools in the order that they had before: those that stay keep theirs, and new ones come after them. Both
    /// catalogues are of one server, and this one was not shown yet.
    pub(super) fn keep_order(&mut self, before: &Self, server: &Server, heals: &HealLog) {
        let mode = server.heal.schema(Fault::Order.code());
        if mode == HealMode::Off {
            return;
        }
        let mut is_other = false;
        for (facts, before) in
            [(&mut self.legacy, &before.legacy), (&mut self.modern, &before.modern)]
        {
            let (Some(facts), Some(before)) = (facts, before) else { continue };
            let places = facts.places_in(before);
            is_other |= !places.iter().filter(|place| **place != NEW).is_sorted();
            if mode == HealMode::Repair {
                facts.put_in(&places);
            }
        }
        if is_other {
            heals.note_order();
        }
    }
}

impl Facts {
    /// The place that each tool had before.
    fn places_in(&self, before: &Self) -> Vec<usize> {
        let before = before.written.as_ref().or_else(|| before.lists.get(method::LIST_TOOLS));
        let known: HashMap<_, _> = each_once(before.into_iter().flatten()).zip(0..).collect();
        let tools = self.lists.get(method::LIST_TOOLS).into_iter().flatten();
        each_once(tools).map(|tool| known.get(&tool).copied().unwrap_or(NEW)).collect()
    }

    /// Puts the tools in the order of these places, one for each of them.
    fn put_in(&mut self, places: &[usize]) {
        let Some(tools) = self.lists.get_mut(method::LIST_TOOLS) else { return };
        let mut placed: Vec<_> = places.iter().zip(std::mem::take(tools)).collect();
        // Those of one place, as all new ones are, stay among themselves as the server has them.
        placed.sort_by_key(|(place, _)| **place);
        *tools = placed.into_iter().map(|(_, tool)| tool).collect();
    }
}

/// The names of tools, each with how often it stood there before: a server may list two of one name.
fn each_once<'t>(
    tools: impl Iterator<Item = &'t Box<RawValue>>,
) -> impl Iterator<Item = (Cow<'t, str>, usize)> {
    let mut times = HashMap::new();
    tools.map(move |tool| {
        let name = name_of(tool).unwrap_or_default();
        let before: &mut usize = times.entry(name.clone()).or_default();
        *before += 1;
        (name, *before)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pontoon_wire::{Era, json, string_value};

    use super::*;
    use crate::app::test_bridge::{TestBridge, TestClient, ToolServer};
    use crate::config::Template;
    use crate::session::learning::MAX_AGE;

    const SECOND: Duration = Duration::from_secs(1);

    fn server(mode: HealMode) -> Server {
        let plain = Server::new("demo".parse().unwrap(), Ok("/bin/demo".into()), Vec::new());
        Server { heal: mode.into(), ..plain }
    }

    fn facts(tools: &[&str]) -> Option<Facts> {
        let tool = |name: &&str| {
            let text = format!(r#"{{"name":"{name}","inputSchema":{{"properties":null}}}}"#);
            RawValue::from_string(text).unwrap()
        };
        let mut facts = Facts::default();
        facts.lists.insert(method::LIST_TOOLS.to_owned(), tools.iter().map(tool).collect());
        Some(facts)
    }

    fn names(list: &str) -> Vec<String> {
        let list = list.as_bytes();
        let tools = json::elements(list, 0..list.len()).map(|range| &list[range]);
        tools.map(|it| string_value(json::find(it, "name").unwrap()).unwrap().into()).collect()
    }

    /// Of a server that first listed `before` and then `now`, clients see `seen`.
    fn check(mode: HealMode, before: &[&str], now: &[&str], seen: &[&str], counted: u64) {
        let (server, heals) = (server(mode), HealLog::new("demo"));
        let known = |tools| Catalog { legacy: facts(tools), ..Catalog::default() };
        let (mut before, mut now) = (known(before), known(now));
        before.show(&server, None);
        now.keep_order(&before, &server, &heals);
        let tools = &now.legacy.as_ref().unwrap().lists[method::LIST_TOOLS];
        let tools: Vec<_> = tools.iter().map(|tool| tool.get()).collect();
        assert_eq!(names(&format!("[{}]", tools.join(","))), seen);
        let counts = heals.counts();
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), counted, "{counts:?}");
    }

    #[test]
    fn tools_that_stay_keep_their_order_and_new_ones_come_after_them() {
        use HealMode::{Off, Repair, Warn};
        check(Repair, &["a", "b", "c"], &["c", "a", "b"], &["a", "b", "c"], 1);
        check(Repair, &["a", "b", "c"], &["x", "c", "y", "a"], &["a", "c", "x", "y"], 1);
        // A tool that is new, or gone, is no change of the order.
        check(Repair, &["a", "b"], &["x", "a", "b"], &["a", "b", "x"], 0);
        check(Repair, &["a", "b", "c"], &["a", "c"], &["a", "c"], 0);
        check(Repair, &[], &["b", "a"], &["b", "a"], 0);
        // They have other names for clients, and one name may stand twice.
        check(Repair, &["a b", "c d"], &["c d", "a b"], &["a b", "c d"], 1);
        check(Repair, &["a", "b", "a"], &["b", "a", "a"], &["a", "b", "a"], 1);
        check(Repair, &["a", "b", "a"], &["a", "b", "a"], &["a", "b", "a"], 0);
        check(Warn, &["a", "b"], &["b", "a"], &["b", "a"], 1);
        check(Off, &["a", "b"], &["b", "a"], &["b", "a"], 0);
    }

    /// The tools that a client is shown.
    async fn shown(bridge: &TestBridge) -> Vec<String> {
        let answer = TestClient::modern(bridge).ask(1, "tools/list", "").await.body().await;
        let result = json::find(answer.as_bytes(), "result").unwrap();
        names(std::str::from_utf8(json::find(result, "tools").unwrap()).unwrap())
    }

    fn counted(bridge: &TestBridge) -> u64 {
        let counts = bridge.entry().back.heals.counts();
        counts.iter().find(|(code, _)| *code == "S026").map_or(0, |(_, count)| *count)
    }

    #[tokio::test(start_paused = true)]
    async fn clients_see_one_order_of_a_server_that_has_another_each_time_whenever_it_is_learnt() {
        let folder = tempfile::tempdir().unwrap();
        let server = ToolServer::new(Era::Legacy).listing(&["a", "b", "c"]).restless();
        let mut first = None;
        // The second bridge begins with what the first one kept on disk.
        for _ in 0..2 {
            let bridge = TestBridge::start(server.servers(), |settings, _| {
                settings.state_dir = Some(folder.path().to_owned());
            });
            bridge.until_known().await;
            let learnt = server.starts().len();
            let first = first.get_or_insert(shown(&bridge).await).clone();
            tokio::time::sleep(MAX_AGE + SECOND).await;
            assert!(server.starts().len() > learnt, "or it was not learnt again");
            assert_eq!(shown(&bridge).await, first);
            assert!(counted(&bridge) > 0, "or it has the same order each time");
            bridge.stop().await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tool_that_a_server_adds_comes_after_those_that_stay() {
        let server = ToolServer::new(Era::Legacy).listing(&["a", "b", "c"]).restless();
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        bridge.until_known().await;
        let first = shown(&bridge).await;
        assert!(first[0] == "tool0" && first[1].starts_with("pick_it0"), "{first:?}");
        let client = TestClient::modern(&bridge);
        assert!(client.call(2, "change", "{}").await.answer().await.contains("\"by\""));
        let mut then = first.clone();
        while then == first {
            tokio::time::sleep(SECOND).await;
            then = shown(&bridge).await;
        }
        assert_eq!(then[..3], first[2..], "{then:?}");
        assert!(then[3] == "tool1" && then[4].starts_with("pick_it1"), "{then:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_sees_one_order_whenever_the_server_is_learnt_for_them() {
        let server = ToolServer::new(Era::Legacy).listing(&["a", "b", "c"]).restless();
        let bridge = TestBridge::start(server.servers(), |_, server| {
            server.args = vec![Template::of_user()];
        });
        bridge.until_known().await;
        let first = shown(&bridge).await;
        for _ in 0..3 {
            tokio::time::sleep(MAX_AGE + SECOND).await;
            assert_eq!(shown(&bridge).await, first);
        }
        assert!(counted(&bridge) > 0, "or it has the same order each time");
    }
}
