//! What of another client's file is a secret, as far as that can be seen: by the name before it, and by its form.
//!
//! It rather hides too much: a variable that did not need to be one costs a minute, and a key that was copied costs
//! more. What follows a name that says so is hidden, and so are credentials in addresses and what looks like a key.

use crate::observe::redact::Redactor;

/// Words in a name, beside those of the log, that say: its value is secret.
const MORE_WORDS: [&str; 15] = [
    "auth",
    "authentication",
    "cred",
    "creds",
    "dsn",
    "oauth",
    "pass",
    "passcode",
    "pat",
    "pgpass",
    "pwd",
    "sas",
    "sig",
    "signature",
    "webhook",
];

/// Ends of words that say it too: `PGPASSWORD`, `accesstoken`.
const ENDS: [&str; 7] =
    ["apikey", "credential", "credentials", "passwd", "password", "secret", "token"];

/// Values that are settings whatever their name says, such as that of `AUTH`.
const SETTINGS: [&str; 9] = ["", "0", "1", "false", "no", "none", "null", "true", "yes"];

/// How the keys of well-known services begin.
const BEGINNINGS: [&str; 17] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AKIA",
    "AIza",
    "eyJ",
    "hf_",
];

/// Keys of services are no shorter, in bytes.
const SHORTEST_KEY: usize = 16;

/// A word with one dash before it that is so long is no option, in bytes.
const SHORTEST_DASHED: usize = 8;

/// A word of letters and digits that is so long was made by a machine, in bytes.
const LONGEST_WORD: usize = 32;

/// Whether what has this name is secret: a variable, an option, a header, a part of a query.
pub(super) fn is_secret_name(name: &str) -> bool {
    let words = words_of(name);
    // `--no-auth` has no value.
    let is_switch = name.starts_with('-') && words.first().is_some_and(|word| word == "no");
    let says =
        |word: &String| MORE_WORDS.contains(&&**word) || ENDS.iter().any(|end| word.ends_with(end));
    !is_switch && (name == "-k" || Redactor::is_secret(&words.join("-")) || words.iter().any(says))
}

/// The words of a name in lower case: those of `accessToken` and `ACCESS_TOKEN` are the same.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || was_small && c.is_ascii_uppercase() {
            words.push(String::new());
        }
        was_small = c.is_ascii_lowercase() || c.is_ascii_digit();
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether the value of something secret is written here, and not only where it comes from.
pub(super) fn has_value(text: &str) -> bool {
    let literal = without_placeholders(text);
    let literal = literal.trim_matches(|c: char| c.is_whitespace() || "\"'\\".contains(c));
    let lower = literal.to_ascii_lowercase();
    !SETTINGS.contains(&&*lower) && !matches!(&*lower, "bearer" | "basic" | "token")
}

/// The text that is written here, with nothing where a variable stands.
fn without_placeholders(text: &str) -> String {
    let (mut literal, mut rest) = (String::new(), text);
    while let Some((before, behind)) = rest.split_once("${env:") {
        literal.push_str(before);
        rest = match behind.split_once('}') {
            Some((name, behind)) if is_variable_name(name) => behind,
            _ => {
                literal.push_str("${env:");
                behind
            }
        };
    }
    literal + rest
}

/// Whether this is how a variable may be called.
pub(super) fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether a secret is written anywhere in a text.
pub(super) fn holds_secret(text: &str) -> bool {
    let literal = without_placeholders(text);
    names_secret(&literal)
        || shows_credential(&literal)
        || has_user(&literal)
        || holds_key(&literal)
}

/// Whether a name of a secret stands here with its value: `NAME=VALUE`, `Name: value`, `"name": "value"`.
fn names_secret(text: &str) -> bool {
    let is_blank = |c: char| c.is_whitespace() || "\"'\\".contains(c);
    text.match_indices(['=', ':']).any(|(at, sign)| {
        let (before, behind) = (text[..at].trim_end_matches(is_blank), &text[at + 1..]);
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let name = &before[before.trim_end_matches(is_part).len()..];
        let around = &before[..before.len() - name.len()];
        // The colon of an address, and that of an image: `ghcr.io/some/token:latest`.
        let is_other = sign == ":" && (behind.starts_with("//") || around.ends_with(['/', '@']));
        let first = behind.split([';', '&', ',', '}']).next().unwrap_or_default();
        // A password may begin with one of those signs.
        let value = if first.is_empty() && !behind.contains('=') { behind } else { first };
        // An empty one for a shell: `A_TOKEN= program`.
        let is_spaced = value.starts_with(' ') && !text[..at].ends_with(' ');
        let is_gone = sign == "=" && is_spaced && !name.starts_with('-');
        // A version: `some-auth-server==1.0`.
        let is_version =
            behind.starts_with('=') && behind[1..].starts_with(|c: char| c.is_ascii_digit());
        !is_other && !is_gone && !is_version && is_secret_name(name) && has_value(value)
    })
}

