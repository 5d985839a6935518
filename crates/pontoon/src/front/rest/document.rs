//! The OpenAPI documents: the tools of a server as operations, the way mcpo writes them; those of all servers in one;
//! and the one that only names the servers.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use pontoon_schema::RequestBody;
use pontoon_wire::{Era, json, quoted, string_value};

use super::super::response::{HttpResponse, json as json_response};
use super::besides;
use super::kept::Known;
use super::operation::{ERRORS, Operation};
use super::titles::{Names, bare_id, component, operation_id};
use crate::config::{RestExtras, RestSettings, Server};
use crate::session::answers;
use crate::session::bodies::OwnTool;
use crate::session::catalog::Facts;

const KEY: &str = "\"securitySchemes\":{\"HTTPBearer\":{\"type\":\"http\",\"scheme\":\"bearer\"}}";

/// The document of one server, which is at this path.
pub(super) fn of_server(
    facts: Option<&Facts>,
    server: &Server,
    base: &str,
    rest: &RestSettings,
    wants_key: bool,
) -> String {
    let info = facts.and_then(|facts| facts.server_info.as_ref());
    let said = |member| {
        let said = info.and_then(|info| json::find(info.get().as_bytes(), member));
        said.and_then(string_value).map(std::borrow::Cow::into_owned)
    };
    let title = said("name").unwrap_or_else(|| server.name.to_string());
    let version = said("version").unwrap_or_else(|| "1.0".to_owned());
    let instructions = facts.and_then(|facts| answers::instructions(facts, server));
    let description = instructions.unwrap_or_else(|| quoted(&format!("{title} MCP Server")));
    let mut document = Document::new(rest, wants_key);
    facts.into_iter().for_each(|facts| document.add(facts, server.rest, ""));
    document.finish(&title, &description, &version, base)
}

/// The document of all servers. One that is not known now is left out, and named.
pub(super) fn of_all(servers: &[Known], rest: &RestSettings, wants_key: bool) -> String {
    let mut document = Document::new(rest, wants_key);
    let mut missing = Vec::new();
    for (server, catalog) in servers {
        let name = server.name.as_str();
        match catalog.as_ref().and_then(|catalog| catalog.facts(Era::Legacy)) {
            Some(facts) => document.add(facts, server.rest, name),
            None => missing.push(name),
        }
    }
    let mut description = "The tools of all servers.".to_owned();
    if !missing.is_empty() {
        description += &format!(" Not there now: {}.", missing.join(", "));
    }
    let base = format!("{}/mcpo", rest.root_path);
    document.finish(&rest.root.title, &quoted(&description), &rest.root.version, &base)
}

/// The document that names the servers, as mcpo has it at its root: each with the page of its own document.
pub(super) fn of_names(names: &[Arc<str>], rest: &RestSettings) -> String {
    let RestSettings { root, path_prefix, root_path, .. } = rest;
    let mut description = format!("{}\n\n- **available tools**：", root.description);
    for name in names {
        description += &format!("\n    - [{name}]({path_prefix}{name}/docs)");
    }
    Document::new(rest, false).finish(&root.title, &quoted(&description), &root.version, root_path)
}

