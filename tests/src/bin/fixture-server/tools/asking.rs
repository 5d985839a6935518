//! The conformance suite's tools that need the client's input, in whichever era they are called.

use serde_json::{Value, json};

use super::{Pace, Tool, form, nothing};
use crate::call::{Call, Outcome};
use crate::input::{Question, State, ask};
use crate::message::text;

pub(super) fn tools() -> Vec<Tool> {
    let tool = |name, description, run| Tool {
        name,
        description,
        schema: nothing(),
        pace: Pace::Slow,
        run,
    };
    vec![
        Tool {
            schema: form(&[("prompt", string())]),
            ..tool("test_sampling", "Passes a prompt to the client's model.", sampling)
        },
        Tool {
            schema: form(&[("message", string())]),
            ..tool("test_elicitation", "Asks the user for a name and an address.", elicitation)
        },
        tool("test_elicitation_sep1034_defaults", "A form with defaults.", defaults),
        tool("test_elicitation_sep1330_enums", "A form with choices.", choices),
        tool("test_missing_capability", "Needs a client with a model.", |call| {
            let question = Question::sample("greeting", "Say hello.", 20);
            ask(call, &[question], State::WhenNeeded)?;
            Ok(text("The client has a model."))
        }),
        tool("test_streaming_elicitation", "Asks the user to confirm.", |call| {
            ask(call, &[confirm()], State::WhenNeeded)?;
            Ok(text("Confirmed."))
        }),
        tool("test_input_required_result_elicitation", "Asks the user's name.", greet),
        tool("test_input_required_result_sampling", "Asks the client's model.", |call| {
            let question =
                Question::sample("capital_question", "What is the capital of France?", 100);
            let answers = ask(call, &[question], State::WhenNeeded)?;
            Ok(text(format!("The model said: {}", said(&answers[0]))))
        }),
        tool("test_input_required_result_list_roots", "Asks for the roots.", |call| {
            let answers = ask(call, &[Question::roots("client_roots")], State::WhenNeeded)?;
            Ok(text(format!("The roots: {}", answers[0]["roots"])))
        }),
        tool("test_input_required_result_request_state", "Sends a state along.", |call| {
            ask(call, &[confirm()], State::Always)?;
            Ok(text("state-ok"))
        }),
        tool("test_input_required_result_tampered_state", "Checks its state.", |call| {
            ask(call, &[confirm()], State::Always)?;
            Ok(text("state-ok"))
        }),
        tool("test_input_required_result_multiple_inputs", "Asks three things.", three),
        tool("test_input_required_result_multi_round", "Asks twice.", two_rounds),
        tool("test_input_required_result_capabilities", "Asks what the client can.", able),
    ]
}

fn string() -> Value {
    json!({ "type": "string" })
}

fn name() -> Question {
    let schema = form(&[("name", string())]);
    Question::elicit("user_name", "What is your name?", &schema)
}

fn confirm() -> Question {
    Question::elicit("confirm", "Please confirm", &form(&[("ok", json!({ "type": "boolean" }))]))
}

/// A field of a form's answer, if the user filled it in.
fn field<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer["content"][name].as_str().unwrap_or("nobody")
}

/// What a model answered.
fn said(answer: &Value) -> &str {
    answer["content"]["text"].as_str().unwrap_or("nothing")
}

fn sampling(call: &Call) -> Outcome {
    let prompt = call.argument("prompt").and_then(Value::as_str).unwrap_or_default();
    let answers = ask(call, &[Question::sample("reply", prompt, 100)], State::WhenNeeded)?;
    Ok(text(format!("LLM response: {}", said(&answers[0]))))
}

fn elicitation(call: &Call) -> Outcome {
    let message = call.argument("message").and_then(Value::as_str).unwrap_or_default();
    let schema = form(&[
        ("username", json!({ "type": "string", "description": "User's response" })),
        ("email", json!({ "type": "string", "description": "User's email address" })),
    ]);
    let answers = ask(call, &[Question::elicit("user", message, &schema)], State::WhenNeeded)?;
    Ok(text(format!("User response: {}", summary(&answers[0]))))
}

