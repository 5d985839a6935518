//! The doctor: one server is opened, asked and listened to, and a report tells what is wrong with it and what to do.
//!
//! A [`Patient`] comes in, an [`Examination`] goes out: what was looked at, each fault with its fix, which tools each
//! client will show, and the entry that is recommended for the configuration. `room` opens connections, `exam` has the
//! probes, `render` writes the report. Nothing that was started outlives the examination.

pub mod aspect;
#[cfg(test)]
mod docs;
mod exam;
pub mod examination;
pub mod heal_words;
mod judge;
pub mod options;
pub mod patient;
pub mod recommend;
pub mod render;
mod room;
pub mod sign;
pub mod symptom;
mod visit;
mod words;

pub use exam::examine;
pub use exam::step::ExamStep;
pub use examination::Examination;
pub use options::ExamOptions;
pub use patient::Patient;
pub use room::{ExamRoom, NoRoom};
