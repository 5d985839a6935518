//! The beginning of a message as it may be shown: known secrets and the values of members with telling names are hidden.
//!
//! The text may be cut anywhere, and hold JSON inside of strings. So it is not parsed: what looks like a member with such
//! a name loses its value, and in doubt too much is hidden.

use super::redact::{HIDDEN, Redactor};

/// A name that has such a word in it and is no secret: every request for progress has one.
const PLAIN: &str = "progressToken";

/// What the name of a secret has in it, in small letters, whatever is around it.
const SECRET_PARTS: [&str; 12] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "credential",
    "cookie",
    "authorization",
];

/// Words that are in other words as well, and say so only by themselves.
const SECRET_WORDS: [&str; 4] = ["pass", "auth", "otp", "pin"];

/// What may be shown of the beginning of a message; `is_cut` if there is more of it.
pub(super) fn shown(bytes: &[u8], is_cut: bool, redactor: &Redactor) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut text = hide_members(&redactor.beginning(&text, is_cut));
    if is_cut {
        text.push('…');
    }
    text
}

/// The text without the values of members whose names say that they are secret.
fn hide_members(text: &str) -> String {
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    while let Some(found) = text[at..].find([':', '=']) {
        let sign = at + found;
        shown.push_str(&text[at..=sign]);
        at = sign + 1;
        if !is_secret(name_before(&text[..sign])) {
            continue;
        }
        let value = &text[at..];
        // The sign may be a longer one: `:=`, `==` or `=>`.
        let is_before = |c: char| c.is_whitespace() || matches!(c, ':' | '=' | '>');
        let space = value.len() - value.trim_start_matches(is_before).len();
        let (quotes, length) = value_length(&value[space..]);
        shown.push_str(&value[..space]);
        shown.push_str(quotes);
        shown.push_str(HIDDEN);
        at += space + length;
    }
    shown.push_str(&text[at..]);
    shown
}

/// The name that stands before a colon or an equals sign, in quotes or not.
fn name_before(text: &str) -> &str {
    let text = text.trim_end().trim_end_matches(['"', '\'', '\\']);
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    &text[text.trim_end_matches(is_name).len()..]
}

fn is_secret(name: &str) -> bool {
    if name == PLAIN {
        return false;
    }
    let small = name.to_ascii_lowercase();
    if SECRET_PARTS.iter().any(|part| small.contains(part)) {
        return true;
    }
    let words = words_of(name);
    words.split(|c: char| !c.is_ascii_alphabetic()).any(|word| SECRET_WORDS.contains(&word))
        || Redactor::is_secret(&words)
}

/// The words of a name, in small letters: `accessKey` is `access_key` in other words, and `DBPass` is `db_pass`.
fn words_of(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut was_small = false;
    let mut letters = name.chars().peekable();
    while let Some(c) = letters.next() {
        let is_last_of_capitals = letters.peek().is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && (was_small || is_last_of_capitals) {
            words.push('_');
        }
        was_small = c.is_ascii_lowercase() || c.is_ascii_digit();
        words.push(c.to_ascii_lowercase());
    }
    words
}

