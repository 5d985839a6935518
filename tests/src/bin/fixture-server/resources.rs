//! The resources: two that never change, one to watch, and a template.

use serde_json::{Value, json};

use crate::call::{Call, Outcome};
use crate::changes::List;
use crate::message::RpcError;
use crate::server::{Era, lock};
use crate::tools::PNG;

pub(crate) fn list(call: &Call) -> Outcome {
    let mut resources = vec![
        json!({
            "uri": "test://static-text", "name": "static-text",
            "description": "A text that never changes.", "mimeType": "text/plain",
        }),
        json!({
            "uri": "test://static-binary", "name": "static-binary",
            "description": "A picture of one red dot.", "mimeType": "image/png",
        }),
        json!({
            "uri": "test://watched-resource", "name": "watched-resource",
            "description": "Said to change by the tool `touch`.", "mimeType": "text/plain",
        }),
    ];
    if lock(&call.server.changes).has_extra(List::Resources) {
        resources.push(json!({
            "uri": "test://extra", "name": "extra",
            "description": "Comes and goes with test_trigger_resource_change.",
            "mimeType": "text/plain",
        }));
    }
    Ok(json!({ "resources": resources }))
}

pub(crate) fn list_templates(_: &Call) -> Outcome {
    Ok(json!({ "resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "Data about any id.",
        "mimeType": "application/json",
    }] }))
}

pub(crate) fn read(call: &Call) -> Outcome {
    let Some(uri) = call.params.get("uri").and_then(Value::as_str) else {
        return Err(RpcError::new(-32602, "`uri` must be a string").into());
    };
    let text = |text: &str| json!({ "uri": uri, "mimeType": "text/plain", "text": text });
    let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
    let contents = match (uri, id) {
        ("test://static-text", _) => text("This is the content of the static text resource."),
        ("test://static-binary", _) => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
        ("test://watched-resource", _) => text("Watched, and always the same."),
        ("test://extra", _) if lock(&call.server.changes).has_extra(List::Resources) => {
            text("Here for now.")
        }
        (_, Some(id)) => {
            let data =
                json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
        }
        _ => {
            // The code moved between the eras.
            let code = if call.era == Era::Legacy { -32002 } else { -32602 };
            let error = RpcError::new(code, "no such resource").with_data(json!({ "uri": uri }));
            return Err(error.into());
        }
    };
    Ok(json!({ "contents": [contents] }))
}
