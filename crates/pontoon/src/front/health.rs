//! `/health`: how the bridge and its servers are. Looking changes nothing.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::http::Site;
use super::respond::{Answer, json as respond};
use crate::session::catalog::State;

/// The state of everything, as JSON.
pub fn health(site: &Arc<Site>) -> Answer {
    let mut servers = Map::new();
    let mut failed = 0;
    for (name, entry) in &site.sessions.entries {
        let heals = entry.back.heals.counts();
        let heals: Map<_, _> =
            heals.iter().map(|(heal, n)| (heal.code().to_owned(), json!(n))).collect();
        let (state, error) = match entry.state() {
            State::Learning => ("learning", None),
            State::Ready(_) => ("ready", None),
            State::Failed(why) => ("failed", Some(why)),
        };
        failed += usize::from(error.is_some());
        let running = entry.back.running();
        servers.insert(
            name.clone(),
            json!({ "state": state, "error": error, "running": running, "heals": heals }),
        );
    }
    let status = match failed {
        0 => "ok",
        _ if failed == site.sessions.entries.len() => "down",
        _ => "degraded",
    };
    let running: usize = site.sessions.entries.values().map(|entry| entry.back.running()).sum();
    let health = json!({
        "status": status,
        "timestamp": timestamp(SystemTime::now()),
        "version": env!("CARGO_PKG_VERSION"),
        "uptime": site.started.elapsed().as_secs(),
        "servers": Value::Object(servers),
        "running": running,
        "permits_in_use": site.sessions.admission.in_use(),
        "children": site.spawner.living(),
        "sessions": site.sessions.count(),
    });
    respond(if status == "down" { 503 } else { 200 }, &Bytes::from(health.to_string()).into())
}

/// A point in time as ISO 8601 in UTC.
fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, seconds) = (since / 86_400, since % 86_400);
    // Days since 1970 as a date, in the proleptic Gregorian calendar counted from March.
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_iso_8601() {
        let at = |seconds| timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_794_700_800), "2026-11-15T00:00:00Z");
    }
}
