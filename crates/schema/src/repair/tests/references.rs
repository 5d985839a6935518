//! References by names and addresses: which stay, and where they are read from.

use super::*;

#[test]
fn a_schema_with_an_address_of_its_own_keeps_its_references_to_itself() {
    let of = |schema: &str| {
        format!(
            r##"{{"name":"t","inputSchema":{{"type":"object","$defs":{{"a":{{"type":"integer"}}}},"properties":{{"p":{schema}}}}}}}"##
        )
    };
    let own = r##"{"$id":"https://e/p","$defs":{"a":{"type":"string"},"b":{"type":"string"}},"$ref":"#/$defs/a"}"##;
    for schema in [
        own.to_owned(),
        own.replace("$defs/a\"}", "$defs/b\"}"),
        format!(r#"{{"items":{own}}}"#),
        own.replace(r##""$ref":"#/$defs/a""##, r##""items":{"$ref":"#/$defs/b"}"##),
    ] {
        let tool = of(&schema);
        let report = valid(&tool);
        assert_eq!((report.tool.as_ref(), report.findings), (tool.as_str(), Vec::new()));
        for call in [r#"{"p":"5"}"#, r#"{"p":["5"]}"#] {
            assert_eq!(report.plan.arguments(call).unwrap(), call, "{schema}");
        }
    }
    // Clients that know no references see no more of it than what it says without them.
    let gemini = Profile::named("gemini").unwrap();
    let shown: Value = serde_json::from_str(&repair(&of(own), gemini).tool).unwrap();
    assert_eq!(shown["inputSchema"]["properties"]["p"].get("type"), None, "{shown}");
}

#[test]
fn references_to_names_are_references_too() {
    for well in [
        r##"{"type":"object","$defs":{"a":{"$anchor":"here"}},"properties":{"a":{"$ref":"#here"},"b":{"$ref":"#"}}}"##,
        r##"{"type":"object","$id":"https://example.com/a","$defs":{"b":{"$id":"b"}},"properties":{"b":{"$ref":"b"}}}"##,
    ] {
        let tool = format!(r#"{{"inputSchema":{well}}}"#);
        let report = valid(&tool);
        assert_eq!((report.tool.as_ref(), report.findings), (tool.as_str(), Vec::new()));
    }
}
