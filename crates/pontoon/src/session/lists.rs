//! What one child tells of itself: its capabilities, its instructions, and its lists to their ends.
//!
//! How the child was opened is for `learn` to say.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use pontoon_schema::Fault;
use pontoon_wire::heal::{Heal, HealMode};
use pontoon_wire::{Message, Slot, json, method};
use serde_json::value::RawValue;

use super::catalog::Facts;
use super::pages::Pages;
use crate::back::Back;
use crate::back::child::ready::ReadyChild;
use crate::back::conversation::{Conversation, NoResult};
use crate::call::list_member;

/// How long a server may take for one answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long it may take for a list that its capabilities do not name.
const UNNAMED: Duration = Duration::from_secs(5);

impl Facts {
    /// The same without the folders of the child that told them: they are gone by the time anyone
    /// reads them, and servers do like to tell where they work.
    pub(super) fn without_paths(self, child: &ReadyChild) -> Self {
        let temporary = child.temporary_directory();
        self.without_path(child.directory(), ".").without_path(temporary, "/tmp")
    }

    fn without_path(mut self, directory: Option<&Path>, instead: &str) -> Self {
        let Some(directory) = directory.and_then(Path::to_str) else { return self };
        let directory = pontoon_wire::quoted(directory);
        let written = directory.trim_matches('"');
        let forget = |raw: &mut Box<RawValue>| {
            if raw.get().contains(written)
                && let Ok(without) = RawValue::from_string(raw.get().replace(written, instead))
            {
                *raw = without;
            }
        };
        self.instructions.iter_mut().for_each(forget);
        self.lists.values_mut().flatten().for_each(forget);
        self
    }
}

/// Why an era could not be learnt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LearnError {
    /// The server said that it does not speak it.
    #[error("{0}")]
    Refused(String),
    /// Something went wrong, which says nothing about the server's eras.
    #[error("{0}")]
    Failed(String),
    /// It ended before it had said all.
    #[error("it ended before it had said what it offers")]
    Gone,
    /// Nothing was heard in time, which says as little. Another try may show more.
    #[error("{0}")]
    Slow(String),
}

/// Whether what a child refuses says something about its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// It was asked for nothing before.
    Fresh,
    /// It was asked for an era that it does not speak, which may have spoilt it.
    Doubtful,
}

/// What a child offers that said this as it was opened.
pub(super) async fn learn_lists(
    conversation: &Conversation,
    hello: &[u8],
    server_info: Option<&[u8]>,
    trust: Trust,
    back: &Back,
) -> Result<Facts, LearnError> {
    let capabilities = json::find(hello, "capabilities").unwrap_or(b"{}");
    let mut facts = Facts {
        capabilities: raw(capabilities)?,
        server_info: server_info.map(raw).transpose()?,
        instructions: json::find(hello, "instructions").map(raw).transpose()?,
        ..Facts::default()
    };
    for (list, capability) in [
        (method::LIST_TOOLS, "tools"),
        (method::LIST_PROMPTS, "prompts"),
        (method::LIST_RESOURCES, "resources"),
        (method::LIST_TEMPLATES, "resources"),
    ] {
        if json::find(capabilities, capability).is_some() {
            learn_list(conversation, list, trust, &mut facts, back).await?;
        }
    }
    if back.heals.mode(Heal::H23) != HealMode::Off {
        learn_unnamed(conversation, &mut facts, back).await?;
    }
    Ok(facts)
}

/// Asks for what the capabilities do not name, though the server may have it: its tools, and everything where they name no
/// list at all. A server that has none says so, or nothing.
async fn learn_unnamed(
    conversation: &Conversation,
    facts: &mut Facts,
    back: &Back,
) -> Result<(), LearnError> {
    const LISTS: [(&str, &str); 3] = [
        (method::LIST_TOOLS, "tools"),
        (method::LIST_PROMPTS, "prompts"),
        (method::LIST_RESOURCES, "resources"),
    ];
    let named = facts.capabilities.clone();
    let is_named = |capability| json::find(named.get().as_bytes(), capability).is_some();
    let names_none = LISTS.iter().all(|(_, capability)| !is_named(capability));
    for (list, capability) in LISTS {
        if is_named(capability) || !(names_none || list == method::LIST_TOOLS) {
            continue;
        }
        match conversation.result_of(list, "{}", UNNAMED).await {
            Err(NoResult::Gone) => return Err(LearnError::Gone),
            // It answers nothing that it does not know, and is asked no more of it.
            Err(NoResult::Slow) => return Ok(()),
            Err(NoResult::Refused(_)) => continue,
            Ok(page) => {
                let result = page.raw(Slot::Result).unwrap_or(b"{}");
                let items = json::find(result, list_member(list).unwrap_or_default());
                let is_filled = items.is_some_and(|it| json::elements(it, 0..it.len()).count() > 0);
                if !is_filled || !back.heals.found(Heal::H23) {
                    continue;
                }
            }
        }
        facts.capabilities = with_capability(&facts.capabilities, capability)?;
        learn_list(conversation, list, Trust::Fresh, facts, back).await?;
        if list == method::LIST_RESOURCES {
            learn_list(conversation, method::LIST_TEMPLATES, Trust::Fresh, facts, back).await?;
        }
    }
    Ok(())
}

