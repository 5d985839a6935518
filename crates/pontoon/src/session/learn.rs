//! Learning: what a server offers, asked of throw-away children, one for each era.
//!
//! When that is done, and what becomes of it, is for `catalog` to say.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::{Era, Message, Revision, Rewrite, Slot, json, method};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::catalog::{Catalog, Facts};
use crate::back::Back;
use crate::back::children::{StartError, chain, modern_request, now, own_info, own_request_with};
use crate::back::handshake::{HandshakeError, Opening};
use crate::back::link::Purpose;
use crate::back::live::Live;
use crate::back::mailbox::Heard;
use crate::call::list_member;
use crate::client::Person;

/// How many pages of a list are read: a server that never ends one is wrong.
const MAX_PAGES: usize = 1000;

/// How much longer than the legacy era the modern one may take to be learnt.
const PROBE: Duration = Duration::from_secs(10);

/// What was learnt of each era, or why not.
pub(super) struct Learnt {
    legacy: Result<Facts, LearnError>,
    modern: Result<Facts, LearnError>,
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
    /// Nothing was heard in time, which says as little. Another try may show more.
    #[error("{0}")]
    Slow(String),
}

impl Learnt {
    /// The era of which nothing was heard, if there is one: that it was slow proves nothing.
    pub(super) fn unheard(&self) -> Option<(Era, &LearnError)> {
        match (&self.legacy, &self.modern) {
            (Err(why @ LearnError::Slow(_)), _) => Some((Era::Legacy, why)),
            (_, Err(why @ LearnError::Slow(_))) => Some((Era::Modern, why)),
            _ => None,
        }
    }

    /// The catalogue. An era that was known stays known if only something went wrong this time.
    pub(super) fn into_catalog(self, before: Option<&Catalog>) -> Catalog {
        let keep = |learnt: Result<Facts, LearnError>, before: Option<&Facts>| match learnt {
            Ok(facts) => Some(facts),
            Err(LearnError::Refused(_)) => None,
            Err(LearnError::Failed(_) | LearnError::Slow(_)) => before.cloned(),
        };
        let mut catalog = Catalog {
            legacy: keep(self.legacy, before.and_then(|before| before.legacy.as_ref())),
            modern: keep(self.modern, before.and_then(|before| before.modern.as_ref())),
            rules: HashMap::new(),
        };
        catalog.read_rules();
        catalog
    }
}

/// Learns what a server offers this person, in both eras at once, each from a child of its own. What the
/// legacy era offers is told as soon as it is known: its clients need not wait for the other.
pub(super) async fn learn(
    back: &Back,
    person: &Arc<Person>,
    tell_legacy: impl FnOnce(&Facts),
) -> Result<Learnt, String> {
    let known = CancellationToken::new();
    let (legacy, modern) = tokio::join!(
        async {
            let _known = known.clone().drop_guard();
            learn_legacy(back, person).await.inspect(tell_legacy)
        },
        learn_modern(back, person, &known)
    );
    if let (Err(legacy), Err(modern)) = (&legacy, &modern) {
        let (legacy, modern) = (legacy.to_string(), modern.to_string());
        return Err(match legacy == modern {
            true => legacy,
            false => format!("{legacy} (and for the modern era: {modern})"),
        });
    }
    Ok(Learnt { legacy, modern })
}

/// Learns what a server offers this person in an era that it is known to speak.
pub(super) async fn learn_era(
    back: &Back,
    person: &Arc<Person>,
    era: Era,
) -> Result<Facts, LearnError> {
    match era {
        Era::Legacy => learn_legacy(back, person).await,
        Era::Modern => learn_modern(back, person, &CancellationToken::new()).await,
    }
}

async fn learn_legacy(back: &Back, person: &Arc<Person>) -> Result<Facts, LearnError> {
    let opening = Opening::Legacy {
        revision: Revision::NEWEST_LEGACY,
        capabilities: Bytes::from_static(b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}"),
        info: own_info(),
    };
    let live = back.start_to_learn(&opening, person).await.map_err(|error| match &error {
        StartError::Handshake { error: HandshakeError::Refused(_), .. } => {
            LearnError::Refused(chain(&error))
        }
        StartError::Handshake { error: HandshakeError::Silent, .. } => {
            LearnError::Slow(chain(&error))
        }
        _ => LearnError::Failed(chain(&error)),
    })?;
    let silent = || LearnError::Failed("it did not answer `initialize`".to_owned());
    let hello = live.hello.clone().ok_or_else(silent)?;
    let result = hello.raw(Slot::Result).unwrap_or(b"{}");
    let facts = learn_lists(&live, result, json::find(result, "serverInfo")).await?;
    Ok(facts.without_paths(&live))
}

