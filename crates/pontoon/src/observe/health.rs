//! How the bridge is, judged from its status: `/health` and `/ready`.
//!
//! Degraded means that it works and the operator should look; only down is an alarm, because a probe
//! restarts the container for that.

use std::time::SystemTime;

use serde_json::{Map, Value, json};

use crate::date::to_seconds;

use super::status::{BridgeStatus, LimitUse, ServerState, ServerStatus};

/// How much the one who asks may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Everything.
    Whole,
    /// Whether it works; for those who have not said who they are.
    Status,
}

/// The HTTP status and the body that say how everything is.
pub fn health(bridge: &BridgeStatus, now: SystemTime, sight: Sight) -> (u16, Value) {
    let reasons = reasons(bridge);
    let status = match (is_down(bridge), reasons.is_empty()) {
        (true, _) => "down",
        (false, true) => "ok",
        (false, false) => "degraded",
    };
    let mut health = json!({
        "status": status,
        "timestamp": to_seconds(now),
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": bridge.uptime.as_secs(),
    });
    if sight == Sight::Whole {
        whole(&mut health, bridge, &reasons);
    }
    (if status == "down" { 503 } else { 200 }, health)
}

/// The HTTP status and the body that say whether requests may be sent here.
pub fn ready(bridge: &BridgeStatus) -> (u16, Value) {
    let is_learning = bridge.servers.iter().any(|it| it.state == ServerState::Learning);
    // Anyone may ask, so no more than this is told.
    let reason = if bridge.is_spawner_gone {
        SPAWNER_GONE
    } else if bridge.jobs_fault.is_some() {
        "the jobs directory cannot be used; /health and the log say why, and what to do"
    } else if bridge.is_stopping {
        "the bridge is stopping"
    } else if is_learning {
        "servers are still being learnt"
    } else {
        return (200, json!({ "ready": true }));
    };
    (503, json!({ "ready": false, "reason": reason }))
}

/// Nothing can be used.
fn is_down(bridge: &BridgeStatus) -> bool {
    bridge.is_spawner_gone
        || bridge.jobs_fault.is_some()
        || !bridge.servers.is_empty() && bridge.servers.iter().all(has_failed)
}

const SPAWNER_GONE: &str = "the helper process that starts servers has ended";

fn has_failed(server: &ServerStatus) -> bool {
    matches!(server.state, ServerState::Failed(_))
}

/// What is not as it should be, in words.
fn reasons(bridge: &BridgeStatus) -> Vec<String> {
    let mut reasons = Vec::new();
    let failed = bridge.servers.iter().filter(|it| has_failed(it));
    reasons.extend(failed.map(|server| format!("the server `{}` does not work", server.name)));
    let away = bridge.servers.iter().filter(|it| matches!(it.state, ServerState::Away(_)));
    reasons.extend(away.map(|server| format!("the application `{}` is away", server.name)));
    let mut watch = |usage: LimitUse, what: &str| {
        if usage.is_high() {
            reasons.push(format!("{} of {} {what} are in use", usage.used, usage.limit));
        }
    };
    watch(bridge.permits, "permits for calls (MCPO_MAX_CONCURRENT)");
    watch(bridge.kept_calls, "permits for calls on kept processes");
    watch(bridge.kept_children, "kept processes (MCPO_STATEFUL_MAX_TOTAL_PROCESSES)");
    reasons.extend(bridge.jobs_fault.clone());
    reasons.extend(bridge.tls_fault.as_ref().map(|why| {
        format!("the new certificate cannot be used, and the old one is shown on (MCPO_TLS_CERT, MCPO_TLS_KEY): {why}")
    }));
    match &bridge.disk {
        Some(disk) if disk.is_full() => reasons.push(format!(
            "the disk of the jobs directory has {} bytes left, new jobs need {} (MCPO_MIN_FREE_DISK)",
            disk.free, disk.min_free
        )),
        Some(disk) if disk.is_high() => reasons
            .push(format!("the disk of the jobs directory is {} % full", disk.used_percent())),
        _ => {}
    }
    if bridge.is_spawner_gone {
        reasons.push(SPAWNER_GONE.to_owned());
    }
    if bridge.is_stopping {
        reasons.push("the bridge is stopping".to_owned());
    }
    reasons
}

fn whole(health: &mut Value, bridge: &BridgeStatus, reasons: &[String]) {
    let servers: Map<_, _> =
        bridge.servers.iter().map(|it| (it.name.clone(), server(it))).collect();
    let sum = |count: fn(&ServerStatus) -> usize| bridge.servers.iter().map(count).sum::<usize>();
    health["reasons"] = json!(reasons);
    health["note"] = json!(bridge.note);
    health["servers"] = Value::Object(servers);
    health["running"] = json!(sum(|it| it.running));
    health["permits_in_use"] = json!(bridge.permits.used + bridge.kept_calls.used);
    health["permits"] = usage(bridge.permits);
    health["children"] = json!(bridge.living_children);
    health["stateful_processes"] = usage(bridge.kept_children);
    health["spares"] = json!(sum(|it| it.spares));
    health["sessions"] = json!(bridge.sessions);
    health["websockets"] = json!(bridge.websockets);
    if let Some(disk) = &bridge.disk {
        health["disk"] = json!({
            "jobs": disk.jobs, "bytes": disk.bytes, "free": disk.free, "total": disk.total,
        });
    }
}