/// These capabilities and one more.
fn with_capability(named: &RawValue, capability: &str) -> Result<Box<RawValue>, LearnError> {
    let named = named.get().trim();
    let rest = named.strip_prefix('{').map_or("}", str::trim_start);
    let comma = if rest == "}" { "" } else { "," };
    raw(format!("{{\"{capability}\":{{}}{comma}{rest}").as_bytes())
}

/// Reads all pages of a list.
async fn learn_list(
    conversation: &Conversation,
    list: &str,
    trust: Trust,
    facts: &mut Facts,
    back: &Back,
) -> Result<(), LearnError> {
    // No capability promises templates, and many servers lack them.
    let may_lack = trust == Trust::Fresh || list == method::LIST_TEMPLATES;
    let member = list_member(list).unwrap_or_default();
    let mut pages = Pages::of(list);
    let mut cursor: Option<Bytes> = None;
    loop {
        let params = cursor.as_ref().map_or_else(
            || "{}".to_owned(),
            |cursor| format!("{{\"cursor\":{}}}", String::from_utf8_lossy(cursor)),
        );
        let page = match ask(conversation, list, &params).await {
            Ok(page) => page,
            // A server may lack a list that its capabilities promise; then it is empty, if that is healed. Else clients
            // hear that it is not there.
            Err(LearnError::Refused(_)) if cursor.is_none() && may_lack => {
                let is_healed = match list {
                    method::LIST_TEMPLATES => back.heals.mode(Heal::H24) == HealMode::Repair,
                    _ => back.heals.found(Heal::H24),
                };
                if !is_healed {
                    return Ok(());
                }
                break;
            }
            Err(why @ (LearnError::Slow(_) | LearnError::Gone)) => return Err(why),
            Err(why) => return Err(LearnError::Failed(format!("{list}: {why}"))),
        };
        let result = page.raw(Slot::Result).unwrap_or(b"{}");
        let array = json::find(result, member).unwrap_or(b"[]");
        let items = json::elements(array, 0..array.len()).map(|range| raw(&array[range]));
        let items = items.collect::<Result<_, _>>()?;
        note_hints(&page, list, facts);
        let next = page.copy(Slot::NextCursor).filter(|next| next.as_ref() != b"null");
        cursor = pages.take(items, next);
        if cursor.is_none() {
            break;
        }
    }
    let mode = back.server.heal.schema(Fault::Pages.code());
    if let Some(why) = pages.fault().filter(|_| mode != HealMode::Off) {
        back.heals.note_list(list, Fault::Pages, why);
    }
    facts.lists.insert(list.to_owned(), pages.into_items(mode == HealMode::Repair));
    Ok(())
}

/// Keeps the strictest of the caching hints on a list's pages.
fn note_hints(page: &Message, list: &str, facts: &mut Facts) {
    let ttl = page.raw(Slot::TtlMs).and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok());
    let scope = page.string(Slot::CacheScope).map(|scope| scope.into_owned());
    let (ttl, scope) = (ttl.unwrap_or(0), scope.unwrap_or_else(|| "private".to_owned()));
    let hints = facts.hints.entry(list.to_owned()).or_insert_with(|| (ttl, scope.clone()));
    hints.0 = hints.0.min(ttl);
    if scope == "private" {
        hints.1 = scope;
    }
}

fn raw(text: &[u8]) -> Result<Box<RawValue>, LearnError> {
    RawValue::from_string(String::from_utf8_lossy(text).into_owned())
        .map_err(|error| LearnError::Failed(error.to_string()))
}

