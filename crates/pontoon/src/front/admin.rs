//! `/health`, `/ready` and `/metrics`: what the operator looks at. Looking changes nothing.
//!
//! This file collects the status; what it means is decided in `observe`.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use super::body::ResponseBody;
use super::http::Site;
use super::respond::{Answer, empty, json};
use crate::back::live::Live;
use crate::config::{Mode, note_on_people};
use crate::observe::health::{self, Sight};
use crate::observe::metrics;
use crate::observe::status::{
    BridgeStatus, ChildStatus, DiskStatus, LimitUse, ServerState, ServerStatus,
};
use crate::session::catalog::{Entry, State};

/// How long a look at the jobs directory may take.
const LOOK: Duration = Duration::from_secs(5);

/// How long one look serves all who ask whether requests may be sent here.
const SHARED: Duration = Duration::from_secs(1);

/// How everything is, as far as the one who asks may see it.
pub async fn health(site: &Arc<Site>, sight: Sight) -> Answer {
    let max_age = match sight {
        // Anyone may ask, as often as they like.
        Sight::Status => SHARED,
        Sight::Whole => Duration::ZERO,
    };
    let status = with_disk(site, status(site), max_age).await;
    respond(health::health(&status, SystemTime::now(), sight))
}

/// Whether requests may be sent here.
pub async fn ready(site: &Arc<Site>) -> Answer {
    // Anyone may ask, as often as they like.
    let jobs_fault = jobs_fault(site, SHARED).await;
    respond(health::ready(&BridgeStatus { jobs_fault, ..status(site) }))
}

/// Every number, as Prometheus reads it.
pub async fn metrics(site: &Arc<Site>) -> Answer {
    let mut answer = empty(200);
    let status = with_disk(site, status(site), Duration::ZERO).await;
    let page = Bytes::from(site.metrics.render(&status));
    *answer.body_mut() = ResponseBody::text(&page.into());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn respond((status, body): (u16, Value)) -> Answer {
    let mut answer = json(status, &Bytes::from(body.to_string()).into());
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// How everything is now, but for the disk, which may be slow.
fn status(site: &Site) -> BridgeStatus {
    let sessions = &site.sessions;
    let mut servers: Vec<_> =
        sessions.entries().iter().map(|(name, entry)| server(site, name, entry)).collect();
    servers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let (permits, kept_calls) = sessions.admission.usage();
    BridgeStatus {
        permits,
        kept_calls,
        kept_children: {
            let (used, limit) = site.budget.used();
            LimitUse { used, limit }
        },
        held_bytes: {
            let (used, limit) = site.held.used();
            LimitUse { used, limit }
        },
        waiting_calls: sessions.admission.waiting(),
        sessions: sessions.count(),
        disk: None,
        jobs_fault: None,
        living_children: site.spawner.living(),
        uptime: site.started.elapsed(),
        is_spawner_gone: site.spawner.is_gone(),
        is_stopping: site.leaving.is_cancelled(),
        note: note(site),
        servers,
    }
}

/// What is worth knowing before the first call.
fn note(site: &Site) -> Option<String> {
    let entries = site.sessions.entries();
    let servers = entries.values().filter(|_| site.auth.has_unnamed_key());
    note_on_people(servers.map(|entry| &*entry.back.server), &site.sessions.ways_to_say_who)
}

/// The same with the disk, which is looked at elsewhere: a disk that hangs holds no other call up.
async fn with_disk(site: &Site, status: BridgeStatus, max_age: Duration) -> BridgeStatus {
    let jobs_fault = jobs_fault(site, max_age).await;
    if jobs_fault.is_some() {
        return BridgeStatus { jobs_fault, ..status };
    }
    let store = site.store.clone();
    let usage = tokio::task::spawn_blocking(move || store.usage()).await;
    let disk = usage.ok().map(|usage| DiskStatus {
        jobs: usage.jobs,
        bytes: usage.bytes,
        free: usage.free_bytes,
        total: usage.total_bytes,
        min_free: site.min_free_disk,
    });
    BridgeStatus { disk, ..status }
}

/// What was wrong with the jobs directory when it was looked at last, after what could be mended was.
#[derive(Debug, Default)]
pub struct LastLook(Option<(Instant, Option<String>)>);

impl LastLook {
    /// Looks now, unless the last look is younger than this. Its age counts from its end: on a slow disk those
    /// who waited for it are served by it.
    fn look(
        &mut self,
        max_age: Duration,
        now: impl Fn() -> Instant,
        look: impl FnOnce() -> Option<String>,
    ) -> Option<String> {
        match &self.0 {
            Some((at, fault)) if now().saturating_duration_since(*at) < max_age => fault.clone(),
            _ => {
                let fault = look();
                self.0.insert((now(), fault)).1.clone()
            }
        }
    }
}

/// What is wrong with the jobs directory, now or at most so long ago.
///
/// One looks at a time, so that a disk that hangs takes one thread and not one for each probe.
async fn jobs_fault(site: &Site, max_age: Duration) -> Option<String> {
    let look = async {
        let mut last = Arc::clone(&site.looking).lock_owned().await;
        let store = site.store.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let look = || store.mend().err().map(|fault| fault.to_string());
            last.look(max_age, Instant::now, look)
        });
        looked.await.ok()?
    };
    let silent = || {
        let path = site.store.path().display();
        Some(format!(
            "the jobs directory {path} does not answer within {} s: see to its file system",
            LOOK.as_secs()
        ))
    };
    tokio::time::timeout(LOOK, look).await.unwrap_or_else(|_| silent())
}

