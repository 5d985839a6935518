//! Traces: which spans a call has, how it ended as they tell it, who hears of its trace, and a collector that is away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use pontoon_tests::certificates::Authority;
use pontoon_tests::client::{ERAS, Era, Legacy, Modern, Speaker};
use pontoon_tests::collector::{Collector, Export, Manner, attribute};
use pontoon_tests::rig::{Plan, Rig, Server, wait_until};
use serde_json::{Value, json};

use crate::unchanged::ECHO;
use crate::{fixture, plan, shell};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
const OTHER: &str = "0af7651916cd43dd8448eb211c80319c";
const SECRET: &str = "hunter2-hunter2";
const RUNNING: &str = "pontoon_running_calls{server=\"fixture\"}";
const DROPPED: &str = "pontoon_spans_dropped_total";
const SOON: Duration = Duration::from_secs(20);

fn takes() -> Collector {
    Collector::start(Manner::Answers(Vec::new()))
}

fn traced(collector: &Collector, servers: impl IntoIterator<Item = Server>) -> Plan {
    plan(servers).variable("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url())
}

fn header(trace: &str, parent: &str, flags: &str) -> String {
    format!("00-{trace}-{parent}-{flags}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The only span of this name.
#[track_caller]
fn named<'s>(spans: &'s [Span], name: &str) -> &'s Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let names: Vec<_> = spans.iter().map(|span| &span.name).collect();
    let span = found.next().unwrap_or_else(|| panic!("no span {name:?} among {names:?}"));
    assert!(found.next().is_none(), "{name:?} twice among {names:?}");
    span
}

/// The spans of kind server and client of one call of this tool.
#[track_caller]
fn ends<'s>(spans: &'s [Span], tool: &str) -> (&'s Span, &'s Span) {
    let name = format!("tools/call {tool}");
    let of = |kind| {
        let mut found = spans.iter().filter(|it| it.name == name && it.kind() == kind);
        let span = found.next().unwrap_or_else(|| panic!("no {kind:?} of {tool} in {spans:?}"));
        assert!(found.next().is_none(), "two {kind:?} of {tool}");
        span
    };
    (of(SpanKind::Server), of(SpanKind::Client))
}

fn told(span: &Span, key: &str) -> Option<String> {
    attribute(&span.attributes, key)
}

#[track_caller]
fn check(span: &Span, attributes: &[(&str, &str)]) {
    for (key, value) in attributes {
        assert_eq!(told(span, key).as_deref(), Some(*value), "{key} of {span:?}");
    }
}

/// How a span says that it ended: `error.type`, which goes with its status.
fn error(span: &Span) -> Option<String> {
    let error = told(span, "error.type");
    let is_error = span.status.as_ref().is_some_and(|it| it.code() == StatusCode::Error);
    assert_eq!(is_error, error.is_some(), "{span:?}");
    error
}

fn job_of(rig: &Rig, trace: &str) -> Value {
    let store = rig.directory().join("jobs");
    let mut found = Value::Null;
    wait_until("a job has the trace", SOON, || {
        let entries = std::fs::read_dir(&store).unwrap().flatten();
        let records = entries.filter_map(|it| std::fs::read(it.path().join("metadata.json")).ok());
        let mut records = records.filter_map(|it| serde_json::from_slice::<Value>(&it).ok());
        found = records.find(|it| it["trace_id"] == trace).unwrap_or_default();
        !found.is_null()
    });
    found
}

