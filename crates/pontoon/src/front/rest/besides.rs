//! What is offered besides tools, where a server's configuration wants it: prompts to list and to fill in, resources to list
//! and to read, each as an operation like that of a tool.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use pontoon_schema::RequestBody;
use pontoon_wire::{Era, Message, Revision, json, method, quoted, string_value};

use super::super::response::HttpResponse;
use super::super::site::HttpSite;
use super::super::who::caller::Caller;
use super::asking::{PATIENCE, add_to_head, ask};
use super::{failure, result};
use crate::call::Outcome;
use crate::config::RestExtras;
use crate::session::Arrival;
use crate::session::catalog::Facts;
use crate::session::entry::Entry;

const NOTHING: &str = "{\"type\":\"object\",\"properties\":{}}";
const READ: &str = "{\"type\":\"object\",\"properties\":{\"uri\":{\"type\":\"string\",\"description\":\"The address of the \
                    resource, one of those that are listed or made by a template.\"}},\"required\":[\"uri\"]}";

/// One of these operations.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Besides<'p> {
    ListPrompts,
    GetPrompt(&'p str),
    ListResources,
    ListTemplates,
    ReadResource,
}

impl<'p> Besides<'p> {
    /// What this path names, if the server offers it.
    pub(super) fn of(path: &'p str, offered: RestExtras) -> Option<Self> {
        match (path, path.strip_prefix("prompts/")) {
            ("prompts", _) if offered.prompts => Some(Self::ListPrompts),
            (_, Some(prompt)) if offered.prompts => Some(Self::GetPrompt(prompt)),
            ("resources", _) if offered.resources => Some(Self::ListResources),
            ("resources/templates", _) if offered.resources => Some(Self::ListTemplates),
            ("resources/read", _) if offered.resources => Some(Self::ReadResource),
            _ => None,
        }
    }
}

/// Whether one of them has this path.
pub(super) fn is_there(facts: &Facts, path: &str, offered: RestExtras) -> bool {
    match Besides::of(path, offered) {
        Some(Besides::GetPrompt(name)) => prompt(facts, name).is_some(),
        Some(_) => true,
        None => false,
    }
}

/// All of them, each as a tool of its path would be: its name, and the JSON of the tool.
pub(super) fn listed(facts: &Facts, offered: RestExtras) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |path: String, description: &str, schema: &str| {
        let tool = format!("{{\"description\":{description},\"inputSchema\":{schema}}}");
        all.push((path, tool));
    };
    if offered.prompts {
        add("prompts".to_owned(), "\"Lists the prompts of this server.\"", NOTHING);
        for prompt in prompts(facts) {
            let Some(name) = name_of(prompt) else { continue };
            let description =
                json::find(prompt, "description").filter(|raw| raw.starts_with(b"\""));
            let description = String::from_utf8_lossy(description.unwrap_or(b"\"A prompt.\""));
            add(format!("prompts/{name}"), &description, &schema_of(prompt));
        }
    }
    if offered.resources {
        add("resources".to_owned(), "\"Lists the resources of this server.\"", NOTHING);
        let templates =
            "\"Lists the templates that addresses of resources of this server are made by.\"";
        add("resources/templates".to_owned(), templates, NOTHING);
        add("resources/read".to_owned(), "\"Reads a resource of this server.\"", READ);
    }
    all
}

fn prompts(facts: &Facts) -> impl Iterator<Item = &[u8]> {
    let prompts = facts.lists.get(method::LIST_PROMPTS).into_iter().flatten();
    prompts.map(|prompt| prompt.get().as_bytes())
}

fn prompt<'f>(facts: &'f Facts, name: &str) -> Option<&'f [u8]> {
    prompts(facts).find(|prompt| name_of(prompt).is_some_and(|it| it == name))
}

fn name_of(prompt: &[u8]) -> Option<Cow<'_, str>> {
    json::find(prompt, "name").and_then(string_value)
}

/// The arguments of a prompt, which are texts, as the schema of a tool has them.
fn schema_of(prompt: &[u8]) -> String {
    let arguments = json::find(prompt, "arguments").unwrap_or(b"[]");
    let each = json::elements(arguments, 0..arguments.len()).map(|range| &arguments[range]);
    let (mut properties, mut required) = (Vec::new(), Vec::new());
    for argument in each {
        let Some(name) = name_of(argument) else { continue };
        let description = json::find(argument, "description").filter(|raw| raw.starts_with(b"\""));
        let description =
            description.map(|raw| format!(",\"description\":{}", String::from_utf8_lossy(raw)));
        properties.push(format!(
            "{}:{{\"type\":\"string\"{}}}",
            quoted(&name),
            description.unwrap_or_default()
        ));
        if json::find(argument, "required") == Some(b"true") {
            required.push(quoted(&name));
        }
    }
    format!(
        "{{\"type\":\"object\",\"properties\":{{{}}},\"required\":[{}]}}",
        properties.join(","),
        required.join(",")
    )
}