/// The quotes that a value begins with, and how much of the text it is without the quotes at its end.
fn value_length(value: &str) -> (&str, usize) {
    let slashes = value.len() - value.trim_start_matches('\\').len();
    if value[slashes..].starts_with(['"', '\'']) {
        let quotes = &value[..=slashes];
        let inside = &value[quotes.len()..];
        // Quotes with more before them than the first are inside of the value.
        let mut from = 0;
        while let Some(found) = inside[from..].find(quotes) {
            let end = from + found;
            if !inside[..end].ends_with('\\') {
                return (quotes, quotes.len() + end);
            }
            from = end + 1;
        }
        return (quotes, value.len());
    }
    match value.starts_with(['{', '[']) {
        // Where it ends cannot be said of a text that may be cut.
        true => ("", value.len()),
        false => ("", value.find([',', '}', ']', ' ']).unwrap_or(value.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let redactor = Redactor::new([b"hunter2-canary" as &[u8]]);
        assert_eq!(shown(text.as_bytes(), false, &redactor), expected);
    }

    #[test]
    fn what_is_no_secret_is_shown_as_it_is() {
        let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add","arguments":{"x":1.50,"at":"12:30"},"_meta":{"progressToken":7}}}"#;
        check(call, call);
        check("monkey: 1, keyboard: 2", "monkey: 1, keyboard: 2");
    }

    #[test]
    fn known_secrets_and_members_with_telling_names_are_hidden() {
        check(r#"{"text":"it is hunter2-canary"}"#, r#"{"text":"it is [hidden]"}"#);
        check(
            r#"{"password":"a\"b,c","user":"ada","apiKey" : "k","count":3}"#,
            r#"{"password":"[hidden]","user":"ada","apiKey" : "[hidden]","count":3}"#,
        );
        check(r#"{"access-token":12,"b":[1]}"#, r#"{"access-token":[hidden],"b":[1]}"#);
        check(r#"{"a":1,"credentials":{"x":"y"},"b":2}"#, r#"{"a":1,"credentials":[hidden]"#);
        check(
            r#"{"text":"{\"token\":\"abc\",\"n\":1}"}"#,
            r#"{"text":"{\"token\":\"[hidden]\",\"n\":1}"}"#,
        );
        check("Authorization: Basic dXNlcjpwYXNz", "Authorization: [hidden]");
    }

    #[test]
    fn secrets_are_known_by_every_common_name() {
        for name in [
            "apikey",
            "APIKey",
            "api-key",
            "X-Api-Key",
            "OPENAI_APIKEY",
            "accesstoken",
            "refreshToken",
            "clientsecret",
            "client_secret",
            "DBPassword",
            "password2",
            "PASSWD",
            "passphrase",
            "pwd",
            "pass",
            "DBPass",
            "smtp_pass",
            "pass2",
            "auth",
            "basicAuth",
            "otp",
            "pin",
            "set-cookie",
            "accessKey",
        ] {
            let expected = format!(r#"{{"{name}":"[hidden]","a":1}}"#);
            check(&format!(r#"{{"{name}":"canary","a":1}}"#), &expected);
        }
        for name in ["author", "compass", "passenger", "spin", "pinned", "option", "progressToken"]
        {
            let member = format!(r#"{{"{name}":"shown","a":1}}"#);
            check(&member, &member);
        }
    }

    #[test]
    fn secrets_are_hidden_after_equals_signs_and_in_addresses_too() {
        check("Password = canary, a = 1", "Password = [hidden], a = 1");
        check("export DB_PASSWORD='a canary' x=1", "export DB_PASSWORD='[hidden]' x=1");
        check("token == \"canary\" && x", "token == \"[hidden]\" && x");
        check("secret := canary", "secret := [hidden]");
        check(":token => 'canary', b", ":token => '[hidden]', b");
        check(
            "https://a.example/x?a=1&access_token=canary next",
            "https://a.example/x?a=1&access_token=[hidden] next",
        );
        check(r#"{"url":"/x?apikey=canary"}"#, r#"{"url":"/x?apikey=[hidden]}"#);
        check("x == 1 && y=2", "x == 1 && y=2");
    }

    #[test]
    fn a_text_that_is_cut_in_a_secret_shows_nothing_of_it() {
        let redactor = Redactor::new([b"hunter2-canary" as &[u8]]);
        let text = r#"{"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaahunter2-canary"#;
        for end in text.len() - "unter2-canary".len()..text.len() {
            let told = shown(&text.as_bytes()[..end], true, &redactor);
            assert!(!told.contains("hun") && told.starts_with(r#"{"text":"aaa"#), "{told}");
        }
        let told = shown("{\"secret\":\"é".as_bytes(), true, &Redactor::default());
        assert_eq!(told, "{\"secret\":\"[hidden]…");
        assert_eq!(shown(&"é".as_bytes()[..1], true, &Redactor::default()), "\u{fffd}…");
    }
}
