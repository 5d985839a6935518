//! Tool schemas as clients need them: what is wrong with one, the same put right, and calls of it brought back.
//!
//! A client that takes JSON Schema at its word refuses a tool whose schema is not valid, and some refuse all tools of
//! a server with it. [`repair`] first makes the schema valid: `properties: null` can only be `{}`, and
//! `items: ["type", "number"]` can only be `{"type": "number"}`. What has no meaning at all is taken out. Then it brings
//! the schema into the shape that the clients of a [`Profile`] take, such as one object where they know no alternatives.
//!
//! What a server accepts stays the same: the [`Plan`] of a tool leads from what clients see back to what the server
//! knows. It has the original names, makes a list of a text that was meant as one, and enforces what clients do not see.
//!
//! A repaired tool keeps the text of its numbers, the order of its members and all that is not known here. A healthy
//! one is given back as it came. This crate does no I/O and reads no clock.
//!
//! ```
//! use pontoon_schema::{Profile, repair};
//! let tool = r#"{"name":"move","inputSchema":{"type":"object","properties":{"to":{"type":"array","items":["type","number"]}}}}"#;
//! let report = repair(tool, Profile::common());
//! assert_eq!(
//!     report.tool,
//!     r#"{"name":"move","inputSchema":{"type":"object","properties":{"to":{"type":"array","items":{"type":"number"}}}}}"#
//! );
//! let finding = &report.findings[0];
//! assert_eq!(finding.fault.id(), "S005/word-list");
//! assert_eq!(finding.place, "/inputSchema/properties/to/items");
//! ```

#![forbid(unsafe_code)]

mod check;
mod cursor;
mod definitions;
mod fault;
mod fit;
mod form;
mod header;
mod keyword;
mod lint;
mod loosen;
mod members;
mod node;
mod notes;
mod older;
mod pattern;
mod plan;
mod profile;
mod references;
mod rename;
mod repair;
mod rest;
mod root;
mod shape;
mod type_words;
mod valid;
mod walk;

pub use check::Check;
pub use fault::{Fault, Severity};
pub use lint::{lint, lint_for, lint_list};
pub use notes::{Effect, Finding, MAX_FINDINGS, Repair};
pub use plan::{Plan, Refusal};
pub use profile::{Names, Profile};
pub use repair::{MAX_BYTES, Report, repair, repair_list};
pub use rest::{Misfit, Place, RequestBody, capitalised};
