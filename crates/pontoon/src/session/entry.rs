//! A server as sessions see it: its back, and what is known of what it offers.
//!
//! How that is found out, and when anew, is for `learning` to say.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use pontoon_wire::{Era, method};
use tokio::sync::watch;

use super::catalog::{Catalog, Facts};
use super::kept;
use crate::back::Back;
use crate::beside::beside;
use crate::lock::Lock;

/// Where a server stands.
#[derive(Debug, Clone)]
pub enum CatalogState {
    /// It is being learnt for the first time.
    Learning,
    /// It is known.
    Ready(Arc<Catalog>),
    /// It could not be learnt; the reason is for people.
    Failed(String),
    /// It does not start without the values of a person, for this reason, and is learnt with the first
    /// one's.
    Waiting(String),
}

/// The eras of clients that wait, or did, until a server was known.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Wanted {
    legacy: bool,
    modern: bool,
}

impl Wanted {
    pub(super) fn has(self, era: Era) -> bool {
        match era {
            Era::Legacy => self.legacy,
            Era::Modern => self.modern,
        }
    }

    fn add(&mut self, era: Era) {
        match era {
            Era::Legacy => self.legacy = true,
            Era::Modern => self.modern = true,
        }
    }
}

/// One server, and what is known of it.
#[derive(Debug)]
pub struct Entry {
    /// The server's children.
    pub back: Arc<Back>,
    pub(super) state: watch::Sender<CatalogState>,
    /// What it offers in the era that is known, while the other one is not yet.
    pub(super) half: watch::Sender<Option<Arc<Catalog>>>,
    /// The eras of the clients that wait for it, or did.
    pub(super) wanted: watch::Sender<Wanted>,
    /// Why the last try to learn it failed, if it did.
    trouble: Mutex<Option<String>>,
    pub(super) file: Option<PathBuf>,
    /// When an application last said what it offers, as far as is known.
    pub(super) learnt: Lock<Option<SystemTime>>,
    /// Whether the catalogue is that of an application as it runs now.
    pub(super) is_fresh: watch::Sender<bool>,
}

impl Entry {
    /// An entry that begins with what is on disk, if there is anything.
    pub fn new(back: Arc<Back>, state_dir: Option<&Path>) -> Self {
        let file = state_dir.map(|dir| kept::file_of(&back.server, dir));
        let mut learnt = None;
        let kept = file.as_deref().and_then(kept::read).map(|mut catalog| {
            let status = file.as_deref().and_then(|file| std::fs::metadata(file).ok());
            learnt = status.and_then(|status| status.modified().ok());
            show_tools(&back, &mut catalog, false);
            back.note_frames(catalog.takes_frames);
            CatalogState::Ready(Arc::new(catalog))
        });
        let unknown = || match back.app() {
            Some(_) => CatalogState::Ready(Arc::new(Catalog::of_unseen_app())),
            None => CatalogState::Learning,
        };
        let state = watch::Sender::new(kept.unwrap_or_else(unknown));
        Self {
            back,
            state,
            half: watch::Sender::new(None),
            wanted: watch::Sender::default(),
            trouble: Mutex::default(),
            file,
            learnt: Lock::new(learnt),
            is_fresh: watch::Sender::new(false),
        }
    }

    /// When an application last said what it offers, and whether that is of the one that runs now.
    pub fn learnt_at(&self) -> (Option<SystemTime>, bool) {
        (*self.learnt.lock(), *self.is_fresh.borrow())
    }

