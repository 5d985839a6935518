//! Trace ids: one for each request, from the client if it has one (W3C Trace Context), so that a
//! line of the log can be found again.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::header::HeaderName;
use uuid::Uuid;

use crate::hex::hex;

/// The header, in requests and in responses.
pub static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// What other systems add to it.
pub static TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Which trace a request belongs to, and our step in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The id of the whole trace.
    pub trace_id: u128,
    /// Our own step.
    pub span_id: u64,
    /// The step that ours belongs to; `None` where the trace began with us.
    pub parent: Option<u64>,
    /// Whether somebody records it, in its lowest bit.
    pub flags: u8,
    /// What other systems have to say of it (`tracestate`), passed on as it came.
    pub state: Option<Arc<str>>,
}

/// The longest `tracestate` that is passed on: as much as the specification asks for.
const LONGEST_STATE: usize = 512;

/// Makes ids that do not repeat. They are no secrets: whoever knows one can do nothing with it.
#[derive(Debug, Default)]
pub struct Traces {
    random: RandomState,
    made: AtomicU64,
}

impl Traces {
    /// The trace of a request with these `traceparent` headers: the client's, if there is exactly
    /// one and it is right, else a new one.
    pub fn of<'a>(&self, headers: impl IntoIterator<Item = &'a [u8]>) -> Trace {
        let mut headers = headers.into_iter();
        let theirs = match (headers.next(), headers.next()) {
            (Some(header), None) => parse(header),
            _ => None,
        };
        theirs.map_or_else(|| self.anew(), |theirs| self.below(&theirs))
    }

    /// A trace that begins with us.
    pub fn anew(&self) -> Trace {
        let trace_id = u128::from(self.id()) << 64 | u128::from(self.id());
        Trace { trace_id, span_id: self.id(), parent: None, flags: 0, state: None }
    }

    /// The trace in this `traceparent`, with a step of our own, if it is right.
    pub fn told(&self, traceparent: &[u8]) -> Option<Trace> {
        parse(traceparent).map(|theirs| self.below(&theirs))
    }

    /// A step of ours that belongs to this one.
    pub fn below(&self, theirs: &Trace) -> Trace {
        Trace { span_id: self.id(), parent: Some(theirs.span_id), ..theirs.clone() }
    }

    /// An id other than zero, which stands for none.
    fn id(&self) -> u64 {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        self.random.hash_one(made).max(1)
    }
}

impl Trace {
    /// The same with this `tracestate`, if there is one that can be passed on.
    pub fn with_state(mut self, state: Option<&str>) -> Self {
        let is_plain = |text: &&str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let state = state.map(str::trim).filter(|it| !it.is_empty() && it.len() <= LONGEST_STATE);
        self.state = state.filter(is_plain).map(Arc::from);
        self
    }

    /// Whether somebody records it.
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    /// The header that tells the client, or the next in line.
    pub fn header(&self) -> String {
        let mut bytes = [0; 25];
        bytes[..16].copy_from_slice(&self.trace_id.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.span_id.to_be_bytes());
        bytes[24] = self.flags;
        let digits = hex(&bytes);
        ["00-", &digits[..32], "-", &digits[32..48], "-", &digits[48..]].concat()
    }

    /// The id by which the log tells the lines of this request.
    pub fn id(&self) -> TraceId {
        TraceId(self.trace_id)
    }

    /// The span in which a request is handled: every line of the log in it has the trace id, and that of the job once
    /// its call has one.
    pub fn span(&self) -> tracing::Span {
        // At the highest level, so that it is there for warnings too when less is logged.
        // As a number: most requests log nothing, and then it is never written out.
        tracing::error_span!("request", trace_id = self.trace_id, job_id = tracing::field::Empty)
    }
}

/// The id of a trace, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub u128);

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0.to_be_bytes()))
    }
}

/// Says which job records the call that is being made, for the lines of the log from now on.
pub fn note_job(job: Uuid) {
    tracing::Span::current().record("job_id", tracing::field::display(job));
}

