//! Headers of the user's own for the opening of a WebSocket: typed, where they are harmless, or in a file.
//!
//! What is typed can be read by others on the machine, so nothing that lets a client in belongs there.

use std::io;
use std::path::PathBuf;

use super::secret::Secret;
use crate::plain_file::{self, FileKind};

/// The longest file of headers.
const LONGEST: u64 = 64 * 1024;

/// Names that belong to the opening itself, beside `Sec-WebSocket-...` and `Proxy-...`.
const RESERVED: &[&str] = &[
    "host",
    "upgrade",
    "connection",
    "keep-alive",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "expect",
];

/// Parts of names that say: the value lets a client in.
const TELLING: &[&str] =
    &["auth", "bearer", "cookie", "credential", "jwt", "key", "pass", "secret", "session", "token"];

/// A value is taken for a secret from this many bytes on, whatever its name.
const SECRET_LENGTH: usize = 12;

/// Headers that are sent when a WebSocket is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppHeaders {
    /// Those that were typed.
    pub typed: Vec<AppHeader>,
    /// A file with more of them, one on each line. It is read for each connection, for it may change.
    pub file: Option<PathBuf>,
}

/// One header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppHeader {
    /// Its name, as it was written.
    pub name: String,
    /// Its value, which the bridge itself never logs.
    pub value: Secret,
    /// Whether it was taken from a variable that may hold a secret.
    pub is_from_variable: bool,
}

/// Why a text is no header. It does not repeat the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// It has another form.
    #[error("a header is written as NAME: VALUE, such as 'X-Project: demo'")]
    Form,
    /// The bridge says this itself.
    #[error("the header {0} belongs to the opening of a WebSocket, which the bridge makes itself")]
    Reserved(String),
    /// There is a better place for a token.
    #[error(
        "the header Authorization is made of a token: use --token-env, --token-file or --token-command"
    )]
    Token,
    /// It is a secret, and was typed.
    #[error(
        "the header {0} lets a client in, and what is typed can be read by others on this machine: write it into a file \
         and use --header-file"
    )]
    Typed(String),
}

/// Why the headers of a file cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum BadHeaderFile {
    /// The file cannot be read.
    #[error("the file of headers {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of it is no header.
    #[error("line {line} of the file of headers {}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from one.
        line: usize,
        /// Why.
        source: BadHeader,
    },
}

impl AppHeader {
    /// The header in a text that was typed.
    ///
    /// # Errors
    ///
    /// When it has another form, is not the user's to send, or is a secret.
    pub fn typed(text: &str) -> Result<Self, BadHeader> {
        let header: Self = text.parse()?;
        match header.name.eq_ignore_ascii_case("cookie") {
            true => Err(BadHeader::Typed(header.name)),
            false => Ok(header),
        }
    }

    /// The value, if it has to be hidden wherever it is repeated. A short word such as that of `X-Project: work` has not: the
    /// same word stands in a log for other reasons.
    pub fn secret(&self) -> Option<&[u8]> {
        let (name, value) = (self.name.to_ascii_lowercase(), self.value.expose());
        let is_secret = self.is_from_variable
            || value.len() >= SECRET_LENGTH
            || TELLING.iter().any(|part| name.contains(part));
        is_secret.then_some(value)
    }
}

impl std::str::FromStr for AppHeader {
    type Err = BadHeader;

    fn from_str(text: &str) -> Result<Self, BadHeader> {
        let (name, value) = text.split_once(':').ok_or(BadHeader::Form)?;
        let (name, value) = (name.trim(), value.trim());
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let is_text = |b: u8| b == b'\t' || (b' '..=b'~').contains(&b);
        if name.is_empty() || !name.bytes().all(is_token) || !value.bytes().all(is_text) {
            return Err(BadHeader::Form);
        }
        let lower = name.to_ascii_lowercase();
        if lower == "authorization" {
            return Err(BadHeader::Token);
        }
        let is_reserved = RESERVED.contains(&lower.as_str())
            || lower.starts_with("sec-websocket-")
            || lower.starts_with("proxy-");
        match is_reserved {
            true => Err(BadHeader::Reserved(name.to_owned())),
            false => {
                let (name, value) = (name.to_owned(), Secret::new(value));
                Ok(Self { name, value, is_from_variable: false })
            }
        }
    }
}

