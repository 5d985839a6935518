//! Tool schemas as clients need them: what is wrong with one, and the same put right.
//!
//! A client that takes JSON Schema at its word refuses a tool whose schema is not valid, and some refuse all tools of
//! a server with it. [`repair`] makes valid what has only one meaning: `properties: null` can only be `{}`, and
//! `items: ["type", "number"]` can only be `{"type": "number"}`. It loses nothing and invents nothing, so what a
//! server accepts stays the same; what has several meanings is found, told and left alone.
//!
//! A repaired tool keeps the text of its numbers, the order of its members and all that is not known here. A healthy
//! one is given back as it came. This crate does no I/O and reads no clock.
//!
//! ```
//! let tool = r#"{"name":"move","inputSchema":{"type":"object","properties":{"to":{"type":"array","items":["type","number"]}}}}"#;
//! let report = pontoon_schema::repair(tool);
//! assert_eq!(
//!     report.tool,
//!     r#"{"name":"move","inputSchema":{"type":"object","properties":{"to":{"type":"array","items":{"type":"number"}}}}}"#
//! );
//! let finding = &report.findings[0];
//! assert_eq!(finding.code.as_str(), "S005");
//! assert_eq!(finding.place, "/inputSchema/properties/to/items");
//! ```

#![forbid(unsafe_code)]

mod code;
mod keyword;
mod node;
mod repair;
mod type_words;

pub use code::{Code, Severity};
pub use repair::{Finding, MAX_BYTES, MAX_FINDINGS, Report, repair};