#[test]
fn a_call_is_a_span_with_its_steps_below_in_the_trace_of_its_client() {
    for era in ERAS {
        let collector = takes();
        let rig = traced(&collector, [fixture("stateless")])
            .variable("OTEL_SERVICE_NAME", "tools")
            .variable("OTEL_EXPORTER_OTLP_HEADERS", &format!("authorization=Bearer%20{SECRET}"))
            .start();
        let parent = header(TRACE, PARENT, "01");
        let headers = [("traceparent", parent.as_str()), ("tracestate", "a=1")];
        let arguments = json!({"name": "a.txt", "text": SECRET});
        let mut session = None;
        match era {
            Era::Modern => {
                let endpoint = rig.endpoint("fixture");
                Modern::with(&endpoint, &headers).call("q\"1", "write_file", arguments);
            }
            Era::Legacy => {
                let mut client = Legacy::open_with(&rig.endpoint("fixture"), &headers);
                session = Some(client.session.clone());
                client.call("q\"1", "write_file", arguments);
                client.end();
            }
        }
        let job = job_of(&rig, TRACE);
        rig.stop();
        let spans: Vec<_> = collector.spans();
        let (server, client) = ends(&spans, "write_file");
        assert_eq!(
            (hex(&server.trace_id).as_str(), hex(&server.parent_span_id).as_str()),
            (TRACE, PARENT)
        );
        let tool = [
            ("mcp.method.name", "tools/call"),
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", "write_file"),
        ];
        check(server, &tool);
        check(client, &tool);
        let version = if era == Era::Modern { "2026-07-28" } else { "2025-11-25" };
        check(server, &[("mcp.protocol.version", version), ("network.transport", "tcp")]);
        check(server, &[("pontoon.server", "fixture"), ("jsonrpc.request.id", "q\"1")]);
        check(server, &[("pontoon.job.id", job["job_id"].as_str().unwrap())]);
        check(client, &[("network.transport", "pipe")]);
        assert_eq!(told(server, "mcp.session.id"), session);
        for step in [client, named(&spans, "start"), named(&spans, "files")] {
            assert_eq!((&step.parent_span_id, &step.trace_id), (&server.span_id, &server.trace_id));
            assert_eq!((step.trace_state.as_str(), error(step)), ("a=1", None));
            assert!(server.start_time_unix_nano <= step.start_time_unix_nano);
            assert!(step.end_time_unix_nano <= server.end_time_unix_nano);
        }
        assert!(told(named(&spans, "start"), "process.pid").is_some());
        assert!(spans.iter().all(|span| span.name != "queue"), "it did not wait");
        for export in collector.exports() {
            assert_eq!(export.line, "POST /v1/traces HTTP/1.1");
            let authorization = format!("Bearer {SECRET}");
            assert_eq!(export.headers.get("authorization"), Some(&authorization));
            assert_eq!(export.headers["content-type"], "application/x-protobuf");
            let resource = export.decoded().resource_spans.remove(0).resource.unwrap();
            assert_eq!(attribute(&resource.attributes, "service.name").as_deref(), Some("tools"));
            let holds =
                |text: &str| export.body.windows(text.len()).any(|it| it == text.as_bytes());
            assert!(!holds(SECRET), "neither an argument nor the header is in a span");
        }
    }
}

/// What the server of `unchanged` says arrived of a call, with this configuration.
fn arrived(rig: &Rig, headers: &[(&str, &str)], params: &Value) -> Value {
    let mut client = Legacy::open_with(&rig.endpoint("shell"), headers);
    let answer = client.ask(1, "tools/call", params.clone()).answer();
    client.end();
    answer["result"]["arrived"].clone()
}

