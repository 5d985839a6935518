//! Calls in traces: where a call's trace comes from, what its spans tell, and how the next in line hears of it.
//!
//! By the semantic conventions for MCP the context in `params._meta` wins over that of the transport, to which the span links.
//! Spans tell names, ids and how it ended; arguments, results, addresses of resources and words of servers stay out.

use std::borrow::Cow;
use std::sync::Arc;

use pontoon_wire::{Message, Rewrite, Slot, json, method, quoted, string_value};

use super::outcome::{TOOL_ERROR, is_tool_error, tell_code};
use super::{Call, Reply};
use crate::client::{Client, Person};
use crate::observe::spans::{CallTrace, Kind, Span, Step, Tracer};
use crate::observe::trace::Trace;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

impl Call {
    /// Begins its trace, if requests are traced. From here on the call, its job and its log lines are of the trace that its
    /// client told.
    pub fn begin_trace(
        &mut self,
        tracer: Option<&Arc<Tracer>>,
        server: &str,
        session: Option<&str>,
    ) {
        let Some(tracer) = tracer else { return };
        let came = self.client.person.trace.clone();
        let transport = if came.is_some() { "tcp" } else { "pipe" };
        let (trace, link) = match told_in(&self.request, tracer) {
            Some(told) => {
                let came = came.as_ref().filter(|it| it.trace_id != told.trace_id);
                (told, came.and_then(|it| Some((it.trace_id, it.parent?))))
            }
            None => (came.map_or_else(|| tracer.traces.anew(), |it| own_step(tracer, &it)), None),
        };
        let mut begun = tracer.begin(trace, link, span_name(&self.request));
        let span = begun.span();
        describe(span, &self.request);
        let id = self.reply.id();
        let id = string_value(id).unwrap_or_else(|| String::from_utf8_lossy(id));
        span.tell("jsonrpc.request.id", id.into_owned());
        span.tell("mcp.protocol.version", self.client.revision.to_string());
        if let Some(session) = session {
            span.tell("mcp.session.id", session.to_owned());
        }
        span.tell("network.transport", transport);
        span.tell("pontoon.server", server.to_owned());
        let trace = begun.trace().clone();
        tracing::Span::current().record("trace_id", trace.trace_id);
        let person = Person { trace: Some(trace), ..Person::clone(&self.client.person) };
        self.client = Arc::new(Client { person: Arc::new(person), ..Client::clone(&self.client) });
        self.reply.set_trace(begun);
    }
}

/// A step of ours in the trace of what brought the request: what came over one connection may be several requests.
fn own_step(tracer: &Tracer, came: &Trace) -> Trace {
    let own = tracer.traces.below(came);
    Trace { parent: came.parent, ..own }
}

/// The trace that a request tells in its `_meta`.
fn told_in(request: &Message, tracer: &Tracer) -> Option<Trace> {
    let meta = request.raw(Slot::Meta).filter(|meta| meta.first() == Some(&b'{'))?;
    let text = |name| json::find(meta, name).and_then(string_value);
    let told = tracer.traces.told(text(PARENT)?.as_bytes())?;
    Some(told.with_state(text(STATE).as_deref()))
}

/// The name of a span for this request.
fn span_name(request: &Message) -> String {
    let method = request.method();
    match target(request) {
        Some((_, name)) => format!("{method} {name}"),
        None => method.into_owned(),
    }
}

/// The tool or prompt that a request names, and what the conventions call it.
fn target(request: &Message) -> Option<(&'static str, Cow<'_, str>)> {
    let key = match request.method().as_ref() {
        method::CALL_TOOL => "gen_ai.tool.name",
        "prompts/get" => "gen_ai.prompt.name",
        _ => return None,
    };
    Some((key, request.string(Slot::Name)?))
}

fn describe(span: &mut Span, request: &Message) {
    span.tell("mcp.method.name", request.method().into_owned());
    if request.method() == method::CALL_TOOL {
        span.tell("gen_ai.operation.name", "execute_tool");
    }
    if let Some((key, name)) = target(request) {
        span.tell(key, name.into_owned());
    }
}

/// The span of a request to a server, until its answer. Dropped before, it was cancelled.
pub fn client_step(reply: &Reply, request: &Message, transport: &'static str) -> Option<Step> {
    let mut step = reply.step_of("", Kind::Client)?;
    let span = step.span();
    span.name = span_name(request).into();
    describe(span, request);
    span.tell("network.transport", transport);
    step.fail("cancelled");
    Some(step)
}

/// Ends the span of a request to a server with this answer.
pub fn end_with(step: Option<Step>, answer: &Message) {
    let Some(mut step) = step else { return };
    let span = step.span();
    span.error = None;
    let code = answer.raw(Slot::ErrorCode).and_then(|raw| std::str::from_utf8(raw).ok());
    if let Some(code) = code.and_then(|code| code.parse().ok()) {
        tell_code(span, code);
    } else if is_tool_error(answer) {
        span.error = Some(TOOL_ERROR.into());
    }
}

