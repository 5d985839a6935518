//! The prompts, and completion of their arguments.

use serde_json::{Value, json};

use crate::call::{Call, Outcome};
use crate::changes::List;
use crate::input::{Question, State, ask};
use crate::message::RpcError;
use crate::server::lock;
use crate::tools::{PNG, form};

pub(crate) fn list(call: &Call) -> Outcome {
    let argument = |name: &str, description: &str| json!({ "name": name, "description": description, "required": true });
    let mut prompts = vec![
        json!({ "name": "test_simple_prompt", "description": "One line of text." }),
        json!({
            "name": "test_prompt_with_arguments",
            "description": "Text with two arguments in it.",
            "arguments": [argument("arg1", "The first."), argument("arg2", "The second.")],
        }),
        json!({
            "name": "test_prompt_with_embedded_resource",
            "description": "A resource and a line about it.",
            "arguments": [argument("resourceUri", "The resource to embed.")],
        }),
        json!({ "name": "test_prompt_with_image", "description": "A picture and a line about it." }),
        json!({
            "name": "test_input_required_result_prompt",
            "description": "Asks the user for its context first.",
        }),
    ];
    if lock(&call.server.changes).has_extra(List::Prompts) {
        prompts.push(json!({
            "name": "test_extra_prompt",
            "description": "Comes and goes with test_trigger_prompt_change.",
        }));
    }
    Ok(json!({ "prompts": prompts }))
}

pub(crate) fn get(call: &Call) -> Outcome {
    let name = call.params.get("name").and_then(Value::as_str).unwrap_or_default();
    let user = |content: Value| json!({ "role": "user", "content": content });
    let text =
        |text: String| json!({ "role": "user", "content": { "type": "text", "text": text } });
    let messages = match name {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.".into())],
        "test_prompt_with_arguments" => {
            let (arg1, arg2) = (argument(call, "arg1")?, argument(call, "arg2")?);
            vec![text(format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource = json!({
                "uri": argument(call, "resourceUri")?,
                "mimeType": "text/plain",
                "text": "Embedded resource content for testing.",
            });
            vec![
                user(json!({ "type": "resource", "resource": resource })),
                text("Please process the embedded resource above.".into()),
            ]
        }
        "test_prompt_with_image" => vec![
            user(json!({ "type": "image", "data": PNG, "mimeType": "image/png" })),
            text("Please analyze the image above.".into()),
        ],
        "test_input_required_result_prompt" => {
            let schema = form(&[("context", json!({ "type": "string" }))]);
            let question = "What context should the prompt use?";
            let question = Question::elicit("user_context", question, &schema);
            let answers = ask(call, &[question], State::WhenNeeded)?;
            let context = answers[0].pointer("/content/context").and_then(Value::as_str);
            vec![text(format!("Prompt in the context: {}", context.unwrap_or("none given")))]
        }
        "test_extra_prompt" if lock(&call.server.changes).has_extra(List::Prompts) => {
            vec![text("Here for now.".into())]
        }
        _ => return Err(RpcError::new(-32602, format!("no prompt `{name}`")).into()),
    };
    Ok(json!({ "messages": messages }))
}

pub(crate) fn complete(call: &Call) -> Outcome {
    let Some(typed) = call.params.pointer("/argument/value").and_then(Value::as_str) else {
        return Err(RpcError::new(-32602, "`argument.value` must be a string").into());
    };
    let values: Vec<&str> = ["paris", "park", "party", "test", "testing"]
        .into_iter()
        .filter(|value| value.starts_with(typed))
        .collect();
    let total = values.len();
    Ok(json!({ "completion": { "values": values, "total": total, "hasMore": false } }))
}

fn argument<'a>(call: &'a Call, name: &str) -> Result<&'a str, RpcError> {
    call.argument(name)
        .and_then(Value::as_str)
        .ok_or_else(|| RpcError::new(-32602, format!("argument `{name}` must be a string")))
}
