//! Which calls the bridge answers itself, and which must go to a child.
//!
//! The answers are made in `answers`, from the catalogue. What is given back here goes on to the server's back.

use std::sync::Arc;

use bytes::Bytes;
use pontoon_wire::error::{ErrorObject, code};
use pontoon_wire::heal::{Heal, HealMode};
use pontoon_wire::{Era, Message, Slot, method, quoted};

use super::answers;
use super::catalog::Catalog;
use super::entry::Entry;
use super::legacy::{self as legacy_client, Session};
use crate::call::{Call, CallError};

/// Answers what a legacy client may hear from us; gives the call back if it must go to a child.
pub(super) fn legacy(
    catalog: &Catalog,
    entry: &Entry,
    session: &Session,
    call: Call,
) -> Option<Call> {
    let method = call.request.method();
    match method.as_ref() {
        method::PING => call.reply.result("{}"),
        method::DISCOVER | method::LISTEN => call.reply.error(&answers::no_such_method(&method)),
        method::INITIALIZE => {
            let text = "the session is open already: end it, or send `initialize` without its id";
            call.reply.error(&ErrorObject::new(code::INVALID_REQUEST, text));
        }
        method::SET_LEVEL => set_level(catalog, entry, session, call),
        method::SUBSCRIBE | method::UNSUBSCRIBE => return subscribe(catalog, entry, session, call),
        _ => return listed(catalog, entry, call),
    }
    None
}

/// Answers what a legacy client without a session may hear from us; gives the call back if it must go to a child.
pub(super) fn bare(catalog: &Catalog, entry: &Entry, call: Call) -> Option<Call> {
    let method = call.request.method();
    match method.as_ref() {
        method::PING => call.reply.result("{}"),
        method::DISCOVER | method::LISTEN => call.reply.error(&answers::no_such_method(&method)),
        // Of a client that posts JSON-RPC to a server, and opens no session by it.
        method::INITIALIZE => match catalog.facts(Era::Legacy) {
            Some(facts) => {
                let revision = legacy_client::hello(&call.request).revision;
                call.reply.result(&answers::initialize(facts, revision, &entry.back.server));
            }
            None => call.reply.fail(CallError::Internal),
        },
        method::SET_LEVEL | method::SUBSCRIBE | method::UNSUBSCRIBE => {
            let text = format!(
                "`{method}` needs a session: send `initialize` first and repeat the id it gives"
            );
            call.reply.error(&ErrorObject::new(code::INVALID_REQUEST, text));
        }
        _ => return listed(catalog, entry, call),
    }
    None
}

fn set_level(catalog: &Catalog, entry: &Entry, session: &Session, call: Call) {
    let is_offered = answers::offers(catalog, Era::Legacy, "logging");
    if !is_offered && entry.back.heals.mode(Heal::H24) != HealMode::Repair {
        return call.reply.error(&answers::no_such_method(method::SET_LEVEL));
    }
    let level = call.request.string(Slot::Level).unwrap_or_default();
    if !method::LOG_LEVELS.contains(&level.as_ref()) {
        let text = format!("`level` must be one of {}", method::LOG_LEVELS.join(", "));
        return call.reply.error(&ErrorObject::new(code::INVALID_PARAMS, text));
    }
    let level = Bytes::from(quoted(&level));
    session.set_log_level(&level);
    entry.back.set_log_level(&call.client, catalog.child_era(Era::Legacy), &level);
    let person = Arc::clone(&call.client.person);
    entry.back.meet(&session.client(call.client.key.clone(), person));
    call.reply.result("{}");
}

/// A subscription goes to a legacy child as it is; a modern child is listened to anew, and is started if none runs.
fn subscribe(catalog: &Catalog, entry: &Entry, session: &Session, mut call: Call) -> Option<Call> {
    if !entry.back.server.mode.is_stateful() {
        let text = "a server that keeps no process for a session has no subscriptions";
        call.reply.error(&ErrorObject::new(code::METHOD_NOT_FOUND, text));
        return None;
    }
    let uri = call.request.string(Slot::Uri).unwrap_or_default().into_owned();
    let is_wanted = call.request.method() == method::SUBSCRIBE;
    if !session.subscribe(uri.clone(), is_wanted) {
        let text = "too many subscriptions in this session, or too long an address";
        call.reply.error(&ErrorObject::new(code::INVALID_PARAMS, text));
        return None;
    }
    // With the new subscription in it, which the call was made without.
    call.client = session.client(call.client.key.clone(), Arc::clone(&call.client.person));
    if catalog.child_era(Era::Legacy) == Era::Legacy {
        entry.back.meet(&call.client);
        if !is_wanted && entry.back.is_wanted_by_others(&call.client, &uri) {
            call.reply.result("{}");
            return None;
        }
        return Some(call);
    }
    if entry.back.listen_anew(&call.client) {
        call.reply.result("{}");
        return None;
    }
    Some(call)
}

