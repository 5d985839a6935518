//! What holds for any tool and any call of it, over schemas and arguments that are made at random, the same in every run.
//!
//! `PONTOON_SCHEMA_CASES` says how many; `scripts/test.sh schemas` makes 100,000.

use pontoon_schema::{Effect, Profile, lint, repair};
use serde_json::{Map, Value, json};

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    fn is_hit(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

fn cases() -> usize {
    let said = std::env::var("PONTOON_SCHEMA_CASES").ok();
    said.map_or(3000, |number| number.parse().expect("PONTOON_SCHEMA_CASES is a number"))
}

const NAMES: [&str; 8] = ["a", "b", "c", "$top", "uids[]", "日本", "type", "a_b"];

/// A valid schema with all that draft 2020-12 has. References lead to definitions that are there.
fn schema(dice: &mut Dice, depth: usize) -> Value {
    let inner = |dice: &mut Dice| schema(dice, depth - 1);
    match dice.below(if depth == 0 { 9 } else { 18 }) {
        0 => json!({"type": "string", "minLength": dice.below(3)}),
        1 => json!({"type": "integer", "minimum": dice.below(3), "maximum": 9}),
        2 => json!({"type": "number", "exclusiveMaximum": 5, "multipleOf": 0.5}),
        3 => json!({"type": "boolean", "default": dice.is_hit(2)}),
        4 => json!({"enum": dice.one(&[&["x", "y"][..], &["5"]])}),
        5 => json!({"enum": [1, "x", null]}),
        6 => json!({"const": dice.one(&["x", "1"])}),
        7 => json!({"$ref": dice.one(&["#/$defs/d", "#/$defs/e"]), "description": "one of those"}),
        8 => json!({"type": ["integer", "null"], "format": "int64"}),
        9 => json!({"type": "array", "items": inner(dice)}),
        10 => json!({"type": "array", "minItems": 1}),
        11 => json!({"anyOf": [inner(dice), inner(dice)]}),
        12 => json!({"oneOf": [inner(dice), {"type": "null"}]}),
        13 => json!({"allOf": [inner(dice), inner(dice)]}),
        14 => json!({"not": inner(dice)}),
        15 => json!({"type": "string", "pattern": dice.one(&["^[a-z]+$", "\\d"])}),
        16 => json!({"prefixItems": [inner(dice)], "items": false}),
        _ => object(dice, depth - 1),
    }
}

fn object(dice: &mut Dice, depth: usize) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for name in NAMES {
        if dice.is_hit(3) {
            properties.insert(name.to_owned(), schema(dice, depth));
        }
        if dice.is_hit(6) {
            required.push(name);
        }
    }
    let mut object = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    if dice.is_hit(4) {
        object["additionalProperties"] = json!(dice.is_hit(2));
    }
    if dice.is_hit(12) {
        object["patternProperties"] =
            json!({"^[a-c]$": schema(dice, depth.saturating_sub(1)), "b": {}});
    }
    if dice.is_hit(12) {
        object["unevaluatedProperties"] = json!(false);
    }
    object
}

/// Arguments of a tool, with alternatives and conditions at the root now and then.
fn arguments_schema(dice: &mut Dice) -> Value {
    let mut root = object(dice, 2);
    for union in ["oneOf", "anyOf", "allOf"] {
        if dice.is_hit(6) {
            root[union] = (0..=dice.below(3)).map(|_| object(dice, 1)).collect();
        }
    }
    if dice.is_hit(8) {
        root["if"] = object(dice, 1);
        root["then"] = object(dice, 1);
    }
    if dice.is_hit(8) {
        root["dependentRequired"] = json!({"a": ["b"], "$top": ["a"]});
    }
    root["$defs"] = json!({"d": schema(dice, 1), "e": {"type": "array", "items": {"$ref": "#/$defs/f"}}, "f": {}});
    if dice.is_hit(5) {
        root["$defs"]["f"] = json!({"properties": {"again": {"$ref": "#/$defs/e"}}});
    }
    root
}

/// Breaks a schema: a value that does not belong there, here and there.
fn break_it(value: &mut Value, dice: &mut Dice) {
    const ODD: [&str; 16] = [
        "null",
        "[]",
        "{}",
        "true",
        "7",
        "-1",
        "\"int\"",
        "\"x\"",
        "[\"type\",\"number\"]",
        "[null]",
        "[[]]",
        "{\"$ref\":\"#/nowhere\"}",
        "{\"$ref\":\"https://example.com/x\"}",
        "\"(?i)x\"",
        "{\"type\":\"any\"}",
        "{\"_def\":{}}",
    ];
    let odd = |dice: &mut Dice| serde_json::from_str::<Value>(dice.one(&ODD)).expect("JSON");
    match value {
        _ if dice.is_hit(40) => *value = odd(dice),
        Value::Object(members) => {
            if dice.is_hit(15) {
                let keyword = dice.one(&[
                    "items",
                    "type",
                    "required",
                    "$ref",
                    "pattern",
                    "additionalProperties",
                    "enum",
                    "$defs",
                    "nullable",
                    "exclusiveMinimum",
                    "id",
                    "definitions",
                    "$schema",
                    "patternProperties",
                    "anyOf",
                    "dependencies",
                    "not",
                    "extends",
                    "x-mcp-header",
                    "$id",
                    "$anchor",
                    "format",
                    "maxLength",
                ]);
                let value = odd(dice);
                members.insert(keyword.to_owned(), value);
            }
            members.values_mut().for_each(|value| break_it(value, dice));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| break_it(value, dice)),
        _ => {}
    }
}