/// The kept children of a server, by names that tell nobody whose they are.
fn children(site: &Site, entry: &Entry) -> Vec<ChildStatus> {
    let now = Instant::now();
    let status = |(key, live): (String, Arc<Live>)| {
        let (age, idle) = live.usage.ages(now);
        ChildStatus {
            key_hash: site.metrics.pseudonym(&key),
            age,
            idle,
            requests: live.usage.taken(),
            pid: live.id(),
        }
    };
    entry.back.kept_children().into_iter().map(status).collect()
}

fn server(site: &Site, name: &str, entry: &Entry) -> ServerStatus {
    let state = match (entry.state(), entry.trouble()) {
        (State::Failed(why), _) => ServerState::Failed(why),
        // What it offers is known from earlier, but it did not start when it was last tried.
        (State::Ready(_), Some(why)) => ServerState::Failed(why),
        (State::Ready(_), None) => ServerState::Ready,
        (State::Learning, _) => ServerState::Learning,
        (State::Waiting(why), _) => ServerState::Waiting(why),
    };
    let heals = entry.back.heals.counts();
    ServerStatus {
        name: name.to_owned(),
        state,
        running: entry.back.running(),
        mode: match entry.back.server.mode {
            Mode::Stateless => "stateless",
            Mode::Stateful { .. } => "stateful",
        },
        children: children(site, entry),
        living: entry.back.living(),
        spares: entry.back.spares.ready(),
        heals: heals.iter().map(|(heal, count)| (heal.code(), *count)).collect(),
        isolation: entry.back.isolation(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn one_look_serves_all_who_ask_within_a_second() {
        let (mut last, began) = (LastLook::default(), Instant::now());
        let mut look = |max_age, after: u64, found: &str| {
            let now = began + Duration::from_millis(after);
            last.look(max_age, || now, || Some(found.to_owned())).unwrap()
        };
        assert_eq!(look(SHARED, 0, "first"), "first");
        assert_eq!(look(SHARED, 999, "second"), "first");
        assert_eq!(look(SHARED, 1000, "third"), "third");
        assert_eq!(look(Duration::ZERO, 1001, "fourth"), "fourth", "who looks closer");
        assert_eq!(look(SHARED, 1002, "fifth"), "fourth", "which serves the others, too");
    }

    #[test]
    fn a_slow_look_serves_those_who_waited_for_it() {
        let (mut last, clock) = (LastLook::default(), Cell::new(Instant::now()));
        let mut look = |found: &str| {
            let look = || {
                clock.set(clock.get() + 2 * SHARED);
                Some(found.to_owned())
            };
            last.look(SHARED, || clock.get(), look).unwrap()
        };
        assert_eq!(look("first"), "first");
        assert_eq!(look("second"), "first");
    }
}