/// Answers what a modern client may hear from us; gives the call back if it must go to a child. Headers are compared
/// with the call where there are any.
pub(super) fn modern(
    catalog: &Catalog,
    entry: &Entry,
    headers: Option<&[(&str, &[u8])]>,
    call: Call,
) -> Option<Call> {
    let mismatch = headers.and_then(|headers| header_mismatch(catalog, headers, &call.request));
    if let Some(mismatch) = mismatch {
        call.reply.fail(CallError::Told(mismatch, 400));
        return None;
    }
    let method = call.request.method();
    if method == method::DISCOVER {
        match catalog.facts(Era::Modern) {
            Some(facts) => call.reply.result(&answers::discover(facts, &entry.back.server)),
            None => call.reply.fail(CallError::Internal),
        }
        return None;
    }
    if method::is_legacy_only(&method) {
        call.reply.error(&answers::no_such_method(&method));
        return None;
    }
    listed(catalog, entry, call)
}

/// Why a call is refused whose headers repeat arguments of a tool, and do not say the same as they do.
fn header_mismatch(
    catalog: &Catalog,
    headers: &[(&str, &[u8])],
    request: &Message,
) -> Option<ErrorObject> {
    if request.method() != method::CALL_TOOL {
        return None;
    }
    let tool = request.string(Slot::Name).unwrap_or_default();
    let rules = catalog.rules.get(tool.as_ref())?;
    let arguments = request.raw(Slot::Arguments);
    let plan = catalog.facts(Era::Modern).and_then(|facts| facts.shown.plan(&tool));
    // The server is given an argument by either of its names.
    let own = plan.filter(|_| rules.by_own_names).zip(arguments).map(|(plan, arguments)| {
        plan.with_own_names(std::str::from_utf8(arguments).expect("a message is UTF-8"))
    });
    let arguments = own.as_ref().map(|own| own.as_bytes()).or(arguments);
    let mismatch = rules.rules.check(headers, arguments).err()?;
    Some(ErrorObject::new(code::HEADER_MISMATCH, mismatch.to_string()))
}

/// Lists come from the catalogue, unless the client's own child has said that they changed, or the
/// resources may differ there.
fn listed(catalog: &Catalog, entry: &Entry, call: Call) -> Option<Call> {
    let client_era = call.client.era();
    let Some(answer) = answers::list(catalog, &call.request, client_era, &entry.back.heals) else {
        return Some(call);
    };
    let (back, child_era) = (&entry.back, catalog.child_era(client_era));
    let may_differ = match call.request.method() == method::LIST_RESOURCES {
        true => {
            let is_offered = answers::offers(catalog, client_era, "resources");
            is_offered && back.keeps_child(&call.client, child_era)
        }
        false => back.lists_changed(&call.client, child_era),
    };
    if may_differ {
        return Some(call);
    }
    match answer {
        Ok(result) => call.reply.result(&result),
        Err(error) => call.reply.error(&error),
    }
    None
}

/// Why a call of a tool that is switched off is refused: for the client it is not there.
pub(super) fn disabled(entry: &Entry, request: &Message) -> Option<ErrorObject> {
    let disabled = &entry.back.server.disabled_tools;
    if disabled.is_empty() || request.method() != method::CALL_TOOL {
        return None;
    }
    let name = request.string(Slot::Name).unwrap_or_default();
    let is_disabled = disabled.iter().any(|tool| *tool == name);
    is_disabled.then(|| no_such_tool(&name))
}

