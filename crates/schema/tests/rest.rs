//! Bodies of requests: answered as mcpo answers them, but for what is different on purpose.
//!
//! `mcpo-bodies.jsonl` is what mcpo said; `tests/interop/mcpo/bodies.py` writes it anew.

mod generator;

use std::collections::BTreeSet;
use std::path::Path;

use generator::{Dice, arguments, arguments_schema, break_it, cases};
use pontoon_schema::{Misfit, RequestBody};
use serde_json::{Map, Value, json};

/// Bodies that are answered in another way on purpose, by the reason, with our answer.
const DIFFERENT: [(&str, &[(&str, &str)]); 4] = [
    (
        "null is passed on where the schema takes it",
        &[(r#"{"it":null}"#, r#"{"arguments":{"it":null}}"#)],
    ),
    (
        "members that the schema does not know are passed on, unless it says that there are none",
        &[(r#"{"it":{"b":1}}"#, r#"{"arguments":{"it":{"b":1}}}"#)],
    ),
    (
        "values that the document says are not taken are refused, in the words of the library that mcpo checks types with",
        &[(
            r#"{"a":"z","b":1}"#,
            r#"{"detail":[{"type":"literal_error","loc":["body","a"],"msg":"Input should be 'x' or 'y'","input":"z","ctx":{"expected":"'x' or 'y'"}},{"type":"greater_than_equal","loc":["body","b"],"msg":"Input should be greater than or equal to 5","input":1,"ctx":{"ge":5}}]}"#,
        )],
    ),
    (
        "NaN is no JSON",
        &[(
            "NaNx",
            r#"{"detail":[{"type":"json_invalid","loc":["body",0],"msg":"JSON decode error","input":{},"ctx":{"error":"Expecting value"}}]}"#,
        )],
    ),
];

fn measured() -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcpo-bodies.jsonl");
    let text = std::fs::read_to_string(file).expect("the cases are there");
    text.lines().map(|line| serde_json::from_str(line).expect("a case is JSON")).collect()
}

fn written(misfits: &[Misfit]) -> Value {
    let entry = |misfit: &Misfit| {
        let mut written = String::new();
        misfit.write(&mut written);
        serde_json::from_str::<Value>(&written).expect("JSON")
    };
    misfits.iter().map(entry).collect()
}

/// The same with all numbers in one form: 3.0 is 3.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), plain(value))).collect()
        }
        other => other.clone(),
    }
}

/// What is answered, as a case has it.
fn answer(schema: &Value, body: &str) -> Value {
    match RequestBody::of(&schema.to_string(), "t_form_model").arguments(body) {
        Ok(arguments) => {
            json!({"arguments": serde_json::from_str::<Value>(&arguments).expect("JSON")})
        }
        Err(misfits) => json!({"detail": written(&misfits)}),
    }
}

