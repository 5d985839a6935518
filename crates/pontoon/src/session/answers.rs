//! What the bridge answers itself, from the catalogue, without starting a child.

use std::borrow::Cow;

use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::heal::{Heal, HealMode};
use pontoon_wire::{Era, Message, Revision, Slot, json, quoted, string_value};

use super::catalog::{Catalog, Facts};
use crate::call::list_member;
use crate::config::Server;
use crate::observe::heals::HealLog;

/// The result of `initialize`.
pub fn initialize(facts: &Facts, revision: Revision, server: &Server) -> String {
    let name = default_info();
    let info = facts.server_info.as_ref().map_or(name.as_str(), |info| info.get());
    let instructions = member("instructions", instructions(facts, server).as_deref());
    format!(
        "{{\"protocolVersion\":\"{revision}\",\"capabilities\":{},\"serverInfo\":{info}{instructions}}}",
        // Nor is there a process that could tell a session of a change in a list.
        capabilities(facts, server, &["subscribe", "listChanged"]),
    )
}

/// The result of `server/discover`.
pub fn discover(facts: &Facts, server: &Server) -> String {
    let name = default_info();
    let info = facts.server_info.as_ref().map_or(name.as_str(), |info| info.get());
    let instructions = member("instructions", instructions(facts, server).as_deref());
    format!(
        "{{\"resultType\":\"complete\",\"supportedVersions\":[\"{}\"],\"capabilities\":{}{instructions},\
         \"ttlMs\":0,\"cacheScope\":\"private\",\"_meta\":{{{}:{info}}}}}",
        Revision::NEWEST_MODERN,
        // A subscription hears when the catalogue changes.
        capabilities(facts, server, &["subscribe"]),
        quoted(Slot::ResultServerInfo.name()),
    )
}

fn default_info() -> String {
    format!("{{\"name\":\"pontoon\",\"version\":{}}}", quoted(env!("CARGO_PKG_VERSION")))
}

/// How to use the server, as its author and its operator say: a JSON string.
pub fn instructions(facts: &Facts, server: &Server) -> Option<String> {
    let own = facts.instructions.as_ref().map(|raw| raw.get());
    let added = [&server.usage_guide, &server.post_instruction];
    if server.instructions.is_none() && added.iter().all(|text| text.is_none()) {
        return own.map(str::to_owned);
    }
    let own = own.and_then(|raw| string_value(raw.as_bytes())).map(|text| text.into_owned());
    let texts = [server.instructions.clone().or(own)].into_iter().chain(added.map(Clone::clone));
    Some(quoted(&texts.flatten().collect::<Vec<_>>().join("\n\n")))
}

fn member(name: &str, value: Option<&str>) -> String {
    value.map(|value| format!(",\"{name}\":{value}")).unwrap_or_default()
}

/// The capabilities the bridge can keep. Where no process is the client's own, none is there to tell it
/// that a resource changed. `broken` are the members that would promise it.
pub(super) fn capabilities(facts: &Facts, server: &Server, broken: &[&str]) -> String {
    let text = facts.capabilities.get();
    let whole = text.as_bytes();
    let is_app = server.app.is_some();
    if (server.mode.is_stateful() && !is_app) || whole.first() != Some(&b'{') {
        return text.to_owned();
    }
    let raw = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    let kept = json::entries(whole, 0..whole.len()).map(|entry| {
        let (key, value) = (raw(&whole[entry.key.clone()]), &whole[entry.value]);
        let is_list = matches!(key.as_str(), "\"tools\"" | "\"prompts\"" | "\"resources\"");
        match is_list && value.first() == Some(&b'{') {
            // Whether it tells so or not: what it offers is looked at whenever it comes back.
            true if is_app && server.mode.is_shared() => {
                let rest = without(value, &["subscribe"]);
                format!("{key}:{}", with_list_changed(rest.as_bytes()))
            }
            true if is_app => format!("{key}:{}", with_list_changed(value)),
            true => format!("{key}:{}", without(value, broken)),
            false => format!("{key}:{}", raw(value)),
        }
    });
    format!("{{{}}}", kept.collect::<Vec<_>>().join(","))
}

/// A capability that promises to tell when its list changes.
fn with_list_changed(object: &[u8]) -> String {
    let rest = without(object, &["listChanged"]);
    let rest = rest.trim_start_matches('{');
    let comma = if rest == "}" { "" } else { "," };
    format!("{{\"listChanged\":true{comma}{rest}")
}

/// A JSON object without these members.
fn without(object: &[u8], names: &[&str]) -> String {
    let is_kept = |key: &[u8]| !string_value(key).is_some_and(|key| names.contains(&key.as_ref()));
    let kept = json::entries(object, 0..object.len())
        .filter(|entry| is_kept(&object[entry.key.clone()]))
        .map(|entry| String::from_utf8_lossy(&object[entry.key.start..entry.value.end]));
    format!("{{{}}}", kept.collect::<Vec<_>>().join(","))
}