/// Something that may be an argument, or near one.
fn argument(dice: &mut Dice, depth: usize) -> Value {
    match dice.below(if depth == 0 { 9 } else { 12 }) {
        0 => json!("x"),
        1 => json!(dice.below(8)),
        2 => json!(2.5),
        3 => json!(dice.is_hit(2)),
        4 => json!(null),
        5 => json!(dice.below(8).to_string()),
        6 => json!(dice.one(&["true", "null", "1.5", "[1,2]", "{\"a\":1}", "[\"x\"]"])),
        7 => json!([]),
        8 => json!("5"),
        9 | 10 => (0..dice.below(3)).map(|_| argument(dice, depth - 1)).collect(),
        _ => arguments(dice, depth - 1),
    }
}

fn arguments(dice: &mut Dice, depth: usize) -> Value {
    let mut members = Map::new();
    for name in NAMES {
        if dice.is_hit(3) {
            members.insert(name.to_owned(), argument(dice, depth));
        }
    }
    Value::Object(members)
}

fn tool(schema: &Value) -> String {
    json!({"name": "a_tool", "description": "It does.", "inputSchema": schema}).to_string()
}

fn shown(tool: &str) -> Value {
    serde_json::from_str::<Value>(tool).expect("JSON")["inputSchema"].take()
}

#[test]
fn whatever_is_broken_is_valid_afterwards_and_a_second_repair_changes_nothing() {
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut broken = 0;
    for case in 0..cases() {
        let mut schema = arguments_schema(&mut dice);
        break_it(&mut schema, &mut dice);
        let tool = json!({"name": "t", "inputSchema": schema, "outputSchema": schema}).to_string();
        let profile = &Profile::all()[case % Profile::all().len()];
        let report = repair(&tool, profile);
        let again = repair(&report.tool, profile);
        assert_eq!(again.tool, report.tool, "{profile}: {tool}");
        let repaired: Value = serde_json::from_str(&report.tool).unwrap();
        for member in ["inputSchema", "outputSchema"] {
            let Some(schema) = repaired.get(member) else { continue };
            if let Err(error) = jsonschema::draft202012::new(schema) {
                panic!(
                    "{profile}: {member}: {error} at {}\n{tool}\n{}",
                    error.instance_path(),
                    report.tool
                );
            }
        }
        assert_eq!(repaired["inputSchema"]["type"], "object", "{tool}");
        broken += usize::from(!report.findings.is_empty());
        lint(&tool);
    }
    assert!(broken * 2 > cases(), "only {broken} had findings");
}

#[test]
fn a_repaired_tool_takes_what_it_took_before_and_refuses_what_it_refused() {
    let mut dice = Dice(0x2545_F491_4F6C_DD1D);
    let (mut taken, mut refused, mut enforced) = (0, 0, 0);
    for case in 0..cases() {
        let schema = arguments_schema(&mut dice);
        let original = jsonschema::draft202012::new(&schema).unwrap();
        let tool = tool(&schema);
        let profile = &Profile::all()[case % Profile::all().len()];
        let report = repair(&tool, profile);
        // In the words of JSON Schema: some clients have `nullable`.
        let in_words = repair(&report.tool, Profile::none());
        let seen = jsonschema::draft202012::new(&shown(&in_words.tool)).unwrap();
        for _ in 0..8 {
            let arguments = arguments(&mut dice, 2);
            let text = arguments.to_string();
            let is_taken = original.is_valid(&arguments);
            match report.plan.arguments(&text) {
                Ok(fitted) if is_taken => {
                    assert_eq!(fitted, text, "{profile}: what is taken is never changed: {tool}");
                    taken += 1;
                    // What clients see takes it, too, under the names that they see. What only some alternatives
                    // say of an argument is shown to them as if all did.
                    let is_merged = report.findings.iter().any(|it| it.fault.code() == "S004");
                    if report.plan.is_plain() && !is_merged {
                        assert!(
                            seen.is_valid(&arguments),
                            "{profile}: {text}\n{tool}\n{}",
                            report.tool
                        );
                    }
                }
                Err(refusal) if is_taken => panic!("{profile}: {refusal}: {text} for {tool}"),
                Ok(fitted) => {
                    let fitted: Value = serde_json::from_str(&fitted).unwrap();
                    let is_enforced = report.findings.iter().any(|finding| {
                        finding.repair.as_ref().is_some_and(|it| it.effect == Effect::Enforced)
                    });
                    assert!(
                        !is_enforced || original.is_valid(&fitted),
                        "{profile}: not enforced: {fitted} for {tool}"
                    );
                    refused += 1;
                }
                Err(_) => enforced += 1,
            }
        }
    }
    assert!(
        taken > cases() / 2 && refused > cases() / 2 && enforced > cases() / 2,
        "{taken} {refused} {enforced}"
    );
}

