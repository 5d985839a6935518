//! Headers that repeat arguments of a tool: which a tool's schema asks for (`x-mcp-header`), and
//! whether they say the same as the arguments.

use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{HeaderMismatch, decoded, missing, only_value};

/// Which arguments of a tool are mirrored in `Mcp-Param-*` headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamRules {
    rules: Vec<ParamRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ParamRule {
    /// As the tool spells it, for messages.
    header: String,
    path: Vec<String>,
}

/// Why the `x-mcp-header` annotations of a tool cannot be used. Clients drop such a tool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnnotationError {
    /// The schema is not JSON, or too deep.
    #[error("the input schema is not readable")]
    Unreadable(#[from] serde_json::Error),
    /// The annotation is not on a property reached through `properties` alone.
    #[error("`x-mcp-header` at `{at}` is not on a plain property")]
    Unreachable {
        /// Where it is.
        at: String,
    },
    /// The name is not a string, empty, or not an HTTP token.
    #[error("`x-mcp-header` at `{at}` is not a header name: {name}")]
    NotAName {
        /// Where it is.
        at: String,
        /// The name as JSON.
        name: String,
    },
    /// The property is neither a string nor an integer nor a boolean.
    #[error("`x-mcp-header` at `{at}` is on a property that is no string, integer or boolean")]
    NotPrimitive {
        /// Where it is.
        at: String,
    },
    /// Two properties have the same header, upper and lower case aside.
    #[error("`x-mcp-header` at `{at}` repeats the name `{name}`")]
    Repeated {
        /// Where the second one is.
        at: String,
        /// The name.
        name: String,
    },
}

impl ParamRules {
    /// The rules in a tool's `inputSchema`, or `None` when it has no `x-mcp-header` annotation.
    ///
    /// # Errors
    ///
    /// [`AnnotationError`] when an annotation breaks a rule of the protocol.
    pub fn from_tool_schema(input_schema_json: &[u8]) -> Result<Option<Self>, AnnotationError> {
        // Most tools have none, and their schemas need not be read.
        if memchr::memmem::find(input_schema_json, b"x-mcp-header").is_none()
            && memchr::memchr(b'\\', input_schema_json).is_none()
        {
            return Ok(None);
        }
        let schema: Value = serde_json::from_slice(input_schema_json)?;
        let mut rules = Vec::new();
        collect(&schema, &mut Vec::new(), true, &mut rules)?;
        Ok((!rules.is_empty()).then_some(Self { rules }))
    }

    /// Compares the `Mcp-Param-*` headers of a call with its arguments.
    ///
    /// An argument that is absent or null has no header. Headers that no rule names are ignored.
    ///
    /// # Errors
    ///
    /// [`HeaderMismatch`] when one is missing, repeated, malformed or different.
    pub fn check(
        &self,
        headers: &[(&str, &[u8])],
        arguments_json: Option<&[u8]>,
    ) -> Result<(), HeaderMismatch> {
        self.rules.iter().try_for_each(|rule| rule.check(headers, arguments_json))
    }
}

impl ParamRule {
    fn check(
        &self,
        headers: &[(&str, &[u8])],
        arguments_json: Option<&[u8]>,
    ) -> Result<(), HeaderMismatch> {
        let ParamRule { header, path } = self;
        let argument = || path.join(".");
        let value = only_value(headers, header)?;
        let body = arguments_json.map_or(Ok(Argument::Absent), |json| Argument::at(path, json));
        let body = body.map_err(|Twice| HeaderMismatch::ArgumentTwice {
            header: header.clone(),
            argument: argument(),
        })?;
        let matches = match (value, &body) {
            (None, Argument::Absent | Argument::NoHeaderForm(_)) => true,
            (None, _) => return Err(missing(header)),
            (Some(value), body) => body.is_said_by(&decoded(header, value)?),
        };
        if matches {
            return Ok(());
        }
        Err(HeaderMismatch::Argument { header: header.clone(), argument: argument() })
    }
}

