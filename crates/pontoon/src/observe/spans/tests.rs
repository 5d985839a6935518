//! Spans as OpenTelemetry's own decoder reads them, which requests have any, and the limits of their queue.

use std::collections::HashSet;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{Span as Decoded, span::SpanKind};
use prost::Message;

use super::*;
use crate::config::Sampling;
use crate::observe::metrics::Metrics;
use crate::observe::trace::{Trace, Traces};

const ALL: Sampling = Sampling::PARENT_OR_ALL;

fn tracer(sampling: Sampling) -> (Arc<Tracer>, Arc<Metrics>) {
    let metrics = Arc::<Metrics>::default();
    (Tracer::new(sampling, Arc::clone(&metrics)), metrics)
}

fn decoded(spans: &[Span]) -> (Vec<KeyValue>, Vec<Decoded>) {
    let resource =
        vec![("service.name".to_owned(), "tést".to_owned()), ("a".into(), String::new())];
    let body = request(&Scope { resource }, spans);
    let request = ExportTraceServiceRequest::decode(&body[..]).expect("it is protobuf");
    assert_eq!(request.encode_to_vec(), body, "nothing in it is unknown to the decoder");
    let [resource] = <[_; 1]>::try_from(request.resource_spans).unwrap();
    let [scope] = <[_; 1]>::try_from(resource.scope_spans).unwrap();
    assert_eq!(scope.scope.unwrap().name, "pontoon");
    (resource.resource.unwrap().attributes, scope.spans)
}

fn value(attributes: &[KeyValue], key: &str) -> Option<Value> {
    let found = attributes.iter().find(|it| it.key == key)?;
    found.value.clone().and_then(|AnyValue { value }| value)
}

fn text(text: &str) -> Option<Value> {
    Some(Value::StringValue(text.to_owned()))
}

