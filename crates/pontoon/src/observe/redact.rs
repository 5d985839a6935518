//! What may stand in a log: text of others without tricks, and no secrets.
//!
//! Clients and servers choose much of what is logged. Nothing they choose may begin a line, paint a
//! terminal, turn the reading direction around or fill the disk; and a secret stays out, also where a
//! client or a server repeats it.

use std::borrow::Cow;
use std::fmt::{self, Write};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use pontoon_supervise::plain_text;

/// The longest value of one field, in bytes.
const MAX_VALUE: usize = 8 * 1024;

/// What stands in place of a secret.
pub(super) const HIDDEN: &str = "[hidden]";

/// Shorter ones would hide half of every line.
const SHORTEST_SECRET: usize = 4;

/// What stays as it is in a query; everything else is percent-encoded there.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Words in the name of a field that say: its value is secret.
const SECRET_WORDS: [&str; 13] = [
    "apikey",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "key",
    "passphrase",
    "passwd",
    "password",
    "secret",
    "token",
];

/// Cleans what is logged.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    /// The configured secrets in each form they may be repeated in, the longest first.
    secrets: Vec<String>,
    longest: usize,
}

impl Redactor {
    /// Keeps these secrets out of the log.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut redactor = Self::default();
        redactor.hide_more(secrets);
        redactor
    }

    /// Keeps these out as well.
    pub fn hide_more<'a>(&mut self, secrets: impl IntoIterator<Item = &'a [u8]>) {
        let forms = &mut self.secrets;
        for secret in secrets.into_iter().filter(|secret| secret.len() >= SHORTEST_SECRET) {
            let plain = String::from_utf8_lossy(secret).into_owned();
            let quoted = format!("{plain:?}");
            let json = serde_json::Value::from(plain.as_str()).to_string();
            forms.extend([&quoted, &json].map(|form| form[1..form.len() - 1].to_owned()));
            forms.push(percent_encode(secret, UNRESERVED).to_string());
            forms.push(plain);
        }
        // By text too, so that equal ones stand together.
        forms.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        self.longest = forms.first().map_or(0, String::len);
    }

    /// Whether the value of a field with this name is secret.
    pub fn is_secret(name: &str) -> bool {
        name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| {
            SECRET_WORDS
                .iter()
                .any(|secret| word.eq_ignore_ascii_case(secret) || is_plural(word, secret))
        })
    }

    /// The value of a field, as it may be logged.
    pub fn value(&self, name: &str, value: impl fmt::Display) -> String {
        if Self::is_secret(name) {
            return HIDDEN.to_owned();
        }
        // Of what is too long, so much more is read that no secret is cut in two and half of it
        // stays.
        let mut text = Capped { text: String::new(), room: MAX_VALUE + self.longest };
        let is_cut = write!(text, "{value}").is_err();
        let mut text = self.hide(plain_text(text.text));
        if is_cut {
            text.truncate(boundary(&text, text.len().saturating_sub(self.longest)));
        }
        if is_cut || text.len() > MAX_VALUE {
            text.truncate(boundary(&text, MAX_VALUE));
            text.push_str(" [cut]");
        }
        text
    }

    /// A text of others as it may be logged. It is not cut.
    pub(super) fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // One word of plain letters shows no credential, and most are such.
        let is_word =
            text.bytes().all(|byte| matches!(byte, b'!'..=b'9' | b';' | b'<' | b'>'..=b'~'));
        let has_secret = || self.secrets.iter().any(|secret| text.contains(secret.as_str()));
        match is_word && !has_secret() {
            true => Cow::Borrowed(text),
            false => Cow::Owned(self.hide(plain_text(text.to_owned()))),
        }
    }

    /// The beginning of a text as it may be shown; `is_cut` if there is more of it.
    pub(super) fn beginning(&self, text: &str, is_cut: bool) -> String {
        let mut text = self.hide(plain_text(text.to_owned()));
        if is_cut {
            // What is cut here may be the first half of a secret.
            text.truncate(boundary(&text, text.len().saturating_sub(self.longest)));
        }
        text
    }

    fn hide(&self, mut text: String) -> String {
        for secret in &self.secrets {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), HIDDEN);
            }
        }
        hide_credentials(text)
    }
}

/// `tokens` is as secret as `token`.
fn is_plural(word: &str, secret: &str) -> bool {
    word.strip_suffix(['s', 'S']).is_some_and(|word| word.eq_ignore_ascii_case(secret))
}

/// Takes what follows `Bearer` and `Authorization:` out, also where it is no secret of ours.
fn hide_credentials(text: String) -> String {
    // Most values are single words.
    if !text.contains([' ', ':', '=']) {
        return text;
    }
    let lower = text.to_ascii_lowercase();
    let (mut shown, mut at) = (String::with_capacity(text.len()), 0);
    while let Some((start, end)) = next_credential(&lower, at) {
        shown.push_str(&text[at..start]);
        shown.push_str(HIDDEN);
        at = end;
    }
    shown.push_str(&text[at..]);
    shown
}

