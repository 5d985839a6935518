//! Replicas at addresses that were named, as their `/health` and `/metrics` tell, in one table with a sum.

use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::report::{Paint, clean, duration, width};
use crate::cli::health::{Seen, look};
use crate::errors::chain;

const HEADS: [&str; 9] =
    ["REPLICA", "STATE", "UP", "CALLS", "FAILED", "OPEN", "WAITING", "PROCESSES", "CLIENTS"];

/// What is counted, as it is called in JSON, in the order of the columns.
const COUNTS: [&str; 6] = ["calls", "failed", "open", "waiting", "processes", "clients"];

/// Asks all of them at once.
pub(super) fn ask(urls: &[String], key: Option<&str>) -> Vec<Value> {
    thread::scope(|scope| {
        let asked: Vec<_> =
            urls.iter().map(|url| scope.spawn(move || (url, look(url, key)))).collect();
        let answers = asked.into_iter().map(|it| it.join().expect("asking does not panic"));
        answers
            .map(|(url, answer)| match answer {
                Ok(seen) => told(url, &seen),
                Err(why) => json!({ "url": url, "answers": false, "silence": chain(&why) }),
            })
            .collect()
    })
}

fn told(url: &str, Seen { health, metrics }: &Seen) -> Value {
    let servers = health["servers"].as_object();
    let sum = |part: &str| {
        servers.map(|servers| added(servers.values().map(|server| &server["calls"][part])))
    };
    let waiting = metrics
        .lines()
        .find_map(|line| line.strip_prefix("pontoon_waiting_calls ")?.trim().parse::<u64>().ok());
    json!({
        "url": url,
        "answers": true,
        "state": health["status"],
        "version": health["version"],
        "uptime": health["uptime"],
        "reasons": health["reasons"],
        "calls": sum("made"),
        "failed": sum("failed"),
        "open": health["running"],
        "waiting": waiting,
        "processes": health["children"],
        "clients": health["sessions"],
    })
}

/// Whether all of them answer and work.
pub(super) fn are_well(replicas: &[Value]) -> bool {
    replicas.iter().all(|it| matches!(it["state"].as_str(), Some("ok" | "degraded")))
}

/// The table, with a sum where there are several.
pub(super) fn table(replicas: &[Value], has_colour: bool) -> String {
    let paint = Paint(has_colour);
    let mut rows: Vec<_> = replicas.iter().map(row).collect();
    if replicas.len() > 1 {
        rows.push(sum(replicas));
    }
    let widths: [usize; 9] = std::array::from_fn(|at| {
        rows.iter().map(|row| width(&row[at])).chain([HEADS[at].len()]).max().unwrap_or_default()
    });
    let line = |cells: &[String; 9], state: Option<&str>| {
        let mut line = String::new();
        for (at, cell) in cells.iter().enumerate() {
            let space = " ".repeat(widths[at] - width(cell));
            let shown = match (at, state) {
                (_, None) => paint.dim(cell),
                (1, Some(state)) => paint.state(state, cell),
                _ => cell.clone(),
            };
            // Numbers and times stand to the right.
            let (before, behind) = if at < 2 { ("", &*space) } else { (&*space, "") };
            line.extend([before, &shown, behind, "  "]);
        }
        line.trim_end().to_owned() + "\n"
    };
    let mut text = line(&HEADS.map(str::to_owned), None);
    for (at, row) in rows.iter().enumerate() {
        let replica = replicas.get(at);
        text += &line(row, Some(replica.map_or("ok", state)));
        for note in replica.into_iter().flat_map(notes) {
            text.extend(["  ", &paint.warning(&note), "\n"]);
        }
    }
    text
}

fn state(replica: &Value) -> &str {
    replica["state"].as_str().unwrap_or("does not answer")
}

/// What does not fit into a row.
fn notes(replica: &Value) -> Vec<String> {
    let silence = replica["silence"].as_str().map(clean);
    let reasons = replica["reasons"].as_array().into_iter().flatten();
    let hidden =
        "it tells its numbers to those who show a key: set MCPO_API_KEY, or say --token-env";
    let is_hidden = replica["answers"] == json!(true) && replica["calls"].is_null();
    let hidden = is_hidden.then(|| hidden.to_owned());
    silence.into_iter().chain(reasons.filter_map(Value::as_str).map(clean)).chain(hidden).collect()
}

