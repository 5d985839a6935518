//! What holds for any tool and any call of it, over schemas and arguments that are made at random, the same in every run.
//!
//! `PONTOON_SCHEMA_CASES` says how many; `scripts/test.sh schemas` makes 100,000.

mod generator;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use generator::{
    Dice, arguments, arguments_schema, break_it, by_shown_names, cases, places, riddle, shown,
    shown_names, tool,
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
        let Some(names) = shown_names(&report) else { continue };
        for _ in 0..8 {
            let arguments = arguments(&mut dice, 2);
            let Some(call) = by_shown_names(&arguments, &names) else { continue };
            let text = arguments.to_string();
            let is_taken = original.is_valid(&arguments);
            match report.plan.arguments(&text) {
                Ok(fitted) if is_taken => {
                    assert_eq!(fitted, text, "{profile}: what is taken is never changed: {tool}");
                    taken += 1;
                    // What clients see takes it, too, under the names that they see. What only some alternatives
                    // say of an argument is shown to them as if all did.
                    let is_merged = report.findings.iter().any(|it| it.fault.code() == "S004");
                    if !is_merged {
                        let tool = format!("{tool}\n{}", report.tool);
                        assert!(seen.is_valid(&call), "{profile}: {text} as {call}\n{tool}");
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
        taken > cases() / 3 && refused > cases() / 2 && enforced > cases() / 2,
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
        let Some(names) = shown_names(&report) else { continue };
        for _ in 0..18 {
            let arguments = arguments(&mut dice, 2);
            if !meanings.iter().any(|meaning| meaning.is_valid(&arguments)) {
                continue;
            }
            let Some(call) = by_shown_names(&arguments, &names) else { continue };
            taken += 1;
            let text = arguments.to_string();
            match report.plan.arguments(&text) {
                Ok(fitted) => assert_eq!(fitted, text, "{profile}: {tool}"),
                Err(refusal) => panic!("{profile}: {refusal}: {text} for {tool}"),
            }
            let tool = format!("{tool}\n{}", report.tool);
            assert!(is_merged || seen.is_valid(&call), "{profile}: {text} as {call}\n{tool}");
        }
    }
    assert!(taken > cases() / 3, "only {taken}");
}

#[test]
fn a_call_by_the_names_that_are_shown_has_the_names_of_the_server() {
    let renaming: Vec<_> = Profile::all().iter().filter(|it| it.keys.letters.is_some()).collect();
    assert!(renaming.len() > 3, "{renaming:?}");
    let mut dice = Dice(99);
    let mut followed: Vec<_> = renaming.iter().map(|_| 0).collect();
    for case in 0..cases() {
        let mut schema = arguments_schema(&mut dice);
        if dice.is_hit(8) {
            schema["properties"]["c"] = json!({"anyOf": [{"$ref": "#"}, {"type": "integer"}]});
        }
        let original = jsonschema::draft202012::new(&schema).unwrap();
        let (at, tool) = (case % renaming.len(), tool(&schema));
        let profile = renaming[at];
        let report = repair(&tool, profile);
        let tool = format!("{profile}: {tool}\n{}", report.tool);
        let after = shown(&report.tool);
        let seen =
            jsonschema::draft202012::new(&shown(&repair(&report.tool, Profile::none()).tool));
        let seen = seen.unwrap();
        let letters = profile.keys.letters.as_deref().unwrap_or_default();
        let properties = after["properties"].as_object().unwrap();
        for shown in properties.keys() {
            let is_taken = |it: char| it.is_ascii_alphanumeric() || letters.contains(it);
            assert!(shown.chars().all(is_taken), "{shown}: {tool}");
        }
        let Some(names) = shown_names(&report) else { continue };
        if names.is_empty() {
            continue;
        }
        // What only some alternatives say of an argument is shown as if all did.
        let is_merged = report.findings.iter().any(|it| it.fault.code() == "S004");
        for _ in 0..20 {
            let arguments = arguments(&mut dice, 2);
            let Some(call) = by_shown_names(&arguments, &names) else { continue };
            if !original.is_valid(&arguments) {
                continue;
            }
            assert!(is_merged || seen.is_valid(&call), "{call} for {tool}");
            let fitted = report.plan.arguments(&call.to_string()).unwrap().into_owned();
            let fitted: Value = serde_json::from_str(&fitted).unwrap();
            assert_eq!(fitted, arguments, "{call} for {tool}");
            followed[at] += usize::from(call != arguments);
        }
    }
    assert!(followed.iter().all(|it| it * 100 > cases()), "{followed:?}");
}

/// How long this thread was at work, in seconds. Other programs do not count, however busy the machine is.
#[allow(clippy::disallowed_methods, reason = "what takes long is found by a clock")]
fn seconds_at_work() -> f64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let wall = BEGAN.elapsed();
    seconds_of(std::fs::read_to_string("/proc/thread-self/schedstat").ok().as_deref(), wall)
}

/// The same, out of what the system tells of the thread. Where it tells nothing, all time counts.
fn seconds_of(told: Option<&str>, wall: Duration) -> f64 {
    let nanoseconds = told.and_then(|it| it.split(' ').next()).and_then(|it| it.parse().ok());
    let nanoseconds: Option<f64> = nanoseconds.filter(|it| *it > 0.0);
    nanoseconds.map_or(wall.as_secs_f64(), |it| it / 1e9)
}

#[test]
#[allow(clippy::disallowed_methods, reason = "what takes long is found by a clock")]
fn the_time_at_work_passes_whatever_the_system_tells() {
    let wall = Duration::from_secs(7);
    for (told, seconds) in
        [(Some("5000000000 12 3\n"), 5.0), (Some("0 0 0\n"), 7.0), (Some(""), 7.0), (None, 7.0)]
    {
        assert_eq!(seconds_of(told, wall), seconds, "{told:?}");
    }
    let (before, began) = (seconds_at_work(), Instant::now());
    while seconds_at_work() <= before {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not pass");
    }
}

/// No tool takes so long for one client. The worst of these takes a tenth of it, unoptimized.
const MOST_SECONDS: f64 = 20.0;

/// No call takes so long to be refused, and no refusal is so long.
const MOST_SECONDS_OF_CALL: f64 = 5.0;
const MOST_BYTES_OF_REFUSAL: usize = 4096;

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
    let odd: Vec<_> = (0..25_000).map(|n| format!("$p{n}")).collect();
    let all: Map<String, Value> = odd.iter().map(|name| (name.clone(), json!({}))).collect();
    let arguments = json!(all.clone()).to_string().replace('$', "");
    let renamed = json!({"type": "object", "properties": all, "anyOf": [{"required": odd}]});
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
        ("renamed", renamed),
    ] {
        let tool = tool(&schema);
        for profile in ["none", "common", "claude-code", "cursor", "gemini", "openai-strict"] {
            let profile = Profile::named(profile).expect("there is one");
            let before = seconds_at_work();
            let report = repair(&tool, profile);
            drop(report.plan.arguments(r#"{"a":{"a":"1"}}"#));
            drop(report.plan.arguments(&arguments));
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
        "$defs": {"e": {"properties": {"a": {"enum": words.clone()}}}}});
    let one = json!({"type": "object", "properties": {"a": {"enum": words}}, "oneOf": [{"required": ["a"]}]});
    let mut nested = json!({});
    for _ in 0..24 {
        nested = json!({"l": nested});
    }
    let call = json!({"where": nested}).to_string();
    let short = json!({"a": "no word"}).to_string();
    let long = json!({"a": "no word ".repeat(1000)}).to_string();
    let mut refused = 0;
    for (name, schema) in
        [("filter", filter), ("ladder", ladder), ("named", named), ("union", union), ("one", one)]
    {
        let tool = tool(&schema);
        for profile in
            ["none", "common", "gemini"].map(|name| Profile::named(name).expect("there is one"))
        {
            let before = seconds_at_work();
            let report = repair(&tool, profile);
            let seconds = seconds_at_work() - before;
            assert!(seconds < MOST_SECONDS, "{name}, {profile}: {seconds} seconds");
            for call in [&call, &short, &long] {
                let before = seconds_at_work();
                let refusal = report.plan.arguments(call).err();
                let seconds = seconds_at_work() - before;
                assert!(seconds < MOST_SECONDS_OF_CALL, "{name}, {profile}: {seconds} seconds");
                let told = refusal.map(|it| it.to_string()).unwrap_or_default();
                assert!(told.len() < MOST_BYTES_OF_REFUSAL, "{name}, {profile}: {told}");
                refused += usize::from(!told.is_empty());
            }
            assert!(report.tool.len() < 2 << 20, "{name}, {profile}");
        }
    }
    assert!(refused > 0, "or nothing was told");
}