/// A server of the legacy era alone may never answer, so this waits not much longer than the other
/// child takes, which is `known` then: both have the same way to start.
async fn learn_modern(
    back: &Back,
    person: &Arc<Person>,
    known: &CancellationToken,
) -> Result<Facts, LearnError> {
    let live = back.start_to_learn(&Opening::Modern, person).await;
    let live = live.map_err(|error| LearnError::Failed(chain(&error)))?;
    let late = async {
        known.cancelled().await;
        tokio::time::sleep(PROBE).await;
    };
    let discovered = tokio::select! {
        discovered = ask(&live, method::DISCOVER, "{}") => discovered?,
        () = late => {
            let (seconds, method) = (PROBE.as_secs(), method::DISCOVER);
            let text = format!("it did not answer `{method}` within {seconds} s of the other era");
            return Err(LearnError::Slow(text));
        }
    };
    let result = discovered.raw(Slot::Result).unwrap_or(b"{}");
    let versions = json::find(result, "supportedVersions").unwrap_or(b"[]");
    let mut versions = json::elements(versions, 0..versions.len()).map(|range| &versions[range]);
    let newest = format!("\"{}\"", Revision::NEWEST_MODERN);
    if !versions.any(|version| version == newest.as_bytes()) {
        return Err(LearnError::Refused(format!("it does not speak {}", Revision::NEWEST_MODERN)));
    }
    let facts = learn_lists(&live, result, discovered.raw(Slot::ResultServerInfo)).await?;
    Ok(facts.without_paths(&live))
}

impl Facts {
    /// The same without the folders of the child that told them: they are gone by the time anyone
    /// reads them, and servers do like to tell where they work.
    fn without_paths(self, live: &Live) -> Self {
        let temporary = live.temporary_directory();
        self.without_path(live.directory(), ".").without_path(temporary, "/tmp")
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

async fn learn_lists(
    live: &Live,
    hello: &[u8],
    server_info: Option<&[u8]>,
) -> Result<Facts, LearnError> {
    let capabilities = json::find(hello, "capabilities").unwrap_or(b"{}");
    let mut facts = Facts {
        capabilities: raw(capabilities)?,
        server_info: server_info.map(raw).transpose()?,
        instructions: json::find(hello, "instructions").map(raw).transpose()?,
        lists: HashMap::new(),
        hints: HashMap::new(),
    };
    for (list, capability) in [
        (method::LIST_TOOLS, "tools"),
        (method::LIST_PROMPTS, "prompts"),
        (method::LIST_RESOURCES, "resources"),
        (method::LIST_TEMPLATES, "resources"),
    ] {
        if json::find(capabilities, capability).is_some() {
            learn_list(live, list, &mut facts).await?;
        }
    }
    Ok(facts)
}

/// Reads all pages of a list.
async fn learn_list(live: &Live, list: &str, facts: &mut Facts) -> Result<(), LearnError> {
    let member = list_member(list).unwrap_or_default();
    let mut items = Vec::new();
    let mut cursor: Option<Bytes> = None;
    for _ in 0..MAX_PAGES {
        let params = cursor.as_ref().map_or_else(
            || "{}".to_owned(),
            |cursor| format!("{{\"cursor\":{}}}", String::from_utf8_lossy(cursor)),
        );
        let page = match ask(live, list, &params).await {
            Ok(page) => page,
            // A server may lack a list that its capabilities promise; then it is empty.
            Err(LearnError::Refused(_)) if cursor.is_none() => break,
            Err(LearnError::Slow(why)) => return Err(LearnError::Slow(why)),
            Err(why) => return Err(LearnError::Failed(format!("{list}: {why}"))),
        };
        let result = page.raw(Slot::Result).unwrap_or(b"{}");
        let array = json::find(result, member).unwrap_or(b"[]");
        for range in json::elements(array, 0..array.len()) {
            items.push(raw(&array[range])?);
        }
        note_hints(&page, list, facts);
        let next = page.copy(Slot::NextCursor).filter(|next| next.as_ref() != b"null");
        if next.is_none() || next == cursor {
            break;
        }
        cursor = next;
    }
    facts.lists.insert(list.to_owned(), items);
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

/// Asks a throw-away child, and gives its result or the reason why there is none.
async fn ask(live: &Live, method: &str, params: &str) -> Result<Message, LearnError> {
    let request = own_request_with(method, params);
    let request = match live.era {
        Era::Legacy => Rewrite::new(request),
        Era::Modern => modern_request(request),
    };
    let patience = 60;
    let deadline = now() + Duration::from_secs(patience);
    let mut asked = live.link.ask(request, Some(deadline), Purpose::Own);
    loop {
        match asked.heard().await {
            Heard::Answer(answer) if answer.has(Slot::Error) => {
                let text = answer.string(Slot::ErrorMessage).unwrap_or_default();
                let text = format!("it answered `{method}` with an error: {text}");
                return Err(LearnError::Refused(text));
            }
            Heard::Answer(answer) => return Ok(answer),
            Heard::TimedOut(_) => {
                let text = format!("it did not answer `{method}` within {patience} s");
                return Err(LearnError::Slow(text));
            }
            Heard::Gone | Heard::Unsent | Heard::Clogged | Heard::Ended | Heard::Lost(_) => {
                return Err(LearnError::Failed(live.obituary().await));
            }
            Heard::Question(question) => {
                crate::back::refuse(&live.link, &question, "nobody is there to be asked");
            }
            Heard::Note(_) | Heard::Log(_) | Heard::Resumed(_) | Heard::Release => {}
        }
    }
}