#[test]
fn what_the_request_itself_says_of_its_trace_wins_and_the_server_hears_of_it() {
    let collector = takes();
    let rig = traced(&collector, [shell(ECHO, "stateless")]).start();
    let (theirs, ours) = (header(TRACE, PARENT, "01"), header(OTHER, PARENT, "01"));
    let meta = json!({"a": [1.0], "traceparent": theirs, "tracestate": "b=2", "z": null});
    let params = json!({"name": "echo", "_meta": meta, "arguments": {}});
    let got = arrived(&rig, &[("traceparent", &ours)], &params);
    let is_told = |line: &str| line.contains("\"message\":\"call\"") && line.contains(TRACE);
    wait_until("the line of the call has the trace", SOON, || rig.log().lines().any(is_told));
    assert_eq!(crate::journal::calls(&rig, 1)[0].trace_id.as_deref(), Some(TRACE));
    job_of(&rig, TRACE);
    let log = rig.log();
    rig.stop();
    let spans = collector.spans();
    let (server, client) = ends(&spans, "echo");
    assert_eq!((hex(&server.trace_id), hex(&server.parent_span_id)), (TRACE.into(), PARENT.into()));
    let [link] = &server.links[..] else { panic!("{server:?}") };
    assert_eq!((hex(&link.trace_id), hex(&link.span_id)), (OTHER.into(), PARENT.into()));
    let expected = header(TRACE, &hex(&client.span_id), "01");
    let meta = json!({"a": [1.0], "z": null, "traceparent": expected, "tracestate": "b=2"});
    assert_eq!(got["_meta"], meta);
    assert!(!log.contains(SECRET));
}

#[test]
fn a_process_of_one_call_knows_the_trace_by_its_environment() {
    let collector = takes();
    let rig = traced(&collector, [fixture("stateless")]).start();
    let parent = header(TRACE, PARENT, "01");
    let headers = [("traceparent", parent.as_str())];
    let mut client = Modern::with(&rig.endpoint("fixture"), &headers);
    let environment = client.call(1, "environment", json!({})).tool_text().unwrap();
    rig.stop();
    let spans = collector.spans();
    let (server, _) = ends(&spans, "environment");
    let expected = header(TRACE, &hex(&server.span_id), "01");
    let variables: Value = serde_json::from_str(&environment).unwrap();
    assert_eq!(variables["TRACEPARENT"], expected, "{variables}");
    assert!(!environment.contains("OTEL_"), "{environment}");
}

#[test]
fn a_spare_and_a_kept_process_are_told_apart_from_a_start() {
    let collector = takes();
    let warm = fixture("stateless").with("warm", 1);
    let kept = Server { name: "kept".to_owned(), ..fixture("stateful") };
    let rig = traced(&collector, [warm, kept]).start();
    wait_until("there is a spare", SOON, || rig.metric("pontoon_spares{server=\"fixture\"}") > 0.0);
    Modern::new(&rig.endpoint("fixture")).call(1, "pid", json!({}));
    let mut client = Legacy::open(&rig.endpoint("kept"));
    client.call(1, "echo", json!({"text": "x"}));
    client.end();
    rig.stop();
    let spans = collector.spans();
    let (of_spare, _) = ends(&spans, "pid");
    let (of_kept, _) = ends(&spans, "echo");
    assert_eq!(named(&spans, "spare").parent_span_id, of_spare.span_id);
    assert_eq!(named(&spans, "kept process").parent_span_id, of_kept.span_id);
    assert_ne!(of_spare.trace_id, of_kept.trace_id, "each began a trace");
    assert!(of_spare.parent_span_id.is_empty() && of_kept.parent_span_id.is_empty());
}

