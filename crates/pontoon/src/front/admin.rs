//! `/health`, `/ready` and `/metrics`: what the operator looks at. Looking changes nothing.
//!
//! This file collects the status; what it means is decided in `observe`.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use pontoon_wire::Era;
use serde_json::{Value, json};

use super::body::ResponseBody;
use super::response::{self, HttpResponse, empty};
use super::site::HttpSite;
use crate::back::keep::kept_child::KeptChild;
use crate::config::{Mode, note_on_people};
use crate::observe::health::{self, Sight};
use crate::observe::log::Troubles;
use crate::observe::metrics;
use crate::observe::status::{
    BridgeStatus, ChildStatus, DiskStatus, LimitUse, ServerState, ServerStatus,
};
use crate::session::entry::{CatalogState, Entry};

/// How long a look at the jobs directory may take.
const LOOK: Duration = Duration::from_secs(5);

/// How long one look serves all who ask whether requests may be sent here.
const SHARED: Duration = Duration::from_secs(1);

/// How everything is, as far as the one who asks may see it.
pub async fn health(site: &Arc<HttpSite>, sight: Sight) -> HttpResponse {
    let max_age = match sight {
        // Anyone may ask, as often as they like.
        Sight::Status => SHARED,
        Sight::Whole => Duration::ZERO,
    };
    let status = with_disk(site, status(site), max_age).await;
    respond(health::health(&status, SystemTime::now(), sight))
}

/// All that the user who runs the bridge may see: its health, and what came of its calls.
pub async fn told(site: &Arc<HttpSite>, troubles: &Troubles) -> Value {
    let status = with_disk(site, status(site), SHARED).await;
    let (_, health) = health::health(&status, SystemTime::now(), Sight::Whole);
    let sum = |count: fn(&ServerStatus) -> u64| status.servers.iter().map(count).sum::<u64>();
    let (made, failed) = (sum(|it| it.calls.0), sum(|it| it.calls.1));
    let open: usize = status.servers.iter().map(|it| it.running).sum();
    json!({
        "state": health["status"],
        "uptime": health["uptime"],
        "calls": { "made": made, "failed": failed, "open": open, "waiting": status.waiting_calls },
        "clients": status.sessions,
        "errors": troubles.to_json(),
        "health": health,
    })
}

/// Whether requests may be sent here.
pub async fn ready(site: &Arc<HttpSite>) -> HttpResponse {
    // Anyone may ask, as often as they like.
    let jobs_fault = jobs_fault(site, SHARED).await;
    respond(health::ready(&BridgeStatus { jobs_fault, ..status(site) }))
}

/// Every number, as Prometheus reads it.
pub async fn metrics(site: &Arc<HttpSite>) -> HttpResponse {
    let mut answer = empty(200);
    let status = with_disk(site, status(site), Duration::ZERO).await;
    let numbers = Arc::clone(&site.metrics);
    let looked = tokio::task::spawn_blocking(move || numbers.look_at_processes()).await;
    let status = BridgeStatus { processes: looked.ok().flatten(), ..status };
    let page = Bytes::from(site.metrics.render(&status));
    *answer.body_mut() = ResponseBody::text(&page.into());
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

fn respond((status, body): (u16, Value)) -> HttpResponse {
    let mut answer = response::json(status, &Bytes::from(body.to_string()).into());
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// How everything is now, but for the disk, which may be slow.
fn status(site: &HttpSite) -> BridgeStatus {
    let sessions = &site.sessions;
    let entries = sessions.entries();
    let mut servers: Vec<_> = entries.iter().map(|(name, entry)| server(name, entry)).collect();
    servers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let (permits, kept_calls) = sessions.admission.usage();
    BridgeStatus {
        permits,
        kept_calls,
        kept_children: {
            let (used, limit) = site.kept.used();
            LimitUse { used, limit }
        },
        held_bytes: {
            let (used, limit) = site.held.used();
            LimitUse { used, limit }
        },
        waiting_calls: {
            let shared = entries.values().map(|entry| entry.back.shared_calls.waiting());
            sessions.admission.waiting() + shared.sum::<usize>()
        },
        sessions: sessions.count(),
        websockets: site.websockets.in_use(),
        disk: None,
        jobs_fault: None,
        processes: None,
        tls_fault: site.tls.as_ref().and_then(|tls| tls.fault()).map(|bad| bad.to_string()),
        living_children: site.starter.living(),
        uptime: site.started.elapsed(),
        is_spawner_gone: site.starter.is_gone(),
        is_stopping: site.leaving.is_cancelled(),
        note: note(site),
        servers,
    }
}

/// What is worth knowing before the first call.
fn note(site: &HttpSite) -> Option<String> {
    let entries = site.sessions.entries();
    let servers = entries.values().filter(|_| site.entrance.auth.has_unnamed_key());
    note_on_people(servers.map(|entry| &*entry.back.server), &site.sessions.ways_to_say_who)
}

/// The same with the disk, which is looked at elsewhere: a disk that hangs holds no other call up.
async fn with_disk(site: &HttpSite, status: BridgeStatus, max_age: Duration) -> BridgeStatus {
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

/// What is wrong with the jobs directory, now or at most `max_age` ago.
///
/// One looks at a time, so that a disk that hangs takes one thread and not one for each probe.
async fn jobs_fault(site: &HttpSite, max_age: Duration) -> Option<String> {
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

/// The kept children of a server.
fn children(entry: &Entry) -> Vec<ChildStatus> {
    let now = Instant::now();
    let status = |(_, child): (String, Arc<KeptChild>)| {
        let (age, idle) = child.ages(now);
        ChildStatus { age, idle }
    };
    entry.back.kept_children().into_iter().map(status).collect()
}

/// The eras that a server speaks, as far as is known.
fn eras(entry: &Entry) -> Vec<&'static str> {
    let CatalogState::Ready(catalog) = entry.state() else { return Vec::new() };
    // An application that was never seen is taken to speak one.
    if entry.back.app().is_some() && entry.learnt_at().0.is_none() {
        return Vec::new();
    }
    let known = [(Era::Legacy, "legacy"), (Era::Modern, "modern")];
    known.into_iter().filter(|(era, _)| catalog.speaks(*era)).map(|(_, name)| name).collect()
}

fn server(name: &str, entry: &Entry) -> ServerStatus {
    let away = entry.back.app().and_then(|app| app.absence());
    let state = match (entry.state(), entry.trouble()) {
        _ if away.is_some() => ServerState::Away(away.unwrap_or_default()),
        (CatalogState::Failed(why), _) => ServerState::Failed(why),
        // What it offers is known from earlier, but it did not start when it was last tried.
        (CatalogState::Ready(_), Some(why)) => ServerState::Failed(why),
        (CatalogState::Ready(_), None) => ServerState::Ready,
        (CatalogState::Learning, _) => ServerState::Learning,
        (CatalogState::Waiting(why), _) => ServerState::Waiting(why),
    };
    let heals = entry.back.heals.counts();
    ServerStatus {
        name: name.to_owned(),
        state,
        running: entry.back.running(),
        mode: match entry.back.server.mode {
            Mode::Stateless => "stateless",
            Mode::Stateful { .. } => "stateful",
            Mode::Shared { .. } => "shared",
        },
        children: children(entry),
        living: entry.back.living(),
        spares: entry.back.spares(),
        heals,
        isolation: entry.back.isolation(),
        calls: entry.back.metrics.tool_calls(),
        eras: eras(entry),
    }
}
