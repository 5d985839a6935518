//! Schemas, broken ones too, and arguments made at random, the same in every run.
//!
//! `PONTOON_SCHEMA_CASES` says how many; `scripts/test.sh schemas` makes 100,000.

// Not all tests use all of it.
#![allow(dead_code)]

use pontoon_schema::{MAX_FINDINGS, Report};
use serde_json::{Map, Value, json};

/// Numbers that look random.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, sides: usize) -> usize {
        // xorshift64
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides as u64) as usize
    }

    pub(crate) fn is_hit(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

pub(crate) fn cases() -> usize {
    let said = std::env::var("PONTOON_SCHEMA_CASES").ok();
    said.map_or(3000, |number| number.parse().expect("PONTOON_SCHEMA_CASES is a number"))
}

pub(crate) const NAMES: [&str; 9] = ["a", "b", "c", "$top", "top", "uids[]", "日本", "type", "a_b"];

/// A valid schema with all that draft 2020-12 has. References lead to definitions that are there.
pub(crate) fn schema(dice: &mut Dice, depth: usize) -> Value {
    let inner = |dice: &mut Dice| schema(dice, depth - 1);
    match dice.below(if depth == 0 { 9 } else { 22 }) {
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
        17 => json!({"oneOf": [inner(dice), inner(dice)]}),
        18 => json!({"if": inner(dice), "then": inner(dice), "else": inner(dice)}),
        19 => json!({"type": "array", "contains": inner(dice), "maxContains": 1}),
        20 => json!({"allOf": [inner(dice)], "unevaluatedProperties": false}),
        _ => object(dice, depth - 1),
    }
}

pub(crate) fn object(dice: &mut Dice, depth: usize) -> Value {
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
pub(crate) fn arguments_schema(dice: &mut Dice) -> Value {
    let mut root = object(dice, 2);
    for union in ["oneOf", "anyOf", "allOf"] {
        if dice.is_hit(6) {
            let count = 1 + dice.below(3);
            let branch = |_| match dice.is_hit(6) {
                true => json!({"$ref": "#/$defs/g"}),
                false => object(dice, 1),
            };
            root[union] = (0..count).map(branch).collect();
        }
    }
    if dice.is_hit(8) {
        root["if"] = object(dice, 1);
        root["then"] = object(dice, 1);
    }
    if dice.is_hit(8) {
        root["dependentRequired"] = json!({"a": ["b"], "$top": ["a"]});
    }
    if dice.is_hit(8) {
        root["dependentSchemas"] = json!({"$top": object(dice, 1), "b": {"required": ["uids[]"]}});
    }
    if dice.is_hit(8) {
        root["not"] = json!({"required": [dice.one(&["b", "uids[]"]), dice.one(&["$top", "a"])]});
    }
    root["$defs"] = json!({"d": schema(dice, 1), "e": {"type": "array", "items": {"$ref": "#/$defs/f"}}, "f": {}, "g": object(dice, 1)});
    if dice.is_hit(5) {
        root["$defs"]["f"] = json!({"properties": {"again": {"$ref": "#/$defs/e"}}});
    }
    root
}

/// Breaks a schema: a value that does not belong there, here and there.
pub(crate) fn break_it(value: &mut Value, dice: &mut Dice) {
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

/// Where schemas stand inside a schema, as JSON pointers.
pub(crate) fn places(schema: &Value) -> Vec<String> {
    fn look(schema: &Value, at: &str, places: &mut Vec<String>) {
        let Value::Object(members) = schema else { return };
        for (keyword, value) in members {
            let at = format!("{at}/{keyword}");
            let inside: Vec<_> = match (keyword.as_str(), value) {
                ("properties" | "patternProperties" | "$defs", Value::Object(all)) => {
                    let escaped = |name: &String| name.replace('~', "~0").replace('/', "~1");
                    all.iter().map(|(name, it)| (format!("{at}/{}", escaped(name)), it)).collect()
                }
                ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(all)) => {
                    all.iter().enumerate().map(|(n, it)| (format!("{at}/{n}"), it)).collect()
                }
                (
                    "items" | "not" | "if" | "then" | "else" | "contains" | "additionalProperties",
                    one,
                ) => {
                    vec![(at, one)]
                }
                _ => Vec::new(),
            };
            for (at, schema) in inside {
                look(schema, &at, places);
                places.push(at);
            }
        }
    }
    let mut places = Vec::new();
    look(schema, "", &mut places);
    places
}

/// A schema of which nobody can say what it means, and what it may mean. One says nothing of the members it takes,
/// and another that it knows them all.
pub(crate) fn riddle(dice: &mut Dice) -> (Value, [Value; 3]) {
    let open = json!({"additionalProperties": true, "items": true});
    match dice.below(5) {
        0 => (json!({"$ref": "#/nowhere"}), [json!(true), json!(false), open]),
        1 => (json!({"$ref": "https://example.com/x"}), [json!(true), json!(false), open]),
        2 => (json!(7), [json!(true), json!(false), open]),
        3 => (
            json!({"$ref": "#/nowhere", "minLength": 1}),
            [json!(true), json!(false), open].map(|it| json!({"allOf": [it], "minLength": 1})),
        ),
        _ => {
            let text = json!({"type": "string", "minLength": 1});
            (
                json!({"type": "string", "pattern": "(?i)x"}),
                [json!({"type": "string"}), json!(false), text],
            )
        }
    }
}

/// Something that may be an argument, or near one.
pub(crate) fn argument(dice: &mut Dice, depth: usize) -> Value {
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

pub(crate) fn arguments(dice: &mut Dice, depth: usize) -> Value {
    let mut members = Map::new();
    for name in NAMES {
        if dice.is_hit(3) {
            members.insert(name.to_owned(), argument(dice, depth));
        }
    }
    Value::Object(members)
}

pub(crate) fn tool(schema: &Value) -> String {
    json!({"name": "a_tool", "description": "It does.", "inputSchema": schema}).to_string()
}

pub(crate) fn shown(tool: &str) -> Value {
    serde_json::from_str::<Value>(tool).expect("JSON")["inputSchema"].take()
}

/// The arguments that clients see by other names: the server's, theirs. None if the report may be too long to tell all.
pub(crate) fn shown_names(report: &Report<'_>) -> Option<Vec<(String, String)>> {
    if report.findings.len() == MAX_FINDINGS {
        return None;
    }
    let renamed = report.findings.iter().filter(|it| it.fault.id() == "S013/key");
    let name = |finding: &pontoon_schema::Finding| {
        let own = finding.place.strip_prefix("/inputSchema/properties/")?;
        let own = own.replace("~1", "/").replace("~0", "~");
        let shown = finding.repair.as_ref()?.what.strip_prefix("is `")?.strip_suffix('`')?;
        Some((own, shown.to_owned()))
    };
    Some(renamed.filter_map(name).collect())
}

/// Arguments as a client gives them that sees these names. None if the server has others by them.
pub(crate) fn by_shown_names(arguments: &Value, names: &[(String, String)]) -> Option<Value> {
    let arguments = arguments.as_object()?;
    let is_taken = names.iter().any(|(_, shown)| arguments.contains_key(shown));
    let shown = |name: &String| {
        let renamed = names.iter().find(|(own, _)| own == name);
        renamed.map_or_else(|| name.clone(), |(_, shown)| shown.clone())
    };
    (!is_taken).then(|| arguments.iter().map(|(name, it)| (shown(name), it.clone())).collect())
}
