//! What tools take as the body of a request to them, where they are paths: their arguments, by the names that their
//! servers have for them.
//!
//! That is found out when it is first asked for: most servers are reached by MCP alone.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use pontoon_schema::RequestBody;
use pontoon_wire::json;

/// A tool as its server wrote it.
pub struct OwnTool<'f> {
    /// The name that its server has for it.
    pub name: Cow<'f, str>,
    /// The name that clients of MCP see.
    pub shown: Cow<'f, str>,
    /// The tool, a JSON text.
    pub text: &'f str,
}

/// What the tools of a server take as the body of a request, by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Bodies(OnceLock<Arc<HashMap<String, Arc<RequestBody>>>>);

impl Bodies {
    /// What this tool takes, if it is one of these.
    pub(super) fn of<'t>(
        &self,
        tool: &str,
        tools: impl Iterator<Item = OwnTool<'t>>,
    ) -> Option<&RequestBody> {
        self.0.get_or_init(|| Arc::new(read(tools))).get(tool).map(AsRef::as_ref)
    }
}

/// What each takes, by both of its names.
fn read<'t>(tools: impl Iterator<Item = OwnTool<'t>>) -> HashMap<String, Arc<RequestBody>> {
    let mut bodies = HashMap::new();
    for OwnTool { name, shown, text } in tools {
        let schema = json::find(text.as_bytes(), "inputSchema").unwrap_or(b"{}");
        let Ok(schema) = std::str::from_utf8(schema) else { continue };
        let body = Arc::new(RequestBody::of(schema, &format!("{name}_form_model")));
        bodies.insert(shown.into_owned(), Arc::clone(&body));
        bodies.insert(name.into_owned(), body);
    }
    bodies
}