/// A document, which changes when a server does.
pub(super) fn response(document: impl Into<Bytes>) -> HttpResponse {
    let mut response = json_response(200, &document.into().into());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A document while it is written.
struct Document {
    paths: Vec<String>,
    schemas: Vec<String>,
    ids: Names,
    components: Names,
    wants_key: bool,
}

impl Document {
    fn new(rest: &RestSettings, wants_key: bool) -> Self {
        Self {
            paths: Vec::new(),
            schemas: Vec::new(),
            ids: Names::new(if rest.has_bare_ids { bare_id } else { operation_id }),
            components: Names::new(component),
            wants_key,
        }
    }

    /// Adds the tools of a server, below its name where the document is of several.
    fn add(&mut self, facts: &Facts, offered: RestExtras, group: &str) {
        for OwnTool { name, text, .. } in facts.tools() {
            self.add_one(&name, text, group, facts.body_of(&name));
        }
        for (name, tool) in besides::listed(facts, offered) {
            // A tool of that name is the one that is called.
            if facts.body_of(&name).is_some() {
                continue;
            }
            let schema = json::find(tool.as_bytes(), "inputSchema").unwrap_or(b"{}");
            let schema = String::from_utf8_lossy(schema);
            let body = RequestBody::of(&schema, &format!("{name}_form_model"));
            self.add_one(&name, &tool, group, Some(&body));
        }
    }

    fn add_one(&mut self, name: &str, tool: &str, group: &str, body: Option<&RequestBody>) {
        let operation = Operation::of(name, tool, group, &mut self.ids, &mut self.components);
        self.paths.push(operation.path(body, self.wants_key));
        self.schemas.extend(operation.schemas(body));
    }

    /// Its text. The description is a JSON string; without a base it says no address.
    fn finish(mut self, title: &str, description: &str, version: &str, base: &str) -> String {
        let mut components = Vec::new();
        if !self.schemas.is_empty() {
            self.schemas.push(ERRORS.to_owned());
            components.push(format!("\"schemas\":{{{}}}", self.schemas.join(",")));
        }
        if self.wants_key && !self.paths.is_empty() {
            components.push(KEY.to_owned());
        }
        let components = match components.is_empty() {
            true => String::new(),
            false => format!(",\"components\":{{{}}}", components.join(",")),
        };
        let servers = match base {
            "" => String::new(),
            base => format!("\"servers\":[{{\"url\":{}}}],", quoted(base)),
        };
        let (title, version, paths) = (quoted(title), quoted(version), self.paths.join(","));
        format!(
            "{{\"openapi\":\"3.1.0\",\"info\":{{\"title\":{title},\"description\":{description},\"version\":{version}}},\
             {servers}\"paths\":{{{paths}}}{components}}}"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::*;
    use pontoon_wire::method;

    #[test]
    fn tools_whose_names_are_one_for_openapi_keep_their_own_schemas() {
        let tool = |(name, argument): (&str, &str)| {
            let schema = format!(
                "{{\"type\":\"object\",\"properties\":{{\"{argument}\":{{\"type\":\"string\"}}}}}}"
            );
            let output = format!("\"outputSchema\":{schema},\"inputSchema\":{schema}");
            RawValue::from_string(format!("{{\"name\":\"{name}\",{output}}}")).unwrap()
        };
        let tools = [("group/tool", "one"), ("group_tool", "two"), ("読む", "三"), ("書く", "四")];
        let mut facts = Facts::default();
        facts.lists.insert(method::LIST_TOOLS.to_owned(), tools.into_iter().map(tool).collect());
        let server = Server::new("demo".parse().unwrap(), Ok("/bin/demo".into()), Vec::new());
        for has_bare_ids in [false, true] {
            let rest = RestSettings { has_bare_ids, ..RestSettings::default() };
            let text = of_server(Some(&facts), &server, "/demo", &rest, false);
            check_tools(&serde_json::from_str(&text).unwrap(), &tools);
        }
    }

    /// Each tool has its own id, of letters that models take, and its own arguments.
    fn check_tools(document: &Value, tools: &[(&str, &str)]) {
        let mut ids = Vec::new();
        for (name, argument) in tools {
            let operation = &document["paths"][format!("/{name}")]["post"];
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
            for place in [
                "/requestBody/content/application~1json/schema/$ref",
                "/responses/200/content/application~1json/schema/anyOf/0/$ref",
            ] {
                let reference = operation.pointer(place).unwrap().as_str().unwrap();
                let schema = document.pointer(reference.trim_start_matches('#')).unwrap();
                let arguments: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
                assert_eq!(arguments, [argument], "{name}: {reference}");
            }
        }
        let is_fit = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        assert!(ids.iter().all(|id| id.chars().all(is_fit)), "{ids:?}");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4, "{ids:?}");
    }
}