#[test]
fn bodies_are_answered_as_mcpo_answers_them() {
    let mut wrong = Vec::new();
    let mut unused: BTreeSet<_> = DIFFERENT.iter().flat_map(|(_, all)| all.iter()).collect();
    for case in measured() {
        let (schema, body) = (&case["schema"], case["body"].as_str().expect("a text"));
        let mut theirs = case.clone();
        let theirs = theirs.as_object_mut().expect("an object");
        theirs.retain(|name, _| name != "schema" && name != "body");
        let ours = answer(schema, body);
        if plain(&ours) == plain(&Value::Object(theirs.clone())) {
            continue;
        }
        let is_meant = unused.iter().copied().find(|(it, answer)| {
            *it == body && serde_json::from_str::<Value>(answer).expect("JSON") == ours
        });
        match is_meant {
            Some(meant) => drop(unused.remove(meant)),
            None => wrong.push(format!("{schema}\n  {body}\n  {}\n  {ours}", json!(theirs))),
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unused.is_empty(), "{unused:?}");
}

/// A schema in its new form is valid, has no words that readers stumble over, and stays as it is.
fn check_form(schema: &str) -> RequestBody {
    let body = RequestBody::of(schema, "t_form_model");
    let written: Value = serde_json::from_str(body.schema()).expect("JSON");
    if let Err(error) = jsonschema::draft202012::new(&written) {
        panic!("{error} at {}\n{schema}\n{written}", error.instance_path());
    }
    check_words(&written, schema);
    let again = RequestBody::of(body.schema(), "t_form_model");
    assert_eq!(again.schema(), body.schema(), "{schema}");
    body
}

/// Open WebUI takes a schema without a type for a text, and fails on one that is a word.
fn check_words(schema: &Value, of: &str) {
    let Value::Object(members) = schema else { panic!("{schema} of {of}") };
    let has = |name| members.contains_key(name);
    assert!(has("type") || has("anyOf"), "{schema} of {of}");
    for word in
        ["$ref", "$defs", "definitions", "$schema", "$id", "$anchor", "oneOf", "allOf", "const"]
    {
        assert!(!has(word), "{word}: {schema} of {of}");
    }
    for property in schema["properties"].as_object().into_iter().flat_map(|it| it.values()) {
        assert!(property["title"].is_string(), "{schema} of {of}");
        check_words(property, of);
    }
    for way in ["anyOf", "prefixItems"].iter().filter_map(|name| schema[name].as_array()).flatten()
    {
        check_words(way, of);
    }
    if schema["items"].as_object().is_some_and(|items| !items.is_empty()) {
        check_words(&schema["items"], of);
    }
}

#[test]
fn whatever_is_broken_has_a_form_that_is_valid_and_stays() {
    let mut dice = Dice(0x51_7CC1_B727_220A);
    for case in 0..cases() {
        let mut schema = arguments_schema(&mut dice);
        if case % 2 == 0 {
            break_it(&mut schema, &mut dice);
        }
        check_form(&schema.to_string());
    }
}

#[test]
fn what_a_schema_takes_is_never_refused_and_hardly_changed() {
    let mut dice = Dice(0x6A09_E667_F3BC_C908);
    let (mut taken, mut same, mut refused) = (0, 0, 0);
    for _ in 0..cases() {
        let schema = arguments_schema(&mut dice);
        let original = jsonschema::draft202012::new(&schema).unwrap();
        let body = RequestBody::of(&schema.to_string(), "t_form_model");
        for _ in 0..8 {
            let arguments = arguments(&mut dice, 2);
            let text = arguments.to_string();
            let answer = body.arguments(&text);
            if !original.is_valid(&arguments) {
                refused += usize::from(answer.is_err());
                continue;
            }
            let answer = answer.unwrap_or_else(|misfits| {
                panic!("{}: {text} for {schema}\n{}", written(&misfits), body.schema())
            });
            taken += 1;
            same += usize::from(answer == text);
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert!(has_all(&answer, &arguments), "{text} -> {answer} for {schema}");
        }
    }
    assert!(
        taken > cases() / 3 && same * 4 > taken * 3 && refused > cases() / 2,
        "{taken} {same} {refused}"
    );
}

/// Whether one value is the other, with defaults besides.
fn has_all(answer: &Value, arguments: &Value) -> bool {
    match (answer, arguments) {
        (Value::Object(answer), Value::Object(arguments)) => arguments
            .iter()
            .all(|(name, value)| answer.get(name).is_some_and(|it| has_all(it, value))),
        (Value::Array(answer), Value::Array(arguments)) => {
            answer.len() == arguments.len()
                && answer.iter().zip(arguments).all(|(one, two)| has_all(one, two))
        }
        _ => plain(answer) == plain(arguments),
    }
}

/// Schemas that are there to take long, or to make a reader fall over.
#[test]
fn any_schema_at_all_has_a_form_soon() {
    let reference = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
    let many: Map<String, Value> = (0..10_000).map(|n| (format!("p{n}"), reference("d"))).collect();
    let large = json!({"type": "string", "description": "x".repeat(2000)});
    let ladder: Map<String, Value> = (0..60)
        .map(|n| {
            let next = reference(&format!("d{}", n + 1));
            (format!("d{n}"), json!({"properties": {"a": next, "b": next}, "anyOf": [next, next], "allOf": [next]}))
        })
        .collect();
    let tree = json!({"type": "object", "properties": {"l": {"$ref": "#"}, "r": {"$ref": "#"}, "all": {"type": "array", "items": {"$ref": "#"}}}});
    let unions: Vec<_> = (0..12)
        .map(|_| json!({"anyOf": [{"minLength": 1}, {"maxLength": 2}, {"pattern": "a"}]}))
        .collect();
    let wide: Vec<_> = (0..5000).map(|n| json!({"type": "string", "maxLength": n})).collect();
    let required: Vec<_> = (0..20_000).map(|n| n.to_string()).collect();
    let mut schemas = vec![
        json!({"properties": many, "$defs": {"d": large}}),
        json!({"properties": {"a": reference("d0")}, "$defs": ladder, "anyOf": [reference("d0")]}),
        tree,
        json!({"properties": {"a": {"allOf": unions}}}),
        json!({"properties": {"a": {"anyOf": wide}}}),
        json!({"required": required}),
        json!({"properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref": "#/properties/c"}, "c": {"$ref": "#/properties/b"}}}),
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}], "anyOf": [{"$ref": "#"}]}),
        json!({"type": "array", "items": {"type": "string"}}),
    ];
    for layer in ["properties", "items", "anyOf", "allOf", "not", "additionalProperties"] {
        let mut deep = json!({"type": "integer"});
        for _ in 0..100 {
            deep = match layer {
                "properties" => json!({"type": "object", "properties": {"a": deep}}),
                "anyOf" | "allOf" => json!({layer: [deep, {"description": "d"}]}),
                _ => json!({layer: deep}),
            };
        }
        schemas.push(json!({"type": "object", "properties": {"a": deep}}));
    }
    for schema in schemas {
        let body = check_form(&schema.to_string());
        assert!(body.schema().len() < 2 << 20, "{}", body.schema().len());
        drop(body.arguments(&json!({"a": {"a": {"a": [{}, "1", null]}}}).to_string()));
    }
    let words = [
        "null",
        "true",
        "false",
        "[]",
        "[[]]",
        "7",
        "\"object\"",
        "",
        "{",
        "{}",
        "[\"type\",\"object\"]",
    ];
    for word in words {
        let body = check_form(word);
        assert_eq!(body.arguments("{}").unwrap(), "{}", "{word}");
    }
    for keyword in [
        "type",
        "properties",
        "required",
        "items",
        "anyOf",
        "allOf",
        "enum",
        "const",
        "$ref",
        "additionalProperties",
        "default",
        "title",
        "if",
        "$defs",
        "prefixItems",
        "nullable",
        "format",
    ] {
        for word in words.iter().filter(|word| word.len() > 1) {
            let schema = format!(
                r#"{{"type":"object","properties":{{"a":{{"{keyword}":{word}}}}},"{keyword}":{word}}}"#
            );
            check_form(&schema);
        }
    }
    let huge = json!({"properties": {"a": {"description": "x".repeat(5 << 20)}}}).to_string();
    assert!(check_form(&huge).is_needed());
}

/// Bodies that are there to take long.
#[test]
fn any_body_is_answered_soon() {
    let item = json!({"anyOf": [
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/i"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/i"}, "b": {"type": "integer"}}},
        {"type": "array", "items": {"$ref": "#/$defs/i"}},
        {"type": "integer"},
    ]});
    let schema = json!({"properties": {"it": {"$ref": "#/$defs/i"}}, "required": ["it"], "$defs": {"i": item}});
    let body = check_form(&schema.to_string());
    let mut nested = json!("x");
    for _ in 0..100 {
        nested = json!({"a": [nested]});
    }
    let many: Vec<_> = (0..50_000).map(|_| json!("x")).collect();
    for it in [nested, json!(many), json!({"a": many})] {
        let text = json!({"it": it}).to_string();
        if let Err(misfits) = body.arguments(&text) {
            let size: usize = misfits.iter().map(|it| it.input.len()).sum();
            assert!(misfits.len() <= 100 && size < 1 << 20, "{} {size}", misfits.len());
        }
    }
}