impl AppHeaders {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.typed.is_empty() && self.file.is_none()
    }

    /// All of them, with those that the file has now.
    ///
    /// # Errors
    ///
    /// When the file cannot be used.
    pub fn read(&self) -> Result<Vec<AppHeader>, BadHeaderFile> {
        let mut headers = self.typed.clone();
        let Some(path) = &self.file else { return Ok(headers) };
        let failed = |source| BadHeaderFile::Read { path: path.clone(), source };
        let bytes = plain_file::read(path, FileKind::Regular, LONGEST).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes);
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let header = line.parse();
            headers.push(header.map_err(|source| {
                let (path, line) = (path.clone(), at + 1);
                BadHeaderFile::Line { path, line, source }
            })?);
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::chain;

    fn check(text: &str, expected: Result<(&str, &str), &str>) {
        let header = AppHeader::typed(text);
        match (header, expected) {
            (Ok(header), Ok((name, value))) => {
                assert_eq!((&*header.name, header.value.expose()), (name, value.as_bytes()));
            }
            (Err(bad), Err(says)) => {
                let told = bad.to_string();
                assert!(told.contains(says) && !told.contains("hunter2"), "{text}: {told}");
            }
            (header, expected) => panic!("{text}: {header:?}, not {expected:?}"),
        }
    }

    #[test]
    fn a_header_is_a_name_and_a_value() {
        check("X-Project: demo", Ok(("X-Project", "demo")));
        check("x:a: b", Ok(("x", "a: b")));
        check("Empty:", Ok(("Empty", "")));
        for bad in ["X-Project=hunter2", ": hunter2", "a b: hunter2", "a: hunter2\r\nb: c", "a: é"]
        {
            check(bad, Err("NAME: VALUE"));
        }
    }

    #[test]
    fn what_the_opening_says_itself_and_what_lets_a_client_in_is_not_typed() {
        for name in ["Host", "UPGRADE", "connection", "Sec-WebSocket-Key", "Proxy-Authorization"] {
            check(&format!("{name}: hunter2"), Err("which the bridge makes itself"));
        }
        check("authorization: Bearer hunter2", Err("--token-file"));
        check("Cookie: hunter2", Err("--header-file"));
    }

    #[test]
    fn a_value_is_hidden_for_its_name_its_length_or_its_source_and_a_short_word_is_not() {
        let header = |text: &str| text.parse::<AppHeader>().unwrap();
        for plain in ["X-Project: work", "Accept-Language: de-DE", "X-Other: elevenbytes"] {
            assert_eq!(header(plain).secret(), None, "{plain}");
        }
        for secret in ["X-Api-Key: work", "apikey: work", "Cookie: a=b", "X-AuthToken: work"] {
            assert!(header(secret).secret().is_some(), "{secret}");
        }
        assert_eq!(header("X-Other: twelve-bytes").secret(), Some(b"twelve-bytes" as &[u8]));
        let taken = AppHeader { is_from_variable: true, ..header("X-Project: work") };
        assert_eq!(taken.secret(), Some(b"work" as &[u8]));
    }

    #[test]
    fn a_file_has_a_header_on_each_line_and_a_wrong_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("headers");
        let headers = AppHeaders { typed: vec!["A: 1".parse().unwrap()], file: Some(path.clone()) };
        assert!(chain(&headers.read().unwrap_err()).contains("cannot be read"));
        std::fs::write(&path, "# mine\n\nCookie: hunter2\r\nB: 2\n").unwrap();
        let read = headers.read().unwrap();
        let names: Vec<_> = read.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["A", "Cookie", "B"]);
        assert_eq!(read[1].value.expose(), b"hunter2");
        assert!(!format!("{read:?}").contains("hunter2"));
        std::fs::write(&path, "B: 2\nHost: hunter2\n").unwrap();
        let told = chain(&headers.read().unwrap_err());
        assert!(
            told.contains("line 2") && told.contains("Host") && !told.contains("hunter2"),
            "{told}"
        );
    }
}