fn server(server: &ServerStatus) -> Value {
    let error = match &server.state {
        ServerState::Failed(why) | ServerState::Away(why) => Some(why),
        _ => None,
    };
    let note = match &server.state {
        ServerState::Waiting(why) => Some(format!(
            "it is learnt with the first person's values: without a person it did not start: {why}"
        )),
        _ => None,
    };
    let heals: Map<_, _> =
        server.heals.iter().map(|(code, count)| ((*code).to_owned(), json!(count))).collect();
    json!({
        "state": server.state.name(),
        "error": error,
        "note": note,
        "running": server.running,
        "mode": server.mode,
        "children": server.living,
        "stateful_processes": server.children.len(),
        "spares": server.spares,
        "isolation": server.isolation,
        "heals": heals,
        "calls": { "made": server.calls.0, "failed": server.calls.1 },
        "eras": server.eras,
    })
}

fn usage(usage: LimitUse) -> Value {
    json!({ "used": usage.used, "limit": usage.limit })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::observe::status::{ChildStatus, DiskStatus};

    const SECRET: &str = "/home/ada/secret does not exist";

    fn server(name: &str, state: ServerState) -> ServerStatus {
        ServerStatus {
            name: name.to_owned(),
            state,
            running: 1,
            mode: "stateful",
            children: Vec::new(),
            living: 2,
            spares: 1,
            heals: vec![("H01", 3)],
            isolation: "basic",
            calls: (7, 1),
            eras: vec!["legacy"],
        }
    }

    fn ready_server(name: &str) -> ServerStatus {
        server(name, ServerState::Ready)
    }

    fn failed_server(name: &str) -> ServerStatus {
        server(name, ServerState::Failed(SECRET.to_owned()))
    }

    /// Two servers that work, and room for everything.
    fn bridge() -> BridgeStatus {
        BridgeStatus {
            servers: vec![ready_server("a"), ready_server("b")],
            permits: LimitUse { used: 2, limit: 8 },
            kept_calls: LimitUse { used: 1, limit: 1024 },
            kept_children: LimitUse { used: 80, limit: 100 },
            held_bytes: LimitUse::default(),
            waiting_calls: 0,
            sessions: 4,
            websockets: 3,
            disk: Some(DiskStatus { free: 20, total: 100, min_free: 5, ..DiskStatus::default() }),
            jobs_fault: None,
            tls_fault: None,
            living_children: 9,
            uptime: Duration::from_secs(61),
            is_spawner_gone: false,
            is_stopping: false,
            note: None,
            processes: None,
        }
    }

    fn check(bridge: &BridgeStatus, status: u16, word: &str, told: &[&str]) {
        let (found, health) = health(bridge, UNIX_EPOCH, Sight::Whole);
        assert_eq!((found, &health["status"]), (status, &json!(word)));
        let reasons = health["reasons"].as_array().unwrap();
        assert_eq!(reasons.len(), told.len(), "{health}");
        for (reason, told) in reasons.iter().zip(told) {
            assert!(reason.as_str().unwrap().contains(told), "{reason}");
        }
    }

    #[test]
    fn up_to_four_fifths_all_is_well() {
        check(&bridge(), 200, "ok", &[]);
        check(&BridgeStatus::default(), 200, "ok", &[]);
        let disk = Some(DiskStatus { min_free: 5, ..DiskStatus::default() });
        check(&BridgeStatus { disk, ..bridge() }, 200, "ok", &[]);
    }

    #[test]
    fn above_four_fifths_it_is_degraded_and_says_of_what() {
        let permits = LimitUse { used: 7, limit: 8 };
        check(
            &BridgeStatus { permits, ..bridge() },
            200,
            "degraded",
            &["7 of 8 permits for calls (MCPO"],
        );
        let kept_calls = LimitUse { used: 1000, limit: 1024 };
        check(&BridgeStatus { kept_calls, ..bridge() }, 200, "degraded", &["1000 of 1024 permits"]);
        let kept_children = LimitUse { used: 81, limit: 100 };
        check(
            &BridgeStatus { kept_children, ..bridge() },
            200,
            "degraded",
            &["81 of 100 kept processes"],
        );
        let disk = Some(DiskStatus { free: 19, total: 100, min_free: 5, ..DiskStatus::default() });
        check(&BridgeStatus { disk, ..bridge() }, 200, "degraded", &["81 % full"]);
        let disk = Some(DiskStatus { free: 40, total: 100, min_free: 50, ..DiskStatus::default() });
        check(
            &BridgeStatus { disk, ..bridge() },
            200,
            "degraded",
            &["40 bytes left, new jobs need 50"],
        );
    }

    #[test]
    fn one_broken_server_degrades_and_all_of_them_are_down() {
        let servers = vec![ready_server("a"), failed_server("b")];
        check(&BridgeStatus { servers, ..bridge() }, 200, "degraded", &["`b` does not work"]);
        let servers = vec![server("a", ServerState::Learning), failed_server("b")];
        check(&BridgeStatus { servers, ..bridge() }, 200, "degraded", &["`b` does not work"]);
        let servers = vec![failed_server("a"), failed_server("b")];
        check(&BridgeStatus { servers, ..bridge() }, 503, "down", &["`a`", "`b`"]);
    }

    #[test]
    fn a_server_that_waits_for_a_person_is_no_fault() {
        let waiting = server("b", ServerState::Waiting("it exited".to_owned()));
        let bridge = BridgeStatus { servers: vec![waiting], ..bridge() };
        check(&bridge, 200, "ok", &[]);
        assert_eq!(ready(&bridge).0, 200);
        let (_, health) = health(&bridge, UNIX_EPOCH, Sight::Whole);
        let note = health["servers"]["b"]["note"].as_str().unwrap();
        assert!(note.contains("first person's values") && note.ends_with("it exited"), "{note}");
    }

    #[test]
    fn without_the_helper_process_it_is_down_and_not_ready() {
        let bridge = BridgeStatus { is_spawner_gone: true, ..bridge() };
        check(&bridge, 503, "down", &["helper process"]);
        assert_eq!(ready(&bridge).0, 503);
    }

    #[test]
    fn without_its_jobs_directory_it_is_down_and_not_ready_and_only_the_operator_sees_where() {
        let bridge = BridgeStatus { jobs_fault: Some(SECRET.to_owned()), ..bridge() };
        check(&bridge, 503, "down", &[SECRET]);
        let (status, body) = ready(&bridge);
        let reason = body["reason"].as_str().unwrap();
        assert!(status == 503 && reason.starts_with("the jobs directory cannot"), "{reason}");
        assert!(!reason.contains(SECRET), "{reason}");
    }

    #[test]
    fn a_new_certificate_that_cannot_be_used_degrades_it() {
        let bridge = BridgeStatus { tls_fault: Some("/tls.key: no".to_owned()), ..bridge() };
        check(
            &bridge,
            200,
            "degraded",
            &["the old one is shown on (MCPO_TLS_CERT, MCPO_TLS_KEY): /tls.key: no"],
        );
        assert_eq!(ready(&bridge).0, 200);
    }

    #[test]
    fn strangers_see_only_whether_it_works() {
        let child = ChildStatus { age: Duration::ZERO, idle: Duration::ZERO };
        let busy = ServerStatus { children: vec![child], ..ready_server("a") };
        let bridge = BridgeStatus { servers: vec![busy, failed_server("b")], ..bridge() };
        let (status, health) = health(&bridge, UNIX_EPOCH, Sight::Status);
        let version = env!("CARGO_PKG_VERSION");
        let timestamp = "1970-01-01T00:00:00Z";
        let expected = json!({
            "status": "degraded", "timestamp": timestamp, "version": version, "uptime": 61,
        });
        assert_eq!((status, health), (200, expected));
    }

    #[test]
    fn the_whole_tells_each_server() {
        let (_, health) = health(&bridge(), UNIX_EPOCH, Sight::Whole);
        let server = json!({
            "state": "ready", "error": null, "running": 1, "mode": "stateful", "children": 2,
            "stateful_processes": 0, "spares": 1, "isolation": "basic", "heals": {"H01": 3},
            "calls": {"made": 7, "failed": 1}, "eras": ["legacy"],
            "note": null,
        });
        assert_eq!(health["servers"]["a"], server);
        let numbers = ["running", "permits_in_use", "children", "spares", "sessions"];
        assert_eq!(numbers.map(|name| health[name].as_u64().unwrap()), [2, 3, 9, 2, 4]);
        assert_eq!(health["stateful_processes"], json!({"used": 80, "limit": 100}));
    }

    #[test]
    fn it_is_ready_once_every_server_was_tried_and_until_it_stops() {
        let readiness = |bridge: &BridgeStatus| {
            let (status, body) = ready(bridge);
            (status, body["reason"].as_str().unwrap_or_default().to_owned())
        };
        let tried =
            BridgeStatus { servers: vec![ready_server("a"), failed_server("b")], ..bridge() };
        assert_eq!(readiness(&tried), (200, String::new()));
        let servers = vec![ready_server("a"), server("b", ServerState::Learning)];
        let learning = BridgeStatus { servers, ..bridge() };
        assert_eq!(readiness(&learning), (503, "servers are still being learnt".to_owned()));
        let stopping = BridgeStatus { is_stopping: true, ..bridge() };
        assert_eq!(readiness(&stopping), (503, "the bridge is stopping".to_owned()));
    }
}
