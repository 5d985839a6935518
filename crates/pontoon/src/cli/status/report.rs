//! The table of bridges for people.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use pontoon_supervise::plain_text;
use serde_json::Value;
use unicode_width::UnicodeWidthStr;

/// So many of the last errors are shown.
const ERRORS: usize = 3;

/// So much of a text that may be long.
const LONGEST: usize = 160;

/// How a text is painted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint(pub(super) bool);

impl Paint {
    pub(super) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(super) fn warning(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(super) fn state(self, state: &str, text: &str) -> String {
        match state {
            "connected" | "ready" | "ok" => self.with("32", text),
            "away" | "degraded" | "waiting" | "looking" | "learning" | "idle" => {
                self.with("33", text)
            }
            _ => self.with("31", text),
        }
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// The bridges, each with what is to be known of it.
pub(super) fn report(bridges: &[Value], has_colour: bool, now: SystemTime) -> String {
    if bridges.is_empty() {
        return "no bridge of this user runs\n".to_owned();
    }
    let paint = Paint(has_colour);
    let heads = ["PID", "BRIDGE", "STATE", "UP", "CALLS", "FAILED", "OPEN", "WAITING", "CLIENTS"];
    let rows: Vec<_> = bridges.iter().map(|bridge| row(bridge, now)).collect();
    let widths: Vec<_> = (0..heads.len())
        .map(|at| rows.iter().map(|row| width(&row[at])).chain([heads[at].len()]).max())
        .map(Option::unwrap_or_default)
        .collect();
    let line = |cells: &[String], state: Option<&str>| {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let space = " ".repeat(widths[at] - width(cell));
            let cell = match (at, state) {
                (_, None) => paint.dim(cell),
                (1, _) => paint.bold(cell),
                (2, Some(state)) => paint.state(state, cell),
                _ => cell.clone(),
            };
            // Numbers and times stand to the right.
            let is_left = matches!(at, 1 | 2);
            line += if is_left { "" } else { &space };
            line += &cell;
            line += if is_left { &space } else { "" };
            line += "  ";
        }
        line.trim_end().to_owned() + "\n"
    };
    let mut text = line(&heads.map(str::to_owned), None);
    let indent = " ".repeat(widths[0] + 2);
    for (bridge, row) in bridges.iter().zip(&rows) {
        text += &line(row, Some(state(bridge)));
        for detail in details(bridge, paint, now) {
            writeln!(text, "{indent}{detail}").expect("a string takes everything");
        }
    }
    text
}

fn row(bridge: &Value, now: SystemTime) -> [String; 9] {
    let calls = &bridge["calls"];
    let kind = bridge["kind"].as_str().unwrap_or("a bridge that begins");
    let what = match bridge["address"].as_str() {
        Some(address) => format!("{kind} {address}"),
        None => kind.to_owned(),
    };
    let up = bridge["started"].as_str().and_then(|started| age_of(started, now));
    [
        bridge["pid"].to_string(),
        short(&what, 60),
        state(bridge).to_owned(),
        up.map_or_else(|| "-".to_owned(), duration),
        number(&calls["made"]),
        number(&calls["failed"]),
        number(&calls["open"]),
        number(&calls["waiting"]),
        number(&bridge["clients"]),
    ]
}

fn state(bridge: &Value) -> &str {
    match bridge["answers"].as_bool() {
        Some(true) => bridge["state"].as_str().unwrap_or("?"),
        _ => "does not answer",
    }
}

/// What does not fit into a row.
fn details(bridge: &Value, paint: Paint, now: SystemTime) -> Vec<String> {
    let mut lines = Vec::new();
    let path = bridge["program"]["path"].as_str().unwrap_or("?");
    match bridge["program"]["on_disk"].as_str() {
        Some("replaced") => lines.push(paint.warning(&format!(
            "! the program on disk is another than the one that runs: start it again to use {}",
            clean(path)
        ))),
        Some("gone") => lines.push(
            paint.warning(&format!("! the program that runs is no longer at {}", clean(path))),
        ),
        _ => {}
    }
    if let Some(silence) = bridge["silence"].as_str() {
        lines.push(paint.warning(&clean(silence)));
        return lines;
    }
    if let Some(why) = bridge["why"].as_str() {
        let advice = bridge["advice"].as_str().map(|it| format!("; {it}")).unwrap_or_default();
        let since = bridge["since"].as_u64().map(|since| duration(Duration::from_secs(since)));
        let since = since.unwrap_or_default();
        lines.push(
            paint.warning(&format!("away for {since}: {}", clean(&format!("{why}{advice}")))),
        );
    }
    let mut facts = Vec::new();
    if bridge["state"] == "idle" {
        facts.push("its client has said nothing yet".to_owned());
    }
    if bridge["state"] == "connected" {
        let since = Duration::from_secs(bridge["since"].as_u64().unwrap_or_default());
        let through = bridge["through"].as_u64().map(|pid| format!(" through process {pid}"));
        facts.push(format!("connected{} for {}", through.unwrap_or_default(), duration(since)));
    }
    match bridge["connections"].as_u64() {
        Some(times) if times > 1 => facts.push(format!("connection number {times}")),
        _ => {}
    }
    facts.extend(bridge["era"].as_str().map(|era| format!("{} era", clean(era))));
    facts.extend(bridge["round_trip_ms"].as_f64().map(|time| format!("round trip {time:.1} ms")));
    let catalogue = &bridge["catalogue"];
    if let (Some(tools), Some(age)) = (catalogue["tools"].as_u64(), catalogue["age"].as_u64()) {
        let age = duration(Duration::from_secs(age));
        facts.push(format!("{tools} tools, learnt {age} ago"));
    }
    facts.extend(heals(&bridge["heals"]));
    if !facts.is_empty() {
        lines.push(paint.dim(&facts.join(", ")));
    }
    lines.extend(servers(&bridge["health"], paint));
    let errors = bridge["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    for error in errors.iter().rev().take(ERRORS).rev() {
        let ago = error["time"].as_str().and_then(|time| age_of(time, now));
        let ago = ago.map(|ago| format!("{} ago: ", duration(ago))).unwrap_or_default();
        let times = match error["times"].as_u64() {
            Some(times) if times > 1 => format!(" ({times} times)"),
            _ => String::new(),
        };
        let words = error["text"].as_str().unwrap_or("?");
        let level = clean(error["level"].as_str().unwrap_or("?"));
        lines.push(paint.dim(&format!("{level}, {ago}{}{times}", clean(words))));
    }
    lines
}

/// The servers of a `serve`, one on each line.
fn servers(health: &Value, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    for reason in health["reasons"].as_array().into_iter().flatten() {
        lines.push(paint.warning(&clean(reason.as_str().unwrap_or("?"))));
    }
    let servers = health["servers"].as_object();
    let longest = servers.into_iter().flatten().map(|(name, _)| width(name)).max().unwrap_or(0);
    for (name, server) in servers.into_iter().flatten() {
        let state = server["state"].as_str().unwrap_or("?");
        let space = " ".repeat(longest - width(name));
        let calls = &server["calls"];
        let eras: Vec<_> =
            server["eras"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut facts = vec![
            format!("{} calls", number(&calls["made"])),
            format!("{} failed", number(&calls["failed"])),
            format!("{} open", number(&server["running"])),
        ];
        facts.extend((!eras.is_empty()).then(|| format!("{} era", eras.join(" and "))));
        facts.extend(heals(&server["heals"]));
        let state = paint.state(state, &format!("{:<8}", clean(state)));
        lines.push(format!("{}{space}  {state}  {}", clean(name), paint.dim(&facts.join(", "))));
        for why in [&server["error"], &server["note"]].into_iter().filter_map(Value::as_str) {
            lines.push(format!("{}  {}", " ".repeat(longest), paint.warning(&clean(why))));
        }
    }
    lines
}

fn heals(heals: &Value) -> Option<String> {
    let heals = heals.as_object().filter(|heals| !heals.is_empty())?;
    let all: Vec<_> =
        heals.iter().map(|(code, count)| format!("{} {count}", clean(code))).collect();
    Some(format!("healed: {}", all.join(", ")))
}

fn number(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// How long ago that was.
fn age_of(time: &str, now: SystemTime) -> Option<Duration> {
    let time = humantime::parse_rfc3339(time).ok()?;
    Some(now.duration_since(time).unwrap_or_default())
}

/// A time in the two units that say most.
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// A text of others for a terminal.
pub(super) fn clean(text: &str) -> String {
    short(&plain_text(text.to_owned()), LONGEST)
}

/// At most this many characters.
fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// How many columns a text takes: some letters take two.
pub(super) fn width(text: &str) -> usize {
    UnicodeWidthStr::width(text)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(bridges: &[Value], expected: &str) {
        let now = UNIX_EPOCH + Duration::from_secs(3700);
        // What is expected begins on a line of its own.
        assert_eq!(format!("\n{}", report(bridges, false, now)), expected);
    }

    fn connected() -> Value {
        json!({
            "pid": 4242, "kind": "connect", "address": "ws://localhost:7400/", "answers": true,
            "started": "1970-01-01T00:00:00Z", "version": "1.2.3", "silence": null,
            "program": {"path": "/usr/bin/pontoon", "on_disk": "same"},
            "state": "connected", "why": null, "since": 65, "connections": 2, "era": "legacy", "through": null,
            "round_trip_ms": 0.4321, "clients": 2,
            "calls": {"made": 12, "failed": 1, "open": 1, "waiting": 3},
            "heals": {"H08": 3, "S003": 1}, "catalogue": {"tools": 9, "age": 65, "is_current": true},
            "errors": [{"time": "1970-01-01T01:00:00Z", "level": "warning", "text": "application \u{1b}[31mgone", "times": 2}],
        })
    }

    #[test]
    fn nothing_is_told_in_words() {
        check(&[], "\nno bridge of this user runs\n");
    }

    #[test]
    fn one_that_is_connected_has_its_numbers_in_columns() {
        check(
            &[connected()],
            "
 PID  BRIDGE                        STATE          UP  CALLS  FAILED  OPEN  WAITING  CLIENTS
4242  connect ws://localhost:7400/  connected  1h 01m     12       1     1        3        2
      connected for 1m 05s, connection number 2, legacy era, round trip 0.4 ms, 9 tools, learnt 1m 05s ago, healed: H08 3, S003 1
      warning, 1m 40s ago: application gone (2 times)
",
        );
    }

    #[test]
    fn one_that_is_away_says_why_and_what_to_do() {
        let mut away = connected();
        away["state"] = json!("away");
        away["why"] = json!("connection refused");
        away["advice"] = json!("start the application");
        for empty in ["errors", "heals", "era", "round_trip_ms", "connections"] {
            away[empty] = Value::Null;
        }
        away["through"] = json!(7);
        away["program"]["on_disk"] = json!("replaced");
        check(
            &[away],
            "
 PID  BRIDGE                        STATE      UP  CALLS  FAILED  OPEN  WAITING  CLIENTS
4242  connect ws://localhost:7400/  away   1h 01m     12       1     1        3        2
      ! the program on disk is another than the one that runs: start it again to use /usr/bin/pontoon
      away for 1m 05s: connection refused; start the application
      9 tools, learnt 1m 05s ago
",
        );
    }

    #[test]
    fn one_that_does_not_answer_is_told_with_what_is_known_of_it() {
        let silent = json!({
            "pid": 7, "kind": "connect", "address": "ws://a/", "answers": false, "started": "1970-01-01T01:01:00Z",
            "silence": "no answer within 2 s: it may be stopped", "program": {"on_disk": "gone", "path": "/p"},
        });
        let begins = json!({"pid": 123_456, "answers": false, "silence": "no such file"});
        check(
            &[silent, begins],
            "
   PID  BRIDGE                STATE             UP  CALLS  FAILED  OPEN  WAITING  CLIENTS
     7  connect ws://a/       does not answer  40s      -       -     -        -        -
        ! the program that runs is no longer at /p
        no answer within 2 s: it may be stopped
123456  a bridge that begins  does not answer    -      -       -     -        -        -
        no such file
",
        );
    }

    #[test]
    fn the_servers_of_a_serve_stand_below_it() {
        let serve = json!({
            "pid": 8, "kind": "serve", "address": "http://127.0.0.1:8080", "answers": true, "clients": 4,
            "started": "1970-01-01T01:01:00Z", "state": "degraded",
            "calls": {"made": 5, "failed": 0, "open": 0, "waiting": 0},
            "health": {
                "reasons": ["the server `b` does not work"],
                "servers": {
                    "a-long-one": {"state": "ready", "running": 1, "calls": {"made": 5, "failed": 0}, "eras": ["legacy", "modern"], "heals": {"H01": 2}},
                    "b": {"state": "failed", "running": 0, "calls": {"made": 0, "failed": 0}, "eras": [], "heals": {}, "error": "no \u{1b}[31mprogram"},
                },
            },
        });
        check(
            &[serve],
            "
PID  BRIDGE                       STATE      UP  CALLS  FAILED  OPEN  WAITING  CLIENTS
  8  serve http://127.0.0.1:8080  degraded  40s      5       0     0        0        4
     the server `b` does not work
     a-long-one  ready     5 calls, 0 failed, 1 open, legacy and modern era, healed: H01 2
     b           failed    0 calls, 0 failed, 0 open
                 no program
",
        );
    }

    #[test]
    fn colour_is_only_where_it_is_wanted() {
        let now = UNIX_EPOCH + Duration::from_secs(3700);
        assert!(!report(&[connected()], false, now).contains('\u{1b}'));
        let painted = report(&[connected()], true, now);
        assert!(painted.contains("\u{1b}[32mconnected\u{1b}[0m"), "{painted}");
        assert!(!painted.contains("[31m"), "the paint of an application stays out");
    }

    #[test]
    fn times_have_the_two_units_that_say_most() {
        for (seconds, expected) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m 00s"),
            (3599, "59m 59s"),
            (3600, "1h 00m"),
            (90_000, "1d 01h"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), expected);
        }
    }
}
