//! What takes less where a repair inside it takes more: `not`, `if`, `oneOf` and their like.

use super::*;

/// What becomes of the arguments' schema, where more is taken in the place of a part of it that has no meaning.
#[track_caller]
fn check_loosened(broken: &str, whole: &str, found: &[(&str, &str)]) {
    let tool = format!(r#"{{"inputSchema":{broken}}}"#);
    let report = valid(&tool);
    assert_eq!(report.tool, format!(r#"{{"inputSchema":{whole}}}"#));
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|it| (it.fault.id(), it.place.strip_prefix("/inputSchema").unwrap()))
        .collect();
    assert_eq!(findings, found, "{broken}");
    let all_wider = report.findings.iter().filter_map(|it| it.repair.as_ref());
    assert!(all_wider.clone().all(|it| it.effect == Effect::Wider), "{report:?}");
    is_whole(&report);
}

#[test]
fn where_one_of_several_takes_more_than_it_did_any_of_them_will_do() {
    let a = |rest: &str| format!(r#"{{"type":"object","properties":{{"a":{rest}}}}}"#);
    check_loosened(
        r##"{"type":"object","oneOf":[{"$ref":"#/components/schemas/A"},{"$ref":"#/components/schemas/B"}]}"##,
        r#"{"type":"object","anyOf":[{},{}]}"#,
        &[
            ("S011/dangling", "/oneOf/0/$ref"),
            ("S011/dangling", "/oneOf/1/$ref"),
            ("S011/dangling", "/oneOf"),
        ],
    );
    // A text that is not `a` would fit both branches, and none is what `oneOf` takes then.
    check_loosened(
        &a(r#"{"oneOf":[{"const":"a"},null]}"#),
        &a(r#"{"anyOf":[{"const":"a"},{}]}"#),
        &[("S005/no-schema", "/properties/a/oneOf/1"), ("S005/no-schema", "/properties/a/oneOf")],
    );
    check_loosened(
        &a(r#"{"oneOf":[{"items":{"pattern":"(?i)x"}},true],"anyOf":[true]}"#),
        &a(r#"{"anyOf":[true]}"#),
        &[
            ("S016/pattern", "/properties/a/oneOf/0/items/pattern"),
            ("S016/pattern", "/properties/a/oneOf"),
        ],
    );
}

#[test]
fn what_takes_less_where_its_schema_takes_more_is_taken_out() {
    let a = |rest: &str| format!(r#"{{"type":"object","properties":{{"a":{{{rest}}}}}}}"#);
    let pattern = "S016/pattern";
    for (broken, whole, inner, outer) in [
        (
            r#""not":{"type":"string","pattern":"(?i)x"}"#,
            "",
            (pattern, "not/pattern"),
            (pattern, "not"),
        ),
        (
            r#""not":{"type":"file"}"#,
            "",
            ("S008/type-unknown", "not/type"),
            ("S008/type-unknown", "not"),
        ),
        (
            r#""if":{"pattern":"(?i)x"},"then":{"minLength":1},"else":false"#,
            "",
            (pattern, "if/pattern"),
            (pattern, "if"),
        ),
        (
            r##""contains":{"$ref":"#/x"},"maxContains":1"##,
            "",
            ("S011/dangling", "contains/$ref"),
            ("S011/dangling", "contains"),
        ),
        (
            r##""allOf":[{"$ref":"#/x"}],"unevaluatedProperties":false"##,
            r#""allOf":[{}]"#,
            ("S011/dangling", "allOf/0/$ref"),
            ("S011/dangling", "unevaluatedProperties"),
        ),
        (
            r#""prefixItems":7,"items":false"#,
            "",
            ("S005/no-schema", "prefixItems"),
            ("S005/no-schema", "items"),
        ),
    ] {
        let place = |(id, place)| (id, format!("/properties/a/{place}"));
        let (inner, outer) = (place(inner), place(outer));
        check_loosened(&a(broken), &a(whole), &[(inner.0, &inner.1), (outer.0, &outer.1)]);
    }
}

#[test]
fn a_reference_to_what_takes_more_takes_more_itself() {
    let with = |schema: &str| {
        format!(
            r##"{{"type":"object","properties":{{"a":{schema}}},"$defs":{{"A":{{"$ref":"#/$defs/B"}},"B":{{"type":"string","pattern":"(?i)x"}},"C":{{"type":"string"}}}}}}"##
        )
    };
    let without = |schema: &str| {
        with(schema).replace(r#","pattern":"(?i)x""#, r#","description":"Has to match `(?i)x`.""#)
    };
    let pattern = ("S016/pattern", "/$defs/B/pattern");
    check_loosened(
        &with(r##"{"oneOf":[{"$ref":"#/$defs/A"},{"$ref":"#/$defs/C"}]}"##),
        &without(r##"{"anyOf":[{"$ref":"#/$defs/A"},{"$ref":"#/$defs/C"}]}"##),
        &[pattern, ("S016/pattern", "/properties/a/oneOf")],
    );
    check_loosened(
        &with(r##"{"not":{"items":{"$ref":"#/$defs/A"}}}"##),
        &without("{}"),
        &[pattern, ("S016/pattern", "/properties/a/not")],
    );
    for other in [r##"{"oneOf":[{"$ref":"#/$defs/C"},true]}"##, r##"{"not":{"$ref":"#/$defs/C"}}"##]
    {
        check_loosened(&with(other), &without(other), &[pattern]);
    }
}

#[test]
fn what_went_with_a_keyword_is_referred_to_no_more() {
    check_loosened(
        r##"{"type":"object","not":{"type":"file","$defs":{"a":{"type":"string"}}},"properties":{"a":{"$ref":"#/not/$defs/a"}}}"##,
        r#"{"type":"object","properties":{"a":{}}}"#,
        &[
            ("S008/type-unknown", "/not/type"),
            ("S008/type-unknown", "/not"),
            ("S011/dangling", "/properties/a/$ref"),
        ],
    );
}