/// Walks every subschema: an annotation that a client would not find makes the tool invalid.
fn collect(
    schema: &Value,
    path: &mut Vec<String>,
    is_reachable: bool,
    rules: &mut Vec<ParamRule>,
) -> Result<(), AnnotationError> {
    let Value::Object(schema) = schema else { return Ok(()) };
    if let Some(name) = schema.get("x-mcp-header") {
        if !is_reachable || path.is_empty() || schema.contains_key("$ref") {
            return Err(AnnotationError::Unreachable { at: path.join(".") });
        }
        rules.push(rule(name, schema.get("type"), path, rules)?);
    }
    for (keyword, value) in schema {
        let is_reachable = is_reachable && keyword == "properties";
        match (keyword.as_str(), value) {
            (
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "definitions",
                Value::Object(named),
            ) => {
                for (name, schema) in named {
                    path.push(name.clone());
                    collect(schema, path, is_reachable, rules)?;
                    path.pop();
                }
            }
            (
                "items"
                | "prefixItems"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames"
                | "oneOf"
                | "anyOf"
                | "allOf"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contentSchema",
                value,
            ) => {
                path.push(format!("<{keyword}>"));
                let branches = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                branches.iter().try_for_each(|schema| collect(schema, path, false, rules))?;
                path.pop();
            }
            _ => {}
        }
    }
    Ok(())
}

fn rule(
    name: &Value,
    kind: Option<&Value>,
    path: &[String],
    rules: &[ParamRule],
) -> Result<ParamRule, AnnotationError> {
    let at = path.join(".");
    let Some(name) = name.as_str().filter(|name| is_token(name)) else {
        return Err(AnnotationError::NotAName { at, name: name.to_string() });
    };
    if !matches!(kind.and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
        return Err(AnnotationError::NotPrimitive { at });
    }
    let header = format!("Mcp-Param-{name}");
    if rules.iter().any(|rule| rule.header.eq_ignore_ascii_case(&header)) {
        return Err(AnnotationError::Repeated { at, name: name.to_owned() });
    }
    Ok(ParamRule { header, path: path.to_vec() })
}

fn is_token(name: &str) -> bool {
    let is_tchar = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_tchar)
}

