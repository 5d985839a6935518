//! Header rules of the modern era: what a request says in its body, its headers must say too.
//!
//! A gateway routes by the headers and a server acts on the body, so a request in which they differ
//! is refused (400, [`HeaderMismatch::CODE`]). These functions compare; who read the headers and
//! the body, and where a tool's schema came from, is not their concern. Notifications and requests
//! of the legacy era are not checked.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Why the headers of a request were refused. The message is written for the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderMismatch {
    /// The body has a value that must be mirrored, and the header is not there.
    #[error("Header mismatch: the {header} header is missing")]
    Missing {
        /// The header's name.
        header: String,
    },
    /// The header is there more than once, and two readers could choose differently.
    #[error("Header mismatch: the {header} header is given more than once")]
    Repeated {
        /// The header's name.
        header: String,
    },
    /// The header holds characters it may not, or its Base64 is not canonical.
    #[error("Header mismatch: the {header} header is malformed: {reason}")]
    Malformed {
        /// The header's name.
        header: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A standard header says something else than the body.
    #[error("Header mismatch: {header} header value '{value}' does not match body value '{body}'")]
    Differs {
        /// The header's name.
        header: String,
        /// What it says, shortened.
        value: String,
        /// What the body says, shortened.
        body: String,
    },
    /// A parameter header says something else than the argument, or there is no such argument.
    /// Arguments are not repeated in messages, since messages are logged.
    #[error("Header mismatch: {header} header value does not match the argument `{argument}`")]
    Argument {
        /// The header's name.
        header: String,
        /// The path of the argument.
        argument: String,
    },
    /// An object in the arguments has a member twice, and two readers could choose differently.
    #[error("Header mismatch: the argument `{argument}`, mirrored in {header}, is given twice")]
    ArgumentTwice {
        /// The header's name.
        header: String,
        /// The path of the argument.
        argument: String,
    },
}

impl HeaderMismatch {
    /// The JSON-RPC error code of a header mismatch.
    pub const CODE: i64 = -32020;
}

/// Checks `MCP-Protocol-Version`, `Mcp-Method` and `Mcp-Name` of a request of the modern era.
///
/// `headers` are all headers of the request with their names in lower case; `name` is the member
/// of `params` that [`name_member`] gives for the method, and `None` when the body has none.
///
/// # Errors
///
/// [`HeaderMismatch`] when one is missing, repeated, malformed or different.
pub fn check_standard(
    headers: &[(&str, &[u8])],
    method: &str,
    name: Option<&str>,
    protocol_version: &str,
) -> Result<(), HeaderMismatch> {
    let plain = [("MCP-Protocol-Version", protocol_version), ("Mcp-Method", method)];
    for (header, body) in plain {
        let value = only_value(headers, header)?.ok_or_else(|| missing(header))?;
        compare(header, trimmed(header, value)?, body)?;
    }
    if name_member(method).is_none() {
        return Ok(());
    }
    match (only_value(headers, "Mcp-Name")?, name) {
        (Some(value), Some(name)) => compare("Mcp-Name", &decoded("Mcp-Name", value)?, name),
        (None, Some(_)) => Err(missing("Mcp-Name")),
        (Some(value), None) => compare("Mcp-Name", &decoded("Mcp-Name", value)?, "(none)"),
        // A request without its name is wrong in another way; the server says how.
        (None, None) => Ok(()),
    }
}

/// The member of `params` that `Mcp-Name` mirrors, for the methods that have one.
pub fn name_member(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

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
    struct Members<'n>(&'n str);

    impl<'de> Visitor<'de> for Members<'_> {
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
    match json.deserialize_map(Members(name)).as_deref() {
        Ok([]) | Err(_) => Ok(None),
        Ok([value]) => Ok(Some(value)),
        Ok(_) => Err(Twice),
    }
}