/// A list from the catalogue, or why there is none; `None` when the method is no list.
///
/// A list that the server does not offer is empty where that is healed (H24): clients ask for it as a matter of course.
pub(super) fn list(
    catalog: &Catalog,
    request: &Message,
    client: Era,
    heals: &HealLog,
) -> Option<Result<String, ErrorObject>> {
    let method = request.method();
    let member = list_member(&method)?;
    let facts = catalog.facts(client)?;
    if request.raw(Slot::Cursor).is_some_and(|cursor| cursor != b"null") {
        let error =
            ErrorObject::new(code::INVALID_PARAMS, "`cursor` is not one this list gave out");
        return Some(Err(error));
    }
    let items = match facts.lists.get(method.as_ref()) {
        Some(items) => items.as_slice(),
        None if heals.mode(Heal::H24) == HealMode::Repair => &[],
        None => {
            let text = format!("the server does not offer `{method}`");
            return Some(Err(ErrorObject::new(code::METHOD_NOT_FOUND, text)));
        }
    };
    let items: Vec<_> = items.iter().map(|item| Cow::Borrowed(item.get())).collect();
    let items = facts.shown.promises().kept(items).join(",");
    Some(Ok(match client {
        Era::Legacy => format!("{{\"{member}\":[{items}]}}"),
        Era::Modern => {
            let (ttl, scope) =
                facts.hints.get(method.as_ref()).cloned().unwrap_or((0, "private".into()));
            let scope = quoted(&scope);
            format!(
                "{{\"resultType\":\"complete\",\"ttlMs\":{ttl},\"cacheScope\":{scope},\"{member}\":[{items}]}}"
            )
        }
    }))
}

/// Whether the server offers a capability to a client of this era.
pub fn offers(catalog: &Catalog, client: Era, capability: &str) -> bool {
    let facts = catalog.facts(client);
    facts.is_some_and(|facts| json::find(facts.capabilities.get().as_bytes(), capability).is_some())
}

/// An answer that nobody offers this method.
pub fn no_such_method(method: &str) -> ErrorObject {
    ErrorObject::new(code::METHOD_NOT_FOUND, format!("nobody here answers `{method}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pontoon_wire::method;
    use serde_json::value::RawValue;

    fn facts(capabilities: &str) -> Facts {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        Facts {
            capabilities: raw(capabilities),
            server_info: Some(raw(r#"{"name":"s","version":"1"}"#)),
            instructions: Some(raw("\"be kind\"")),
            lists: [(
                method::LIST_TOOLS.to_owned(),
                vec![raw(r#"{"name":"a"}"#), raw(r#"{"name":"b"}"#)],
            )]
            .into(),
            ..Facts::default()
        }
    }

    fn server() -> Server {
        Server::new("demo".parse().unwrap(), Ok("/bin/true".into()), Vec::new())
    }

    #[test]
    fn the_operator_adds_to_the_instructions_or_replaces_them() {
        let facts = facts("{}");
        let check = |server: &Server, expected: &str| {
            assert_eq!(instructions(&facts, server).unwrap(), expected);
        };
        check(&server(), r#""be kind""#);
        let guide = Some("save at the end".to_owned());
        let added = Server { usage_guide: guide.clone(), ..server() };
        check(&added, r#""be kind\n\nsave at the end""#);
        let last = Some("give the link".to_owned());
        let replaced = Server {
            instructions: Some("mine".to_owned()),
            usage_guide: guide,
            post_instruction: last,
            ..server()
        };
        check(&replaced, r#""mine\n\nsave at the end\n\ngive the link""#);
    }

    #[test]
    fn stateless_servers_do_not_offer_what_nobody_can_tell() {
        let facts = facts(
            r#"{"resources":{"subscribe":true,"listChanged":true},"logging":{"listChanged":1},"tools":{"listChanged":true}}"#,
        );
        let result = initialize(&facts, Revision::V2025_06_18, &server());
        let expected = r#"{"protocolVersion":"2025-06-18","capabilities":{"resources":{},"logging":{"listChanged":1},"tools":{}},"serverInfo":{"name":"s","version":"1"},"instructions":"be kind"}"#;
        assert_eq!(result, expected);
        let modern = discover(&facts, &server());
        let expected = r#""capabilities":{"resources":{"listChanged":true},"logging":{"listChanged":1},"tools":{"listChanged":true}}"#;
        assert!(modern.contains(expected), "{modern}");
    }

    #[test]
    fn lists_come_whole_and_in_the_words_of_the_era() {
        let catalog = Catalog { legacy: Some(facts("{}")), ..Catalog::default() };
        let ask_in = |mode: HealMode, text: &str, era| {
            let request = Message::parse(text.as_bytes()).unwrap();
            let heals = HealLog::with_modes("demo", mode.into());
            list(&catalog, &request, era, &heals).unwrap()
        };
        let ask = |text: &str, era| ask_in(HealMode::Repair, text, era);
        let plain = r#"{"id":1,"method":"tools/list"}"#;
        assert_eq!(ask(plain, Era::Legacy).unwrap(), r#"{"tools":[{"name":"a"},{"name":"b"}]}"#);
        let modern = ask(plain, Era::Modern).unwrap();
        assert!(
            modern.starts_with(
                r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":["#
            )
        );
        let cursor = ask(r#"{"id":1,"method":"tools/list","params":{"cursor":"x"}}"#, Era::Legacy);
        assert_eq!(cursor.unwrap_err().code, code::INVALID_PARAMS);
        let prompts = r#"{"id":1,"method":"prompts/list"}"#;
        let unhealed = ask_in(HealMode::Warn, prompts, Era::Legacy);
        assert_eq!(unhealed.unwrap_err().code, code::METHOD_NOT_FOUND);
        assert_eq!(ask(prompts, Era::Legacy).unwrap(), r#"{"prompts":[]}"#);
    }
}
