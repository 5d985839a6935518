//! How far the start of a child is, for a person who waits for it.

use std::time::Duration;

/// What the child that was started last is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StartStage {
    /// Its process is being started.
    #[default]
    Starting,
    /// It was greeted, and is given this long to answer.
    Greeting(Duration),
    /// It has answered.
    Ready,
}