fn only_value<'a>(
    headers: &[(&str, &'a [u8])],
    header: &str,
) -> Result<Option<&'a [u8]>, HeaderMismatch> {
    let mut values = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(header));
    let value = values.next().map(|(_, value)| *value);
    match values.next() {
        None => Ok(value),
        Some(_) => Err(HeaderMismatch::Repeated { header: header.to_owned() }),
    }
}

fn missing(header: &str) -> HeaderMismatch {
    HeaderMismatch::Missing { header: header.to_owned() }
}

fn compare(header: &str, value: &str, body: &str) -> Result<(), HeaderMismatch> {
    if value == body {
        return Ok(());
    }
    let short = |text: &str| match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    Err(HeaderMismatch::Differs {
        header: header.to_owned(),
        value: short(value),
        body: short(body),
    })
}

/// The value without the white space around it, which is no part of it.
fn trimmed<'a>(header: &str, value: &'a [u8]) -> Result<&'a str, HeaderMismatch> {
    let is_allowed = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~');
    let text =
        std::str::from_utf8(value).ok().filter(|text| text.as_bytes().iter().all(is_allowed));
    let text = text.ok_or_else(|| HeaderMismatch::Malformed {
        header: header.to_owned(),
        reason: "only visible ASCII, spaces and tabs may be sent plainly",
    })?;
    Ok(text.trim_matches([' ', '\t']))
}

/// The value that `Mcp-Name` or `Mcp-Param-*` carries, out of its Base64 if it is in it.
fn decoded<'a>(header: &str, value: &'a [u8]) -> Result<Cow<'a, str>, HeaderMismatch> {
    let text = trimmed(header, value)?;
    let inner = text.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let Some(inner) = inner else { return Ok(Cow::Borrowed(text)) };
    let bytes = base64(inner.as_bytes());
    let reason = if bytes.is_some() { "it is not UTF-8" } else { "it is not canonical Base64" };
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.map(Cow::Owned)
        .ok_or_else(|| HeaderMismatch::Malformed { header: header.to_owned(), reason })
}

