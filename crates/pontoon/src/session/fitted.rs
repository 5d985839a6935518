//! A call of a tool as its server knows it: under its own name, with the arguments that it takes.
//!
//! What clients see of a tool may differ from what its server wrote (`back::shown_tools`). Here calls are led back.

use std::borrow::Cow;

use pontoon_schema::Fault;
use pontoon_wire::{Rewrite, Slot, method, quoted};

use super::catalog::Catalog;
use super::entry::Entry;
use crate::call::{Call, CallError};

/// Makes the request of a call what the server knows.
///
/// # Errors
///
/// [`CallError::BadArguments`] if the tool does not take its arguments.
pub(super) fn fit(catalog: &Catalog, entry: &Entry, call: &mut Call) -> Result<(), CallError> {
    if call.request.method() != method::CALL_TOOL {
        return Ok(());
    }
    let Some(tool) = call.request.string(Slot::Name) else { return Ok(()) };
    let client_era = call.client.era();
    let own = entry.back.own_tools(&call.client, catalog.child_era(client_era));
    let shown = own.as_deref().or_else(|| catalog.facts(client_era).map(|facts| &facts.shown));
    let Some(plan) = shown.and_then(|shown| shown.plan(&tool)) else { return Ok(()) };
    let arguments = call.request.raw(Slot::Arguments).unwrap_or(b"{}");
    let arguments = std::str::from_utf8(arguments).expect("a message is UTF-8");
    let fitted = plan.arguments(arguments).map_err(|refusal| {
        CallError::BadArguments(format!("{refusal}. The call was not made: put them right"))
    })?;
    let original = plan.name.as_ref().filter(|original| **original != tool);
    if original.is_none() && matches!(fitted, Cow::Borrowed(_)) {
        return Ok(());
    }
    let mut rewrite = Rewrite::new(call.request.clone());
    if let Some(original) = original {
        rewrite = rewrite.replace(Slot::Name, quoted(original));
    }
    if let Cow::Owned(fitted) = fitted {
        entry.back.heals.note_fault(Fault::Arguments);
        rewrite = rewrite.replace(Slot::Arguments, fitted);
    }
    // What would be nested too deep stays what it was.
    if let Ok(request) = rewrite.try_into_message() {
        call.request = request;
    }
    Ok(())
}