/// The request with this step as what it belongs to, in its `_meta`.
pub fn in_step(request: Message, step: Option<&Step>) -> Message {
    let Some(trace) = step.map(Step::trace) else { return request };
    let parent = quoted(&trace.header());
    let state = trace.state.as_deref().map(quoted);
    let said = match &state {
        Some(state) => format!("\"{PARENT}\":{parent},\"{STATE}\":{state}"),
        None => format!("\"{PARENT}\":{parent}"),
    };
    let before = request.clone();
    let change = Rewrite::new(request);
    let change = match (before.raw(Slot::Meta), before.raw(Slot::Params)) {
        (Some(meta), _) => match without_context(meta) {
            Some(others) if others.is_empty() => change.replace(Slot::Meta, format!("{{{said}}}")),
            Some(others) => change.replace(Slot::Meta, format!("{{{others},{said}}}")),
            None => change,
        },
        (None, Some(_)) => change.insert_into(Slot::Params, &format!("\"_meta\":{{{said}}}")),
        (None, None) => change.insert_at_top(&format!("\"params\":{{\"_meta\":{{{said}}}}}")),
    };
    // One that cannot be changed goes as it is.
    change.try_into_message().unwrap_or(before)
}

/// The members of a `_meta` but for those that tell of a trace, each as it is written.
fn without_context(meta: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(meta).ok().filter(|text| text.starts_with('{'))?;
    let is_context = |key: &str| {
        let name = string_value(key.as_bytes());
        name.is_some_and(|name| name == PARENT || name == STATE)
    };
    let members = json::entries(meta, 0..meta.len())
        .filter(|entry| !is_context(&text[entry.key.clone()]))
        .map(|entry| &text[entry.key.start..entry.value.end]);
    Some(members.collect::<Vec<_>>().join(","))
}

impl Reply {
    /// Takes the trace of its call.
    fn set_trace(&mut self, trace: CallTrace) {
        self.trace = Some(Box::new(trace));
    }

    /// Begins a step of our own work, if the call is traced.
    pub fn step(&self, name: &'static str) -> Option<Step> {
        self.step_of(name, Kind::Internal)
    }

    fn step_of(&self, name: &'static str, kind: Kind) -> Option<Step> {
        self.trace.as_ref().map(|trace| trace.step(name, kind))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Sampling;

    const THEIRS: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn tracer() -> Arc<Tracer> {
        Tracer::new(Sampling::PARENT_OR_ALL, Arc::default())
    }

    fn message(text: &str) -> Message {
        Message::parse(text.as_bytes()).unwrap()
    }

    /// A request as it goes to a server, with `T` for what it says of its trace.
    #[track_caller]
    fn check(request: &str, state: Option<&str>, expected: &str) {
        let tracer = tracer();
        let trace = tracer.traces.anew().with_state(state);
        let step = tracer.begin(trace, None, String::new()).step("x", Kind::Client);
        let told = format!("\"traceparent\":\"{}\"", step.trace().header());
        let changed = in_step(message(request), Some(&step));
        let text = std::str::from_utf8(changed.text()).unwrap();
        assert_eq!(text, expected.replace('T', &told));
        assert_eq!(told_in(&changed, &tracer).unwrap().parent, Some(step.trace().span_id));
        assert_eq!(in_step(message(request), None).text(), request.as_bytes());
    }

    #[test]
    fn a_request_tells_the_server_of_its_trace_and_the_rest_of_it_stays() {
        let state = Some("a=1");
        check(r#"{"id":1}"#, None, r#"{"params":{"_meta":{T}},"id":1}"#);
        check(
            r#"{"id":1,"params":{"x" : 1.0}}"#,
            state,
            r#"{"id":1,"params":{"_meta":{T,"tracestate":"a=1"},"x" : 1.0}}"#,
        );
        check(r#"{"params":{"_meta":{ }}}"#, None, r#"{"params":{"_meta":{T}}}"#);
        let odd = r#""p\/q" : [ 1e400,"\u0041" ]"#;
        let before = [r#"{"params":{"_meta":{"trace\u0070arent":"#, "\"", THEIRS, "\","].concat();
        check(
            &format!("{before}{odd},\"tracestate\":\"b=2\"}},\"y\":[]}}}}"),
            state,
            &format!("{{\"params\":{{\"_meta\":{{{odd},T,\"tracestate\":\"a=1\"}},\"y\":[]}}}}"),
        );
    }

    #[test]
    fn what_is_no_object_is_left_as_it_is() {
        for request in [r#"{"params":{"_meta":null}}"#, r#"{"params":[1]}"#] {
            let step = tracer();
            let step = step.begin(step.traces.anew(), None, String::new()).step("x", Kind::Client);
            assert_eq!(in_step(message(request), Some(&step)).text(), request.as_bytes());
        }
    }

    #[test]
    fn a_trace_is_told_only_by_what_is_right() {
        let told = |meta: &str| {
            told_in(&message(&format!("{{\"params\":{{\"_meta\":{meta}}}}}")), &tracer())
        };
        let right =
            told(&format!("{{\"tracestate\":\"a=1\",\"traceparent\":\"{THEIRS}\"}}")).unwrap();
        assert_eq!(
            (right.parent, right.state.as_deref()),
            (Some(0x00f0_67aa_0ba9_02b7), Some("a=1"))
        );
        for wrong in [
            "{}",
            "null",
            "[]",
            "{\"traceparent\":1}",
            "{\"traceparent\":\"x\"}",
            "{\"x\":{\"traceparent\":\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\"}}",
        ] {
            assert_eq!(told(wrong), None, "{wrong}");
        }
    }
}