/// Where the next credential begins and ends.
fn next_credential(lower: &str, from: usize) -> Option<(usize, usize)> {
    let bearer = find_after(lower, from, "bearer ", |rest| {
        let length = rest.bytes().take_while(|byte| is_token(*byte)).count();
        (length >= 8).then_some((0, length))
    });
    let header = find_after(lower, from, "authorization", |rest| {
        let skipped = rest.bytes().take_while(|byte| b" :=\"'\\".contains(byte)).count();
        if !rest[..skipped].contains([':', '=']) {
            return None;
        }
        let value = &rest[skipped..];
        let length = value.find(['"', '\'', ',', ';', '}', '\\']).unwrap_or(value.len());
        (length > 0).then_some((skipped, length))
    });
    [bearer, header].into_iter().flatten().min()
}

/// The first place after `word` where `found` finds something: its start and its end.
fn find_after(
    text: &str,
    from: usize,
    word: &str,
    found: impl Fn(&str) -> Option<(usize, usize)>,
) -> Option<(usize, usize)> {
    let mut at = from;
    loop {
        let after = at + text[at..].find(word)? + word.len();
        if let Some((skipped, length)) = found(&text[after..]) {
            return Some((after + skipped, after + skipped + length));
        }
        at = after;
    }
}

/// A byte of a token, as RFC 6750 has them.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

/// The last place up to `at` where text can be cut.
pub(super) fn boundary(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Takes text up to a limit, then says that it is full.
struct Capped {
    text: String,
    room: usize,
}

impl Write for Capped {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let room = self.room - self.text.len();
        if more.len() <= room {
            self.text.push_str(more);
            return Ok(());
        }
        self.text.push_str(&more[..boundary(more, room)]);
        self.room = self.text.len();
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "hunter2-\"canary\"";

    fn redactor() -> Redactor {
        Redactor::new([SECRET.as_bytes(), b"abc"])
    }

    fn check(text: &str, logged: &str) {
        assert_eq!(redactor().value("text", text), logged, "{text:?}");
    }

    #[test]
    fn plain_text_of_any_language_stays() {
        check("a plain line, 100 %", "a plain line, 100 %");
        check("売上報告.pptx été 👩‍💻", "売上報告.pptx été 👩‍💻");
    }

    #[test]
    fn no_control_gets_through() {
        check("a\nb\u{1b}[31mred\u{1b}[0m\u{202e}", "a bred");
    }

    #[test]
    fn a_configured_secret_is_hidden_in_each_form() {
        check(&format!("key {SECRET}!"), "key [hidden]!");
        check(&format!("{SECRET:?}"), "\"[hidden]\"");
        check(&serde_json::json!({ "a": SECRET }).to_string(), "{\"a\":\"[hidden]\"}");
        check("?key=hunter2-%22canary%22", "?key=[hidden]");
        check("hunter2\u{1b}[0m-\u{200f}\"canary\"", "[hidden]");
        check("abc is too short to hide", "abc is too short to hide");
    }

    #[test]
    fn what_a_client_shows_to_prove_itself_is_hidden() {
        check("got Bearer abcdefgh.ijk-l= and more", "got Bearer [hidden] and more");
        check("bearer of news", "bearer of news");
        check("Authorization: Basic dXNlcjpwYXNz", "Authorization: [hidden]");
        check(r#"{"authorization":"Basic xyz","a":1}"#, r#"{"authorization":"[hidden]","a":1}"#);
        check(
            "authorization is needed: see Bearer 12345678",
            "authorization is needed: see Bearer [hidden]",
        );
        check("é Bearer 12345678é", "é Bearer [hidden]é");
    }

    #[test]
    fn secret_names_hide_their_values() {
        for name in [
            "token",
            "api_key",
            "API-Key",
            "http.authorization",
            "tokens",
            "jwt_secret",
            "OPENAI_APIKEY",
        ] {
            assert_eq!(redactor().value(name, "x"), HIDDEN, "{name}");
        }
        for name in ["monkey", "keyboard", "tokenise", "trace_id", "server"] {
            assert_eq!(redactor().value(name, "x"), "x", "{name}");
        }
    }

    #[test]
    fn a_long_value_is_cut_and_no_half_secret_stays() {
        let long = redactor().value("text", "é".repeat(MAX_VALUE));
        assert!(
            long.len() <= MAX_VALUE + " [cut]".len() && long.ends_with("é [cut]"),
            "{}",
            long.len()
        );
        for before in 0..40 {
            let text = format!("{}{SECRET}{}", "x".repeat(MAX_VALUE - before), "y".repeat(99));
            let logged = redactor().value("text", &text);
            assert!(!logged.contains("hun"), "{before}: {}", &logged[logged.len() - 60..]);
        }
        // Secrets that were hidden make room: what follows must not be half of one either.
        let text = SECRET.repeat(2 * MAX_VALUE / SECRET.len());
        let logged = redactor().value("text", &text);
        assert!(!logged.replace(HIDDEN, "").contains("hun"), "{logged}");
        let exact = "x".repeat(MAX_VALUE);
        assert_eq!(redactor().value("text", &exact), exact);
    }
}