#[test]
fn spans_tell_how_a_call_ended() {
    let collector = takes();
    let rig = traced(&collector, [fixture("stateless").with("timeout", 2)]).start();
    let mut client = Modern::new(&rig.endpoint("fixture"));
    client.call(1, "no_such_tool", json!({}));
    client.call(2, "write_file", json!({"name": "/dev/null/x", "text": SECRET}));
    client.call(3, "crash", json!({}));
    client.call(4, "wait", json!({"ms": 60_000}));
    client.call(5, "pid", json!({}));
    let counting = json!({"steps": 1000, "delay_ms": 100});
    let params = json!({"name": "count", "arguments": counting, "_meta": {"progressToken": "p"}});
    let mut left = client.send(6, "tools/call", params).begin().unwrap();
    let progress = left.next_message().unwrap().expect("it counts");
    assert_eq!(progress["method"], "notifications/progress");
    drop(left);
    wait_until("it is over", SOON, || rig.metric(RUNNING) == 0.0);
    rig.stop();
    let spans = collector.spans();
    for (tool, expected) in [
        ("no_such_tool", Some("-32602")),
        ("write_file", Some("tool_error")),
        ("crash", Some("server_failed")),
        ("wait", Some("timeout")),
        ("pid", None),
        ("count", Some("cancelled")),
    ] {
        let (server, client) = ends(&spans, tool);
        assert_eq!(error(server).as_deref(), expected, "{tool}");
        assert_eq!(error(client).as_deref(), expected, "{tool}");
    }
    let (server, client) = ends(&spans, "no_such_tool");
    check(server, &[("rpc.response.status_code", "-32602")]);
    check(client, &[("rpc.response.status_code", "-32602")]);
    for export in collector.exports() {
        assert!(!export.body.windows(SECRET.len()).any(|it| it == SECRET.as_bytes()));
    }
}

#[test]
fn a_call_that_waits_for_its_turn_says_so() {
    let collector = takes();
    let rig = traced(&collector, [fixture("stateless")])
        .variable("MCPO_MAX_CONCURRENT", "1")
        .variable("MCPO_QUEUE_WAIT", "20s")
        .start();
    let client = Modern::new(&rig.endpoint("fixture"));
    let first = client.send_call(1, "wait", json!({"ms": 300}));
    wait_until("it runs", SOON, || rig.metric(RUNNING) > 0.0);
    let second = client.send_call(2, "pid", json!({}));
    for call in [first, second] {
        call.begin().unwrap().finish().unwrap();
    }
    rig.stop();
    let spans = collector.spans();
    let (waited, _) = ends(&spans, "pid");
    let queue = named(&spans, "queue");
    assert_eq!((&queue.parent_span_id, error(queue)), (&waited.span_id, None));
    assert!(queue.start_time_unix_nano < queue.end_time_unix_nano);
}

#[test]
fn a_client_that_records_nothing_is_not_recorded_and_the_server_hears_that() {
    let collector = takes();
    let rig = traced(&collector, [shell(ECHO, "stateless")]).start();
    let parent = header(TRACE, PARENT, "00");
    let got = arrived(&rig, &[("traceparent", &parent)], &json!({"name": "echo"}));
    rig.stop();
    let passed = got["_meta"]["traceparent"].as_str().unwrap();
    assert_eq!((&passed[..36], &passed[52..]), (&parent[..36], "-00"), "{passed}");
    assert_ne!(passed, parent);
    assert!(collector.spans().iter().all(|it| hex(&it.trace_id) != TRACE));
}

#[test]
fn a_state_without_its_trace_goes_nowhere() {
    let collector = takes();
    let rig = traced(&collector, [shell(ECHO, "stateless")]).start();
    let got = arrived(&rig, &[("tracestate", "a=1")], &json!({"name": "echo"}));
    rig.stop();
    let meta = got["_meta"].as_object().unwrap();
    assert!(meta.contains_key("traceparent") && !meta.contains_key("tracestate"), "{got}");
    assert!(collector.spans().iter().all(|it| it.trace_state.is_empty()));
}

#[test]
fn nothing_is_added_where_no_collector_is_named() {
    let collector = takes();
    let server = || shell(ECHO, "stateless").with("files", "off").with("heal", "off");
    let also = fixture("stateless");
    let rig = traced(&collector, [server(), also])
        .variable("OTEL_SDK_DISABLED", "true")
        .variable("OTEL_EXPORTER_OTLP_HEADERS", "authorization=x")
        .start();
    let parent = header(TRACE, PARENT, "01");
    let headers = [("traceparent", parent.as_str())];
    for params in
        [json!({"name": "echo"}), json!({"name": "echo", "_meta": {"traceparent": "own"}})]
    {
        assert_eq!(arrived(&rig, &headers, &params), params);
    }
    let mut client = Modern::with(&rig.endpoint("fixture"), &headers);
    let environment = client.call(1, "environment", json!({})).tool_text().unwrap();
    assert!(!environment.contains("TRACEPARENT"), "{environment}");
    rig.stop();
    assert!(collector.exports().is_empty());
}

