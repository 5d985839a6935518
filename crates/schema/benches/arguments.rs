//! What leading a call back costs, beside one reading of its arguments by a JSON parser that keeps nothing.
//!
//! `cargo bench -p pontoon-schema [-- --quick]`. The rows are told in `docs/benchmarks.md`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a bench prints its table")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use pontoon_schema::{Plan, Profile, repair};
use serde_json::value::RawValue;

fn main() {
    let is_asked = |word: &str| std::env::args().any(|it| it == word);
    // Cargo says this when it measures; without it, it only tests that this can be built.
    if !is_asked("--bench") {
        return;
    }
    let time = Duration::from_millis(if is_asked("--quick") { 50 } else { 500 });
    let typed = r#"{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}},"required":["path"]}"#;
    let renamed =
        r#"{"type":"object","properties":{"path":{"type":"string"},"$top":{"type":"integer"}}}"#;
    let united = r#"{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer"}},"oneOf":[{"required":["path"]},{"required":["line"]}]}"#;
    let call = r#"{"path":"src/main.rs","line":42,"tags":["a","b"]}"#;
    let long = format!(r#"{{"path":"{}","line":42}}"#, "x".repeat(1 << 20));
    println!("{:44} {:>12} {:>12} {:>7}", "arguments", "led back", "one reading", "ratio");
    for (what, schema, arguments) in [
        ("as the tool takes them", typed, call),
        ("as the tool takes them, 1 MiB", typed, long.as_str()),
        (
            "a text for a number, null for nothing",
            typed,
            r#"{"path":"src/main.rs","line":"42","tags":null}"#,
        ),
        ("a JSON text for a list", typed, r#"{"path":"src/main.rs","tags":"[\"a\",\"b\"]"}"#),
        ("under another name", renamed, r#"{"path":"src/main.rs","top":42}"#),
        ("enforced: alternatives at the root", united, r#"{"path":"src/main.rs"}"#),
    ] {
        let tool = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
        let plan = repair(&tool, Profile::common()).plan;
        let lead = || {
            black_box(lead(&plan, black_box(arguments)));
        };
        let read = || drop(black_box(serde_json::from_str::<&RawValue>(black_box(arguments))));
        // In turns, so that both meet the same machine.
        let (mut led, mut floor) = (Duration::MAX, Duration::MAX);
        for _ in 0..5 {
            led = led.min(each(lead, time / 5));
            floor = floor.min(each(read, time / 5));
        }
        let ratio = led.as_secs_f64() / floor.as_secs_f64();
        println!("{what:44} {led:>12.0?} {floor:>12.0?} {ratio:>7.2}");
    }
    let tool = format!(r#"{{"name":"t","description":"It does.","inputSchema":{typed}}}"#);
    let healthy = each(|| drop(black_box(repair(black_box(&tool), Profile::common()))), time);
    println!(
        "\na healthy tool of {} bytes, looked at when it is learnt: {healthy:.0?}",
        tool.len()
    );
}

fn lead(plan: &Plan, arguments: &str) -> usize {
    plan.arguments(arguments).map_or(0, |fitted| fitted.len())
}

/// How long one takes, over so much time.
fn each(mut run: impl FnMut(), time: Duration) -> Duration {
    let began = Instant::now();
    let mut times = 0;
    while began.elapsed() < time {
        (0..10).for_each(|_| run());
        times += 10;
    }
    began.elapsed() / times
}
