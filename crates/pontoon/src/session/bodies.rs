//! The bodies of requests to tools that are paths: what each tool takes, and the arguments that a body means.
//!
//! That is found out when it is first asked for: most servers are reached by MCP alone.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use pontoon_schema::{Misfit, RequestBody};
use pontoon_wire::{Rewrite, Slot, json, method, string_value};

use super::answered_here::no_such_tool;
use super::catalog::{Catalog, Facts};
use super::entry::Entry;
use crate::call::{Call, CallError};

/// What the tools of a server take as the body of a request, by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Bodies(OnceLock<Arc<HashMap<String, Arc<RequestBody>>>>);

impl Facts {
    /// Each tool as clients see it, with the name that its server has for it.
    pub fn tools(&self) -> impl Iterator<Item = (Cow<'_, str>, &str)> {
        let tools = self.lists.get(method::LIST_TOOLS).into_iter().flatten();
        tools.filter_map(|tool| {
            let shown = json::find(tool.get().as_bytes(), "name").and_then(string_value)?;
            let own = self.shown.plan(&shown).and_then(|plan| plan.name.as_deref());
            Some((own.map_or(shown, Cow::Borrowed), tool.get()))
        })
    }

    /// What this tool takes as the body of a request, by either of its names; `None` if there is no such tool.
    pub fn body_of(&self, tool: &str) -> Option<&RequestBody> {
        self.bodies.0.get_or_init(|| Arc::new(self.read_bodies())).get(tool).map(AsRef::as_ref)
    }

    fn read_bodies(&self) -> HashMap<String, Arc<RequestBody>> {
        let mut bodies = HashMap::new();
        for (own, tool) in self.tools() {
            let schema = json::find(tool.as_bytes(), "inputSchema").unwrap_or(b"{}");
            let Ok(schema) = std::str::from_utf8(schema) else { continue };
            let body = Arc::new(RequestBody::of(schema, &format!("{own}_form_model")));
            let shown = json::find(tool.as_bytes(), "name").and_then(string_value);
            bodies.extend(shown.map(|shown| (shown.into_owned(), Arc::clone(&body))));
            bodies.insert(own.into_owned(), body);
        }
        bodies
    }
}

/// Makes the arguments of a call what its body means: checked, and with what was left out. No body is null.
///
/// # Errors
///
/// [`CallError::Misfits`] if the tool does not take the body, and 404 if there is no such tool.
pub(super) fn complete(catalog: &Catalog, entry: &Entry, call: &mut Call) -> Result<(), CallError> {
    let tool = call.request.string(Slot::Name).unwrap_or_default();
    let era = call.client.era();
    let given = call.request.raw(Slot::Arguments).unwrap_or(b"null");
    let given = std::str::from_utf8(given).expect("a message is UTF-8");
    let body = catalog.facts(era).and_then(|facts| facts.body_of(&tool));
    let arguments = match body {
        Some(body) => {
            let refused = |misfits: Vec<_>| CallError::Misfits(Misfit::list(&misfits));
            body.arguments(given).map_err(refused)?
        }
        // The client's own process may have told it of more tools than all are told of.
        None if entry.back.lists_changed(&call.client, catalog.child_era(era)) => {
            Cow::Borrowed(if given == "null" { "{}" } else { given })
        }
        None => return Err(CallError::Told(no_such_tool(&tool), 404)),
    };
    if arguments.as_ref() != given {
        let arguments = arguments.into_owned();
        let completed = Rewrite::new(call.request.clone()).replace(Slot::Arguments, arguments);
        // What would be nested too deep stays what it was.
        if let Ok(request) = completed.try_into_message() {
            call.request = request;
        }
    }
    Ok(())
}
