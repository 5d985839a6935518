//! The catalogue: what each server offers, known without asking it again.
//!
//! It is learnt by throw-away children (`learn`) and kept on disk, so that `initialize`,
//! `server/discover` and the lists are answered at once and start nothing.

use std::borrow::Cow;
use std::collections::HashMap;

use pontoon_schema::RequestBody;
use pontoon_wire::headers::ParamRules;
use pontoon_wire::{Era, Message, Slot, json, method, string_value};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::bodies::{Bodies, OwnTool};
use crate::back::shown_tools::{self, ShownTools};
use crate::config::Server;
use crate::observe::heals::HealLog;

/// What a server offers, in each era it speaks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// What it offers in the legacy era, if it speaks it.
    pub legacy: Option<Facts>,
    /// What it offers in the modern era, if it speaks it.
    pub modern: Option<Facts>,
    /// Whether its server turned out to take nothing but `Content-Length` frames (H05).
    #[serde(default)]
    pub(super) takes_frames: bool,
    /// The rules for headers that repeat arguments, for each tool that has any, by either of its names.
    #[serde(skip)]
    pub(super) rules: HashMap<String, HeaderRules>,
}

/// The rules for headers that repeat arguments of one tool.
#[derive(Debug, Clone)]
pub(super) struct HeaderRules {
    pub(super) rules: ParamRules,
    /// Whether they speak of the arguments by the names that the server knows, and not by those that clients see.
    pub(super) by_own_names: bool,
}

/// What a server offers in one era; all of it JSON text as the server wrote it, until it is shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    /// Its capabilities.
    pub capabilities: Box<RawValue>,
    /// Its name and version.
    pub server_info: Option<Box<RawValue>>,
    /// How to use it.
    pub instructions: Option<Box<RawValue>>,
    /// Its lists by method, each with all its items.
    pub lists: HashMap<String, Vec<Box<RawValue>>>,
    /// The caching hints of its lists, by method.
    pub hints: HashMap<String, (u64, String)>,
    /// What calls of its tools need, once they are shown.
    #[serde(skip)]
    pub(super) shown: ShownTools,
    /// What its tools take as the body of a request.
    #[serde(skip)]
    pub(super) bodies: Bodies,
    /// Its tools as the server wrote them, if they are shown otherwise.
    #[serde(skip)]
    pub(super) written: Option<Vec<Box<RawValue>>>,
}

/// The name of a tool.
pub(super) fn name_of(tool: &RawValue) -> Option<Cow<'_, str>> {
    json::find(tool.get().as_bytes(), "name").and_then(string_value)
}

impl Catalog {
    /// The era a child is opened in for a client of this era: the same if the server speaks it.
    pub fn child_era(&self, client: Era) -> Era {
        match (client, &self.legacy, &self.modern) {
            (Era::Legacy, Some(_), _) | (Era::Modern, Some(_), None) => Era::Legacy,
            _ => Era::Modern,
        }
    }

    /// Whether the server is known to speak this era.
    pub fn speaks(&self, era: Era) -> bool {
        match era {
            Era::Legacy => self.legacy.is_some(),
            Era::Modern => self.modern.is_some(),
        }
    }

    /// What a client of this era is told.
    pub fn facts(&self, client: Era) -> Option<&Facts> {
        match self.child_era(client) {
            Era::Legacy => self.legacy.as_ref(),
            Era::Modern => self.modern.as_ref(),
        }
    }

    /// How many items its lists of this method have.
    pub fn count(&self, list: &str) -> usize {
        let facts = self.facts(Era::Legacy);
        facts.and_then(|facts| facts.lists.get(list)).map_or(0, Vec::len)
    }

    /// What a server offers in one era.
    pub(super) fn of(era: Era, facts: Facts) -> Self {
        match era {
            Era::Legacy => Self { legacy: Some(facts), ..Self::default() },
            Era::Modern => Self { modern: Some(facts), ..Self::default() },
        }
    }

