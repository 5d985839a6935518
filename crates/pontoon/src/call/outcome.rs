//! How a call ended, and what it left behind.

use pontoon_wire::Text;
use uuid::Uuid;

use super::error::CallError;

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