    /// Why the last try to learn it failed, if it did. What was learnt before is still served.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_trouble(&self, why: Option<&str>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = why.map(str::to_owned);
    }

    /// Where the server stands now.
    pub fn state(&self) -> CatalogState {
        self.state.borrow().clone()
    }

    /// Told whenever the catalogue changes.
    pub fn changes(&self) -> watch::Receiver<CatalogState> {
        self.state.subscribe()
    }

    /// The catalogue, once it is known, or why it is not.
    pub async fn catalog(&self) -> Result<Arc<Catalog>, String> {
        let mut state = self.state.subscribe();
        let known = state.wait_for(|state| !matches!(state, CatalogState::Learning)).await;
        match known.map(|state| state.clone()) {
            Ok(CatalogState::Ready(catalog)) => Ok(catalog),
            Ok(CatalogState::Failed(why) | CatalogState::Waiting(why)) => Err(why),
            Ok(CatalogState::Learning) | Err(_) => Err("the bridge is stopping".to_owned()),
        }
    }

    /// The catalogue, once there is one.
    pub async fn ready(&self) -> Option<Arc<Catalog>> {
        let mut state = self.state.subscribe();
        let ready = state.wait_for(|state| matches!(state, CatalogState::Ready(_))).await.ok()?;
        match &*ready {
            CatalogState::Ready(catalog) => Some(Arc::clone(catalog)),
            CatalogState::Learning | CatalogState::Failed(_) | CatalogState::Waiting(_) => None,
        }
    }

    /// The catalogue for a client of this era that waits: the server is learnt before those that no client
    /// waits for. If it speaks the client's era, it does not matter whether it speaks the other one.
    ///
    /// # Errors
    ///
    /// Why it is not known.
    pub async fn catalog_for_client(&self, client: Era) -> Result<Arc<Catalog>, String> {
        self.wanted.send_modify(|wanted| wanted.add(client));
        let mut half = self.half.subscribe();
        let speaks =
            |half: &Option<Arc<Catalog>>| half.as_ref().is_some_and(|it| it.speaks(client));
        tokio::select! {
            biased;
            known = self.catalog() => known,
            Ok(known) = half.wait_for(speaks) => {
                known.clone().ok_or_else(|| "it is not known yet".to_owned())
            }
        }
    }

    /// The catalogue, if as much of it is known as a client of this era needs.
    pub fn known_to(&self, client: Era) -> Option<Arc<Catalog>> {
        match self.state() {
            CatalogState::Ready(catalog) => Some(catalog),
            _ => self.half.borrow().clone().filter(|half| half.speaks(client)),
        }
    }

    /// Notes what a server offers in one era while the other is learnt.
    pub(super) async fn set_half(&self, era: Era, facts: Facts) {
        // Before anything is locked: it may take its time.
        let mut catalog = show(&self.back, Catalog::of(era, facts), false).await;
        self.half.send_modify(|half| {
            if let Some(half) = half.take() {
                catalog.legacy = catalog.legacy.take().or_else(|| half.legacy.clone());
                catalog.modern = catalog.modern.take().or_else(|| half.modern.clone());
                catalog.read_rules();
            }
            *half = Some(Arc::new(catalog));
        });
        // Those who waited for it go on, each with what was started for it or without.
        self.back.settle_ahead();
    }

    /// Notes the eras of a server that was learnt with a person's values, which are nobody else's.
    pub(super) fn set_eras(&self, catalog: &Catalog) {
        self.set_unless_known(CatalogState::Ready(Arc::new(catalog.eras_only())));
    }

    pub(super) fn set_unless_known(&self, new: CatalogState) {
        self.state.send_if_modified(|state| {
            let is_unknown = !matches!(state, CatalogState::Ready(_));
            if is_unknown {
                *state = new;
            }
            is_unknown
        });
    }
}

/// The catalogue with its tools as clients see them. What is wrong with them is noted where that was not done before.
/// Other tasks go on meanwhile, however much it is.
pub(super) async fn show(back: &Arc<Back>, mut catalog: Catalog, is_new: bool) -> Catalog {
    let (back, bytes) = (Arc::clone(back), catalog.size());
    let show = move || {
        show_tools(&back, &mut catalog, is_new);
        catalog
    };
    beside(bytes, show).await
}

