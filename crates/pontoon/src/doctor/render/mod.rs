//! The report written down: for people at a terminal, for programs, for code scanning, and for the server's author.

pub mod json;
pub mod markdown;
pub mod people;
pub mod sarif;
