//! Pontoon: a bridge between MCP clients and tool servers that cannot reach each other.
//!
//! ```text
//!         front                     session                      back
//!  bytes from a client  ->  whose call, may it run, who   ->  bytes to a server
//!                           answers
//!                   \                                          /
//!                    \______ Reply: the answer goes home _____/
//! ```
//!
//! A [`call::Call`] travels right; in it rides its [`call::Reply`], which answers exactly once.
//! Imports point right too: `front` may name `session`, `session` may name `back`, never the
//! reverse; only [`app`] sees all three. The modules stand here in the order of that flow.

#![forbid(unsafe_code)]

pub mod cli;
pub mod config;

pub mod adding;
pub mod app;
mod beside;
pub mod call;
pub mod client;
pub mod clock;
pub mod colour;
pub mod date;
pub mod errors;
pub mod held_bytes;
pub mod hex;
pub mod ids;
pub mod lock;
pub mod mac;
pub mod outbox;
pub mod pem_files;
pub mod permits;
pub mod plain_file;
pub mod private_folder;
pub mod scratch_folder;

pub mod back;
pub mod doctor;
pub mod front;
pub mod session;

pub mod jobs;
pub mod observe;