/// Whether something follows `Bearer` or `Basic`.
fn shows_credential(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    ["bearer", "basic"].iter().any(|scheme| {
        lower.match_indices(scheme).any(|(at, _)| {
            let behind = lower[at + scheme.len()..].replace("%20", " ").replace('+', " ");
            let is_word = !lower[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
            is_word && behind.starts_with([' ', '\t']) && has_value(&behind)
        })
    })
}

/// Whether what follows an option of a secret is its value: a key may begin with a dash, and an option that does is short.
pub(super) fn is_value(word: &str) -> bool {
    let is_option = word.starts_with("--") || word.starts_with('-') && word.len() < SHORTEST_DASHED;
    !is_option && has_value(word)
}

/// Whether this is `user:password`, as `-u` has it, and not the numbers of a user and a group.
pub(super) fn is_login(word: &str) -> bool {
    let literal = without_placeholders(word);
    let password = literal.split_once(':').map_or("", |(_, password)| password);
    !password.bytes().all(|b| b.is_ascii_digit())
        || !password.is_empty() && !literal.bytes().all(|b| b.is_ascii_digit() || b == b':')
}

/// Whether an address names a user, whose name may be a key by itself. `git` is one that everybody has.
fn has_user(text: &str) -> bool {
    let is_end = |c: char| c.is_whitespace() || "\"'".contains(c);
    let in_url = text.split("://").skip(1).any(|rest| {
        let rest = rest.split(is_end).next().unwrap_or_default();
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        match authority.rsplit_once('@') {
            Some((user, _)) => !matches!(user, "" | ":" | "git"),
            // A password may hold those signs, too, where a port would stand.
            None => {
                let port = authority.split_once(':').map_or("", |(_, port)| port);
                !port.bytes().all(|b| b.is_ascii_digit()) && rest.contains('@')
            }
        }
    });
    in_url || text.split(is_end).any(is_bare_user)
}

/// Whether a word is `user:password@host` without the name of a protocol.
fn is_bare_user(word: &str) -> bool {
    let Some((user, host)) = word.rsplit_once('@') else { return false };
    let is_image = host.starts_with("sha256:");
    let is_package = user.contains('/') || user.ends_with("npm:") || host.starts_with("npm:");
    let is_pair =
        user.split_once(':').is_some_and(|(name, pass)| !name.is_empty() && !pass.is_empty());
    is_pair && !host.is_empty() && !is_image && !is_package && !word.starts_with("npm:")
}

/// Whether a word looks like a key that some service gave out, or that a machine made.
fn holds_key(text: &str) -> bool {
    let is_address = text.contains("://");
    let is_between = |c: char| c.is_whitespace() || "\"'`=,;&?|()<>{}[]#".contains(c);
    text.split(is_between).any(|word| {
        let is_made = !word.contains('@') && (is_address || !word.contains('/'));
        word.split(['/', ':', '@']).any(|part| {
            let is_known =
                part.len() >= SHORTEST_KEY && BEGINNINGS.iter().any(|it| part.starts_with(it));
            is_known || is_made && is_random(part)
        })
    })
}

fn is_random(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_plain =
        word.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+'));
    word.len() >= LONGEST_WORD && is_plain && digits >= 4
}

/// How much of a word may be copied: the name before a value that is hidden.
pub(super) fn kept_part(word: &str) -> &str {
    let is_name = |text: &str| {
        let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
        is_plain && text.len() < LONGEST_WORD && (text.starts_with('-') || is_secret_name(text))
    };
    let mut kept = 0;
    // `--env=NAME=VALUE` has two.
    for _ in 0..2 {
        let rest = &word[kept..];
        let Some(at) = rest.find(['=', ':']).filter(|at| *at > 0 && is_name(&rest[..*at])) else {
            break;
        };
        let behind = &rest[at + 1..];
        if behind.starts_with("//") {
            break;
        }
        kept += at + 1 + behind.len() - behind.trim_start_matches(' ').len();
    }
    let lower = word[kept..].to_ascii_lowercase();
    let scheme = ["bearer ", "basic "].into_iter().find(|scheme| lower.starts_with(scheme));
    kept += scheme.map_or(0, str::len);
    let is_clean = !holds_key(&word[..kept]) && kept < word.len();
    // What is before a user is no name: `me:sesame@host`.
    if is_clean && !has_user(word) { &word[..kept] } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, holds: bool) {
        assert_eq!(holds_secret(text), holds, "{text}");
    }

    #[test]
    fn names_say_what_is_secret() {
        for name in [
            "PAT",
            "PGPASS",
            "PGPASSWORD",
            "DB_PASS",
            "SENTRY_DSN",
            "AUTH",
            "accessToken",
            "--authToken",
            "-k",
            "X-Api-Key",
            "GITHUB_TOKEN",
            "client_secret",
            "Password",
            "AccountKey",
            "CREDS",
            "oauth",
            "sig",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "compass",
            "author",
            "--no-auth",
            "-y",
            "tokenizer",
            "",
            "--port",
            "bypass",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn secrets_are_seen_in_each_form() {
        for text in [
            "Authorization: Bearer sesame",
            "authorization:Bearer sesame",
            "X-Api-Key: sesame",
            "X-Api-Key:sesame",
            "GITHUB_TOKEN=sesame",
            "--env=SLACK_TOKEN=sesame",
            "API_KEY=sesame exec server",
            "API_KEY='sesame' exec server",
            "https://x/mcp?api_key=sesame",
            "https://x/mcp?a=b&access_token=sesame",
            "https://sesame@sentry.io/1",
            "https://u:ses/ame@host",
            "u:sesame@host:3306",
            "Server=h;Password=sesame",
            "Server=h; Password = sesame",
            "--secret= sesame",
            "--pass=,sesame",
            "API_KEY=;sesame",
            "Basic sesame",
            "Authorization=Bearer sesame",
            r#"{"Authorization":"Bearer sesame"}"#,
            r#"{"x-api-key": "sesame"}"#,
            "Bearer ${NOPE:-sesame}",
            "Authorization: Bearer ${env:A}sesame",
            "ghp_0123456789sesame",
            "bot:AIza0123456789sesame",
            "0123456789abcdef0123456789abcdef",
            "https://x/s/0123456789abcdef0123456789abcdef/mcp",
        ] {
            check(text, true);
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "-y",
            "@modelcontextprotocol/server-everything@2026.8.31",
            "mcp-server-time==2026.10.19",
            "some-auth-server==1.0",
            "Authorization: Bearer ${env:TOKEN}",
            "API_KEY=${env:TOKEN}",
            "API_KEY=",
            "API_KEY= exec server",
            "LEVEL=debug",
            "X-Team: red",
            "http://localhost:8080/mcp?a=b",
            "https://registry.npmjs.org/@a/b",
            "git+ssh://git@github.com/a/b@main",
            "git+https://github.com/a/b@0123456789abcdef0123456789abcdef01234567",
            "ghcr.io/some/token:latest",
            "image@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "image:tag@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "npm:@a/b@1.0",
            "/home/me/files",
            "C:\\files",
            "a plain sentence, with words",
        ] {
            check(text, false);
        }
    }

    #[test]
    fn what_follows_an_option_is_its_value_or_the_next_option() {
        for (word, is) in [
            ("sesame", true),
            ("-sesame1", true),
            ("-v", false),
            ("--verbose", false),
            ("", false),
            ("true", false),
        ] {
            assert_eq!(is_value(word), is, "{word}");
        }
        for (word, is) in [
            ("me:sesame", true),
            ("me:1234", true),
            ("1000:1000", false),
            ("me", false),
            ("me:${env:A}", false),
        ] {
            assert_eq!(is_login(word), is, "{word}");
        }
    }

    #[test]
    fn the_name_before_a_secret_is_kept() {
        for (word, kept) in [
            ("--token=sesame", "--token="),
            ("--env=SLACK_TOKEN=sesame", "--env=SLACK_TOKEN="),
            ("Authorization: Bearer sesame", "Authorization: Bearer "),
            ("X-Api-Key:sesame", "X-Api-Key:"),
            ("https://x/mcp?api_key=sesame", ""),
            ("u:sesame@host", ""),
            ("{\"a\": 1}", ""),
            ("sesame", ""),
        ] {
            assert_eq!(kept_part(word), kept, "{word}");
        }
    }
}
