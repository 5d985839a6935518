//! The page of one server, for people whose browser opens the address that clients are given.
//!
//! It tells what is known already: to look at it starts nothing.

use pontoon_wire::{Era, json, method, string_value};
use serde_json::value::RawValue;

use super::{escaped, html};
use crate::adding::{AddedServer, Addition, KEY};
use crate::front::response::HttpResponse;
use crate::session::catalog::Facts;

const PAGE: &str = include_str!("server.html");

/// What a page says of the tools.
#[derive(Debug, Clone, Copy)]
pub(in crate::front::rest) enum ToolsShown<'a> {
    /// These are known.
    Known(Option<&'a Facts>),
    /// They may differ by who asks, and a page shows none.
    Personal,
    /// They are not known, for this reason if there is one.
    Unknown(Option<&'a str>),
}

/// The page of this server.
pub(in crate::front::rest) fn page(server: AddedServer<'_>, tools: ToolsShown<'_>) -> HttpResponse {
    let needs = match server.wants_key {
        true => {
            "<p>Its tools need a key, which clients show as <code>Authorization: Bearer <mark>KEY</mark></code>. Ask \
             whoever runs this bridge for yours, and put it where <mark>KEY</mark> stands below.</p>"
        }
        false => "",
    };
    let filled = [
        ("{needs}", needs.to_owned()),
        ("{sample}", sample(server, tools)),
        ("{name}", escaped(server.name)),
        ("{url}", escaped(&server.url())),
        ("{clients}", clients(server)),
        // Last: a description may hold anything.
        ("{tools}", tools_list(tools)),
    ];
    html(filled.iter().fold(PAGE.to_owned(), |page, (place, text)| page.replacen(place, text, 9)))
}

fn clients(server: AddedServer<'_>) -> String {
    let mark = |text: &str| {
        let text = escaped(text);
        match server.wants_key {
            true => text.replace(KEY, &format!("<mark>{KEY}</mark>")),
            false => text,
        }
    };
    let one = |Addition { client, place, text }: Addition| {
        format!(
            "<details{}><summary>{client}</summary><p>{}</p><pre data-name=\"what {client} needs\">{}</pre></details>\n",
            if client == "Claude Code" { " open" } else { "" },
            escaped(&place),
            mark(&text)
        )
    };
    server.additions().into_iter().map(one).collect()
}

/// A member of a tool that is a text.
fn text_of(tool: &RawValue, member: &str) -> Option<String> {
    let text = json::find(tool.get().as_bytes(), member).and_then(string_value)?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn tools_of(facts: Option<&Facts>) -> &[Box<RawValue>] {
    facts.and_then(|facts| facts.lists.get(method::LIST_TOOLS)).map_or(&[], Vec::as_slice)
}

fn tools_list(tools: ToolsShown<'_>) -> String {
    let facts = match tools {
        ToolsShown::Known(facts) => facts,
        ToolsShown::Personal => {
            return "<p>Which tools there are may differ by who asks: a client is told.</p>"
                .to_owned();
        }
        ToolsShown::Unknown(why) => {
            let why = why.map_or_else(|| "it has not said them yet".to_owned(), escaped);
            return format!("<p>They are not known now: {why}.</p>");
        }
    };
    let tools = tools_of(facts);
    if tools.is_empty() {
        return "<p>It offers no tools.</p>".to_owned();
    }
    let one = |tool: &RawValue| {
        let name = text_of(tool, "name").unwrap_or_default();
        let description = text_of(tool, "description").unwrap_or_default();
        format!(
            "<dt><code>{}</code></dt><dd><p>{}</p></dd>\n",
            escaped(&name),
            escaped(&description)
        )
    };
    format!("<dl>\n{}</dl>", tools.iter().map(|tool| one(tool)).collect::<String>())
}

/// The form that has the demo server make a file, where it is the demo.
fn sample(server: AddedServer<'_>, tools: ToolsShown<'_>) -> String {
    let ToolsShown::Known(Some(facts)) = tools else { return String::new() };
    let info = facts.server_info.as_ref().map(|info| info.get().as_bytes());
    let name = info.and_then(|info| json::find(info, "name")).and_then(string_value);
    if name.as_deref() != Some("pontoon-demo") {
        return String::new();
    }
    let key = match server.wants_key {
        true => {
            "<p><label>Your key <input name=\"key\" type=\"password\" autocomplete=\"off\" required></label></p>"
        }
        false => "",
    };
    format!(
        "<h2>A file as a link</h2>\n<form action=\"../mcpo/{}/make_report\" method=\"post\">\
         <p>The tool <code>make_report</code> writes a file, and its answer has a link to it.</p>{key}\
         <p><button>Make a sample file</button> <output></output></p></form>\
         <noscript><p>This button needs JavaScript.</p></noscript>",
        server.name
    )
}

/// What is known of a server's tools, for a client of the legacy era.
pub(in crate::front::rest) fn facts_of(
    catalog: &crate::session::catalog::Catalog,
) -> Option<&Facts> {
    catalog.facts(Era::Legacy)
}