/// A `traceparent` as the specification has it: lower-case digits, no id of zeros, of a later
/// version only what this one knows.
fn parse(header: &[u8]) -> Option<Trace> {
    let text = std::str::from_utf8(header).ok()?;
    let (known, more) = text.split_at_checked(55)?;
    let mut parts = known.split('-');
    let mut part = |length: usize| {
        let part = parts.next().filter(|part| part.len() == length)?;
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        u128::from_str_radix(part, 16).ok().filter(|_| part.bytes().all(is_digit))
    };
    let (version, trace_id) = (part(2)?, part(32)?);
    let span_id = u64::try_from(part(16)?).ok()?;
    let flags = u8::try_from(part(2)?).ok()?;
    let is_whole = match version {
        0 => more.is_empty(),
        0xff => false,
        _ => more.is_empty() || more.starts_with('-'),
    };
    // Of the flags we know only the first: whether somebody records this trace.
    (is_whole && trace_id != 0 && span_id != 0).then_some(Trace {
        trace_id,
        span_id,
        parent: None,
        flags: flags & 1,
        state: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    /// Whether the client's trace goes on, with a step of our own.
    fn check(headers: &[&str], goes_on: bool) {
        let traces = Traces::default();
        let trace = traces.of(headers.iter().map(|header| header.as_bytes()));
        assert_eq!(trace.id().to_string() == ID, goes_on, "{headers:?}");
        let header = trace.header();
        let again = parse(header.as_bytes()).expect("ours is right");
        assert_eq!(again, Trace { parent: None, ..trace.clone() });
        assert_eq!(trace.parent.is_some(), goes_on, "{headers:?}");
        assert!(!headers.iter().any(|it| it.contains(&header[36..52])), "{header} is our own step");
    }

    #[test]
    fn the_clients_trace_goes_on() {
        check(&[&format!("00-{ID}-00f067aa0ba902b7-01")], true);
        check(&[&format!("00-{ID}-00f067aa0ba902b7-00")], true);
        check(&[&format!("cc-{ID}-00f067aa0ba902b7-09-what-comes-later")], true);
        check(&[&format!("01-{ID}-00f067aa0ba902b7-01")], true);
    }

    #[test]
    fn what_is_not_right_begins_a_new_trace() {
        check(&[], false);
        let right = format!("00-{ID}-00f067aa0ba902b7-01");
        check(&[&right, &right], false);
        for wrong in [
            String::new(),
            "x".to_owned(),
            format!("{right}-more"),
            format!("{right} "),
            format!("ff-{ID}-00f067aa0ba902b7-01"),
            format!("01-{ID}-00f067aa0ba902b7-01x"),
            format!("0-{ID}0-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", ID.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", ID.replacen('4', "+", 1)),
            format!("00-{ID}-0000000000000000-01"),
            format!("00-{ID}-00f067aa0ba902b7-0"),
            format!("00_{ID}_00f067aa0ba902b7_01"),
            format!("00-{}é-00f067aa0ba902b7-01", &ID[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01".to_owned(),
        ] {
            check(&[&wrong], false);
        }
    }

    #[test]
    fn only_the_flag_we_know_is_passed_on() {
        let header = format!("00-{ID}-00f067aa0ba902b7-ff");
        assert!(Traces::default().of([header.as_bytes()]).header().ends_with("-01"));
        assert!(Traces::default().of([]).header().ends_with("-00"));
    }

    #[test]
    fn a_state_is_passed_on_if_a_header_may_hold_it() {
        let state = |state| Traces::default().anew().with_state(state).state;
        assert_eq!(state(Some(" a=1,b=2 ")).as_deref(), Some("a=1,b=2"));
        let long = "x".repeat(LONGEST_STATE + 1);
        for wrong in [None, Some(""), Some("a=\nb"), Some("a=é"), Some(&*long)] {
            assert_eq!(state(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn ids_do_not_repeat() {
        let traces = Traces::default();
        let made: std::collections::HashSet<_> =
            (0..10_000).map(|_| traces.of([]).id().to_string()).collect();
        assert_eq!(made.len(), 10_000);
        assert_ne!(
            Traces::default().of([]).id().to_string(),
            Traces::default().of([]).id().to_string()
        );
    }
}
