//! What holds of the metrics as a whole.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use super::*;
use crate::observe::processes::{OwnUse, TreeUse};
use crate::observe::status::{
    BridgeStatus, ChildStatus, DiskStatus, LimitUse, ServerState, ServerStatus,
};

/// The page, checked: each sample belongs to the family above it, none is there twice, each family
/// has its help and type once.
fn page(metrics: &Metrics, status: &BridgeStatus) -> String {
    let page = metrics.render(status);
    let (mut families, mut samples, mut family) = (BTreeSet::new(), BTreeSet::new(), "");
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# ") {
            let mut words = head.splitn(3, ' ');
            let (word, name) = (words.next().unwrap(), words.next().unwrap());
            assert!(families.insert((word, name)), "{line} is there twice");
            let is_ours = name.starts_with("pontoon_") || name.starts_with("process_");
            assert!(is_ours, "{line}");
            family = name;
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        let name = sample.split('{').next().unwrap();
        let endings = ["", "_bucket", "_sum", "_count"];
        assert!(endings.iter().any(|end| name.strip_suffix(end) == Some(family)), "{line}");
        assert!(samples.insert(sample), "{line} is there twice");
        assert!(value.parse::<f64>().unwrap() >= 0.0, "{line}");
    }
    page
}

/// The page has each of these lines.
fn check(metrics: &Metrics, status: &BridgeStatus, lines: &[&str]) {
    let page = page(metrics, status);
    for line in lines {
        assert!(page.lines().any(|it| it == *line), "no line {line} in\n{page}");
    }
}

fn child(age_seconds: u64, idle_millis: u64) -> ChildStatus {
    let (age, idle) = (Duration::from_secs(age_seconds), Duration::from_millis(idle_millis));
    ChildStatus { age, idle }
}

fn server(name: &str) -> ServerStatus {
    ServerStatus {
        name: name.to_owned(),
        state: ServerState::Ready,
        running: 0,
        mode: "stateless",
        children: Vec::new(),
        living: 0,
        spares: 0,
        heals: Vec::new(),
        isolation: "basic",
        calls: (0, 0),
        eras: Vec::new(),
    }
}

#[test]
fn what_was_counted_is_told() {
    let metrics = Metrics::default();
    let server = metrics.server("slides");
    let tool = server.tool("add \"slide\"", || true);
    let ended = |kind, ending, took| server.call_ended(kind, Some(&tool), ending, took);
    ended(RequestKind::Tool, CallEnding::Answered, Duration::from_millis(3));
    server.call_ended(RequestKind::Tool, None, CallEnding::Answered, Duration::from_secs(700));
    ended(RequestKind::of("tools/list"), CallEnding::of_status(429), Duration::ZERO);
    ended(RequestKind::Other, CallEnding::Cancelled, Duration::ZERO);
    server.waited(Duration::from_millis(20));
    server.waited(Duration::ZERO);
    server.child_started(Duration::from_millis(300));
    server.child_failed();
    server.child_exited(true);
    server.child_exited(false);
    server.child_exited(false);
    server.idle_timeout();
    server.spare(true);
    server.spare(false);
    server.spare(false);
    metrics.refused(Limit::Disk);
    metrics.jobs.bump();
    metrics.downloads.bump();
    metrics.download_bytes.add(4096);
    metrics.swept(7, 2);
    metrics.log_lines_dropped.add(5);
    metrics.spans_dropped.add(6);
    metrics.reloaded(true);
    metrics.reloaded(false);
    check(
        &metrics,
        &BridgeStatus::default(),
        &[
            r#"pontoon_requests_total{server="slides",kind="tool",outcome="answered"} 2"#,
            r#"pontoon_requests_total{server="slides",kind="list",outcome="failed_busy"} 1"#,
            r#"pontoon_requests_total{server="slides",kind="other",outcome="cancelled"} 1"#,
            r#"pontoon_errors_total{server="slides"} 1"#,
            r#"pontoon_request_duration_seconds_bucket{server="slides",le="0.0025"} 2"#,
            r#"pontoon_request_duration_seconds_bucket{server="slides",le="0.005"} 3"#,
            r#"pontoon_request_duration_seconds_bucket{server="slides",le="600"} 3"#,
            r#"pontoon_request_duration_seconds_bucket{server="slides",le="+Inf"} 4"#,
            r#"pontoon_request_duration_seconds_sum{server="slides"} 700.003"#,
            r#"pontoon_request_duration_seconds_count{server="slides"} 4"#,
            r#"pontoon_tool_calls_total{server="slides",tool="add \"slide\"",outcome="answered"} 1"#,
            r#"pontoon_tool_calls_total{server="slides",tool="other",outcome="answered"} 1"#,
            r#"pontoon_tool_call_duration_seconds_count{server="slides",tool="other"} 1"#,
            r#"pontoon_tool_call_duration_seconds_sum{server="slides",tool="add \"slide\""} 0.003"#,
            r#"pontoon_queue_wait_seconds_bucket{server="slides",le="0.001"} 1"#,
            r#"pontoon_queue_wait_seconds_bucket{server="slides",le="0.025"} 2"#,
            r#"pontoon_child_starts_total{server="slides"} 1"#,
            r#"pontoon_child_start_failures_total{server="slides"} 1"#,
            r#"pontoon_child_start_duration_seconds_bucket{server="slides",le="0.25"} 0"#,
            r#"pontoon_child_start_duration_seconds_bucket{server="slides",le="0.5"} 1"#,
            r#"pontoon_child_exits_total{server="slides",exit="clean"} 2"#,
            r#"pontoon_child_exits_total{server="slides",exit="abnormal"} 1"#,
            r#"pontoon_idle_timeouts_total{server="slides"} 1"#,
            r#"pontoon_spare_hits_total{server="slides"} 1"#,
            r#"pontoon_spare_misses_total{server="slides"} 2"#,
            r#"pontoon_refused_total{limit="disk"} 1"#,
            r#"pontoon_refused_total{limit="concurrent"} 0"#,
            "pontoon_jobs_total 1",
            "pontoon_downloads_total 1",
            "pontoon_download_bytes_total 4096",
            "pontoon_sweeps_total 1",
            "pontoon_swept_jobs_total 7",
            "pontoon_sweep_errors_total 2",
            "pontoon_log_lines_dropped_total 5",
            "pontoon_spans_dropped_total 6",
            r#"pontoon_config_reloads_total{result="ok"} 1"#,
            r#"pontoon_config_reloads_total{result="failed"} 1"#,
        ],
    );
}