fn defaults(call: &Call) -> Outcome {
    let status = json!({
        "type": "string", "enum": ["active", "inactive", "pending"], "default": "active",
    });
    let schema = form(&[
        ("name", json!({ "type": "string", "default": "John Doe" })),
        ("age", json!({ "type": "integer", "default": 30 })),
        ("score", json!({ "type": "number", "default": 95.5 })),
        ("status", status),
        ("verified", json!({ "type": "boolean", "default": true })),
    ]);
    let question = Question::elicit("defaults", "Please review these values.", &schema);
    let answers = ask(call, &[question], State::WhenNeeded)?;
    Ok(text(format!("Elicitation completed: {}", summary(&answers[0]))))
}

fn choices(call: &Call) -> Outcome {
    let titled = |values: [(&str, &str); 3]| {
        values.map(|(value, title)| json!({ "const": value, "title": title })).to_vec()
    };
    let single = [("value1", "First Option"), ("value2", "Second Option"), ("value3", "Third")];
    let multi = [("value1", "First Choice"), ("value2", "Second Choice"), ("value3", "Third")];
    let plain = ["option1", "option2", "option3"];
    let old = json!({
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    });
    let schema = form(&[
        ("untitledSingle", json!({ "type": "string", "enum": plain })),
        ("titledSingle", json!({ "type": "string", "oneOf": titled(single) })),
        ("legacyEnum", old),
        ("untitledMulti", json!({ "type": "array", "items": { "type": "string", "enum": plain } })),
        ("titledMulti", json!({ "type": "array", "items": { "anyOf": titled(multi) } })),
    ]);
    let question = Question::elicit("choices", "Please choose.", &schema);
    let answers = ask(call, &[question], State::WhenNeeded)?;
    Ok(text(format!("Elicitation completed: {}", summary(&answers[0]))))
}

fn summary(answer: &Value) -> String {
    let action = answer["action"].as_str().unwrap_or("none");
    format!("action={action}, content={}", answer["content"])
}

fn greet(call: &Call) -> Outcome {
    let answers = ask(call, &[name()], State::WhenNeeded)?;
    Ok(text(format!("Hello, {}!", field(&answers[0], "name"))))
}

fn three(call: &Call) -> Outcome {
    let questions = [
        name(),
        Question::sample("greeting", "Generate a greeting", 50),
        Question::roots("client_roots"),
    ];
    let answers = ask(call, &questions, State::Always)?;
    let roots = answers[2]["roots"].as_array().map_or(0, Vec::len);
    let (name, greeting) = (field(&answers[0], "name"), said(&answers[1]));
    Ok(text(format!("{name}: {greeting} ({roots} roots)")))
}

fn two_rounds(call: &Call) -> Outcome {
    let schema = form(&[("name", string())]);
    let step1 = Question::elicit("step1", "Step 1: What is your name?", &schema);
    let first = ask(call, &[step1], State::Always)?;
    let schema = form(&[("color", string())]);
    let step2 = Question::elicit("step2", "Step 2: What is your favorite color?", &schema);
    let second = ask(call, &[step2], State::Always)?;
    let (name, color) = (field(&first[0], "name"), field(&second[0], "color"));
    Ok(text(format!("{name} likes {color}.")))
}

/// Asks only for what the client said it can do.
fn able(call: &Call) -> Outcome {
    let mut questions = Vec::new();
    if call.client_has("elicitation") {
        questions.push(name());
    }
    if call.client_has("sampling") {
        questions.push(Question::sample("greeting", "Generate a greeting", 50));
    }
    let answers = ask(call, &questions, State::WhenNeeded)?;
    Ok(text(format!("The client answered {} questions.", answers.len())))
}