#[test]
fn a_call_by_the_names_that_are_shown_has_the_names_of_the_server() {
    let mut dice = Dice(99);
    let mut renamed = 0;
    for _ in 0..cases() / 10 {
        let schema = object(&mut dice, 1);
        let tool = tool(&schema);
        let report = repair(&tool, Profile::named("anthropic-api").unwrap());
        let (before, after) = (&schema["properties"], shown(&report.tool)["properties"].clone());
        let (before, after) = (before.as_object().unwrap(), after.as_object().unwrap());
        assert_eq!(before.len(), after.len());
        for (original, shown) in before.keys().zip(after.keys()) {
            assert!(
                shown.chars().all(|it| it.is_ascii_alphanumeric() || "_.-".contains(it)),
                "{shown}"
            );
            let call = json!({shown: {"any": "thing"}}).to_string();
            // What is refused was refused under the name of the server.
            if let Ok(fitted) = report.plan.arguments(&call) {
                let fitted: Value = serde_json::from_str(&fitted).unwrap();
                assert!(fitted.get(original).is_some(), "{call} -> {fitted} for {tool}");
            }
            renamed += usize::from(original != shown);
        }
    }
    assert!(renamed > 20, "only {renamed}");
}

/// Schemas that are there to take long.
#[test]
fn the_largest_schemas_end_soon_with_a_finding() {
    let wide: Map<String, Value> = (0..60_000)
        .map(|n| (format!("p{n}"), json!({"type": "string", "description": "x".repeat(50)})))
        .collect();
    let wide = json!({"type": "object", "properties": wide});
    let ladder: Map<String, Value> = (0..10_000)
        .map(|n| (format!("d{n}"), json!({"anyOf": [{"$ref": format!("#/$defs/d{}", n + 1)}, {"$ref": format!("#/$defs/d{}", n + 2)}]})))
        .chain([("d10000".to_owned(), json!({})), ("d10001".to_owned(), json!({}))])
        .collect();
    let ladder =
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": ladder});
    let mut deep = json!({});
    for _ in 0..100 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    for (name, schema) in [("wide", wide), ("ladder", ladder), ("deep", deep)] {
        let tool = tool(&schema);
        for profile in Profile::all() {
            let report = repair(&tool, profile);
            drop(report.plan.arguments(r#"{"a":{"a":"1"}}"#));
            let found = report.findings.len() + lint(&tool).len();
            assert!(found > 0, "{name}, {profile}");
        }
    }
}

/// Schemas whose values are costly to check, or not to be checked at all, are left to the server.
#[test]
fn no_call_takes_long_or_much_to_be_refused() {
    let filter = json!({"type": "object", "properties": {"where": {"$ref": "#/$defs/f"}}, "$defs": {"f": {"anyOf": [
        {"type": "object", "properties": {"l": {"$ref": "#/$defs/f"}, "op": {"const": "and"}}, "required": ["l", "op"]},
        {"type": "object", "properties": {"l": {"$ref": "#/$defs/f"}, "op": {"const": "or"}}, "required": ["l", "op"]},
    ]}}, "oneOf": [{"required": ["where"]}, {"required": ["all"]}]});
    let ladder: Map<String, Value> = (0..40)
        .map(|n| {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            (format!("d{n}"), json!({"allOf": [next, next]}))
        })
        .chain([("d40".to_owned(), json!({"type": "integer"}))])
        .collect();
    let ladder = json!({"type": "object", "properties": {"where": {"$ref": "#/$defs/d0"}}, "$defs": ladder,
        "oneOf": [{"required": ["where"]}]});
    let named: Map<String, Value> = (0..900)
        .map(|n| (format!("d{n}"), json!({"$anchor": format!("a{n}"), "not": {"$ref": format!("#a{}", (n + 1) % 900)}})))
        .collect();
    let named = json!({"type": "object", "properties": {"where": {"$ref": "#a0"}}, "$defs": named,
        "oneOf": [{"required": ["where"]}]});
    let branches: Vec<_> = (0..300)
        .map(|n| json!({"$ref": "#/$defs/e", "properties": {"a": {"minLength": n}}}))
        .collect();
    let words: Vec<_> = (0..2000).map(|n| format!("word {n}")).collect();
    let union = json!({"type": "object", "anyOf": branches,
        "$defs": {"e": {"properties": {"a": {"enum": words}}}}});
    let mut nested = json!({});
    for _ in 0..24 {
        nested = json!({"l": nested});
    }
    let call = json!({"where": nested}).to_string();
    for (name, schema) in
        [("filter", filter), ("ladder", ladder), ("named", named), ("union", union)]
    {
        let tool = tool(&schema);
        for profile in
            ["none", "common", "gemini"].map(|name| Profile::named(name).expect("there is one"))
        {
            let report = repair(&tool, profile);
            let _ = report.plan.arguments(&call);
            assert!(report.tool.len() < 2 << 20, "{name}, {profile}");
        }
    }
}
