//! The forms of schemas in documents, as `rest-forms.jsonl` has them to be read.
//!
//! `UPDATE=1 cargo test -p pontoon-schema --test rest_forms` writes the forms anew.

use std::path::Path;

use pontoon_schema::RequestBody;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(serde::Deserialize)]
struct Case<'t> {
    #[serde(borrow)]
    schema: &'t RawValue,
    #[serde(borrow)]
    form: &'t RawValue,
}

#[test]
fn schemas_have_these_forms() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rest-forms.jsonl");
    let text = std::fs::read_to_string(&file).expect("the forms are there");
    let mut written = String::new();
    for line in text.lines() {
        let case: Case<'_> = serde_json::from_str(line).expect("a case is JSON");
        let body = RequestBody::of(case.schema.get(), "t_form_model");
        written.push_str(&format!("{{\"schema\":{},\"form\":{}}}\n", case.schema, body.schema()));
        if std::env::var_os("UPDATE").is_none() {
            assert_eq!(body.schema(), case.form.get(), "{}", case.schema);
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, written).expect("the forms are written");
    }
}

#[test]
fn null_and_unknown_members_and_numbers_stay_as_they_are() {
    let schema = r#"{"type":"object","properties":{"n":{"type":["number","null"]},"o":{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false},"d":{"type":"array","default":[1.50]}}}"#;
    let body = RequestBody::of(schema, "t_form_model");
    for (sent, expected) in [
        (r#"{ "n": 3, "x": null, "d": [] }"#, r#"{ "n": 3, "x": null, "d": [] }"#),
        (r#"{"n":null}"#, r#"{"n":null,"d":[1.50]}"#),
        (r#"{"x":1.10,"n":"2","d":[]}"#, r#"{"x":1.10,"n":2,"d":[]}"#),
        (r#"{"o":{"a":1,"b":2},"d":[]}"#, r#"{"o":{"a":1},"d":[]}"#),
        (r#"{"d":1,"d":[]}"#, r#"{"d":[]}"#),
        (
            r#"{"\u0064":[],"n":12345678901234567890.10}"#,
            r#"{"\u0064":[],"n":12345678901234567890.10}"#,
        ),
    ] {
        assert_eq!(body.arguments(sent).unwrap(), expected, "{sent}");
    }
}

#[test]
fn a_tool_without_properties_takes_any_body_or_none() {
    let body = RequestBody::of(r#"{"type":"object"}"#, "t_form_model");
    assert!(!body.is_needed());
    for sent in ["", " ", "null", "[]", "{", "{}"] {
        assert_eq!(body.arguments(sent).unwrap(), "{}", "{sent}");
    }
    assert_eq!(body.arguments(r#"{"a":1}"#).unwrap(), r#"{"a":1}"#);
    let any = RequestBody::of(r#"{"type":"object","additionalProperties":{}}"#, "t_form_model");
    assert!(any.is_needed());
    assert_eq!(any.arguments("").unwrap(), "{}");
    assert!(any.arguments("[]").is_err());
    let form: Value = serde_json::from_str(any.schema()).unwrap();
    assert_eq!(form["additionalProperties"], true);
}