/// What the body has for a rule.
enum Argument<'a> {
    /// Not there, or null.
    Absent,
    Text(String),
    /// As written: a number of any size keeps its digits.
    Number(&'a str),
    Boolean(bool),
    /// An object, an array, or an integer beyond 2^53: clients need not mirror it, the server
    /// will say what it thinks of it.
    NoHeaderForm(&'a str),
}

/// The member was there twice.
struct Twice;

const LARGEST_SAFE: f64 = 9_007_199_254_740_991.0;

impl<'a> Argument<'a> {
    fn at(path: &[String], json: &'a [u8]) -> Result<Self, Twice> {
        let Ok(mut value) = serde_json::from_slice::<&RawValue>(json) else {
            return Ok(Self::Absent);
        };
        for name in path {
            match member(value, name)? {
                Some(inner) => value = inner,
                None => return Ok(Self::Absent),
            }
        }
        let text = value.get();
        Ok(match text.as_bytes().first() {
            Some(b'n') => Self::Absent,
            Some(b't' | b'f') => Self::Boolean(text == "true"),
            Some(b'"') => serde_json::from_str(text).map_or(Self::NoHeaderForm(text), Self::Text),
            Some(b'-' | b'0'..=b'9') => match serde_json::from_str::<f64>(text) {
                Ok(number) if number.abs() <= LARGEST_SAFE => Self::Number(text),
                _ => Self::NoHeaderForm(text),
            },
            _ => Self::NoHeaderForm(text),
        })
    }

    fn is_said_by(&self, header: &str) -> bool {
        match self {
            Self::Absent => false,
            Self::NoHeaderForm(text) => *text == header,
            Self::Text(text) => text == header,
            Self::Boolean(boolean) => header == if *boolean { "true" } else { "false" },
            // 42 and 42.0 are the same number, and 42x is none.
            Self::Number(number) => {
                let parse = |text: &str| serde_json::from_str::<f64>(text).ok();
                *number == header
                    || parse(header).is_some_and(|header| parse(number) == Some(header))
            }
        }
    }
}

/// The member of a JSON object with this name; nothing when it is not an object.
fn member<'a>(object: &'a RawValue, name: &str) -> Result<Option<&'a RawValue>, Twice> {
    struct NamedMember<'n>(&'n str);

    impl<'de> Visitor<'de> for NamedMember<'_> {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = Vec::new();
            while let Some(name) = map.next_key::<String>()? {
                if name == self.0 {
                    found.push(map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }

    let mut json = serde_json::Deserializer::from_str(object.get());
    match json.deserialize_map(NamedMember(name)).as_deref() {
        Ok([]) | Err(_) => Ok(None),
        Ok([value]) => Ok(Some(value)),
        Ok(_) => Err(Twice),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, compare_verdict};
    use super::*;

    const SCHEMA: &str = r#"{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "count":{"type":"integer","x-mcp-header":"count"},
        "dry":{"type":"boolean","x-mcp-header":"Dry-Run"},
        "where":{"type":"object","properties":{"zone":{"type":"string","x-mcp-header":"Zone"}}},
        "x-mcp-header":{"type":"string"}},
        "default":{"x-mcp-header":"no annotation"}}"#;

    fn check_params(headers: &[(&str, &str)], arguments: Option<&str>, expected: &str) {
        let rules = ParamRules::from_tool_schema(SCHEMA.as_bytes()).unwrap().unwrap();
        let verdict = rules.check(&bytes(headers), arguments.map(str::as_bytes));
        compare_verdict(&verdict, expected, &format!("{arguments:?} {headers:?}"));
    }

    #[test]
    fn strings_are_compared_as_decoded() {
        let region = |value| [("mcp-param-region", value)];
        let hello = Some(r#"{"region":"Hello"}"#);
        check_params(&region("Hello"), hello, "");
        check_params(&region("  Hello "), hello, "");
        check_params(&region("=?base64?SGVsbG8=?="), hello, "");
        check_params(&region("=?base64?SGVsbG8?="), hello, "malformed");
        check_params(&region("=?base64?SGVs!!!bG8=?="), hello, "malformed");
        check_params(&region("SGVsbG8="), Some(r#"{"region":"SGVsbG8="}"#), "");
        check_params(&region("=?base64?SGVsbG8="), Some(r#"{"region":"=?base64?SGVsbG8="}"#), "");
        check_params(&region("a\"b"), Some(r#"{"region":"\u0061\"b"}"#), "");
        check_params(&region("hello"), hello, "does not match the argument `region`");
        check_params(&[], hello, "Mcp-Param-Region header is missing");
        check_params(&[region("Hello")[0]; 2], hello, "more than once");
        check_params(&region(""), Some(r#"{"region":""}"#), "");
        check_params(&region("42"), Some(r#"{"region":42}"#), "");
    }

    #[test]
    fn absent_and_null_arguments_have_no_header() {
        for arguments in [None, Some("{}"), Some(r#"{"region":null}"#), Some("[]"), Some("null")] {
            check_params(&[], arguments, "");
            check_params(&[("mcp-param-region", "x")], arguments, "does not match");
            check_params(&[("mcp-param-region", "null")], arguments, "does not match");
        }
        check_params(&[("mcp-param-other", "x"), ("mcp-param-other", "é")], Some("{}"), "");
    }

    #[test]
    fn integers_are_compared_as_numbers() {
        let cases = [
            ("42", "42", ""),
            ("42.0", "42", ""),
            ("42", "42.0", ""),
            ("4.2e1", "42", ""),
            ("-7", "-7", ""),
            ("43", "42", "does not match"),
            ("42x", "42", "does not match"),
            ("0x2a", "42", "does not match"),
            ("+42", "42", "does not match"),
            ("inf", "42", "does not match"),
            ("", "42", "does not match"),
            ("9007199254740991", "9007199254740991", ""),
            ("9007199254740990", "9007199254740991", "does not match"),
            ("9007199254740993", "9007199254740993", ""),
            ("9007199254740993", "9007199254740992", "does not match"),
            ("42", "\"42\"", ""),
            ("42.0", "\"42\"", "does not match"),
        ];
        for (header, argument, expected) in cases {
            let arguments = format!("{{\"count\": {argument}}}");
            check_params(&[("mcp-param-count", header)], Some(&arguments), expected);
        }
        check_params(&[], Some(r#"{"count":0}"#), "Mcp-Param-count header is missing");
        check_params(&[], Some(r#"{"count":9007199254740993}"#), "");
    }

    #[test]
    fn booleans_nested_arguments_and_other_values_are_compared() {
        let dry = |value| [("mcp-param-dry-run", value)];
        check_params(&dry("true"), Some(r#"{"dry":true}"#), "");
        check_params(&dry("false"), Some(r#"{"dry":false}"#), "");
        check_params(&dry("True"), Some(r#"{"dry":true}"#), "does not match");
        check_params(&dry("1"), Some(r#"{"dry":true}"#), "does not match");
        check_params(&[], Some(r#"{"dry":false}"#), "missing");
        let zone = |value| [("mcp-param-zone", value)];
        check_params(&zone("a"), Some(r#"{"where":{"zone":"a"}}"#), "");
        check_params(&zone("b"), Some(r#"{"where":{"zone":"a"}}"#), "argument `where.zone`");
        check_params(&[], Some(r#"{"where":"zone"}"#), "");
        check_params(&[], Some(r#"{"region":{"a":1},"dry":[]}"#), "");
        check_params(&dry("x"), Some(r#"{"dry":[]}"#), "does not match");
    }

    #[test]
    fn an_argument_given_twice_is_refused() {
        let region = [("mcp-param-region", "a")];
        check_params(&region, Some(r#"{"region":"a","region":"b"}"#), "is given twice");
        check_params(&region, Some(r#"{"region":"a","re\u0067ion":"a"}"#), "is given twice");
        check_params(&region, Some(r#"{"region":"a","other":1,"other":2}"#), "");
        let zones = r#"{"where":{"zone":"a"},"where":{}}"#;
        check_params(&[("mcp-param-zone", "a")], Some(zones), "is given twice");
    }

    fn check_schema(schema: &str, expected: Result<bool, &str>) {
        let rules = ParamRules::from_tool_schema(schema.as_bytes());
        match (rules, expected) {
            (Ok(rules), Ok(expected)) => assert_eq!(rules.is_some(), expected, "{schema}"),
            (Err(error), Err(expected)) => {
                assert!(error.to_string().contains(expected), "{schema}: {error}");
            }
            (rules, _) => panic!("{schema}: {rules:?}"),
        }
    }

    #[test]
    fn annotations_keep_the_rules_of_the_protocol() {
        let property = |property: &str| format!(r#"{{"properties":{{"p":{property}}}}}"#);
        let cases = [
            (r#"{"type":"string","x-mcp-header":"A"}"#, Ok(true)),
            (r#"{"type":"string","x\u002dmcp-header":"A"}"#, Ok(true)),
            (r#"{"type":"string"}"#, Ok(false)),
            (r#"{"type":"string","x-mcp-header":""}"#, Err("not a header name")),
            (r#"{"type":"string","x-mcp-header":7}"#, Err("not a header name")),
            (r#"{"type":"string","x-mcp-header":"A B"}"#, Err("not a header name")),
            (r#"{"type":"string","x-mcp-header":"A\r\nB"}"#, Err("not a header name")),
            (r#"{"type":"string","x-mcp-header":"Ä"}"#, Err("not a header name")),
            (r#"{"type":"number","x-mcp-header":"A"}"#, Err("no string, integer or boolean")),
            (r#"{"type":["string","null"],"x-mcp-header":"A"}"#, Err("no string")),
            (r#"{"type":"object","x-mcp-header":"A"}"#, Err("no string")),
            (r#"{"x-mcp-header":"A"}"#, Err("no string")),
            (r##"{"type":"string","$ref":"#/a","x-mcp-header":"A"}"##, Err("not on a plain")),
            (r#"{"items":{"type":"string","x-mcp-header":"A"}}"#, Err("at `p.<items>`")),
            (r#"{"anyOf":[{"type":"string","x-mcp-header":"A"}]}"#, Err("at `p.<anyOf>`")),
            (r#"{"enum":[{"type":"string","x-mcp-header":"A"}]}"#, Ok(false)),
        ];
        for (schema, expected) in cases {
            check_schema(&property(schema), expected);
        }
        check_schema(r#"{"type":"string","x-mcp-header":"A"}"#, Err("not on a plain property"));
        let defs = r#"{"$defs":{"d":{"properties":{"p":{"type":"string","x-mcp-header":"A"}}}}}"#;
        check_schema(defs, Err("at `d.p`"));
        let twice = r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},
            "b":{"properties":{"c":{"type":"string","x-mcp-header":"a"}}}}}"#;
        check_schema(twice, Err("at `b.c` repeats the name `a`"));
        check_schema(r#"{"x-mcp-header"#, Err("not readable"));
        check_schema("true", Ok(false));
    }
}
