//! Values of the right type outside of what a document says: refused in the words of Pydantic, unless the server's own
//! schema takes them.

use pontoon_schema::{Misfit, RequestBody};
use serde_json::{Value, json};

/// The arguments for a body, or what is wrong with it.
fn answer(schema: &Value, body: &str) -> Result<String, Value> {
    let body = RequestBody::of(&schema.to_string(), "t_form_model").arguments(body).map(Into::into);
    body.map_err(|misfits| serde_json::from_str(&Misfit::list(&misfits)).expect("JSON"))
}

/// The type, the place, the sentence and the values in it of all that is wrong with `it`.
fn wrong(schema: &Value, it: &Value) -> Vec<(String, Vec<Value>, String, Value)> {
    let schema = json!({"type": "object", "properties": {"it": schema}});
    let misfits = answer(&schema, &json!({"it": it}).to_string()).expect_err("it does not fit");
    let entry = |misfit: &Value| {
        let text = |name: &str| misfit[name].as_str().expect("a text").to_owned();
        let place = misfit["loc"].as_array().expect("a list")[2..].to_vec();
        (text("type"), place, text("msg"), misfit["ctx"].clone())
    };
    misfits.as_array().expect("a list").iter().map(entry).collect()
}

#[track_caller]
fn check(schema: &Value, it: &Value, kind: &str, msg: &str, ctx: &Value) {
    let expected = vec![(kind.to_owned(), Vec::new(), msg.to_owned(), ctx.clone())];
    assert_eq!(wrong(schema, it), expected, "{schema} {it}");
}

#[track_caller]
fn check_taken(schema: &Value, it: &Value) {
    let schema = json!({"type": "object", "properties": {"it": schema}});
    let body = json!({"it": it}).to_string();
    assert_eq!(answer(&schema, &body), Ok(body.clone()), "{schema}");
}

#[test]
fn a_value_that_is_not_listed_is_told_with_those_that_are() {
    let colour = json!({"type": "string", "enum": ["red", "green", "it's"]});
    let expected = "'red', 'green' or \"it's\"";
    let msg = format!("Input should be {expected}");
    check(&colour, &json!("blue"), "literal_error", &msg, &json!({"expected": expected}));
    check_taken(&colour, &json!("green"));
    for (schema, it, expected) in [
        (json!({"const": "x"}), json!("y"), "'x'"),
        (json!({"type": "integer", "enum": [1, 2]}), json!(3), "1 or 2"),
        (json!({"type": "integer", "enum": [1, 2]}), json!("3"), "1 or 2"),
        (json!({"type": "boolean", "const": true}), json!(false), "True"),
        (
            json!({"type": "array", "items": {"type": "string"}, "enum": [["a"]]}),
            json!(["b"]),
            "[\"a\"]",
        ),
    ] {
        let msg = format!("Input should be {expected}");
        check(&schema, &it, "literal_error", &msg, &json!({"expected": expected}));
    }
    check_taken(&json!({"type": "number", "enum": [1, 2.50]}), &json!(2.5));
    check_taken(&json!({"enum": [{"a": 1, "b": [2]}]}), &json!({"b": [2], "a": 1}));
    let many: Vec<_> = (0..5000).map(|number| format!("value {number}")).collect();
    let wrong = wrong(&json!({"type": "string", "enum": many}), &json!("x"));
    assert!(wrong[0].2.len() < 1100 && wrong[0].2.ends_with(" more"), "{}", wrong[0].2);
}

#[test]
fn a_value_beyond_a_limit_is_told_with_the_limit() {
    let number = |name: &str, limit: f64| json!({"type": "number", name: limit});
    for (schema, it, kind, msg, ctx) in [
        (
            json!({"type": "integer", "minimum": 1}),
            json!(0),
            "greater_than_equal",
            "Input should be greater than or equal to 1",
            json!({"ge": 1}),
        ),
        (
            json!({"type": "integer", "maximum": 9}),
            json!("10"),
            "less_than_equal",
            "Input should be less than or equal to 9",
            json!({"le": 9}),
        ),
        (
            number("exclusiveMinimum", 0.5),
            json!(0.5),
            "greater_than",
            "Input should be greater than 0.5",
            json!({"gt": 0.5}),
        ),
        (
            number("exclusiveMaximum", 1.5),
            json!(2),
            "less_than",
            "Input should be less than 1.5",
            json!({"lt": 1.5}),
        ),
        (
            json!({"type": "integer", "multipleOf": 5}),
            json!(7),
            "multiple_of",
            "Input should be a multiple of 5",
            json!({"multiple_of": 5}),
        ),
        (
            json!({"type": "string", "minLength": 1}),
            json!(""),
            "string_too_short",
            "String should have at least 1 character",
            json!({"min_length": 1}),
        ),
        (
            json!({"type": "string", "maxLength": 2}),
            json!("日本語"),
            "string_too_long",
            "String should have at most 2 characters",
            json!({"max_length": 2}),
        ),
        (
            json!({"type": "string", "pattern": "^a+$"}),
            json!("b"),
            "string_pattern_mismatch",
            "String should match pattern '^a+$'",
            json!({"pattern": "^a+$"}),
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "minItems": 1}),
            json!([]),
            "too_short",
            "List should have at least 1 item after validation, not 0",
            json!({"field_type": "List", "min_length": 1, "actual_length": 0}),
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "maxItems": 2}),
            json!(["a", "b", "c"]),
            "too_long",
            "List should have at most 2 items after validation, not 3",
            json!({"field_type": "List", "max_length": 2, "actual_length": 3}),
        ),
    ] {
        check(&schema, &it, kind, msg, &ctx);
    }
    for (schema, it) in [
        (json!({"type": "integer", "minimum": 1, "maximum": 9}), json!(9)),
        (number("multipleOf", 0.01), json!(0.07)),
        (json!({"type": "string", "minLength": 2, "maxLength": 2}), json!("日本")),
        (json!({"type": "string", "maxLength": 1}), json!("\n")),
        (json!({"type": "string", "pattern": "a"}), json!("bab")),
        (json!({"type": "string", "format": "date"}), json!("never")),
    ] {
        check_taken(&schema, &it);
    }
}

