//! The script that stands for the model refuses the schemas that the real one refuses: those that a validator of draft
//! 2020-12 does, and a few more.

use pontoon_tests::claude::MessagesApi;
use pontoon_tests::client::Request;
use serde_json::{Value, json};

/// What the model says against a tool with this schema, if anything.
fn refusal(api: &MessagesApi, schema: &Value) -> Option<String> {
    let tools = [
        json!({"name": "first", "input_schema": {"type": "object"}}),
        json!({"name": "t", "input_schema": schema}),
    ];
    let body = json!({"model": "m", "max_tokens": 1, "messages": [], "tools": tools});
    let address = api.url().strip_prefix("http://").unwrap().parse().unwrap();
    let answer = Request::post("/v1/messages", body.to_string()).send(address).unwrap();
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    match answer.status() {
        200 => None,
        400 => Some(body["error"]["message"].as_str().unwrap().to_owned()),
        status => panic!("{status}: {body}"),
    }
}

#[test]
fn the_model_takes_the_schemas_that_a_validator_takes_and_refuses_the_others() {
    let api = MessagesApi::start(&json!(["ok"]));
    let values = [
        json!(null),
        json!(true),
        json!(1),
        json!(1.0),
        json!(-1),
        json!(0.5),
        json!("a"),
        json!("object"),
        json!([]),
        json!({}),
        json!(["a"]),
        json!(["a", "a"]),
        json!(["type", "number"]),
        json!(["string", "null"]),
        json!([{}]),
        json!([true, {"type": "int"}]),
        json!({"a": null}),
        json!({"a": true}),
        json!({"a": ["b"]}),
        json!({"a": {"items": ["type", "number"]}}),
        json!({"type": "any"}),
        json!({"minLength": -1}),
    ];
    let keywords = [
        "properties",
        "patternProperties",
        "$defs",
        "definitions",
        "dependentSchemas",
        "dependentRequired",
        "dependencies",
        "items",
        "contains",
        "additionalProperties",
        "propertyNames",
        "not",
        "if",
        "then",
        "else",
        "prefixItems",
        "required",
        "enum",
        "const",
        "default",
        "examples",
        "minimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxItems",
        "minProperties",
        "maxContains",
        "uniqueItems",
        "readOnly",
        "title",
        "description",
        "format",
        "$comment",
        "unevaluatedItems",
        "x-own",
    ];
    let mut refused = 0;
    for keyword in keywords {
        for value in &values {
            // Beneath the root, of which the model asks more.
            let schema = json!({"type": "object", "properties": {"p": {keyword: value}}});
            let is_valid = jsonschema::draft202012::meta::is_valid(&schema);
            let said = refusal(&api, &schema);
            assert_eq!(said.is_none(), is_valid, "{schema}: {said:?}");
            if let Some(said) = said {
                let begin = "tools.1.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12";
                assert!(said.starts_with(begin), "{said}");
                refused += 1;
            }
        }
    }
    assert!(refused > 300, "{refused}");
    for value in &values {
        let schema =
            json!({"type": "object", "properties": {"p": {"type": value}, "q": {"anyOf": value}}});
        let is_valid = jsonschema::draft202012::meta::is_valid(&schema);
        assert_eq!(refusal(&api, &schema).is_none(), is_valid, "{schema}");
    }
}

#[test]
fn the_model_has_rules_of_its_own_for_the_arguments() {
    let api = MessagesApi::start(&json!(["ok"]));
    for (schema, why) in [
        (json!(null), "input_schema: Input should be a valid dictionary"),
        (json!({}), "input_schema.type: Field required"),
        (json!({"type": "string"}), "input_schema.type: Input should be 'object'"),
        (
            json!({"type": "object", "anyOf": [{}]}),
            "does not support oneOf, allOf, or anyOf at the top level",
        ),
        (
            json!({"type": "object", "properties": {"a b": {}}}),
            "Property keys should match pattern",
        ),
    ] {
        let said = refusal(&api, &schema).unwrap_or_else(|| panic!("{schema} is taken"));
        assert!(said.starts_with("tools.1.custom.") && said.contains(why), "{said}");
    }
}
