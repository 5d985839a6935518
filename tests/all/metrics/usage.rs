//! Calls by tool, the wait for a slot, and what the processes of servers use.

use pontoon_tests::client::{Modern, Speaker};
use pontoon_tests::metrics::Page;
use pontoon_tests::rig::{Server, wait_until};
use serde_json::json;

use super::{FIXTURE, SOON, check, echo, settled};
use crate::{fixture, plan, rig, shell};

#[test]
fn calls_are_counted_by_tool_as_far_as_the_server_offers_it() {
    let rig = rig([fixture("stateless")]);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    echo(&mut client, 1);
    echo(&mut client, 2);
    assert_eq!(client.call(3, "crash", json!({})).status(), 502);
    // A client cannot make a series, however many names it tries.
    for number in 0..120 {
        client.call(4 + number, &format!("made_up_{number}"), json!({}));
    }
    let page = Page::of(&rig);
    let counted = page.samples("pontoon_tool_calls_total", FIXTURE);
    let counted: Vec<_> = counted
        .map(|it| (it.labels["tool"].as_str(), it.labels["outcome"].as_str(), it.value))
        .collect();
    let expected =
        [("crash", "failed_server", 1.0), ("echo", "answered", 2.0), ("other", "error", 120.0)];
    assert_eq!(counted, expected);
    let took = |tool| {
        let labels = [("server", "fixture"), ("tool", tool)];
        page.value("pontoon_tool_call_duration_seconds_count", &labels)
    };
    assert_eq!((took("crash"), took("echo"), took("other")), (1.0, 2.0, 120.0));
    let all = [("server", "fixture"), ("kind", "tool")];
    assert_eq!(page.sum("pontoon_requests_total", &all), 123.0);
    drop(client);
    rig.stop();
}

#[test]
fn the_wait_for_a_slot_is_told() {
    let plan = plan([fixture("stateless")]).variable("MCPO_MAX_CONCURRENT", "1");
    let rig = plan.variable("MCPO_QUEUE_WAIT", "60").start();
    settled(&rig);
    let client = Modern::new(&rig.endpoint("fixture"));
    let first = client.send_call(1, "wait", json!({"ms": 60_000}));
    rig.wait_for_gauge("running", 1);
    let second = client.send_call(2, "echo", json!({"text": "x"}));
    check(&rig, "waiting_calls", &[], 1.0);
    drop(first);
    let (answer, _) = second.begin().unwrap().finish().unwrap();
    assert_eq!(answer.tool_text().as_deref(), Some("x"));
    let page = Page::of(&rig);
    assert_eq!(page.value("pontoon_queue_wait_seconds_count", FIXTURE), 2.0);
    let at_once = [("server", "fixture"), ("le", "0.001")];
    assert_eq!(page.value("pontoon_queue_wait_seconds_bucket", &at_once), 1.0);
    let waited = page.value("pontoon_queue_wait_seconds_sum", FIXTURE);
    assert!((0.001..60.0).contains(&waited), "{waited}");
    drop(client);
    rig.stop();
}

#[test]
#[cfg(target_os = "linux")]
fn what_children_use_is_told_and_what_they_computed_is_kept() {
    const WORK: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    // One that has a process below it, and one of which every call has a new one.
    let kept = shell(&format!("sleep 1000 & {WORK}; FIXTURE"), "stateful").with("idle_timeout", 4);
    let brief =
        Server { name: "brief".into(), ..shell(&format!("{WORK}; exec FIXTURE"), "stateless") };
    let rig = rig([kept, brief]);
    let before = settled(&rig);
    let of = |page: &Page, name: &str, server| {
        page.value(&format!("pontoon_child_{name}"), &[("server", server)])
    };
    for server in ["shell", "brief"] {
        assert_eq!(of(&before, "processes", server), 0.0);
        assert_eq!(of(&before, "memory_bytes", server), 0.0);
        assert!(of(&before, "cpu_seconds_total", server) > 0.04, "what learnt it has ended");
    }
    let mut client = Modern::new(&rig.endpoint("shell"));
    echo(&mut client, 1);
    let page = Page::of(&rig);
    assert_eq!(of(&page, "processes", "shell"), 3.0, "the shell, its sleep and the server");
    assert!(of(&page, "memory_bytes", "shell") > 1e6, "{page:?}");
    let grown = of(&page, "cpu_seconds_total", "shell") - of(&before, "cpu_seconds_total", "shell");
    assert!(grown > 0.04, "it lives, and {grown} s is what it has computed so far");
    let brief_before = of(&page, "cpu_seconds_total", "brief");
    echo(&mut Modern::new(&rig.endpoint("brief")), 1);
    check(&rig, "child_processes", &[("server", "brief")], 0.0);
    let mut last = 0.0;
    wait_until("the end of the kept one", SOON, || {
        let page = Page::of(&rig);
        let computed = of(&page, "cpu_seconds_total", "shell");
        assert!(computed >= last, "a counter went down: {last} {computed}");
        last = computed;
        page.value("pontoon_children", &[("server", "shell")]) == 0.0
    });
    let page = Page::of(&rig);
    assert!(of(&page, "cpu_seconds_total", "brief") - brief_before > 0.04, "{page:?}");
    assert!(last - of(&before, "cpu_seconds_total", "shell") > 0.04, "{page:?}");
    assert_eq!(of(&page, "memory_bytes", "shell"), 0.0);
    drop(client);
    rig.stop();
}