#[test]
fn what_is_there_is_told() {
    let slides = ServerStatus {
        running: 3,
        mode: "stateful",
        children: vec![child(90, 250), child(5, 1500)],
        living: 4,
        spares: 2,
        heals: vec![("H01", 6)],
        isolation: "confined",
        calls: (0, 0),
        eras: Vec::new(),
        ..server("slides")
    };
    let broken = ServerStatus { state: ServerState::Failed("gone".to_owned()), ..server("broken") };
    let computed = Duration::from_millis(2250);
    let used = TreeUse { processes: 5, memory_bytes: 26, computed };
    let status = BridgeStatus {
        servers: vec![slides, broken],
        permits: LimitUse { used: 3, limit: 8 },
        kept_calls: LimitUse { used: 1, limit: 1024 },
        kept_children: LimitUse { used: 2, limit: 100 },
        held_bytes: LimitUse { used: 13, limit: 14 },
        waiting_calls: 6,
        sessions: 5,
        websockets: 8,
        tls_fault: None,
        jobs_fault: None,
        disk: Some(DiskStatus { jobs: 9, bytes: 10, free: 11, total: 12, min_free: 3 }),
        living_children: 4,
        uptime: Duration::from_millis(2500),
        note: None,
        is_spawner_gone: false,
        is_stopping: false,
        processes: Some(ProcessStatus {
            own: OwnUse {
                computed: Duration::from_millis(1250),
                resident_bytes: 21,
                virtual_bytes: 22,
                threads: 23,
                started: Duration::from_millis(1_500_000_000_010),
                open_files: 24,
                max_files: Some(25),
            },
            children: [("slides".to_owned(), used)].into(),
        }),
    };
    let version = format!("pontoon_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    check(
        &Metrics::default(),
        &status,
        &[
            &version,
            "pontoon_uptime_seconds 2.5",
            "pontoon_sessions 5",
            "pontoon_websockets 8",
            "pontoon_waiting_calls 6",
            "pontoon_living_children 4",
            "pontoon_held_bytes 13",
            "pontoon_held_bytes_limit 14",
            r#"pontoon_server_state{server="slides",state="ready"} 1"#,
            r#"pontoon_server_state{server="broken",state="ready"} 0"#,
            r#"pontoon_server_state{server="broken",state="failed"} 1"#,
            r#"pontoon_running_calls{server="slides"} 3"#,
            r#"pontoon_children{server="slides",mode="stateful"} 4"#,
            r#"pontoon_spares{server="slides"} 2"#,
            r#"pontoon_isolation_info{server="slides",level="confined"} 1"#,
            r#"pontoon_heals_total{server="slides",code="H01"} 6"#,
            r#"pontoon_stateful_children{server="slides"} 2"#,
            r#"pontoon_stateful_child_oldest_seconds{server="slides"} 90"#,
            r#"pontoon_stateful_child_oldest_seconds{server="broken"} 0"#,
            r#"pontoon_stateful_child_idle_longest_seconds{server="slides"} 1.5"#,
            r#"pontoon_permits_in_use{limit="concurrent"} 3"#,
            r#"pontoon_permits_limit{limit="concurrent"} 8"#,
            r#"pontoon_permits_in_use{limit="total_processes"} 2"#,
            "pontoon_jobs_on_disk 9",
            "pontoon_jobs_bytes 10",
            "pontoon_disk_free_bytes 11",
            "pontoon_disk_size_bytes 12",
            "pontoon_disk_min_free_bytes 3",
            "pontoon_ready 1",
            "process_cpu_seconds_total 1.25",
            "process_resident_memory_bytes 21",
            "process_virtual_memory_bytes 22",
            "process_threads 23",
            "process_start_time_seconds 1500000000.01",
            "process_open_fds 24",
            "process_max_fds 25",
            r#"pontoon_child_cpu_seconds_total{server="slides"} 2.25"#,
            r#"pontoon_child_memory_bytes{server="slides"} 26"#,
            r#"pontoon_child_processes{server="slides"} 5"#,
        ],
    );
}