fn show_tools(back: &Back, catalog: &mut Catalog, is_new: bool) {
    catalog.show(&back.server, is_new.then_some(&*back.heals));
    for facts in [&mut catalog.legacy, &mut catalog.modern].into_iter().flatten() {
        let tools = facts.lists.get(method::LIST_TOOLS).into_iter().flatten();
        facts.shown.note_promises(tools.map(|tool| tool.get()), &back.outputs);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use pontoon_wire::heal::HealMode;
    use pontoon_wire::{Message, Slot};
    use serde_json::value::RawValue;

    use super::*;
    use crate::app::test_bridge::{TestBridge, TestClient};
    use crate::back::child::in_memory::{InMemoryServers, ServerEnd};
    use crate::back::pair::{Pair, result};

    #[tokio::test(start_paused = true)]
    async fn that_a_server_takes_frames_alone_is_known_after_a_restart() {
        for (heal, expected) in [(HealMode::Repair, true), (HealMode::Off, false)] {
            let state = tempfile::tempdir().unwrap();
            let servers = InMemoryServers::new(|_| std::future::pending());
            let pair = Pair::new(servers, |server| server.heal = heal.into());
            let learnt = Catalog {
                legacy: Some(Facts::default()),
                takes_frames: true,
                ..Catalog::default()
            };
            let file = kept::file_of(&pair.back.server, state.path());
            kept::write(&file, &learnt, SystemTime::now(), Some(Duration::ZERO)).unwrap();
            assert!(!pair.back.takes_frames());
            let entry = Entry::new(Arc::clone(&pair.back), Some(state.path()));
            assert_eq!(entry.back.takes_frames(), expected, "{heal:?}");
        }
    }

    /// A server that reads nothing but frames, and writes them. Notes the first line of each process.
    async fn read_frames_alone(mut end: ServerEnd, firsts: Arc<Lock<Vec<String>>>) {
        let mut is_first = true;
        while let Some(line) = end.next_line().await {
            if std::mem::take(&mut is_first) {
                firsts.lock().push(line.clone());
            }
            let Some(text) = end.next_in_frame(&line).await else { continue };
            let message = Message::parse(text.as_bytes()).unwrap();
            let Some(id) = message.raw(Slot::Id) else { continue };
            let id = String::from_utf8_lossy(id);
            let said = match &*message.method() {
                method::DISCOVER => {
                    let error = r#"{"code":-32601,"message":"no"}"#;
                    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
                    end.say_in_frame(&answer).await;
                    continue;
                }
                method::INITIALIZE => {
                    r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#
                }
                method::LIST_TOOLS => {
                    r#"{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}"#
                }
                _ => r#"{"content":[{"type":"text","text":"in a frame"}]}"#,
            };
            end.say_in_frame(&result(&id, said)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_took_frames_alone_is_written_to_in_frames_at_once_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let firsts: Arc<Lock<Vec<String>>> = Arc::default();
        for is_known in [false, true] {
            let all = Arc::clone(&firsts);
            let servers = InMemoryServers::new(move |end| read_frames_alone(end, Arc::clone(&all)));
            let bridge = TestBridge::start(servers, |settings, _| {
                settings.state_dir = Some(folder.path().to_owned());
            });
            bridge.until_known().await;
            let client = TestClient::modern(&bridge);
            let answer = client.call(1, "echo", "{}").await.answer().await;
            assert!(answer.contains("in a frame"), "{answer}");
            // It is kept with both eras heard: the first try in the other one was a line.
            let file = kept::file_of(&bridge.entry().back.server, folder.path());
            while kept::read(&file).is_none() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            bridge.stop().await.unwrap();
            let firsts = std::mem::take(&mut *firsts.lock());
            let framed = firsts.iter().filter(|line| line.starts_with("Content-Length: ")).count();
            match is_known {
                // That it takes frames was not known before one of its processes was silent.
                false => assert!(framed < firsts.len(), "{firsts:?}"),
                true => assert!(framed > 0 && framed == firsts.len(), "{firsts:?}"),
            }
        }
    }

    /// Tools of a megabyte that need to be repaired, each small enough to be looked at.
    fn many_broken_tools() -> Facts {
        let words: Vec<_> = (0..2000)
            .map(|n| {
                format!(r#""p{n}":{{"type":"int","items":["type","string"],"properties":null}}"#)
            })
            .collect();
        let words = words.join(",");
        let tool = |n: usize| {
            let tool = format!(
                r#"{{"name":"t{n}","inputSchema":{{"type":"object","properties":{{{words}}}}}}}"#
            );
            RawValue::from_string(tool).unwrap()
        };
        let mut facts = Facts::default();
        let tools: Vec<_> = (0..(1 << 20) / words.len() + 1).map(tool).collect();
        facts.lists.insert(method::LIST_TOOLS.to_owned(), tools);
        facts
    }

    #[tokio::test]
    async fn other_tasks_go_on_while_much_is_repaired() {
        let pair = Pair::new(InMemoryServers::new(|_| std::future::pending()), |_| {});
        let entry = Entry::new(Arc::clone(&pair.back), None);
        let turns = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&turns);
        let other = tokio::spawn(async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        tokio::task::yield_now().await;
        let before = turns.load(Ordering::Relaxed);
        entry.set_half(Era::Legacy, many_broken_tools()).await;
        let gone_on = turns.load(Ordering::Relaxed) - before;
        assert!(gone_on > 10, "{gone_on} turns");
        other.abort();
        let known = entry.known_to(Era::Legacy).unwrap();
        let facts = known.legacy.as_ref().unwrap();
        assert!(facts.written.is_some(), "or nothing was repaired");
    }
}