fn span_count(export: &Export) -> f64 {
    let resources = export.decoded().resource_spans.into_iter();
    resources.flat_map(|it| it.scope_spans).map(|it| it.spans.len() as f64).sum()
}

#[test]
fn a_collector_that_is_busy_is_tried_again_and_one_that_refuses_is_not() {
    for (statuses, taken) in [(vec![503], true), (vec![400], false)] {
        let collector = Collector::start(Manner::Answers(statuses.clone()));
        let rig = traced(&collector, [fixture("stateful")]).start();
        let mut client = Modern::new(&rig.endpoint("fixture"));
        client.call(1, "echo", json!({"text": "x"}));
        let tries = if taken { 2 } else { 1 };
        collector.wait_for_exports(tries);
        let lost = match taken {
            true => 0.0,
            false => span_count(&collector.exports()[0]),
        };
        wait_until("what is lost is counted", SOON, || rig.metric(DROPPED) >= lost);
        assert_eq!(rig.metric(DROPPED), lost, "{statuses:?}");
        let log = rig.log();
        rig.stop();
        assert!(log.contains("the collector takes no spans"), "{log}");
        let first = collector.exports()[0].body.clone();
        let repeated = collector.exports().iter().filter(|export| export.body == first).count();
        assert_eq!(repeated, tries, "{statuses:?}");
    }
}

#[test]
fn no_call_and_no_stop_waits_for_a_collector_that_is_away_or_says_nothing() {
    let silent = Collector::start(Manner::Silent);
    // Nothing listens there any more.
    let away = takes().url();
    for url in [silent.url(), away] {
        let rig = plan([fixture("stateful")]).variable("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
        let rig = rig.start();
        let mut client = Legacy::open(&rig.endpoint("fixture"));
        // A call has three spans: more than there is room for. The collector has ten seconds for an answer.
        for id in 0..1000 {
            let began = Instant::now();
            client.call(id, "echo", json!({"text": "x"}));
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        }
        assert!(rig.metric(DROPPED) > 0.0, "there is room for 2048 and a batch");
        client.end();
        let began = Instant::now();
        rig.stop();
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
}

#[test]
fn a_mistake_is_told_at_the_start_and_no_secret_with_it() {
    let wrong = plan([fixture("stateless")])
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
        .variable("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        .variable("OTEL_EXPORTER_OTLP_HEADERS", SECRET);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| wrong.start()));
    let said = failed.expect_err("it does not start");
    let said = said.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(said.contains("gRPC is not spoken here"), "{said}");
    assert!(said.contains("expected headers such as") && !said.contains(SECRET), "{said}");
}

#[test]
fn a_collector_behind_tls_is_known_by_its_authority() {
    let authority = Authority::default();
    let folder = tempfile::tempdir().unwrap();
    let file = authority.write(folder.path(), "authority");
    let tls = authority.sign(&["localhost"]).server(None);
    for is_trusted in [true, false] {
        let collector = Collector::start_secure(Arc::clone(&tls));
        let url = format!("https://localhost:{}", collector.address.port());
        let plan = plan([fixture("stateful")]).variable("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
        let plan = match is_trusted {
            true => plan.variable("OTEL_EXPORTER_OTLP_CERTIFICATE", file.to_str().unwrap()),
            false => plan,
        };
        let rig = plan.start();
        Modern::new(&rig.endpoint("fixture")).call(1, "pid", json!({}));
        if !is_trusted {
            wait_until("it is told", SOON, || {
                rig.log().contains("authority that is not known here")
            });
        }
        rig.stop();
        assert_eq!(collector.spans().is_empty(), !is_trusted);
    }
}
