//! Every number of `/metrics`, each driven and read; and that looking changes nothing and tells nothing
//! of anybody.

mod families;
mod usage;

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pontoon_tests::client::{Legacy, Modern, Request, Speaker};
use pontoon_tests::metrics::Page;
use pontoon_tests::rig::{Rig, Server, processes, send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use self::families::FAMILIES;
use crate::{binaries, fixture, fixture_of, on_a_small_disk, plan, rig, rude, shell};

const SOON: Duration = Duration::from_secs(20);

const FIXTURE: &[(&str, &str)] = &[("server", "fixture")];

/// Waits until a number has this value.
fn check(rig: &Rig, name: &str, labels: &[(&str, &str)], value: f64) {
    let name = format!("pontoon_{name}");
    let mut last = f64::NAN;
    let what = format!("{name} {labels:?} == {value}");
    let holds = pontoon_tests::rig::holds_within(SOON, || {
        last = Page::of(rig).sum(&name, labels);
        last == value
    });
    assert!(holds, "{what}, but it is {last}");
}

fn echo(client: &mut impl Speaker, id: u32) {
    let response = client.call(id, "echo", json!({"text": "x"}));
    assert_eq!(response.tool_text().as_deref(), Some("x"), "{}", response.text());
}

/// The page once the children that learnt the servers are gone.
fn settled(rig: &Rig) -> Page {
    check(rig, "children", &[], 0.0);
    Page::of(rig)
}

#[test]
fn every_family_is_there_and_no_other() {
    let rig = rig([fixture("stateless")]);
    let page = Page::of(&rig);
    assert_eq!(page.families.keys().map(String::as_str).collect::<Vec<_>>(), FAMILIES);
    assert_eq!(page.value("pontoon_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    let uptime = |page: &Page| page.value("pontoon_uptime_seconds", &[]);
    let first = uptime(&page);
    wait_until("time goes on", SOON, || uptime(&Page::of(&rig)) > first);
    assert_eq!(page.value("pontoon_ready", &[]), 1.0);
    let of_process = |name: &str| page.value(&format!("process_{name}"), &[]);
    let started = SystemTime::now() - Duration::from_secs_f64(of_process("start_time_seconds"));
    let age = started.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((0.0..60.0).contains(&age), "it was started {age} s ago");
    assert!(of_process("resident_memory_bytes") > 1e6, "{page:?}");
    assert!(of_process("virtual_memory_bytes") >= of_process("resident_memory_bytes"));
    assert!(of_process("threads") >= 2.0 && of_process("open_fds") > 3.0, "{page:?}");
    assert!(of_process("max_fds") >= of_process("open_fds"), "{page:?}");
    let computed = of_process("cpu_seconds_total");
    wait_until("it computes", SOON, || {
        Page::of(&rig).value("process_cpu_seconds_total", &[]) > computed
    });
    rig.stop();
}

#[test]
fn requests_are_counted_by_what_they_were_for_and_how_they_ended() {
    let broken = Server::new("broken", "/bin/false".as_ref(), &[]).that_may_fail();
    let servers = [fixture("stateless").with("timeout", 2), broken];
    let rig = plan(servers).variable("MCPO_MAX_CONCURRENT", "1").start();
    rig.wait_for_state("broken", "failed");
    let before = settled(&rig);
    assert_eq!(before.sum("pontoon_requests_total", &[]), 0.0);

    let mut legacy = Legacy::open(&rig.endpoint("fixture"));
    let mut modern = Modern::new(&rig.endpoint("fixture"));
    let asked = [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("resources/read", json!({"uri": "test://static-text"})),
        ("prompts/get", json!({"name": "test_simple_prompt"})),
    ];
    for (method, params) in asked {
        let response = modern.ask(1, method, params);
        assert!(response.answer().get("result").is_some(), "{method}: {}", response.text());
    }
    legacy.ask(1, "ping", json!({}));
    legacy.ask(2, "resources/subscribe", json!({"uri": "test://x"}));
    echo(&mut modern, 2);
    assert!(modern.call(3, "no_such_tool", json!({})).answer().get("error").is_some());
    assert_eq!(modern.call(4, "crash", json!({})).status(), 502);
    let slow = modern.send_call(5, "wait", json!({"ms": 60_000}));
    rig.wait_for_gauge("running", 1);
    assert_eq!(modern.call(6, "echo", json!({"text": "x"})).status(), 429);
    assert_eq!(slow.begin().unwrap().head.status, 504);
    rig.wait_for_gauge("running", 0);
    let left = modern.send_call(7, "wait", json!({"ms": 60_000}));
    rig.wait_for_gauge("running", 1);
    drop(left);
    rig.wait_for_gauge("running", 0);
    let mut lost = Modern::new(&rig.endpoint("broken"));
    assert_eq!(lost.call(1, "echo", json!({})).status(), 502);

    let expected = [
        ("handshake", "answered", 2),
        ("list", "answered", 1),
        ("other", "answered", 1),
        ("prompt", "answered", 1),
        ("resource", "answered", 1),
        ("subscription", "error", 1),
        ("tool", "answered", 1),
        ("tool", "cancelled", 1),
        ("tool", "error", 1),
        ("tool", "failed_busy", 1),
        ("tool", "failed_server", 1),
        ("tool", "failed_timeout", 1),
    ];
    let page = Page::of(&rig);
    let counted = page.samples("pontoon_requests_total", FIXTURE);
    let counted: BTreeMap<_, _> = counted
        .map(|it| ((it.labels["kind"].as_str(), it.labels["outcome"].as_str()), it.value))
        .collect();
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|(kind, ending, count)| ((*kind, *ending), f64::from(*count)))
        .collect();
    assert_eq!(counted, expected);
    assert_eq!(page.value("pontoon_errors_total", FIXTURE), 5.0);
    assert_eq!(page.value("pontoon_request_duration_seconds_count", FIXTURE), 13.0);
    let seconds = page.value("pontoon_request_duration_seconds_sum", FIXTURE);
    assert!((2.0..60.0).contains(&seconds), "{seconds}: the time-out alone took two seconds");
    let broken = [("server", "broken"), ("kind", "tool"), ("outcome", "failed_server")];
    assert_eq!(page.value("pontoon_requests_total", &broken), 1.0);
    assert_eq!(page.value("pontoon_errors_total", &[("server", "broken")]), 1.0);
    for (server, state) in [("fixture", "ready"), ("broken", "failed")] {
        let labels = |state| [("server", server), ("state", state)];
        assert_eq!(page.value("pontoon_server_state", &labels(state)), 1.0);
        assert_eq!(page.sum("pontoon_server_state", &[("server", server)]), 1.0);
    }
    assert!(page.value("pontoon_child_start_failures_total", &[("server", "broken")]) >= 1.0);
    assert_eq!(page.value("pontoon_child_start_failures_total", FIXTURE), 0.0);
    drop((modern, lost));
    legacy.end();
    rig.stop();
}

#[test]
fn addresses_are_counted_up_to_a_limit() {
    let rig = plan([fixture("stateless")]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8").start();
    let from = |address: &str| {
        let request = Request::post("/mcp/nowhere", "{}").header("X-Forwarded-For", address);
        assert_eq!(request.send(rig.address()).unwrap().status(), 404);
    };
    for _ in 0..3 {
        from("198.51.100.7");
    }
    from("2001:db8::7");
    let count =
        |address| Page::of(&rig).value("pontoon_client_requests_total", &[("address", address)]);
    assert_eq!((count("198.51.100.7"), count("2001:db8::7"), count("other")), (3.0, 1.0, 0.0));
    for number in 0..1010 {
        from(&format!("10.0.{}.{}", number / 256, number % 256));
    }
    let page = Page::of(&rig);
    assert_eq!(page.samples("pontoon_client_requests_total", &[]).count(), 1001);
    assert_eq!(count("other"), 12.0);
    assert_eq!(page.sum("pontoon_client_requests_total", &[]), 1014.0);
    from("198.51.100.7");
    assert_eq!(count("198.51.100.7"), 4.0, "one that is known is counted on");
    rig.stop();
}

#[test]
fn calls_children_permits_and_sessions_show_while_they_are_there() {
    let rig = plan([fixture("stateless")]).variable("MCPO_MAX_CONCURRENT", "7").start();
    let before = settled(&rig);
    let concurrent = [("limit", "concurrent")];
    assert_eq!(before.value("pontoon_permits_limit", &concurrent), 7.0);
    let starts = before.value("pontoon_child_starts_total", FIXTURE);
    let session = Legacy::open(&rig.endpoint("fixture"));
    let open = [1, 2].map(|id| session.send_call(id, "wait", json!({"ms": 60_000})));
    check(&rig, "running_calls", FIXTURE, 2.0);
    check(&rig, "children", &[("server", "fixture"), ("mode", "stateless")], 2.0);
    check(&rig, "living_children", &[], 2.0);
    check(&rig, "permits_in_use", &concurrent, 2.0);
    check(&rig, "sessions", &[], 1.0);
    check(&rig, "child_starts_total", FIXTURE, starts + 2.0);
    let page = Page::of(&rig);
    let took = page.value("pontoon_child_start_duration_seconds_count", FIXTURE);
    assert_eq!(took, starts + 2.0);
    assert!(page.value("pontoon_child_start_duration_seconds_sum", FIXTURE) > 0.0);
    session.end();
    drop(open);
    for gone in ["running_calls", "children", "living_children", "permits_in_use", "sessions"] {
        check(&rig, gone, &[], 0.0);
    }
    rig.stop();
}

#[test]
fn kept_children_tell_their_age_their_use_and_their_end() {
    let server = fixture("stateful").with("idle_timeout", 4);
    let rig = plan([server]).variable("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", "9").start();
    let clean = [("server", "fixture"), ("exit", "clean")];
    let ended = settled(&rig).value("pontoon_child_exits_total", &clean);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let open = client.send_call(1, "wait", json!({"ms": 700}));
    check(&rig, "permits_in_use", &[("limit", "kept_calls")], 1.0);
    open.begin().unwrap().finish().unwrap();
    echo(&mut client, 2);
    let page = Page::of(&rig);
    assert_eq!(page.value("pontoon_stateful_children", FIXTURE), 1.0);
    assert_eq!(page.value("pontoon_children", &[("mode", "stateful")]), 1.0);
    let total = [("limit", "total_processes")];
    assert_eq!(page.value("pontoon_permits_in_use", &total), 1.0);
    assert_eq!(page.value("pontoon_permits_limit", &total), 9.0);
    assert_eq!(page.value("pontoon_permits_limit", &[("limit", "kept_calls")]), 1024.0);
    let age = page.value("pontoon_stateful_child_oldest_seconds", FIXTURE);
    let idle = page.value("pontoon_stateful_child_idle_longest_seconds", FIXTURE);
    assert!(age > idle + 0.5 && idle >= 0.0, "it lived through the first call: {age} {idle}");
    assert_eq!(page.value("pontoon_idle_timeouts_total", FIXTURE), 0.0);

    check(&rig, "idle_timeouts_total", FIXTURE, 1.0);
    for gone in ["stateful_children", "stateful_child_oldest_seconds", "permits_in_use", "children"]
    {
        check(&rig, gone, &[], 0.0);
    }
    check(&rig, "child_exits_total", &clean, ended + 1.0);
    check(&rig, "child_exits_total", &[("exit", "abnormal")], 0.0);
    drop(client);
    rig.stop();
}

#[test]
fn an_end_is_abnormal_if_nobody_asked_for_it_and_it_was_no_success() {
    let named = |name: &str, server: Server| Server { name: name.to_owned(), ..server };
    let dies = Server::new("dies", &binaries().rude_server, &["--how", "die-in-handshake"]);
    let servers = [
        fixture("stateless"),
        // Ends with success, by itself.
        named("single", rude("die-after-one", "stateless")),
        // Ends without, but only once it is asked to: so do many servers.
        named("sulks", shell("FIXTURE; exit 1", "stateless")),
        named("kept", fixture("stateful")),
        // Has to be killed when its call has timed out.
        named("hangs", rude("freeze", "stateless").with("timeout", 1)),
        dies.that_may_fail(),
    ];
    let rig = rig(servers);
    let before = settled(&rig);
    let exits = |page: &Page, server, exit| {
        page.value("pontoon_child_exits_total", &[("server", server), ("exit", exit)])
    };
    for server in ["single", "sulks"] {
        echo(&mut Modern::new(&rig.endpoint(server)), 1);
        let clean = [("server", server), ("exit", "clean")];
        check(&rig, "child_exits_total", &clean, exits(&before, server, "clean") + 1.0);
        assert_eq!(exits(&Page::of(&rig), server, "abnormal"), 0.0, "{server}");
    }
    let crashed = Modern::new(&rig.endpoint("fixture")).call(1, "crash", json!({}));
    assert_eq!(crashed.status(), 502, "{}", crashed.text());
    check(&rig, "child_exits_total", &[("server", "fixture"), ("exit", "abnormal")], 1.0);
    let hung = Modern::new(&rig.endpoint("hangs")).call(1, "echo", json!({"text": "x"}));
    assert_eq!(hung.status(), 504, "{}", hung.text());
    check(&rig, "child_exits_total", &[("server", "hangs"), ("exit", "abnormal")], 1.0);

    let mut client = Modern::new(&rig.endpoint("kept"));
    echo(&mut client, 1);
    check(&rig, "stateful_children", &[("server", "kept")], 1.0);
    let child = rig.children()[0].pid;
    send_signal(child, Signal::KILL).unwrap();
    wait_until("the child is gone", SOON, || processes::read(child).is_none());
    check(&rig, "stateful_children", &[("server", "kept")], 0.0);
    assert!(client.call(2, "echo", json!({"text": "x"})).text().contains("is lost"));
    check(&rig, "child_exits_total", &[("server", "kept"), ("exit", "abnormal")], 1.0);

    rig.wait_for_state("dies", "failed");
    let page = Page::of(&rig);
    assert!(page.value("pontoon_child_start_failures_total", &[("server", "dies")]) >= 1.0);
    assert!(exits(&page, "dies", "abnormal") >= 1.0);
    assert_eq!(page.value("pontoon_child_starts_total", &[("server", "kept")]), 3.0);
    drop(client);
    rig.stop();
}

#[test]
fn spares_are_counted_and_so_is_who_found_one() {
    let rig = rig([fixture("stateless").with("warm", 2)]);
    check(&rig, "spares", FIXTURE, 2.0);
    check(&rig, "children", FIXTURE, 2.0);
    echo(&mut Modern::new(&rig.endpoint("fixture")), 1);
    let page = Page::of(&rig);
    assert_eq!(page.value("pontoon_spare_hits_total", FIXTURE), 1.0);
    assert_eq!(page.value("pontoon_spare_misses_total", FIXTURE), 0.0);
    // A child that was opened for one class of clients is of no use to another.
    let mut legacy = Legacy::open(&rig.endpoint("fixture"));
    echo(&mut legacy, 1);
    let page = Page::of(&rig);
    assert_eq!(page.value("pontoon_spare_hits_total", FIXTURE), 1.0);
    assert_eq!(page.value("pontoon_spare_misses_total", FIXTURE), 1.0);
    check(&rig, "spares", FIXTURE, 2.0);
    legacy.end();
    rig.stop();
}

#[test]
fn jobs_files_downloads_and_sweeps_are_counted() {
    let rig = plan([fixture("stateless")])
        .variable("MCPO_FILE_EXPIRY", "5s")
        .variable("MCPO_GC_INTERVAL", "1s")
        .start();
    settled(&rig);
    // Those of the children that learnt the server go a moment after them.
    check(&rig, "jobs_on_disk", &[], 0.0);
    let empty = Page::of(&rig);
    let (size, free) = ("pontoon_disk_size_bytes", "pontoon_disk_free_bytes");
    assert!(empty.value(free, &[]) > 0.0 && empty.value(free, &[]) <= empty.value(size, &[]));
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let text = "x".repeat(100_000);
    let made = client.call(1, "write_file", json!({"name": "a.txt", "text": text}));
    check(&rig, "jobs_total", &[], 1.0);
    check(&rig, "jobs_on_disk", &[], 1.0);
    let bytes = Page::of(&rig).value("pontoon_jobs_bytes", &[]);
    assert!((100_000.0..1e6).contains(&bytes), "{bytes}");
    let link = made.head.header("link").unwrap().trim_start_matches('<');
    let path = link.split('>').next().unwrap();
    assert_eq!(rig.get(path).body.len(), 100_000);
    let part = Request::new("GET", path).header("Range", "bytes=0-9").send(rig.address());
    assert_eq!(part.unwrap().body.len(), 10);
    assert_eq!(rig.get("/files/none/at-all").status(), 404);
    let page = Page::of(&rig);
    assert_eq!(page.value("pontoon_downloads_total", &[]), 2.0);
    assert_eq!(page.value("pontoon_download_bytes_total", &[]), 100_010.0);
    let sweeps = page.value("pontoon_sweeps_total", &[]);
    wait_until("another sweep", SOON, || {
        Page::of(&rig).value("pontoon_sweeps_total", &[]) > sweeps
    });
    check(&rig, "swept_jobs_total", &[], 1.0);
    check(&rig, "jobs_on_disk", &[], 0.0);
    check(&rig, "sweep_errors_total", &[], 0.0);
    // A link in place of the directory is left alone, and that is told.
    let (jobs, aside) = (rig.directory().join("jobs"), rig.directory().join("aside"));
    fs::rename(&jobs, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &jobs).unwrap();
    wait_until("an error", SOON, || Page::of(&rig).value("pontoon_sweep_errors_total", &[]) > 0.0);
    fs::remove_file(&jobs).unwrap();
    fs::rename(&aside, &jobs).unwrap();
    drop(client);
    rig.stop();
}

#[test]
fn heals_and_isolation_are_told_as_health_tells_them() {
    let mut both = rude("banner", "stateless");
    both.args.extend(["--how", "odd-schemas"].map(str::to_owned));
    let rig = rig([both, fixture("stateless")]);
    echo(&mut Modern::new(&rig.endpoint("rude")), 1);
    let told = &rig.health()["servers"]["rude"]["heals"];
    let told: BTreeMap<String, f64> = serde_json::from_value(told.clone()).unwrap();
    assert!(told.contains_key("H01") && told.contains_key("S003"), "{told:?}");
    let page = Page::of(&rig);
    let counted = page.samples("pontoon_heals_total", &[("server", "rude")]);
    let counted: BTreeMap<_, _> = counted.map(|it| (it.labels["code"].clone(), it.value)).collect();
    assert_eq!(counted, told);
    // It keeps to the protocol. A tool of it has alternatives at the root, which clients are not shown.
    let fixture = page.samples("pontoon_heals_total", FIXTURE);
    assert_eq!(fixture.map(|it| it.labels["code"].as_str()).collect::<Vec<_>>(), ["S004"]);
    for server in ["rude", "fixture"] {
        let level = [("server", server), ("level", "basic")];
        assert_eq!(page.value("pontoon_isolation_info", &level), 1.0);
        assert_eq!(rig.health()["servers"][server]["isolation"], "basic");
    }
    rig.stop();
}

#[test]
fn reloads_are_counted_and_servers_come_and_go() {
    let rig = rig([fixture("stateless")]);
    let file = rig.directory().join("mcp-servers.json");
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["mcpServers"]["more"] = config["mcpServers"]["fixture"].clone();
    fs::write(&file, config.to_string()).unwrap();
    rig.signal(Signal::HUP);
    check(&rig, "config_reloads_total", &[("result", "ok")], 1.0);
    check(&rig, "server_state", &[("server", "more"), ("state", "ready")], 1.0);
    fs::write(&file, "{").unwrap();
    rig.signal(Signal::HUP);
    check(&rig, "config_reloads_total", &[("result", "failed")], 1.0);
    check(&rig, "config_reloads_total", &[("result", "ok")], 1.0);
    assert_eq!(Page::of(&rig).samples("pontoon_server_state", &[("server", "more")]).count(), 5);
    rig.stop();
}

/// Expects that exactly one request was refused, by this limit. The limits on calls are in `limits`.
fn check_refused(rig: &Rig, limit: &str) {
    check(rig, "refused_total", &[("limit", limit)], 1.0);
    check(rig, "refused_total", &[], 1.0);
}

/// Makes one call while another is under way.
fn second_call(rig: &Rig, first: &impl Speaker, second: &mut impl Speaker) {
    let open = first.send_call(1, "wait", json!({"ms": 60_000}));
    rig.wait_for_gauge("running", 1);
    let response = second.call(2, "echo", json!({"text": "x"}));
    assert!(response.text().contains("429") || response.status() == 429, "{}", response.text());
    drop(open);
}

#[test]
fn a_refusal_tells_the_limits_of_kept_processes() {
    let few = |key: &str| rig([fixture("stateful").with(key, 1)]);
    let total =
        || plan([fixture("stateful")]).variable("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", "1").start();
    for (limit, rig) in
        [("total_processes", total()), ("processes_per_client", few("max_processes_per_client"))]
    {
        let one = Legacy::open(&rig.endpoint("fixture"));
        let mut other = Legacy::open(&rig.endpoint("fixture"));
        second_call(&rig, &one, &mut other);
        check_refused(&rig, limit);
        one.end();
        other.end();
        rig.stop();
    }
}

#[test]
fn a_refusal_tells_of_a_full_disk() {
    on_a_small_disk("metrics::full_disk");
}

#[test]
#[ignore = "run by the test above on a small disk"]
fn full_disk() {
    let place = std::env::current_dir().unwrap();
    let rig = plan([fixture("stateless")])
        .variable("MCPO_JOBS_DIR", place.join("jobs").to_str().unwrap())
        .variable("MCPO_MIN_FREE_DISK", "1MiB")
        .start();
    settled(&rig);
    fs::write(place.join("filler"), vec![1; 7_500_000]).unwrap();
    let free = || Page::of(&rig).value("pontoon_disk_free_bytes", &[]);
    wait_until("it is full", SOON, || free() < f64::from(1 << 20));
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let response = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(response.status(), 507, "{}", response.text());
    check(&rig, "refused_total", &[("limit", "disk")], 1.0);
    let outcome = [("kind", "tool"), ("outcome", "failed_disk")];
    check(&rig, "requests_total", &outcome, 1.0);
    fs::remove_file(place.join("filler")).unwrap();
    echo(&mut client, 2);
    drop(client);
    rig.stop();
}

#[test]
fn log_lines_that_find_no_room_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("no-folder");
    fs::write(&file, "").unwrap();
    let rig = plan([fixture("stateless")]).variable("MCPO_LOG_DIR", file.to_str().unwrap()).start();
    let dropped = || Page::of(&rig).value("pontoon_log_lines_dropped_total", &[]);
    wait_until("lines are lost", SOON, || dropped() >= 1.0);
    assert!(rig.log().contains("the log file cannot be written"), "{}", rig.log());
    rig.stop();
}

#[test]
fn looking_changes_nothing() {
    let rig = rig([fixture("stateful"), Server { name: "other".into(), ..fixture("stateless") }]);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    echo(&mut client, 1);
    // What learnt the servers is gone, from the disk too.
    check(&rig, "children", &[], 1.0);
    check(&rig, "jobs_on_disk", &[], 0.0);
    // What goes on by itself: time, and what others do to the disk.
    let restless =
        ["seconds", "disk_free", "sweeps", "jobs_bytes", "memory_bytes", "open_fds", "threads"];
    let still = |mut page: Page| {
        page.samples.retain(|sample| !restless.iter().any(|it| sample.name.contains(it)));
        page
    };
    let first = still(Page::of(&rig));
    for _ in 0..20 {
        for path in ["/health", "/ready", "/metrics", "/nowhere"] {
            rig.get(path);
        }
    }
    assert_eq!(still(Page::of(&rig)), first);
    drop(client);
    rig.stop();
}

#[test]
fn the_page_tells_nothing_of_anybody() {
    let rig = plan([fixture_of("legacy", "stateful"), shell("exec FIXTURE", "stateless")])
        .variable("MCPO_API_KEYS", "canary-key-name=canary-api-key-0123456789")
        .start();
    let headers = [
        ("Authorization", "Bearer canary-api-key-0123456789"),
        ("X-OpenWebUI-User-Id", "canary-user"),
        ("X-OpenWebUI-User-Email", "canary@example.org"),
        ("X-OpenWebUI-User-Name", "canary-name"),
        ("X-OpenWebUI-Chat-Id", "canary-chat"),
        ("X-Session-Id", "canary-session"),
    ];
    for server in ["fixture", "shell"] {
        let client = Modern::new(&rig.endpoint(server));
        for tool in [
            json!({"name": "write_file", "arguments": {"name": "canary.txt", "text": "canary"}}),
            json!({"name": "canary-tool", "arguments": {"canary": "canary"}}),
        ] {
            let message = client.message(&json!("canary-id"), "tools/call", tool);
            let headers = headers.iter();
            let request = client.request(&message);
            let request = headers.fold(request, |it, (name, value)| it.header(name, value));
            assert_ne!(request.send(rig.address()).unwrap().status(), 401);
        }
    }
    check(&rig, "stateful_children", FIXTURE, 1.0);
    check(&rig, "jobs_total", &[], 3.0);
    let page = rig.get("/metrics").text();
    assert!(!page.to_lowercase().contains("canary"), "{page}");
    // Labels that name a person, a process or a conversation would be a new series for each.
    let known = [
        "version", "server", "kind", "outcome", "tool", "address", "mode", "state", "level",
        "code", "limit", "exit", "result", "le",
    ];
    for sample in Page::of(&rig).samples {
        let is_known = |label: &String| known.contains(&label.as_str());
        assert!(sample.labels.keys().all(is_known), "{sample:?}");
    }
    rig.stop();
}
