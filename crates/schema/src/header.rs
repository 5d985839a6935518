//! `x-mcp-header`: arguments that clients of the protocol 2026-07-28 also send as headers. They leave out a tool of which
//! one is wrong.

use std::collections::HashSet;

use crate::node::{Member, Node, member};
use crate::notes::Notes;
use crate::walk::each_schema;

/// The keyword.
pub(crate) const KEYWORD: &str = "x-mcp-header";

/// Visits every schema with a name of a header that is no token, stands for a second time, or is not at an argument of
/// a plain type, directly or in objects only.
pub(crate) fn each_wrong<'t>(
    root: &mut Node<'t>,
    notes: &mut Notes,
    visit: &mut dyn FnMut(&mut Vec<Member<'t>>, &mut Notes),
) {
    let mut seen = HashSet::new();
    let depth = notes.path().count();
    each_schema(root, notes, &mut |members, notes| {
        let Some(value) = member(members, KEYWORD) else { return };
        let name = value.as_text().map(|name| name.to_ascii_lowercase());
        let is_token = name.as_deref().is_some_and(is_token);
        let of_type = member(members, "type").and_then(Node::as_text);
        let is_plain = matches!(of_type.as_deref(), Some("string" | "integer" | "boolean"));
        let is_root = notes.path().count() == depth;
        let is_reached =
            !is_root && notes.path().skip(depth).step_by(2).all(|it| it == "properties");
        if !is_token || !is_plain || !is_reached || !seen.insert(name) {
            visit(members, notes);
        }
    });
}

fn is_token(name: &str) -> bool {
    let is_letter = |it: char| it.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(it);
    !name.is_empty() && name.chars().all(is_letter)
}