#[test]
fn limits_hold_wherever_a_value_stands() {
    let colour = json!({"type": "string", "enum": ["red"]});
    let size = json!({"type": "integer", "maximum": 9});
    let literal = ("literal_error".to_owned(), "Input should be 'red'".to_owned());
    let places = |schema: Value, it: Value| -> Vec<_> {
        wrong(&schema, &it)
            .into_iter()
            .map(|(kind, place, msg, _)| (json!(place), (kind, msg)))
            .collect()
    };
    let nullable = json!({"anyOf": [colour, {"type": "null"}], "default": null});
    assert_eq!(places(nullable.clone(), json!("blue")), [(json!([]), literal.clone())]);
    check_taken(&nullable, &json!(null));
    let list = json!({"type": "array", "items": colour});
    assert_eq!(places(list, json!(["red", "blue"])), [(json!([1]), literal.clone())]);
    let object = json!({"type": "object", "properties": {"of": colour}});
    assert_eq!(places(object, json!({"of": "blue"})), [(json!(["of"]), literal)]);
    let either = json!({"anyOf": [size, {"type": "array", "items": {"type": "string"}}]});
    let found = places(either.clone(), json!(10));
    assert_eq!(found[0].0, json!(["int"]));
    assert_eq!((found[0].1.0.as_str(), found[1].1.0.as_str()), ("less_than_equal", "list_type"));
    check_taken(&either, &json!(9));
    // Of alternatives with one type any limit may hold.
    let either = json!({"anyOf": [size, {"type": "integer", "minimum": 100}]});
    check_taken(&either, &json!(1000));
    check_taken(&either, &json!(50));
}

#[test]
fn an_alternative_is_chosen_by_the_value_that_only_it_takes() {
    let way = |kind: &str, size: &str| json!({"type": "object", "properties": {"kind": {"const": kind}, "size": {"type": size}}, "required": ["kind"]});
    let schema = json!({"type": "object", "properties": {"it": {"anyOf": [way("a", "integer"), way("b", "string")]}}});
    assert_eq!(
        answer(&schema, r#"{"it":{"kind":"a","size":"5"}}"#).unwrap(),
        r#"{"it":{"kind":"a","size":5}}"#
    );
    assert_eq!(
        answer(&schema, r#"{"it":{"kind":"b","size":"5"}}"#).unwrap(),
        r#"{"it":{"kind":"b","size":"5"}}"#
    );
    assert!(answer(&schema, r#"{"it":{"kind":"c","size":"5"}}"#).is_err());
}

#[test]
fn what_the_own_schema_takes_is_never_refused() {
    // The document says less here: 1 is 1.0, which it does not see.
    let schema = json!({"type": "object", "properties": {"it": {"allOf": [{"enum": [1, 2]}, {"enum": [1.0, 2]}]}}});
    let document = RequestBody::of(&schema.to_string(), "t").schema().to_owned();
    assert!(document.contains(r#""enum":[2]"#), "{document}");
    assert_eq!(answer(&schema, r#"{"it":1}"#).unwrap(), r#"{"it":1}"#);
    assert!(answer(&schema, r#"{"it":3}"#).is_err());
    // What is put in is the server's own word, whatever it says elsewhere.
    let schema = json!({"type": "object", "properties": {"it": {"type": "string", "minLength": 1, "default": ""}}});
    assert_eq!(answer(&schema, "{}").unwrap(), r#"{"it":""}"#);
    // A schema that cannot be tried refuses nothing.
    let tree = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 3}, "next": {"$ref": "#"}}});
    assert_eq!(answer(&tree, r#"{"n":4}"#).unwrap(), r#"{"n":4}"#);
}

#[test]
fn alternatives_that_need_arguments_together_are_told() {
    for (schema, needs) in [
        (
            json!({"anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}]}),
            Some("Give at least one of: `a`; `b` and `c`."),
        ),
        (
            json!({"oneOf": [
                {"properties": {"kind": {"const": "x"}}, "required": ["kind", "a"]},
                {"$ref": "#/$defs/y"},
            ], "$defs": {"y": {"properties": {"kind": {"enum": ["y"]}}, "required": ["kind"]}}}),
            Some("Give exactly one of: `a` and `kind` = \"x\"; `kind` = \"y\"."),
        ),
        // One that needs nothing is always there.
        (json!({"anyOf": [{"required": ["a"]}, {"properties": {"b": {}}}]}), None),
        (json!({"anyOf": [{"required": ["a"]}]}), None),
        (json!({"required": ["a"]}), None),
        (json!("no schema"), None),
    ] {
        let body = RequestBody::of(&schema.to_string(), "t_form_model");
        assert_eq!(body.needs(), needs, "{schema}");
    }
}

#[test]
fn what_does_not_fit_together_is_told_with_what_was_sent() {
    let told = |body: &str| Misfit::list(&[Misfit::of_value("give `a`", body)]);
    let expected = r#"[{"type":"value_error","loc":["body"],"msg":"give `a`","input":{"b":1}}]"#;
    assert_eq!(told(r#"{"b":1}"#), expected);
    let large = format!("{{\"b\":\"{}\"}}", "x".repeat(100_000));
    assert!(told(&large).ends_with("\"input\":null}]"));
}
