//! A call of a tool as its server knows it: under its own name, with the arguments that it takes.
//!
//! What clients see of a tool may differ from what its server wrote (`back::shown_tools`). Here calls are led back.

use std::borrow::Cow;

use pontoon_schema::Fault;
use pontoon_wire::{Rewrite, Slot, method, quoted};

use super::answered_here;
use super::catalog::Catalog;
use super::entry::Entry;
use crate::call::{Call, CallError};

/// What became of a call.
pub(super) enum Fitted {
    /// It is for the tool that it names.
    Same,
    /// It is for a tool that the server knows by another name, which it has now.
    Renamed,
}

/// Who wrote the arguments of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallAuthor {
    /// A model, by what it was shown of the tool: what it meant is what counts.
    Model,
    /// A program, which means what it wrote: whether that fits is for the server to say.
    Program,
}

/// Makes the request of a call what the server knows.
///
/// # Errors
///
/// [`CallError::BadArguments`] if the tool does not take its arguments.
pub(super) fn fit(
    catalog: &Catalog,
    entry: &Entry,
    author: CallAuthor,
    call: &mut Call,
) -> Result<Fitted, CallError> {
    if call.request.method() != method::CALL_TOOL {
        return Ok(Fitted::Same);
    }
    let Some(tool) = call.request.string(Slot::Name) else { return Ok(Fitted::Same) };
    let client_era = call.client.era();
    let own = entry.back.own_tools(&call.client, catalog.child_era(client_era));
    let shown = own.as_deref().or_else(|| catalog.facts(client_era).map(|facts| &facts.shown));
    if shown.is_some_and(|shown| shown.is_hidden(&tool)) {
        return Err(CallError::Told(answered_here::no_such_tool(&tool), 404));
    }
    call.promise = shown.and_then(|shown| shown.promises().of(&tool)).cloned();
    let Some(plan) = shown.and_then(|shown| shown.plan(&tool)) else { return Ok(Fitted::Same) };
    let arguments = call.request.raw(Slot::Arguments).filter(|it| *it != b"null").unwrap_or(b"{}");
    let arguments = std::str::from_utf8(arguments).expect("a message is UTF-8");
    let fitted = match author {
        CallAuthor::Model => plan.arguments(arguments).map_err(|refusal| {
            CallError::BadArguments(format!("{refusal}. The call was not made: put them right"))
        })?,
        CallAuthor::Program => plan.with_own_names(arguments),
    };
    let original = plan.name.as_ref().filter(|original| **original != tool);
    if original.is_none() && matches!(fitted, Cow::Borrowed(_)) {
        return Ok(Fitted::Same);
    }
    let mut rewrite = Rewrite::new(call.request.clone());
    if let Some(original) = original {
        rewrite = rewrite.replace(Slot::Name, quoted(original));
    }
    if let Cow::Owned(fitted) = fitted {
        entry.back.heals.note_fault(Fault::Arguments);
        rewrite = rewrite.replace(Slot::Arguments, fitted);
    }
    let is_renamed = original.is_some();
    match rewrite.try_into_message() {
        Ok(request) => call.request = request,
        // What would be nested too deep stays what it was.
        Err(_) => return Ok(Fitted::Same),
    }
    Ok(if is_renamed { Fitted::Renamed } else { Fitted::Same })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pontoon_wire::heal::HealMode;
    use pontoon_wire::{Era, json, string_value};

    use super::*;
    use crate::app::test_bridge::{TestBridge, TestClient, ToolServer};
    use crate::back::pair::STATEFUL;
    use crate::clock::{now, since};
    use crate::config::Healing;

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
    async fn settings_of_a_tool_hold_by_either_of_its_names() {
        let server = ToolServer::of_both_eras();
        let bridge = TestBridge::start(server.servers(), |_, server| {
            server.tool_timeouts.push(("pick it0".to_owned(), Duration::from_secs(3)));
        });
        let client = TestClient::open(&bridge).await;
        let shown = shown(&client).await;
        assert!(client.call(2, &shown[1], r#"{"top":1}"#).await.answer().await.contains("got"));
        let began = now();
        let late = client.call(3, &shown[1], r#"{"top":-1}"#).await.refusal().await;
        assert!(late.1.contains("within 3 s"), "{late:?}");
        assert_eq!(since(began).as_secs(), 3);
        bridge.reload(|server| server.disabled_tools = vec![shown[1].clone()]).await;
        for name in [shown[1].as_str(), "pick it0"] {
            let refused = client.call(4, name, r#"{"top":1}"#).await.refusal().await;
            assert!(refused.1.contains("there is no tool"), "{name}: {refused:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn arguments_stay_as_they_are_where_that_is_wanted() {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, server| {
            server.heal = Healing::typed(["S033=off"]).unwrap();
        });
        let client = TestClient::open(&bridge).await;
        let refused = client.call(2, "pick it0", r#"{"top":"5"}"#).await.answer().await;
        assert!(refused.contains("do not fit this tool"), "a text is no number: {refused}");
        let answer = client.call(3, "pick it0", r#"{"top":5}"#).await.answer().await;
        assert!(answer.contains(r#""got":{"$top":5}"#), "{answer}");
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