    /// What an application is taken to offer that was never seen: nothing yet, of every kind.
    pub(super) fn of_unseen_app() -> Self {
        let capabilities =
            "{\"tools\":{},\"prompts\":{},\"resources\":{},\"logging\":{}}".to_owned();
        let lists = [
            method::LIST_TOOLS,
            method::LIST_PROMPTS,
            method::LIST_RESOURCES,
            method::LIST_TEMPLATES,
        ];
        let facts = Facts {
            capabilities: RawValue::from_string(capabilities).expect("a JSON object"),
            lists: lists.into_iter().map(|list| (list.to_owned(), Vec::new())).collect(),
            ..Facts::default()
        };
        Self::of(Era::Legacy, facts)
    }

    /// Whether it does no harm to make this request twice: it only reads, or its tool says so.
    pub(super) fn may_repeat(&self, request: &Message, era: Era) -> bool {
        let method = request.method();
        if method != method::CALL_TOOL {
            return method::only_reads(&method);
        }
        let Some(name) = request.string(Slot::Name) else { return false };
        let facts = match era {
            Era::Legacy => &self.legacy,
            Era::Modern => &self.modern,
        };
        let tools = facts.iter().filter_map(|facts| facts.lists.get(method::LIST_TOOLS)).flatten();
        let mut tools = tools.map(|tool| tool.get().as_bytes());
        let is_it = |tool: &&[u8]| {
            json::find(tool, "name").and_then(string_value).is_some_and(|it| it == name)
        };
        let annotations = tools.find(is_it).and_then(|tool| json::find(tool, "annotations"));
        let says = |what| annotations.and_then(|it| json::find(it, what)) == Some(b"true");
        says("readOnlyHint") || says("idempotentHint")
    }

    /// Which eras it speaks, and nothing else of it.
    pub(super) fn eras_only(&self) -> Self {
        let nothing = |facts: &Option<Facts>| facts.as_ref().map(|_| Facts::default());
        let (legacy, modern) = (nothing(&self.legacy), nothing(&self.modern));
        Self { legacy, modern, ..Self::default() }
    }

    /// Whether clients of every era are offered the same by both.
    pub(super) fn offers_the_same(&self, other: &Self) -> bool {
        Facts::offer_the_same(self.legacy.as_ref(), other.legacy.as_ref())
            && Facts::offer_the_same(self.modern.as_ref(), other.modern.as_ref())
    }

    /// The bytes of its texts.
    pub(super) fn size(&self) -> usize {
        [&self.legacy, &self.modern].into_iter().flatten().map(Facts::size).sum()
    }

    /// Makes the tools what clients see. What is wrong with them is noted where that was not done before.
    pub(super) fn show(&mut self, server: &Server, heals: Option<&HealLog>) {
        for facts in [&mut self.legacy, &mut self.modern].into_iter().flatten() {
            let Some(list) = facts.lists.get_mut(method::LIST_TOOLS) else { continue };
            let tools = std::mem::take(list);
            let (all, shown) =
                shown_tools::show(tools.iter().map(|tool| tool.get()), server, heals);
            let raw = |tool: Cow<'_, str>| {
                RawValue::from_string(tool.into_owned()).expect("a repair leaves JSON")
            };
            let is_same = all.iter().map(AsRef::as_ref).eq(tools.iter().map(|tool| tool.get()));
            *list = all.into_iter().map(raw).collect();
            facts.written = (!is_same).then_some(tools);
            facts.shown = shown;
            facts.bodies = Bodies::default();
        }
        self.read_rules();
    }

    /// Reads the header rules out of the tools: as their server wrote them where that can be read.
    pub(super) fn read_rules(&mut self) {
        for facts in [&self.modern, &self.legacy].into_iter().flatten() {
            let written = facts.written.iter().flatten().map(|tool| (tool, true));
            let shown = facts.lists.get(method::LIST_TOOLS).into_iter().flatten();
            for (tool, by_own_names) in written.chain(shown.map(|tool| (tool, false))) {
                let text = tool.get().as_bytes();
                let name = json::find(text, "name").and_then(string_value);
                let schema = json::find(text, "inputSchema").map(ParamRules::from_tool_schema);
                if let (Some(name), Some(Ok(Some(rules)))) = (name, schema) {
                    let rules = HeaderRules { rules, by_own_names };
                    self.rules.entry(name.into_owned()).or_insert(rules);
                }
            }
            for (shown, own) in facts.shown.renamed() {
                if let Some(rules) = self.rules.get(own).filter(|it| it.by_own_names).cloned() {
                    self.rules.insert(shown.to_owned(), rules);
                }
            }
        }
    }
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            capabilities: RawValue::from_string("{}".to_owned()).expect("a JSON object"),
            server_info: None,
            instructions: None,
            lists: HashMap::new(),
            hints: HashMap::new(),
            shown: ShownTools::default(),
            bodies: Bodies::default(),
            written: None,
        }
    }
}

