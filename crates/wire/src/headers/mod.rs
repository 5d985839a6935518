//! Header rules of the modern era: what a request says in its body, its headers must say too.
//!
//! A gateway routes by the headers and a server acts on the body, so a request in which they differ
//! is refused (400, [`HeaderMismatch::CODE`]). These functions compare; who read the headers and
//! the body, and where a tool's schema came from, is not their concern. Notifications and requests
//! of the legacy era are not checked.

mod params;

use std::borrow::Cow;

pub use params::{AnnotationError, ParamRules};

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
pub(super) mod tests {
    use super::*;

    const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");

    pub(super) fn bytes<'a>(headers: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a [u8])> {
        headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
    }

    /// Compares the verdict on the headers; `""` is accepted, anything else is in the message.
    fn check(headers: &[(&str, &str)], method: &str, name: Option<&str>, expected: &str) {
        let verdict = check_standard(&bytes(headers), method, name, "2026-07-28");
        compare_verdict(&verdict, expected, &format!("{method} {name:?} {headers:?}"));
    }

    pub(super) fn compare_verdict(
        verdict: &Result<(), HeaderMismatch>,
        expected: &str,
        case: &str,
    ) {
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
}
