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

#[cfg(test)]
mod tests {
    use pontoon_wire::heal::HealMode;
    use pontoon_wire::{Era, json, string_value};

    use super::*;
    use crate::app::test_bridge::{TestBridge, TestClient, ToolServer};
    use crate::back::pair::STATEFUL;

    /// The names of the tools that a client is shown.
    async fn shown(client: &TestClient<'_>) -> Vec<String> {
        let listed = client.ask(1, method::LIST_TOOLS, "").await.body().await;
        let tools = json::find(json::find(listed.as_bytes(), "result").unwrap(), "tools").unwrap();
        let name = |range| string_value(json::find(&tools[range], "name").unwrap()).unwrap();
        json::elements(tools, 0..tools.len()).map(|range| name(range).into_owned()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_by_the_name_that_is_shown_reaches_the_tool_with_what_it_takes() {
        let server = ToolServer::of_both_eras();
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        for client in &TestClient::both(&bridge).await {
            let shown = shown(client).await;
            assert!(shown[1].starts_with("pick_it0_"), "{shown:?}");
            for tool in [shown[1].as_str(), "pick it0"] {
                let call = async |arguments| client.call(2, tool, arguments).await.answer().await;
                let answer = call(r#"{"top":"5","list":null,"more":1.50}"#).await;
                assert!(answer.contains(r#""got":{"$top":5,"more":1.50}"#), "{answer}");
                let answer = call(r#"{ "list" : [ 1 ] }"#).await;
                assert!(answer.contains(r#""got":{ "list" : [ 1 ] }"#), "unchanged: {answer}");
            }
        }
        server.until_heard("tools/call pick it0").await;
        let heals = bridge.entry().back.heals.counts();
        assert!(heals.contains(&("S033", 4)), "{heals:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn arguments_that_no_alternative_takes_are_refused_without_a_process() {
        let server = ToolServer::of_both_eras();
        let bridge = TestBridge::start(server.servers(), |_, _| {});
        bridge.until_known().await;
        for client in &TestClient::both(&bridge).await {
            let answer = client.call(2, "pick it0", r#"{"other":1}"#).await.answer().await;
            assert!(answer.contains("do not fit this tool"), "{answer}");
            assert!(answer.contains(r#""isError":true"#), "for the model to read: {answer}");
        }
        assert_eq!(server.work_heard(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_not_to_be_healed_gets_calls_as_they_are() {
        for heal in [HealMode::Off, HealMode::Warn] {
            let server = ToolServer::new(Era::Legacy);
            let bridge = TestBridge::start(server.servers(), |_, server| server.heal = heal.into());
            let client = TestClient::open(&bridge).await;
            assert_eq!(shown(&client).await, ["tool0", "pick it0"]);
            let answer = client.call(2, "pick it0", r#"{"top":"5"}"#).await.answer().await;
            assert!(answer.contains(r#""got":{"top":"5"}"#), "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tools_that_a_process_has_for_one_client_alone_are_led_back_there() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, server| server.mode = STATEFUL);
        let client = TestClient::open(&bridge).await;
        assert!(client.call(1, "change", "{}").await.answer().await.contains("\"by\""));
        let shown = shown(&client).await;
        assert!(shown[1].starts_with("pick_it1_"), "{shown:?}");
        let answer = client.call(2, &shown[1], r#"{"top":"7"}"#).await.answer().await;
        assert!(answer.contains(r#""got":{"$top":7}"#), "{answer}");
    }
}
