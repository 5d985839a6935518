//! A server's entry becomes a child process that is ready for calls, and that stops in order.
//!
//! A [`launcher::Launcher`] comes from the configuration, [`ready::ReadyChild`]ren come out of it. Which call a child is
//! for, and how long it is kept, is not known here.

pub(crate) mod command;
pub(crate) mod ending;
#[cfg(test)]
pub(crate) mod in_memory;
pub mod isolation;
pub(crate) mod last_words;
pub mod launcher;
pub mod machine;
pub(crate) mod population;
pub(crate) mod probe;
pub mod process;
pub mod ready;
pub mod stage;
pub mod told;
pub mod workspace;
