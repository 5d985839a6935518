//! A call of a tool that is a path: its arguments are what the body of the request means.

use std::borrow::Cow;

use pontoon_schema::Misfit;
use pontoon_wire::{Rewrite, Slot};

use super::answered_here::no_such_tool;
use super::catalog::Catalog;
use super::entry::Entry;
use crate::call::{Call, CallError};

/// The same refusal in the words of those who sent a body, which was this.
pub(super) fn in_their_words(why: CallError, body: Option<&[u8]>) -> CallError {
    match why {
        CallError::BadArguments(what) => {
            let body = body.and_then(|body| std::str::from_utf8(body).ok()).unwrap_or("null");
            CallError::Misfits(Misfit::list(&[Misfit::of_value(&what, body)]))
        }
        why => why,
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