impl Facts {
    /// Each tool that clients see, as its server wrote it.
    pub fn tools(&self) -> impl Iterator<Item = OwnTool<'_>> {
        let mut written = HashMap::new();
        for tool in self.written.iter().flatten() {
            // Of two with one name the first is shown.
            name_of(tool).map(|name| written.entry(name).or_insert(tool.get()));
        }
        let tools = self.lists.get(method::LIST_TOOLS).into_iter().flatten();
        tools.filter_map(move |tool| {
            let shown = name_of(tool)?;
            let own = self.shown.plan(&shown).and_then(|plan| plan.name.as_deref());
            let name = own.map_or_else(|| shown.clone(), Cow::Borrowed);
            let text = written.get(&name).copied().unwrap_or(tool.get());
            Some(OwnTool { name, shown, text })
        })
    }

    /// The server's own name of a tool that may be called by the name that clients see.
    pub(super) fn own_name<'n>(&'n self, tool: &'n str) -> &'n str {
        self.shown.plan(tool).and_then(|plan| plan.name.as_deref()).unwrap_or(tool)
    }

    /// Whether the server offers a tool that it knows by this name.
    pub(super) fn offers_tool(&self, own_name: &str) -> bool {
        let tools = self.written.as_ref().or_else(|| self.lists.get(method::LIST_TOOLS));
        tools.into_iter().flatten().any(|tool| name_of(tool).is_some_and(|it| it == own_name))
    }

    /// What this tool takes as the body of a request, by either of its names; `None` if there is no such tool.
    pub fn body_of(&self, tool: &str) -> Option<&RequestBody> {
        self.bodies.of(tool, self.tools())
    }

    /// What the server wrote, before it was shown.
    pub(super) fn as_written(&self) -> Self {
        let mut facts = self.clone();
        facts.shown = ShownTools::default();
        facts.bodies = Bodies::default();
        if let Some(tools) = facts.written.take() {
            facts.lists.insert(method::LIST_TOOLS.to_owned(), tools);
        }
        facts
    }

    /// Whether both offer the same, or there is neither.
    pub(super) fn offer_the_same(one: Option<&Self>, other: Option<&Self>) -> bool {
        one.map(Self::offers) == other.map(Self::offers)
    }

    /// All that is offered, in an order of its own: a server may give its lists in another one each time.
    fn offers(&self) -> Vec<(&str, &str)> {
        let lists = self.lists.iter();
        let items =
            lists.flat_map(|(list, items)| items.iter().map(|it| (list.as_str(), it.get())));
        let told = self.instructions.iter().map(|told| ("instructions", told.get()));
        let mut all: Vec<_> = items.chain(told).collect();
        all.push(("capabilities", self.capabilities.get()));
        all.sort_unstable();
        all
    }

    fn size(&self) -> usize {
        let told = [&self.server_info, &self.instructions].into_iter().flatten();
        let items = self.lists.values().chain(&self.written).flatten();
        let texts = told.chain(items).map(|text| text.get().len());
        texts.sum::<usize>() + self.capabilities.get().len() + self.shown.promises().size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(tools: &[&str]) -> Facts {
        let tool = |name: &&str| {
            RawValue::from_string(format!("{{\"name\":\"{name}\",\"inputSchema\":{{}}}}")).unwrap()
        };
        let mut facts = Facts::default();
        facts.lists.insert(method::LIST_TOOLS.to_owned(), tools.iter().map(tool).collect());
        facts
    }

    fn catalog(legacy: Option<&[&str]>, modern: Option<&[&str]>) -> Catalog {
        let (legacy, modern) = (legacy.map(facts), modern.map(facts));
        Catalog { legacy, modern, ..Catalog::default() }
    }

    #[test]
    fn a_child_speaks_the_era_of_its_client_where_its_server_does() {
        let one: &[&str] = &["a"];
        for (legacy, modern, of_legacy, of_modern) in [
            (Some(one), None, Era::Legacy, Era::Legacy),
            (None, Some(one), Era::Modern, Era::Modern),
            (Some(one), Some(one), Era::Legacy, Era::Modern),
        ] {
            let catalog = catalog(legacy, modern);
            assert_eq!(catalog.child_era(Era::Legacy), of_legacy, "{catalog:?}");
            assert_eq!(catalog.child_era(Era::Modern), of_modern, "{catalog:?}");
            assert!(catalog.facts(Era::Legacy).is_some() && catalog.facts(Era::Modern).is_some());
            assert_eq!(catalog.speaks(Era::Legacy), legacy.is_some());
            assert_eq!(catalog.speaks(Era::Modern), modern.is_some());
        }
    }

    #[test]
    fn the_order_of_a_list_is_no_difference_and_all_else_is() {
        let known = catalog(Some(&["a", "b"]), None);
        assert!(known.offers_the_same(&catalog(Some(&["b", "a"]), None)));
        assert!(!known.offers_the_same(&catalog(Some(&["a"]), None)));
        assert!(
            !known.offers_the_same(&catalog(Some(&["a", "b"]), Some(&["a", "b"]))),
            "another era"
        );
        let mut told = catalog(Some(&["a", "b"]), None);
        let text = RawValue::from_string("\"Use a first.\"".to_owned()).unwrap();
        told.legacy.as_mut().unwrap().instructions = Some(text);
        assert!(!known.offers_the_same(&told));
    }

    #[test]
    fn a_tool_that_is_switched_off_is_in_no_list_and_the_others_have_valid_schemas() {
        let mut catalog = catalog(Some(&["a", "b"]), Some(&["b", "c"]));
        let plain = Server::new("demo".parse().unwrap(), Ok("/bin/demo".into()), Vec::new());
        let server = Server { disabled_tools: vec!["b".to_owned()], ..plain };
        catalog.show(&server, None);
        let left = |facts: Option<&Facts>| {
            let lists = facts.unwrap().lists[method::LIST_TOOLS].iter();
            lists.map(|tool| tool.get().to_owned()).collect::<String>()
        };
        let (legacy, modern) = (left(catalog.legacy.as_ref()), left(catalog.modern.as_ref()));
        let object = "\"inputSchema\":{\"type\":\"object\",\"properties\":{}}";
        assert_eq!(legacy, format!("{{\"name\":\"a\",{object}}}"));
        assert_eq!(modern, format!("{{\"name\":\"c\",{object}}}"));
    }

    #[test]
    fn of_a_person_s_catalogue_others_get_the_eras_alone() {
        let eras = catalog(Some(&["secret"]), None).eras_only();
        assert_eq!((eras.speaks(Era::Legacy), eras.speaks(Era::Modern)), (true, false));
        assert_eq!(eras.size(), Catalog::of(Era::Legacy, Facts::default()).size());
        assert!(!format!("{eras:?}").contains("secret"));
    }
}