/// Decodes Base64 with the standard alphabet and full padding; each text has only one encoding.
fn base64(encoded: &[u8]) -> Option<Vec<u8>> {
    if !encoded.len().is_multiple_of(4) {
        return None;
    }
    let padding = encoded.iter().rev().take(2).take_while(|&&byte| byte == b'=').count();
    let mut bytes = Vec::with_capacity(encoded.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for &byte in &encoded[..encoded.len() - padding] {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

    fn bytes<'a>(headers: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a [u8])> {
        headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
    }

    /// Compares the verdict on the headers; `""` is accepted, anything else is in the message.
    fn check(headers: &[(&str, &str)], method: &str, name: Option<&str>, expected: &str) {
        let verdict = check_standard(&bytes(headers), method, name, "2026-07-28");
        compare_verdict(&verdict, expected, &format!("{method} {name:?} {headers:?}"));
    }

    fn compare_verdict(verdict: &Result<(), HeaderMismatch>, expected: &str, case: &str) {
        let message = verdict.as_ref().map_or_else(ToString::to_string, |()| String::new());
        let is_expected = message.contains(expected) && message.is_empty() == expected.is_empty();
        assert!(is_expected, "{case}: got `{message}`, expected `{expected}`");
    }

    #[test]
    fn the_version_must_agree() {
        let method = ("mcp-method", "tools/list");
        check(&[VERSION, method], "tools/list", None, "");
        check(&[method], "tools/list", None, "MCP-Protocol-Version header is missing");
        check(&[VERSION, VERSION, method], "tools/list", None, "more than once");
        let older = ("mcp-protocol-version", "2025-11-25");
        check(
            &[older, method],
            "tools/list",
            None,
            "value '2025-11-25' does not match body value '2026-07-28'",
        );
    }

    #[test]
    fn the_method_must_agree() {
        let cases = [
            ("tools/list", ""),
            (" \ttools/list ", ""),
            ("prompts/list", "Mcp-Method header value 'prompts/list' does not match"),
            ("TOOLS/LIST", "does not match"),
            ("tools/list, tools/list", "does not match"),
            ("=?base64?dG9vbHMvbGlzdA==?=", "does not match"),
            ("", "does not match"),
            ("tools/list\u{e9}", "malformed"),
        ];
        for (value, expected) in cases {
            check(&[VERSION, ("mcp-method", value)], "tools/list", None, expected);
        }
        check(&[VERSION], "tools/list", None, "Mcp-Method header is missing");
        let method = ("mcp-method", "tools/list");
        check(&[VERSION, method, method], "tools/list", None, "more than once");
        check(&[VERSION, ("MCP-METHOD", "tools/list")], "tools/list", None, "");
    }

    #[test]
    fn the_name_must_agree_where_there_is_one() {
        let named = ["tools/call", "prompts/get", "resources/read"];
        for method in named.into_iter().chain(["tasks/get", "tasks/update", "tasks/cancel"]) {
            let headers = [VERSION, ("mcp-method", method)];
            let with = |value| [headers.as_slice(), &[("mcp-name", value)]].concat();
            check(&with("a b"), method, Some("a b"), "");
            check(&with("  a  "), method, Some("a"), "");
            check(&with("b"), method, Some("a"), "value 'b' does not match body value 'a'");
            check(&with("A"), method, Some("a"), "does not match");
            check(&with("a"), method, None, "does not match");
            check(&headers, method, Some("a"), "Mcp-Name header is missing");
            check(&headers, method, None, "");
            let twice = [with("a"), with("a")[2..].to_vec()].concat();
            check(&twice, method, Some("a"), "more than once");
        }
        check(&[VERSION, ("mcp-method", "x"), ("mcp-name", "y")], "x", None, "");
    }

    #[test]
    fn encoded_values_are_decoded() {
        let cases = [
            ("=?base64?SGVsbG8=?=", Ok("Hello")),
            ("=?base64?SGVsbG8sIOS4lueVjA==?=", Ok("Hello, 世界")),
            ("=?base64?IHBhZGRlZCA=?=", Ok(" padded ")),
            ("=?base64?bGluZTEKbGluZTI=?=", Ok("line1\nline2")),
            ("=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", Ok("=?base64?literal?=")),
            ("=?base64??=", Ok("")),
            ("\t=?base64?SGVsbG8=?= ", Ok("Hello")),
            ("SGVsbG8=", Ok("SGVsbG8=")),
            ("=?base64?SGVsbG8=", Ok("=?base64?SGVsbG8=")),
            ("=?base64?=", Ok("=?base64?=")),
            ("=?BASE64?SGVsbG8=?=", Ok("=?BASE64?SGVsbG8=?=")),
            ("=?base64?SGVsbG8?=", Err("not canonical")),
            ("=?base64?SGVs!!!bG8=?=", Err("not canonical")),
            ("=?base64?SGVsbG9=?=", Err("not canonical")),
            ("=?base64?SGVs====?=", Err("not canonical")),
            ("=?base64?SG=sbG8=?=", Err("not canonical")),
            ("=?base64?SGVs bG8=?=", Err("not canonical")),
            ("=?base64?_-__?=", Err("not canonical")),
            ("=?base64?/w==?=", Err("not UTF-8")),
            ("a\u{7f}b", Err("visible ASCII")),
            ("é", Err("visible ASCII")),
        ];
        for (value, expected) in cases {
            let text = decoded("Mcp-Name", value.as_bytes()).map_err(|error| error.to_string());
            match expected {
                Ok(expected) => assert_eq!(text.as_deref(), Ok(expected), "{value}"),
                Err(expected) => assert!(text.unwrap_err().contains(expected), "{value}"),
            }
        }
    }

    #[test]
    fn long_values_are_shortened_in_messages() {
        let name = "ä".repeat(5000);
        let headers = [VERSION, ("mcp-method", "tools/call"), ("mcp-name", "a")];
        let error = check_standard(&bytes(&headers), "tools/call", Some(&name), "2026-07-28");
        assert!(error.unwrap_err().to_string().len() < 300);
    }

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