/// Answers a request for one of them, whose body is JSON or empty.
pub(super) async fn post(
    site: &Arc<HttpSite>,
    entry: &Arc<Entry>,
    what: Besides<'_>,
    body: &[u8],
    caller: &Caller,
) -> HttpResponse {
    let client = caller.bare_client(entry, Revision::NEWEST_LEGACY);
    let catalog = match site.sessions.offered(entry, &client, PATIENCE).await {
        Ok(catalog) => catalog,
        Err(why) => return failure::of_call(&why),
    };
    let Some(facts) = catalog.facts(Era::Legacy) else { return failure::not_found() };
    let schema = match what {
        Besides::ListPrompts | Besides::ListResources | Besides::ListTemplates => {
            NOTHING.to_owned()
        }
        Besides::ReadResource => READ.to_owned(),
        Besides::GetPrompt(name) => match prompt(facts, name) {
            Some(prompt) => schema_of(prompt),
            None => return failure::not_found(),
        },
    };
    let takes = RequestBody::of(&schema, "form_model");
    let given = std::str::from_utf8(body.trim_ascii()).unwrap_or_default();
    let given = if takes.is_needed() { given } else { "" };
    let arguments = match takes.arguments(given) {
        Ok(arguments) => arguments,
        Err(misfits) => return failure::of_misfits(&misfits),
    };
    let (method, params) = match what {
        Besides::ListPrompts => (method::LIST_PROMPTS, "{}".to_owned()),
        Besides::ListResources => (method::LIST_RESOURCES, "{}".to_owned()),
        Besides::ListTemplates => (method::LIST_TEMPLATES, "{}".to_owned()),
        Besides::ReadResource => (method::READ_RESOURCE, arguments.into_owned()),
        Besides::GetPrompt(name) => {
            let name = quoted(name);
            (method::GET_PROMPT, format!("{{\"name\":{name},\"arguments\":{arguments}}}"))
        }
    };
    let text =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}");
    let request = match Message::parse(BytesMut::from(text.as_bytes())) {
        Ok(request) => request,
        Err(wrong) => return failure::unreadable(&wrong.to_string()),
    };
    let outcome = ask(site, entry, caller, request, Bytes::from_static(b"1"), Arrival::Bare).await;
    let Some(outcome) = outcome else { return failure::cancelled() };
    let mut response = match &outcome {
        Outcome::Failed(why, _) => failure::of_call(why),
        Outcome::Answer(text, code, _) => {
            let text = text.to_bytes();
            match code {
                Some(_) => failure::of_error(json::find(&text, "error").unwrap_or(b"{}")),
                None => told(&what, json::find(&text, "result").unwrap_or(b"{}")),
            }
        }
    };
    add_to_head(&mut response, &outcome);
    response
}

/// The response that is this result.
fn told(what: &Besides<'_>, result: &[u8]) -> HttpResponse {
    let member = |name| json::find(result, name).unwrap_or(b"[]");
    let body = match what {
        Besides::ListPrompts => String::from_utf8_lossy(member("prompts")).into_owned(),
        Besides::ListResources => String::from_utf8_lossy(member("resources")).into_owned(),
        Besides::ListTemplates => String::from_utf8_lossy(member("resourceTemplates")).into_owned(),
        Besides::GetPrompt(_) => String::from_utf8_lossy(result).into_owned(),
        Besides::ReadResource => result::contents(member("contents")),
    };
    super::super::response::json(200, &Bytes::from(body).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_offered_has_a_path() {
        let all = RestExtras { prompts: true, resources: true, html: false };
        for (path, what) in [
            ("prompts", Some(Besides::ListPrompts)),
            ("prompts/a/b", Some(Besides::GetPrompt("a/b"))),
            ("resources", Some(Besides::ListResources)),
            ("resources/read", Some(Besides::ReadResource)),
            ("resources/templates", Some(Besides::ListTemplates)),
            ("resources/write", None),
            ("prompt", None),
        ] {
            assert_eq!(Besides::of(path, all), what, "{path}");
            assert_eq!(Besides::of(path, RestExtras::default()), None, "{path}");
        }
    }

    #[test]
    fn the_arguments_of_a_prompt_are_texts() {
        let prompt = br#"{"name":"p","arguments":[{"name":"city","description":"Which","required":true},{"name":"lang"}]}"#;
        assert_eq!(
            schema_of(prompt),
            r#"{"type":"object","properties":{"city":{"type":"string","description":"Which"},"lang":{"type":"string"}},"required":["city"]}"#
        );
    }
}
