//! Each repair by itself, and properties over schemas that were broken at random.

use serde_json::{Map, Value, json};

use super::*;
use crate::notes::{Effect, MAX_FINDINGS};

mod description;
mod loosened;
mod references;

/// Makes a tool valid, and no more.
fn valid(tool: &str) -> Report<'_> {
    repair(tool, Profile::none())
}

/// Repairs the arguments' schema, and compares with the expected one and its findings.
#[track_caller]
fn check(input: &str, expected: &str, findings: &[(&str, &str)]) {
    let tool = format!(r#"{{"name":"t","inputSchema":{input}}}"#);
    let report = valid(&tool);
    assert_eq!(report.tool, format!(r#"{{"name":"t","inputSchema":{expected}}}"#));
    let found: Vec<_> = report
        .findings
        .iter()
        .inspect(|it| {
            assert_eq!(it.repair.as_ref().map(|it| it.effect), Some(Effect::Same), "{it:?}")
        })
        .map(|it| (it.fault.code(), it.place.strip_prefix("/inputSchema").unwrap()))
        .collect();
    assert_eq!(found, findings);
    is_whole(&report);
}

/// What was repaired is valid, and needs no second repair.
#[track_caller]
fn is_whole(report: &Report<'_>) {
    let again = valid(&report.tool);
    assert_eq!(again.tool, report.tool, "a second repair changes nothing");
    let tool: Value = serde_json::from_str(&report.tool).unwrap();
    let schema = &tool["inputSchema"];
    assert_eq!(schema["type"], "object", "{schema}");
    if let Err(error) = jsonschema::draft202012::meta::validate(schema) {
        panic!("{error} at {}: {schema}", error.instance_path());
    }
}

#[test]
fn a_healthy_tool_is_given_back_as_it_is() {
    for healthy in [
        r#"{ "name" : "t", "inputSchema" : {"type":"object"} , "x":1.0e5 }"#,
        r#"{"name":"t","inputSchema":{"properties":{"type":{"type":["string","null"],"default":null}},"type":"object","required":[]}}"#,
        r##"{"name":"t","inputSchema":{"type":"object","$schema":"http://json-schema.org/draft-07/schema#","definitions":{"a":true},"properties":{"a":{"$ref":"#/definitions/a"},"enum":{"enum":[null,{"properties":null}]},"n":{"const":null,"minimum":-0.10,"maxLength":5.0}},"additionalProperties":false,"x-own":null}}"##,
        r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{}}}"#,
    ] {
        let report = valid(healthy);
        assert!(matches!(report.tool, Cow::Borrowed(_)), "{healthy}");
        assert_eq!((report.tool.as_ref(), report.findings), (healthy, Vec::new()));
    }
    for no_tool in ["", "[]", "null", "{\"name\":", "\"tool\""] {
        let report = valid(no_tool);
        assert_eq!((report.tool.as_ref(), report.findings), (no_tool, Vec::new()));
    }
}

#[test]
fn a_schema_that_is_not_there_is_an_object() {
    let object = r#"{"type":"object"}"#;
    for missing in ["null", "true", "[]", "\"object\"", "7"] {
        check(missing, object, &[("S001", "")]);
    }
    check(r#"["type","object"]"#, object, &[("S005", "")]);
    let report = valid(r#"{"name":"t"}"#);
    assert_eq!(report.tool, r#"{"name":"t","inputSchema":{"type":"object"}}"#);
    assert_eq!(report.findings[0].place, "/inputSchema");
    is_whole(&report);
}

#[test]
fn arguments_are_an_object() {
    let of = |kind: &str| format!(r#"{{"properties":{{}},"type":{kind}}}"#);
    let found = &[("S002", "/type")];
    check(r#"{"properties":{}}"#, r#"{"type":"object","properties":{}}"#, found);
    for kind in
        ["null", r#"["object"]"#, r#"["object","null"]"#, r#""any""#, r#""Object""#, r#""dict""#]
    {
        check(&of(kind), &of(r#""object""#), found);
    }
}

#[test]
fn maps_are_objects() {
    let typed = |rest: &str| format!(r#"{{"type":"object",{rest}}}"#);
    for empty in ["null", "[]"] {
        check(
            &typed(&format!(r#""properties":{empty},"$defs":{empty}"#)),
            &typed(r#""properties":{},"$defs":{}"#),
            &[("S003", "/properties"), ("S003", "/$defs")],
        );
    }
    check(
        &typed(
            r#""properties":{"a":{"type":"object","properties":null},"b/~":null,"c":["type","string"]}"#,
        ),
        &typed(
            r#""properties":{"a":{"type":"object","properties":{}},"b/~":{},"c":{"type":"string"}}"#,
        ),
        &[
            ("S003", "/properties/a/properties"),
            ("S005", "/properties/b~1~0"),
            ("S005", "/properties/c"),
        ],
    );
    check(
        &typed(r#""properties":["a",{"type":"string"}]"#),
        &typed(r#""properties":{"a":{"type":"string"}}"#),
        &[("S003", "/properties")],
    );
}

#[test]
fn a_list_of_words_is_a_schema() {
    let array = |items: &str| {
        format!(r#"{{"type":"object","properties":{{"a":{{"type":"array","items":{items}}}}}}}"#)
    };
    let found = &[("S005", "/properties/a/items")];
    check(&array(r#"["type","number"]"#), &array(r#"{"type":"number"}"#), found);
    check(
        &array(r#"["type","number","minimum",1.50]"#),
        &array(r#"{"type":"number","minimum":1.50}"#),
        found,
    );
    check(&array("null"), &array("{}"), found);
    check(&array("[]"), &array("{}"), found);
    check(
        &array(r#"["type","array","items",["type","int"]]"#),
        &array(r#"{"type":"array","items":{"type":"integer"}}"#),
        &[
            ("S005", "/properties/a/items"),
            ("S005", "/properties/a/items/items"),
            ("S008", "/properties/a/items/items/type"),
        ],
    );
}

#[test]
fn a_tuple_has_its_new_name() {
    check(
        r#"{"type":"object","properties":{"a":{"items":[{"type":"int"},true],"additionalItems":false}}}"#,
        r#"{"type":"object","properties":{"a":{"prefixItems":[{"type":"integer"},true],"items":false}}}"#,
        &[("S005", "/properties/a/items"), ("S008", "/properties/a/prefixItems/0/type")],
    );
}

#[test]
fn required_is_a_list_of_different_names() {
    let of = |required: &str| format!(r#"{{"type":"object","required":{required}}}"#);
    let found = &[("S007", "/required")];
    for nothing in ["null", "{}", "true"] {
        check(&of(nothing), r#"{"type":"object"}"#, found);
    }
    check(&of("\"a\""), &of("[\"a\"]"), found);
    check(&of(r#"["a","b","a"]"#), &of(r#"["a","b"]"#), found);
    check(
        r#"{"type":"object","properties":{"a":{"required":true},"b":{"required":false},"c":["required",true]},"required":["c"]}"#,
        r#"{"type":"object","properties":{"a":{},"b":{},"c":{}},"required":["c","a"]}"#,
        &[
            ("S007", "/properties/a/required"),
            ("S007", "/properties/b/required"),
            ("S005", "/properties/c"),
            ("S007", "/properties/c/required"),
        ],
    );
    check(
        r#"{"type":"object","properties":{"a":{"required":true}}}"#,
        r#"{"type":"object","properties":{"a":{}},"required":["a"]}"#,
        &[("S007", "/properties/a/required")],
    );
}

#[test]
fn keywords_hold_what_they_have_to() {
    let of = |rest: &str| format!(r#"{{"type":"object","properties":{{"a":{{{rest}}}}}}}"#);
    let place = |keyword: &str| format!("/properties/a/{keyword}");
    for (broken, whole, code, keyword) in [
        (r#""type":"float""#, r#""type":"number""#, "S008", "type"),
        (r#""type":["str",null]"#, r#""type":["string","null"]"#, "S008", "type"),
        (r#""type":"any""#, "", "S008", "type"),
        (
            r#""minimum":5,"exclusiveMinimum":true"#,
            r#""exclusiveMinimum":5"#,
            "S009",
            "exclusiveMinimum",
        ),
        (r#""maximum":5,"exclusiveMaximum":false"#, r#""maximum":5"#, "S009", "exclusiveMaximum"),
        (r#""additionalProperties":null"#, "", "S022", "additionalProperties"),
        (
            r#""additionalProperties":"false""#,
            r#""additionalProperties":false"#,
            "S022",
            "additionalProperties",
        ),
        (
            r#""additionalProperties":[]"#,
            r#""additionalProperties":{}"#,
            "S022",
            "additionalProperties",
        ),
        (r#""not":null"#, "", "S005", "not"),
        (r#""allOf":[]"#, "", "S005", "allOf"),
        (r#""description":null,"title":"x""#, r#""title":"x""#, "S031", "description"),
        (r#""enum":null"#, "", "S031", "enum"),
        (r#""minLength":"3""#, r#""minLength":3"#, "S031", "minLength"),
        (r#""uniqueItems":"true""#, r#""uniqueItems":true"#, "S031", "uniqueItems"),
    ] {
        check(&of(broken), &of(whole), &[(code, &place(keyword))]);
    }
}

#[test]
fn what_has_no_meaning_is_taken_out() {
    let of = |rest: &str| format!(r#"{{"type":"object"{rest}}}"#);
    let a = |rest: &str| of(&format!(r#","properties":{{"a":{rest}}}"#));
    for (broken, whole, id) in [
        (a("7"), a("{}"), "S005/no-schema"),
        (
            of(r#","properties":[{"name":"a"}],"additionalProperties":false"#),
            of(r#","properties":{}"#),
            "S003/map",
        ),
        (of(r#","items":["a","b"]"#), of(r#","items":{}"#), "S005/no-schema"),
        (of(r#","anyOf":[null]"#), of(r#","anyOf":[{}]"#), "S005/no-schema"),
        (of(r#","anyOf":[]"#), of(""), "S005/no-schema"),
        (of(r#","required":[1,"a"]"#), of(r#","required":["a"]"#), "S007/required-form"),
        (a(r#"{"type":"file"}"#), a("{}"), "S008/type-unknown"),
        (of(r#","maxLength":-1"#), of(""), "S023/size"),
        (of(r#","maxLength":1.5"#), of(""), "S023/size"),
        (of(r#","multipleOf":0"#), of(""), "S023/size"),
        (of(r#","title":7"#), of(""), "S031/keyword"),
        (
            of(r#","pattern":"(?i)x","description":"A text.""#),
            of(r#","description":"A text. Has to match `(?i)x`.""#),
            "S016/pattern",
        ),
        (
            of(r#","patternProperties":{"[":{},"a":{}},"additionalProperties":false"#),
            of(r#","patternProperties":{"a":{}}"#),
            "S016/pattern",
        ),
        (a(r##"{"$ref":"#/$defs/x","title":"t"}"##), a(r#"{"title":"t"}"#), "S011/dangling"),
        (a(r#"{"$ref":"https://example.com/x.json"}"#), a("{}"), "S011/remote"),
    ] {
        let tool = format!(r#"{{"inputSchema":{broken}}}"#);
        let report = valid(&tool);
        assert_eq!(report.tool, format!(r#"{{"inputSchema":{whole}}}"#));
        let found: Vec<_> = report
            .findings
            .iter()
            .map(|it| (it.fault.id(), it.repair.as_ref().map(|it| it.effect)))
            .collect();
        assert_eq!(found, [(id, Some(Effect::Wider))], "{broken}");
        is_whole(&report);
    }
}

#[test]
fn an_object_of_a_schema_library_is_any_object() {
    check(
        r#"{"_def":{"typeName":"ZodObject"},"~standard":{"vendor":"zod"}}"#,
        r#"{"type":"object"}"#,
        &[("S030", "")],
    );
}

#[test]
fn results_have_a_schema_too_or_none() {
    let report = valid(
        r#"{"inputSchema":{"type":"object"},"outputSchema":{"properties":null,"items":["type","int"]}}"#,
    );
    assert_eq!(
        report.tool,
        r#"{"inputSchema":{"type":"object"},"outputSchema":{"properties":{},"items":{"type":"integer"}}}"#
    );
    let report = valid(r#"{"inputSchema":{"type":"object"},"outputSchema":null}"#);
    assert_eq!(report.tool, r#"{"inputSchema":{"type":"object"}}"#);
    assert_eq!(report.findings[0].fault, Fault::OutputForm);
}

#[test]
fn what_is_enforced_stays_so_however_many_faults_there_are() {
    let many: Vec<_> = (0..120).map(|n| format!(r#""p{n}":{{"type":"int"}}"#)).collect();
    let tool = format!(
        r#"{{"name":"t","inputSchema":{{"type":"object","properties":{{{}}},"oneOf":[{{"required":["p0"]}},{{"required":["p1"]}}]}}}}"#,
        many.join(",")
    );
    let report = repair(&tool, Profile::common());
    assert_eq!(report.findings.len(), MAX_FINDINGS);
    assert!(report.plan.arguments("{}").is_err());
    assert!(report.plan.arguments(r#"{"p0":1}"#).is_ok());
}

#[test]
fn null_beside_a_reference_is_taken() {
    let of = |schema: &str| {
        format!(
            r##"{{"name":"t","inputSchema":{{"type":"object","properties":{{"a":{schema}}},"$defs":{{"s":{{"type":"string"}}}}}}}}"##
        )
    };
    for (nullable, plain) in [
        (
            r##"{"$ref":"#/$defs/s","nullable":true}"##,
            r##"{"anyOf":[{"$ref":"#/$defs/s"},{"type":"null"}]}"##,
        ),
        (
            r##"{"allOf":[{"$ref":"#/$defs/s"}],"nullable":true}"##,
            r##"{"anyOf":[{"allOf":[{"$ref":"#/$defs/s"}]},{"type":"null"}]}"##,
        ),
        (
            r#"{"anyOf":[{"type":"string"}],"nullable":true}"#,
            r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#,
        ),
    ] {
        let tool = of(nullable);
        let report = valid(&tool);
        assert_eq!(report.tool, of(plain));
        assert_eq!(report.plan.arguments(r#"{"a":null}"#).unwrap(), r#"{"a":null}"#);
    }
}

#[test]
fn the_rest_keeps_its_text() {
    let rest = r#""title":"\u00e9é","x":[1.0,1e400,123456789012345678901234567890,-0],"annotations":{"b":1,"a":null}"#;
    let report =
        valid(&format!(r#"{{ "name" : "t",{rest},"inputSchema":null}}"#)).tool.into_owned();
    assert_eq!(report, format!(r#"{{"name":"t",{rest},"inputSchema":{{"type":"object"}}}}"#));
}

#[test]
fn what_is_too_large_or_too_deep_ends_in_a_finding() {
    let large = format!(r#"{{"description":"{}","inputSchema":null}}"#, "x".repeat(5 << 20));
    let report = valid(&large);
    assert_eq!((report.tool.len(), report.findings[0].fault), (large.len(), Fault::TooLarge));
    for (open, close) in
        [("{\"items\":", "}"), ("[\"items\",", "]"), ("{\"properties\":{\"a\":", "}}")]
    {
        let deep = format!(
            r#"{{"inputSchema":{{"type":"object","items":{}null{}}}}}"#,
            open.repeat(40_000),
            close.repeat(40_000)
        );
        let report = valid(&deep);
        assert!(report.findings.iter().any(|it| it.fault == Fault::TooDeep), "{open}");
        is_whole(&report);
    }
    let many = vec!["null"; 200_000].join(",");
    let report =
        valid(&format!(r#"{{"inputSchema":{{"type":"object","anyOf":[{many}]}}}}"#)).findings;
    assert_eq!(report.len(), MAX_FINDINGS);
}

/// Numbers that look random, and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }

    fn is_hit(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

/// A valid schema, of the kinds that servers write.
fn healthy(dice: &mut Dice, depth: u64) -> Value {
    let kinds = if depth == 0 { 4 } else { 8 };
    match dice.below(kinds) {
        0 => json!({"type": "string", "minLength": dice.below(5)}),
        1 => json!({"type": "integer", "exclusiveMinimum": dice.below(5)}),
        2 => json!({"type": "boolean", "default": null}),
        3 => json!({"enum": ["a", null, {"properties": null}, ["type", "number"]]}),
        4 => json!({"type": "array", "items": healthy(dice, depth - 1)}),
        5 => {
            json!({"type": "array", "prefixItems": [healthy(dice, depth - 1), true], "items": false})
        }
        6 => {
            json!({"anyOf": [healthy(dice, depth - 1), {"type": "null"}], "description": "one of"})
        }
        _ => object(dice, depth - 1),
    }
}

fn object(dice: &mut Dice, depth: u64) -> Value {
    let names = ["a", "b/c", "type", "items", "日本", "properties"];
    let mut properties = Map::new();
    let mut required = Vec::new();
    for name in names {
        if dice.is_hit(3) {
            properties.insert(name.to_owned(), healthy(dice, depth));
            if dice.is_hit(2) {
                required.push(name);
            }
        }
    }
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// Breaks a schema in ways that have one meaning, each here and there.
fn broken(schema: &Value, dice: &mut Dice) -> Value {
    let Value::Object(schema) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (keyword, value) in schema {
        let value = match (keyword.as_str(), value) {
            ("properties", Value::Object(map)) if map.is_empty() && dice.is_hit(2) => {
                if dice.is_hit(2) { json!(null) } else { json!([]) }
            }
            ("properties", Value::Object(map)) => {
                let broken: Map<_, _> =
                    map.iter().map(|(name, it)| (name.clone(), broken(it, dice))).collect();
                match broken.iter().next() {
                    Some((name, schema)) if broken.len() == 1 && dice.is_hit(4) => {
                        json!([name, schema])
                    }
                    _ => Value::Object(broken),
                }
            }
            ("items", value) => broken(value, dice),
            ("anyOf" | "prefixItems", Value::Array(all)) => {
                all.iter().map(|it| broken(it, dice)).collect()
            }
            ("required", Value::Array(names)) if names.len() == 1 && dice.is_hit(3) => {
                names[0].clone()
            }
            ("required", Value::Array(names)) if dice.is_hit(3) => {
                names.iter().chain(names).cloned().collect()
            }
            ("minLength", value) if dice.is_hit(3) => json!(value.to_string()),
            ("type", value) if dice.is_hit(3) => match value.as_str() {
                Some("integer") => json!("int"),
                Some("boolean") => json!("bool"),
                Some("string") => json!("String"),
                Some("array") => json!("list"),
                _ => value.clone(),
            },
            ("exclusiveMinimum", value) if dice.is_hit(2) => {
                out.insert("minimum".to_owned(), value.clone());
                json!(true)
            }
            _ => value.clone(),
        };
        out.insert(keyword.clone(), value);
    }
    if dice.is_hit(6) {
        out.insert("format".to_owned(), json!(null));
    }
    // An object that is written as a list of words.
    match dice.is_hit(4) && !out.is_empty() {
        true => out.into_iter().flat_map(|(keyword, value)| [json!(keyword), value]).collect(),
        false => Value::Object(out),
    }
}

#[test]
fn whatever_was_broken_is_what_it_was_before() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut repaired = 0;
    for _ in 0..5000 {
        let schema = object(&mut dice, 4);
        let tool = json!({"name": "t", "inputSchema": schema}).to_string();
        let report = valid(&tool);
        assert_eq!((report.tool.as_ref(), report.findings), (tool.as_str(), Vec::new()));
        let broken = json!({"name": "t", "inputSchema": broken(&schema, &mut dice)}).to_string();
        let report = valid(&broken);
        is_whole(&report);
        let found: Value = serde_json::from_str(&report.tool).unwrap();
        assert_eq!(found["inputSchema"], schema, "{broken}");
        assert!(report.findings.iter().all(|finding| finding.repair.is_some()), "{report:?}");
        repaired += usize::from(broken != tool);
    }
    assert!(repaired > 1000, "only {repaired} were broken");
}

#[test]
fn any_json_at_all_is_repaired_once() {
    let mut dice = Dice(7);
    for _ in 0..5000 {
        let tool = anything(&mut dice, 6).to_string();
        let report = valid(&tool);
        let again = valid(&report.tool);
        assert_eq!((&again.tool, again.findings), (&report.tool, Vec::new()), "{tool}");
    }
}

/// JSON that has the words of schemas in all the wrong places.
fn anything(dice: &mut Dice, depth: u64) -> Value {
    let words = [
        "inputSchema",
        "type",
        "properties",
        "items",
        "required",
        "minimum",
        "exclusiveMinimum",
        "anyOf",
        "additionalItems",
        "prefixItems",
        "object",
        "any",
        "int",
        "true",
        "3",
        "other",
        "$defs",
        "outputSchema",
    ];
    let word = |dice: &mut Dice| words[dice.below(words.len() as u64) as usize];
    match dice.below(if depth == 0 { 5 } else { 9 }) {
        0 => json!(null),
        1 => json!(dice.is_hit(2)),
        2 => json!(dice.below(3)),
        3 | 4 => json!(word(dice)),
        5 => (0..dice.below(5)).map(|_| anything(dice, depth - 1)).collect(),
        _ => {
            let mut members = Map::new();
            for _ in 0..=dice.below(4) {
                members.insert(word(dice).to_owned(), anything(dice, depth - 1));
            }
            Value::Object(members)
        }
    }
}

#[test]
fn what_an_older_draft_ignores_beside_a_reference_is_not_enforced() {
    let tool = |dialect: &str| {
        format!(
            r##"{{"name":"t","inputSchema":{{{dialect}"type":"object","definitions":{{"Word":{{"type":"string"}}}},
                "properties":{{"a":{{"$ref":"#/definitions/Word","minLength":3,"type":"integer"}}}},
                "anyOf":[{{"required":["a"]}},{{"required":["b"]}}]}}}}"##
        )
    };
    for draft in ["draft-07", "draft-06", "draft-04"] {
        let tool = tool(&format!(r#""$schema":"http://json-schema.org/{draft}/schema#","#));
        let plan = repair(&tool, Profile::common()).plan;
        assert_eq!(plan.arguments(r#"{"a":"x"}"#).unwrap(), r#"{"a":"x"}"#, "{draft}");
        assert!(plan.arguments("{}").is_err(), "{draft}: the rest is enforced");
        assert!(plan.arguments(r#"{"a":[]}"#).is_err(), "{draft}: so is the reference");
    }
    for newer in ["", r#""$schema":"https://json-schema.org/draft/2019-09/schema","#] {
        let tool = tool(newer);
        let plan = repair(&tool, Profile::common()).plan;
        assert!(plan.arguments(r#"{"a":"x"}"#).is_err(), "{newer}");
    }
}

#[test]
fn what_is_required_is_named_as_it_is_shown() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object","properties":{"$top":{"type":"integer"},"n":{}},"required":["n","$top"]}}"#;
    let report = repair(tool, Profile::common());
    let shown: Value = serde_json::from_str(&report.tool).unwrap();
    assert_eq!(shown["inputSchema"]["required"], json!(["n", "top"]));
}

#[test]
fn a_text_that_is_taken_as_it_is_stays_a_text() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":{"type":["string","integer"]},"b":{"type":"integer"}}}}"#;
    let plan = repair(tool, Profile::common()).plan;
    assert_eq!(plan.arguments(r#"{"a":"42","b":"42"}"#).unwrap(), r#"{"a":"42","b":42}"#);
}

#[test]
fn one_value_beside_others_is_the_only_one() {
    let gemini = Profile::named("gemini").unwrap();
    for (schema, shown, taken) in [
        (r#"{"const":"a"}"#, json!({"enum": ["a"]}), true),
        (r#"{"const":"a","enum":["a","b"]}"#, json!({"enum": ["a"]}), true),
        (r#"{"enum":["b"],"const":"a"}"#, json!({"enum": ["a"]}), false),
        (r#"{"const":"a","enum":[null]}"#, json!({"enum": ["a"]}), false),
        (r#"{"const":1,"enum":[1,2]}"#, json!({"description": "One of: 1."}), false),
    ] {
        let tool = format!(
            r#"{{"name":"t","description":"d","inputSchema":{{"type":"object","properties":{{"p":{schema}}}}}}}"#
        );
        let report = repair(&tool, gemini);
        assert_eq!(repair(&report.tool, gemini).tool, report.tool, "{schema}");
        let tool: Value = serde_json::from_str(&report.tool).unwrap();
        assert_eq!(tool["inputSchema"]["properties"]["p"], shown, "{schema}");
        assert_eq!(report.plan.arguments(r#"{"p":"a"}"#).is_ok(), taken, "{schema}");
    }
}