/// Asks a server, and gives its result or the reason why there is none.
pub(super) async fn ask(
    conversation: &Conversation,
    method: &str,
    params: &str,
) -> Result<Message, LearnError> {
    let asked = conversation.result_of(method, params, PATIENCE).await;
    asked.map_err(|why| match why {
        NoResult::Refused(text) => LearnError::Refused(text),
        NoResult::Slow => {
            let seconds = PATIENCE.as_secs();
            let healed = conversation.link.explanation();
            LearnError::Slow(format!("it did not answer `{method}` within {seconds} s{healed}"))
        }
        NoResult::Gone => LearnError::Gone,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use pontoon_wire::{Era, string_value};

    use super::*;
    use crate::back::child::in_memory::InMemoryServers;
    use crate::back::pair::{Pair, result};
    use crate::client::Person;
    use crate::session::learn::learn_era;

    /// What is on the page behind a cursor, and the next cursor.
    type PageBehind = fn(&str) -> (&'static str, String);

    /// A server with these pages in each list, and how often it was asked for one.
    fn paged(page: PageBehind, asked: Arc<AtomicUsize>) -> InMemoryServers {
        InMemoryServers::new(move |mut end| {
            let asked = Arc::clone(&asked);
            async move {
                while let Some(line) = end.next_line().await {
                    let message = Message::parse(line.as_bytes()).unwrap();
                    let Some(id) = message.raw(Slot::Id) else { continue };
                    let said = match list_member(&message.method()) {
                        None => "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{},\"prompts\":{},\"resources\":{}},\"serverInfo\":{\"name\":\"x\",\"version\":\"1\"}}".to_owned(),
                        Some(member) => {
                            asked.fetch_add(1, Ordering::Relaxed);
                            let params = message.raw(Slot::Params).unwrap_or(b"{}");
                            let cursor = json::find(params, "cursor").and_then(string_value);
                            let (names, next) = page(&cursor.unwrap_or_default());
                            let items = names.split_whitespace().map(|it| {
                                format!("{{\"name\":\"{it}\",\"uri\":\"{it}\",\"uriTemplate\":\"{it}\"}}")
                            });
                            let items = items.collect::<Vec<_>>().join(",");
                            let next = match next.is_empty() {
                                true => String::new(),
                                false => format!(",\"nextCursor\":\"{next}\""),
                            };
                            format!("{{\"{member}\":[{items}]{next}}}")
                        }
                    };
                    end.say(&result(&String::from_utf8_lossy(id), &said)).await;
                }
            }
        })
    }

    /// Of a server with these pages each of the four lists is learnt with these items, by so many requests; `is_told`
    /// says whether its pages are called wrong.
    async fn check(page: PageBehind, expected: &str, requests: usize, is_told: bool) {
        let asked = Arc::default();
        let pair = Pair::new(paged(page, Arc::clone(&asked)), |_| {});
        let facts = learn_era(&pair.back, &Person::local(), Era::Legacy).await.unwrap();
        for (list, items) in &facts.lists {
            let names = items.iter().map(|it| json::find(it.get().as_bytes(), "name").unwrap());
            let names: Vec<_> = names.filter_map(string_value).collect();
            assert_eq!(names.join(" "), expected, "{list}");
        }
        assert_eq!((facts.lists.len(), asked.load(Ordering::Relaxed)), (4, 4 * requests));
        let told = if is_told { vec![("S029", 4)] } else { Vec::new() };
        assert_eq!(pair.back.heals.counts(), told);
    }

    fn after(cursor: &str) -> String {
        format!("{cursor}x")
    }

    #[tokio::test(start_paused = true)]
    async fn pages_that_repeat_are_read_once_whatever_their_cursors() {
        check(|cursor| ("a b", after(cursor)), "a b", 2, true).await;
        check(|_| ("a b", "x".to_owned()), "a b", 2, true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_cursor_that_comes_again_ends_a_list() {
        let page: PageBehind = |cursor| match cursor {
            "" => ("a", "A".to_owned()),
            "A" => ("b", "B".to_owned()),
            _ => ("c", "A".to_owned()),
        };
        check(page, "a b c", 3, true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn empty_pages_are_passed_over_within_bounds() {
        let healthy: PageBehind = |cursor| match cursor {
            "" => ("a", "x".to_owned()),
            "x" => ("", "xx".to_owned()),
            "xx" => ("b", "xxx".to_owned()),
            _ => ("", String::new()),
        };
        check(healthy, "a b", 4, false).await;
        check(|cursor| ("", after(cursor)), "", 10, true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_on_two_pages_is_shown_once() {
        let page: PageBehind = |cursor| match cursor {
            "" => ("a b", "x".to_owned()),
            _ => ("b c", String::new()),
        };
        let asked = Arc::default();
        let pair = Pair::new(paged(page, asked), |_| {});
        let facts = learn_era(&pair.back, &Person::local(), Era::Legacy).await.unwrap();
        let count = |list: &str| facts.lists[list].len();
        assert_eq!([method::LIST_PROMPTS, method::LIST_RESOURCES].map(count), [3, 3]);
        // Two tools of one name may differ, and the repair of schemas tells them.
        assert_eq!(count(method::LIST_TOOLS), 4);
    }
}
