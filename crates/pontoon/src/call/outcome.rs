//! How a call ended, and what it left behind.

use pontoon_wire::{Message, Slot, Text};
use uuid::Uuid;

use super::error::CallError;
use crate::observe::spans::Span;

/// The longest answer that is sent as an event where that can be helped, in bytes: some clients refuse events over
/// 1 MiB, and links to files may be added.
pub const MAX_EVENT: usize = 1_000_000;

/// How a call ended, for the front to turn into bytes.
#[derive(Debug)]
pub enum Outcome {
    /// The server answered; for an error its code is here too.
    Answer(Text, Option<i64>, Option<Box<Receipt>>),
    /// Nobody answered, and this is why.
    Failed(CallError, Option<Box<Receipt>>),
}

impl Outcome {
    /// What the call left behind, if that is known.
    pub fn receipt(&self) -> Option<Box<Receipt>> {
        match self {
            Self::Answer(_, _, receipt) | Self::Failed(_, receipt) => receipt.clone(),
        }
    }

    /// The length of the answer in bytes, if there is one.
    pub fn answer_bytes(&self) -> usize {
        match self {
            Self::Answer(text, ..) => text.len(),
            Self::Failed(..) => 0,
        }
    }

    /// When it is worth another try, if that is known.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        match self {
            Self::Answer(..) => None,
            Self::Failed(why, _) => why.retry_after_seconds(),
        }
    }
}

/// What a call left behind, told beside its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The job that recorded it.
    pub job: Uuid,
    /// The files it made, each with its address.
    pub files: Vec<(String, String)>,
    /// How many blocks at the end of its answer tell of them: a text, and links.
    pub blocks: usize,
}

/// The word in a span for a result by which a tool says that it failed.
pub(super) const TOOL_ERROR: &str = "tool_error";

/// Whether a result says that the tool failed.
pub(super) fn is_tool_error(answer: &Message) -> bool {
    answer.raw(Slot::IsError) == Some(b"true")
}

/// Says of the span of a request how that ended.
pub(super) fn tell_outcome(span: &mut Span, outcome: Option<&Outcome>) {
    match outcome {
        Some(Outcome::Answer(_, Some(code), _)) => tell_code(span, *code),
        Some(Outcome::Answer(..)) => {}
        Some(Outcome::Failed(why, _)) => span.error = Some(why.word()),
        None => span.error = Some("cancelled".into()),
    }
}

/// Says of the span of a request that it was answered with an error of this code.
pub(super) fn tell_code(span: &mut Span, code: i64) {
    span.tell("rpc.response.status_code", code.to_string());
    span.error = Some(code.to_string().into());
}
