//! What holds for any tool and any call of it, over schemas and arguments that are made at random, the same in every run.
//!
//! `PONTOON_SCHEMA_CASES` says how many; `scripts/test.sh schemas` makes 100,000.

mod generator;

use generator::{
    Dice, arguments, arguments_schema, break_it, cases, object, places, riddle, shown, tool,
};
use pontoon_schema::{Effect, Profile, lint, repair};
use serde_json::{Map, Value, json};

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
fn what_a_broken_schema_may_have_meant_is_taken_by_its_repair() {
    let mut dice = Dice(0x5851_F42D_4C95_7F2D);
    let mut taken = 0;
    for case in 0..cases() / 3 {
        let mut broken = arguments_schema(&mut dice);
        let mut meanings = vec![broken.clone()];
        for _ in 0..=dice.below(2) {
            let places = places(&broken);
            if places.is_empty() {
                continue;
            }
            let place = &places[dice.below(places.len())];
            let (riddle, answers) = riddle(&mut dice);
            let with = |schema: &Value, part: &Value| {
                let mut schema = schema.clone();
                *schema.pointer_mut(place).expect("it is there") = part.clone();
                schema
            };
            meanings = meanings
                .iter()
                .flat_map(|it| answers.each_ref().map(|part| with(it, part)))
                .collect();
            broken = with(&broken, &riddle);
        }
        // A reference may lead into a part that is none any more.
        let meanings: Vec<_> =
            meanings.iter().filter_map(|it| jsonschema::draft202012::new(it).ok()).collect();
        let tool = tool(&broken);
        let profile = match case % 2 {
            0 => Profile::none(),
            _ => &Profile::all()[case / 2 % Profile::all().len()],
        };
        let report = repair(&tool, profile);
        let in_words = repair(&report.tool, Profile::none());
        let seen = jsonschema::draft202012::new(&shown(&in_words.tool)).unwrap();
        let is_merged = report.findings.iter().any(|it| it.fault.code() == "S004");
        for _ in 0..12 {
            let arguments = arguments(&mut dice, 2);
            if !meanings.iter().any(|meaning| meaning.is_valid(&arguments)) {
                continue;
            }
            taken += 1;
            let text = arguments.to_string();
            match report.plan.arguments(&text) {
                Ok(fitted) => assert_eq!(fitted, text, "{profile}: {tool}"),
                Err(refusal) => panic!("{profile}: {refusal}: {text} for {tool}"),
            }
            assert!(
                seen.is_valid(&arguments) || is_merged || !report.plan.is_plain(),
                "{profile}: {text}\n{tool}\n{}",
                report.tool
            );
        }
    }
    assert!(taken > cases() / 3, "only {taken}");
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

/// How long this thread was at work, in seconds; nothing where that is not told. Other programs do not count, however
/// busy the machine is.
fn seconds_at_work() -> f64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = told.split(' ').next().and_then(|it| it.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}

/// No tool takes so long for one client. The worst of these takes a tenth of it, unoptimized.
const MOST_SECONDS: f64 = 20.0;

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
    // What is taken out leaves references to nothing, again and again.
    let falling: Map<String, Value> = (0..5000)
        .map(|n| (format!("d{n}"), json!({"not": {"$ref": format!("#/$defs/d{}/not", n + 1)}})))
        .collect();
    let falling =
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": falling});
    let lost: Vec<_> = (0..20_000).map(|n| json!({"$ref": format!("#/x{n}")})).collect();
    let lost = json!({"type": "object", "properties": {"a": {"oneOf": lost}}});
    let addresses: Map<String, Value> = (0..5000)
        .map(|n| (format!("d{n}"), json!({"$id": format!("https://e/{n}"), "not": {"$ref": format!("x{n}")}, "pattern": "(?i)x"})))
        .collect();
    let addresses =
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": addresses});
    for (name, schema) in [
        ("wide", wide),
        ("ladder", ladder),
        ("deep", deep),
        ("falling", falling),
        ("lost", lost),
        ("addresses", addresses),
    ] {
        let tool = tool(&schema);
        for profile in ["none", "common", "claude-code", "gemini", "openai-strict"] {
            let profile = Profile::named(profile).expect("there is one");
            let before = seconds_at_work();
            let report = repair(&tool, profile);
            drop(report.plan.arguments(r#"{"a":{"a":"1"}}"#));
            let found = report.findings.len() + lint(&tool).len();
            assert!(found > 0, "{name}, {profile}");
            let seconds = seconds_at_work() - before;
            assert!(seconds < MOST_SECONDS, "{name}, {profile}: {seconds} seconds");
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