#[test]
fn a_request_and_its_steps_are_what_a_decoder_reads() {
    let (tracer, _) = tracer(ALL);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let trace = tracer.traces.told(parent.as_bytes()).unwrap().with_state(Some("a=1"));
    let mut call = tracer.begin(trace, Some((7, 8)), "tools/call greet".to_owned());
    call.span().tell("gen_ai.tool.name", "greet");
    call.span().count("process.pid", 0);
    call.span().count("below", -5);
    let mut step = call.step("", Kind::Client);
    step.fail("timeout");
    drop(step);
    drop(call);
    let (resource, spans) = decoded(&tracer.queue.take());
    assert_eq!(value(&resource, "service.name"), text("tést"));
    assert_eq!(value(&resource, "a"), text(""), "nothing is a value, too");
    let [client, server] = <[Decoded; 2]>::try_from(spans).unwrap();
    assert_eq!((server.kind(), client.kind()), (SpanKind::Server, SpanKind::Client));
    let hex = |bytes: &[u8]| crate::hex::hex(bytes);
    assert_eq!(hex(&server.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(hex(&server.parent_span_id), "00f067aa0ba902b7");
    assert_eq!((&client.trace_id, &client.parent_span_id), (&server.trace_id, &server.span_id));
    assert_eq!((server.trace_state.as_str(), client.trace_state.as_str()), ("a=1", "a=1"));
    assert_eq!(server.name, "tools/call greet");
    assert_eq!(value(&server.attributes, "gen_ai.tool.name"), text("greet"));
    assert_eq!(value(&server.attributes, "process.pid"), Some(Value::IntValue(0)));
    assert_eq!(value(&server.attributes, "below"), Some(Value::IntValue(-5)));
    assert_eq!(server.links[0].trace_id, 7_u128.to_be_bytes());
    assert_eq!(server.links[0].span_id, 8_u64.to_be_bytes());
    assert!(server.status.is_none(), "nothing failed");
    assert_eq!(client.status.unwrap().code(), StatusCode::Error);
    assert_eq!(value(&client.attributes, "error.type"), text("timeout"));
    assert_eq!((server.flags, client.flags), (0x301, 0x101), "sampled; only the first is remote");
    assert!(server.start_time_unix_nano <= client.start_time_unix_nano);
    assert!(client.start_time_unix_nano <= client.end_time_unix_nano);
    assert!(client.end_time_unix_nano <= server.end_time_unix_nano);
}

#[test]
fn what_a_collector_did_not_want_is_read_of_its_answer() {
    let answer = |partial_success| ExportTraceServiceResponse { partial_success }.encode_to_vec();
    let partial = |rejected_spans, message: &str| {
        answer(Some(ExportTracePartialSuccess { rejected_spans, error_message: message.into() }))
    };
    assert_eq!(rejected(&answer(None)), 0);
    assert_eq!(rejected(&partial(0, "only a word")), 0);
    assert_eq!(rejected(&partial(300, "too old")), 300);
    // An answer that is none says nothing, wherever it is cut off.
    let whole = partial(300, "too old");
    for end in 0..whole.len() {
        assert!([0, 300].contains(&rejected(&whole[..end])));
    }
    assert_eq!(rejected(&[0xff; 40]), 0);
}

#[test]
fn samplers_decide_as_the_specification_has_it() {
    let share = |sampling: Sampling, parent: Option<bool>| {
        let (tracer, _) = tracer(sampling);
        let one = |traces: &Traces| match parent {
            None => traces.anew(),
            Some(is_sampled) => {
                let Trace { trace_id, .. } = traces.anew();
                let header =
                    format!("00-{trace_id:032x}-00f067aa0ba902b7-0{}", u8::from(is_sampled));
                traces.told(header.as_bytes()).unwrap()
            }
        };
        let sampled = (0..2000).filter(|_| {
            let call = tracer.begin(one(&tracer.traces), None, "x".to_owned());
            let is_sampled = call.trace().is_sampled();
            assert_eq!(call.step("y", Kind::Internal).trace().is_sampled(), is_sampled);
            drop(call);
            assert_eq!(tracer.queue.take().len(), if is_sampled { 2 } else { 0 });
            is_sampled
        });
        sampled.count()
    };
    let sampling = |is_parent_based, below| Sampling { is_parent_based, below };
    assert_eq!(share(sampling(true, 1 << 63), None), 2000);
    assert_eq!(share(sampling(true, 0), None), 0);
    assert_eq!(share(sampling(true, 0), Some(true)), 2000, "the client has decided");
    assert_eq!(share(sampling(true, 1 << 63), Some(false)), 0);
    assert_eq!(share(sampling(false, 1 << 63), Some(false)), 2000);
    for parent in [None, Some(true), Some(false)] {
        let quarter = share(sampling(false, 1 << 61), parent);
        assert!((350..650).contains(&quarter), "{quarter} of 2000");
    }
}

#[test]
fn the_share_goes_by_the_trace_so_that_all_of_it_is_there_or_nothing() {
    let (tracer, _) = tracer(Sampling { is_parent_based: false, below: 1 << 62 });
    let low = |end: u64| Trace { trace_id: 1 << 100 | u128::from(end), ..tracer.traces.anew() };
    let is_sampled = |end| tracer.begin(low(end), None, String::new()).trace().is_sampled();
    assert!(is_sampled((1 << 63) - 1) && !is_sampled(1 << 63));
}

#[test]
fn ids_of_steps_do_not_repeat_and_a_long_name_is_cut() {
    let (tracer, _) = tracer(ALL);
    let call = tracer.begin(tracer.traces.anew(), None, "é".repeat(5000));
    let ids: HashSet<_> =
        (0..1000).map(|_| call.step("x", Kind::Internal).trace().span_id).collect();
    assert_eq!(ids.len(), 1000);
    drop(call);
    let spans: Vec<_> = std::iter::repeat_with(|| tracer.queue.take()).take(2).flatten().collect();
    let (_, spans) = decoded(&spans);
    let server = spans.last().unwrap();
    assert!(server.name.len() <= 260 && server.name.starts_with('é'), "{}", server.name.len());
}

#[test]
fn what_finds_no_room_is_dropped_and_counted() {
    let (tracer, metrics) = tracer(ALL);
    for _ in 0..5000 {
        drop(tracer.begin(tracer.traces.anew(), None, "x".to_owned()));
    }
    assert_eq!((tracer.queue.len(), metrics.spans_dropped.count()), (2048, 5000 - 2048));
    assert_eq!(tracer.queue.take().len(), BATCH);
    drop(tracer.begin(tracer.traces.anew(), None, "x".to_owned()));
    assert_eq!(tracer.queue.len(), 2049 - BATCH);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_ready_when_it_is_full_or_some_seconds_old() {
    let (tracer, _) = tracer(ALL);
    let make = |count| {
        (0..count).for_each(|_| drop(tracer.begin(tracer.traces.anew(), None, "x".to_owned())));
    };
    let began = tokio::time::Instant::now();
    make(BATCH + 3);
    assert_eq!(tracer.queue.batch().await.len(), BATCH);
    assert_eq!(began.elapsed().as_secs(), 0);
    assert_eq!(tracer.queue.batch().await.len(), 3);
    assert_eq!(began.elapsed().as_secs(), 5);
    let (waiting, ()) = tokio::join!(tracer.queue.batch(), async { make(1) });
    assert_eq!(waiting.len(), 1);
    assert_eq!(began.elapsed().as_secs(), 10);
}