#[test]
fn a_bridge_that_stops_is_not_ready() {
    let status = BridgeStatus { is_stopping: true, ..BridgeStatus::default() };
    check(&Metrics::default(), &status, &["pontoon_ready 0"]);
}

#[test]
fn addresses_beyond_the_limit_are_counted_together() {
    let metrics = Metrics::default();
    let address = |n: u32| IpAddr::V4(Ipv4Addr::from(n));
    (0..1002).for_each(|n| metrics.request_from(address(n)));
    metrics.request_from(address(0));
    let mapped = Ipv4Addr::from(0).to_ipv6_mapped();
    metrics.request_from(IpAddr::V6(mapped));
    check(
        &metrics,
        &BridgeStatus::default(),
        &[
            r#"pontoon_client_requests_total{address="0.0.0.0"} 3"#,
            r#"pontoon_client_requests_total{address="0.0.3.231"} 1"#,
            r#"pontoon_client_requests_total{address="other"} 2"#,
        ],
    );
    let page = page(&metrics, &BridgeStatus::default());
    assert_eq!(page.matches("pontoon_client_requests_total{").count(), MAX_ADDRESSES + 1);
}

#[test]
fn what_children_computed_never_goes_down_and_ends_with_all_of_it() {
    let server = ServerMetrics::default();
    let told = |ended: u64, living: u64| {
        let [ended, computed] = [ended, living].map(Duration::from_millis);
        server.children.end_look(ended, TreeUse { computed, ..TreeUse::default() }).computed
    };
    assert_eq!(told(0, 300), Duration::from_millis(300));
    assert_eq!(told(0, 20), Duration::from_millis(300), "one of them is just going");
    assert_eq!(told(310, 30), Duration::from_millis(340));
    server.children.lives(7);
    server.children.lives(8);
    server.children.is_gone(7);
    assert_eq!(server.children.begin_look(), (Duration::ZERO, vec![8]));
}

#[test]
fn a_server_is_the_same_whoever_names_it() {
    let metrics = Metrics::default();
    assert!(Arc::ptr_eq(&metrics.server("a"), &metrics.server("a")));
    assert!(!Arc::ptr_eq(&metrics.server("a"), &metrics.server("b")));
}

#[test]
fn a_failed_request_is_an_error_and_a_cancelled_one_is_not() {
    let endings = [429, 502, 504, 507, 503, 400].map(CallEnding::of_status);
    assert!(endings.iter().all(|ending| ending.is_error()));
    assert!(!CallEnding::Cancelled.is_error() && !CallEnding::Answered.is_error());
}