fn row(replica: &Value) -> [String; 9] {
    let up = replica["uptime"].as_u64().map(|up| duration(Duration::from_secs(up)));
    let up = up.unwrap_or_else(|| "-".to_owned());
    let [calls, failed, open, waiting, processes, clients] = COUNTS
        .map(|count| replica[count].as_u64().map_or_else(|| "-".to_owned(), |it| it.to_string()));
    let url = clean(replica["url"].as_str().unwrap_or_default());
    [url, clean(state(replica)), up, calls, failed, open, waiting, processes, clients]
}

/// Numbers that were told, together. What tells them may tell anything.
fn added<'v>(numbers: impl Iterator<Item = &'v Value>) -> u64 {
    numbers.filter_map(Value::as_u64).fold(0, u64::saturating_add)
}

/// All of them together.
fn sum(replicas: &[Value]) -> [String; 9] {
    let answering = replicas.iter().filter(|it| it["answers"] == json!(true)).count();
    let [calls, failed, open, waiting, processes, clients] =
        COUNTS.map(|count| added(replicas.iter().map(|it| &it[count])).to_string());
    let what = format!("{} replicas", replicas.len());
    let answering = format!("{answering} answer");
    [what, answering, String::new(), calls, failed, open, waiting, processes, clients]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(status: &str, made: u64) -> Seen {
        let health = json!({
            "status": status, "version": "1.2.3", "uptime": 3700, "reasons": [], "running": 1, "children": 4, "sessions": 2,
            "servers": {"a": {"calls": {"made": made, "failed": 1}}, "b": {"calls": {"made": 1, "failed": 0}}},
        });
        Seen { health, metrics: "# x\npontoon_waiting_calls 3\nother 9\n".to_owned() }
    }

    #[track_caller]
    fn check(replicas: &[Value], is_well: bool, expected: &str) {
        // What is expected begins on a line of its own.
        assert_eq!(format!("\n{}", table(replicas, false)), expected);
        assert_eq!(are_well(replicas), is_well);
    }

    #[test]
    fn numbers_of_any_size_are_added() {
        let [a, b] = ["http://a:1", "http://b:1"].map(|url| told(url, &seen("ok", u64::MAX)));
        assert!(table(&[a, b], false).contains(&u64::MAX.to_string()));
    }

    #[test]
    fn replicas_stand_in_one_table_with_a_sum_and_one_that_is_dead_says_so() {
        let dead =
            json!({ "url": "http://c:8080", "answers": false, "silence": "no bridge answers" });
        let [a, b] = [("http://a:8080", 41), ("http://b:8080", 9)]
            .map(|(url, made)| told(url, &seen("ok", made)));
        check(
            &[a.clone(), b, dead],
            false,
            "
REPLICA        STATE                UP  CALLS  FAILED  OPEN  WAITING  PROCESSES  CLIENTS
http://a:8080  ok               1h 01m     42       1     1        3          4        2
http://b:8080  ok               1h 01m     10       1     1        3          4        2
http://c:8080  does not answer       -      -       -     -        -          -        -
  no bridge answers
3 replicas     2 answer                    52       2     2        6          8        4
",
        );
        check(
            &[a],
            true,
            "
REPLICA        STATE      UP  CALLS  FAILED  OPEN  WAITING  PROCESSES  CLIENTS
http://a:8080  ok     1h 01m     42       1     1        3          4        2
",
        );
    }

    #[test]
    fn one_that_is_down_or_tells_no_numbers_says_why() {
        let mut down = told("http://a:80", &seen("down", 1));
        down["reasons"] = json!(["the server `a` does not work"]);
        let hidden = told(
            "http://a:80",
            &Seen { health: json!({"status": "ok", "uptime": 1}), metrics: String::new() },
        );
        assert!(!are_well(std::slice::from_ref(&down)) && are_well(std::slice::from_ref(&hidden)));
        assert!(table(&[down], true).contains("\u{1b}[31mdown\u{1b}[0m"));
        assert!(table(&[hidden], false).contains("--token-env"));
    }
}