/// What a client hears of a tool that is not there for it.
pub(super) fn no_such_tool(name: &str) -> ErrorObject {
    ErrorObject::new(code::INVALID_PARAMS, format!("there is no tool {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::catalog::Facts;
    use super::*;
    use crate::app::test_bridge::{TestBridge, TestClient, ToolServer};
    use crate::back::pair::STATEFUL;

    #[test]
    fn headers_have_to_say_what_the_server_is_given_by_either_name_of_an_argument() {
        let tool = r#"{"name":"pick it","inputSchema":{"type":"object","properties":{"$top":{"type":"integer","x-mcp-header":"Top"}}}}"#;
        let mut facts = Facts::default();
        let tool = serde_json::value::RawValue::from_string(tool.to_owned()).unwrap();
        facts.lists.insert(method::LIST_TOOLS.to_owned(), vec![tool]);
        let mut catalog = Catalog::of(Era::Modern, facts);
        catalog.show(&crate::back::pair::server("demo"), None);
        let facts = catalog.facts(Era::Modern).unwrap();
        let shown = facts.shown.renamed().next().unwrap().0.to_owned();
        let mismatch = |tool: &str, arguments: &str, header: Option<&str>| {
            let request = format!(
                r#"{{"id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
            );
            let request = Message::parse(request.as_bytes()).unwrap();
            let headers: Vec<_> =
                header.iter().map(|it| ("Mcp-Param-Top", it.as_bytes())).collect();
            header_mismatch(&catalog, &headers, &request).is_some()
        };
        for tool in [shown.as_str(), "pick it"] {
            for key in ["top", "$top"] {
                let arguments = format!("{{\"{key}\":5}}");
                assert!(!mismatch(tool, &arguments, Some("5")), "{tool} {key}");
                assert!(mismatch(tool, &arguments, Some("6")), "{tool} {key}");
                assert!(mismatch(tool, &arguments, None), "{tool} {key}");
            }
            assert!(!mismatch(tool, "{}", None));
        }
    }

    /// A bridge that has learnt its server, and how many processes that took.
    async fn known(server: &ToolServer, bridge: &TestBridge) -> usize {
        bridge.until_known().await;
        bridge.servers.until_living(0).await;
        server.starts().len()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_known_of_a_server_is_told_without_a_process() {
        let server = ToolServer::of_both_eras();
        let bridge = TestBridge::start(server.servers(), |_, server| {
            server.disabled_tools = vec!["hidden".to_owned()];
        });
        let started = known(&server, &bridge).await;
        let [modern, legacy] = TestClient::both(&bridge).await;
        for client in [&modern, &legacy] {
            let listed = client.ask(1, method::LIST_TOOLS, "").await.body().await;
            assert!(listed.contains("\"tool0\""), "{listed}");
            let refused = client.call(2, "hidden", "{}").await.refusal().await;
            assert_eq!(refused.1, "there is no tool \"hidden\"");
        }
        let discovered = modern.ask(3, method::DISCOVER, "").await.body().await;
        assert!(discovered.contains("\"supportedVersions\":[\"2026-07-28\"]"), "{discovered}");
        assert_eq!(
            legacy.ask(3, method::PING, "").await.body().await,
            "{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}"
        );
        let leveled = legacy.ask(4, method::SET_LEVEL, "\"level\":\"error\"").await.body().await;
        assert!(leveled.contains("\"result\":{}"), "{leveled}");
        assert_eq!(server.starts().len(), started);
    }

    #[tokio::test(start_paused = true)]
    async fn what_an_era_does_not_have_is_refused_without_a_process() {
        let server = ToolServer::of_both_eras();
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        let started = known(&server, &bridge).await;
        let [modern, legacy] = TestClient::both(&bridge).await;
        for (method, members, says) in [
            (method::SET_LEVEL, "\"level\":\"loud\"", "`level` must be one of debug, info"),
            (method::SUBSCRIBE, "\"uri\":\"x:y\"", "has no subscriptions"),
        ] {
            let (_, text) = legacy.ask(1, method, members).await.refusal().await;
            assert!(text.contains(says), "{method}: {text}");
        }
        for method in [method::PING, method::SET_LEVEL] {
            let (status, text) = modern.ask(1, method, "").await.refusal().await;
            assert_eq!(status, 404, "{text}");
            assert!(text.contains(method), "{text}");
        }
        assert_eq!(server.starts().len(), started);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_whose_own_process_changed_its_lists_hears_them_from_that() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, server| server.mode = STATEFUL);
        let (ada, ben) = (TestClient::open(&bridge).await, TestClient::open(&bridge).await);
        assert!(ada.call(1, "change", "{}").await.answer().await.contains("\"by\""));
        let list = async |client: &TestClient<'_>| {
            client.ask(2, method::LIST_TOOLS, "").await.body().await
        };
        assert!(list(&ada).await.contains("tool1"), "it was told of it");
        assert!(
            list(&ben).await.contains("tool0"),
            "from the catalogue, which is still the old one"
        );
    }
}
