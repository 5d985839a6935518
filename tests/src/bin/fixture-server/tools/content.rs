//! The conformance suite's tools that answer without asking back.

use std::time::Duration;

use serde_json::{Value, json};

use super::{EXTRA, Pace, Tool, nothing};
use crate::call::{Call, Outcome};
use crate::changes::{self, List};
use crate::message::{text, tool_error};

/// A picture of one red dot.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// Eight samples of silence.
const WAV: &str = "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQgAAACAgICAgICAgA==";

pub(super) fn tools() -> Vec<Tool> {
    let quick = |name, description, run| Tool {
        name,
        description,
        schema: nothing(),
        pace: Pace::Quick,
        run,
    };
    let slow = |name, description, run| Tool { pace: Pace::Slow, ..quick(name, description, run) };
    vec![
        quick("test_simple_text", "A line of text.", |_| {
            Ok(text("This is a simple text response for testing."))
        }),
        quick("test_image_content", "A picture.", |_| Ok(content(&[image()]))),
        quick("test_audio_content", "A sound.", |_| {
            Ok(content(&[json!({ "type": "audio", "data": WAV, "mimeType": "audio/wav" })]))
        }),
        quick("test_embedded_resource", "A resource.", |_| {
            let text = "This is an embedded resource content.";
            Ok(content(&[resource("test://embedded-resource", "text/plain", text)]))
        }),
        quick("test_multiple_content_types", "Text, a picture and a resource.", |_| {
            let json = r#"{"test":"data","value":123}"#;
            Ok(content(&[
                json!({ "type": "text", "text": "Multiple content types test:" }),
                image(),
                resource("test://mixed-content-resource", "application/json", json),
            ]))
        }),
        quick("test_error_handling", "Always fails.", |_| {
            Ok(tool_error("This tool intentionally returns an error for testing"))
        }),
        slow("test_tool_with_logging", "Logs three times.", log_thrice),
        slow("test_tool_with_progress", "Tells its progress three times.", progress_thrice),
        quick("test_logging_tool", "Logs once.", |call| {
            call.log("info", "test_logging_tool was called");
            Ok(text("Logged, if you wanted to hear it."))
        }),
        slow(
            "test_reconnection",
            "Takes a second, and lets the client hang up meanwhile.",
            |call| {
                call.release_stream();
                call.sleep(Duration::from_secs(1))?;
                Ok(text("Reconnection test completed."))
            },
        ),
        quick("test_trigger_tool_change", "Adds or removes a tool.", |call| {
            changes::toggle(call, List::Tools);
            Ok(text("The tool list changed."))
        }),
        quick("test_trigger_prompt_change", "Adds or removes a prompt.", |call| {
            changes::toggle(call, List::Prompts);
            Ok(text("The prompt list changed."))
        }),
        quick("test_trigger_resource_change", "Adds or removes a resource.", |call| {
            changes::toggle(call, List::Resources);
            Ok(text("The resource list changed."))
        }),
        quick(EXTRA, "Comes and goes with test_trigger_tool_change.", |_| {
            Ok(text("Here for now."))
        }),
        Tool {
            schema: mirrored_schema(),
            ..quick("test_x_mcp_header", "Has arguments that HTTP mirrors in headers.", |call| {
                let arguments = call.params.get("arguments").unwrap_or(&Value::Null);
                Ok(text(arguments.to_string()))
            })
        },
        Tool {
            schema: rich_schema(),
            ..quick("json_schema_2020_12_tool", "Has a schema with many keywords.", |_| {
                Ok(text("The schema is what counts here."))
            })
        },
    ]
}

fn content(blocks: &[Value]) -> Value {
    json!({ "content": blocks })
}

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

fn resource(uri: &str, mime: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "text": text } })
}

fn log_thrice(call: &Call) -> Outcome {
    call.log("info", "Tool execution started");
    call.sleep(Duration::from_millis(50))?;
    call.log("info", "Tool processing data");
    call.sleep(Duration::from_millis(50))?;
    call.log("info", "Tool execution completed");
    Ok(text("Logged three times."))
}

fn progress_thrice(call: &Call) -> Outcome {
    for (at, pause) in [(0, 50), (50, 50), (100, 0)] {
        call.progress(at, 100);
        call.sleep(Duration::from_millis(pause))?;
    }
    Ok(text("Told the progress three times."))
}

/// One argument of each kind that may be mirrored, one of them within an object.
fn mirrored_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "priority": { "type": "integer", "x-mcp-header": "Priority" },
            "urgent": { "type": "boolean", "x-mcp-header": "Urgent" },
            "place": {
                "type": "object",
                "properties": { "city": { "type": "string", "x-mcp-header": "City" } },
            },
            "note": { "type": "string" },
        },
        "required": ["region"],
    })
}

/// The schema whose every keyword the suite wants to see again.
fn rich_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": {
            "properties": { "contactMethod": { "const": "phone" } },
            "required": ["contactMethod"],
        },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
