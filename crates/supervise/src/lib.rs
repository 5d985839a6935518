//! Child processes that never outlive their handle, grandchildren included.
//!
//! All unsafe code and all dealings with the operating system of the project are in this crate.
//!
//! One small process, the *spawner*, is forked before the program has a thread, or is an executable
//! that a library runs ([`Spawner::run`], [`serve_stdin`]). It starts every child, adopts what the
//! children leave behind, and ends all of it when the program ends, also when the program is killed.
//!
//! ```text
//!   program ── Spawner ══ socket pair ══ spawner process ──┬── child ── grandchildren
//!                                                          ├── child
//!                                                          └── orphans, adopted and ended
//!
//!   spawn ─→ running ─→ input closed ─→ SIGTERM ─→ SIGKILL ─→ the rest of its tree ─→ ended
//!               └──────────────── ends by itself ──────────────────↗
//! ```
//!
//! # What is promised
//!
//! - A child has exactly the environment it was given, its three streams and no other descriptor,
//!   its own process group, no core dumps, no way to gain privileges, and a umask of 077. Where
//!   memory is scarce, Linux ends it before the program (`oom_score_adj`). One that is
//!   [trusted](Command::trusted) keeps the umask, the core dumps and the privileges of the program.
//! - A child with a [`Confinement`] or [`Limits`] has all of it before its program runs, and so has
//!   all it starts. What the system cannot give is an error, never silently less; see [`Support`].
//! - A child whose [`Child`] is dropped is stopped by a [`Ladder`]; one that ended is reaped.
//! - When a child ends, what it started ends with it, and only then is its [`Exit`] reported.
//! - When the program ends, however it ends, everything it started is killed.
//! - When the spawner itself is killed, its children die with it; what *they* started may not.
//!
//! On Linux this holds for processes that left their group or session as well. On other systems
//! it holds for the process group of the child only: a process that calls `setsid` there escapes,
//! and children survive a spawner that was itself killed. Confinement is for Linux only.
//!
//! # Example
//!
//! ```no_run
//! use pontoon_supervise::{Command, Ladder, Spawner};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let starting = Spawner::start()?;
//!     let runtime = tokio::runtime::Runtime::new()?;
//!     runtime.block_on(async {
//!         let spawner = starting.attach()?;
//!         let child = spawner.spawn(&Command::new("/bin/cat")).await?;
//!         let exit = child.stop(&Ladder::default()).await;
//!         assert!(exit.is_success());
//!         Ok(())
//!     })
//! }
//! ```

#![allow(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod anew;
mod cgroup;
mod child;
mod command;
mod confine;
mod confinement;
mod error;
mod executed;
mod exit;
mod frame;
mod launch;
mod memory;
mod orphans;
mod plain;
mod processors;
mod signals;
mod spawner;
mod spawner_client;
mod spawner_process;
mod stderr;
mod stop;
mod support;
mod unix;

pub use anew::run_anew;
pub use child::{Child, ChildInput, ChildOutput};
pub use command::{Command, ComputedTime, Limits};
pub use confine::harden_worker;
pub use confinement::{Cgroup, Confinement, FileRules, Network, Restriction, User};
pub use error::SpawnError;
pub use executed::{RunError, serve_stdin};
pub use exit::Exit;
pub use memory::{give_memory_back, memory_limit, prefer_large_pages};
pub use plain::plain_text;
pub use processors::processors;
pub use signals::before_a_signal_ends_us;
pub use spawner::{Spawner, Starting};
pub use stderr::Complaints;
pub use stop::Ladder;
pub use support::{CgroupSupport, Support};
