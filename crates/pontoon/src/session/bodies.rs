//! What tools take as the body of a request to them, where they are paths.
//!
//! That is found out when it is first asked for: most servers are reached by MCP alone.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use pontoon_schema::RequestBody;
use pontoon_wire::{json, string_value};

/// What the tools of a server take as the body of a request, by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Bodies(OnceLock<Arc<HashMap<String, Arc<RequestBody>>>>);

impl Bodies {
    /// What this tool takes, if it is one of these: each with the name that its server has for it, and as clients see it.
    pub(super) fn of<'t>(
        &self,
        tool: &str,
        tools: impl Iterator<Item = (Cow<'t, str>, &'t str)>,
    ) -> Option<&RequestBody> {
        self.0.get_or_init(|| Arc::new(read(tools))).get(tool).map(AsRef::as_ref)
    }
}

/// What each takes, by both of its names.
fn read<'t>(
    tools: impl Iterator<Item = (Cow<'t, str>, &'t str)>,
) -> HashMap<String, Arc<RequestBody>> {
    let mut bodies = HashMap::new();
    for (own, tool) in tools {
        let schema = json::find(tool.as_bytes(), "inputSchema").unwrap_or(b"{}");
        let Ok(schema) = std::str::from_utf8(schema) else { continue };
        let body = Arc::new(RequestBody::of(schema, &format!("{own}_form_model")));
        let shown = json::find(tool.as_bytes(), "name").and_then(string_value);
        bodies.extend(shown.map(|shown| (shown.into_owned(), Arc::clone(&body))));
        bodies.insert(own.into_owned(), body);
    }
    bodies
}
