//! One call to its answer: the exchange with a conversation, the questions in its middle, its record and its files.
//!
//! A call comes in with its [`Reply`](crate::call::Reply), the answer goes home through that. Children are leased
//! from `keep`; no child is started and no frame is read here.

pub mod answer;
pub(crate) mod disabled_tools;
pub(crate) mod early_questions;
pub mod exchange;
pub mod listen;
pub(crate) mod mentions;
pub(crate) mod questions;
pub(crate) mod record;
