//! Secrets of our own, which never show in a log.

use std::fmt;

/// Bytes that nobody may see.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// A key by which a client may come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Whose it is, for the log.
    pub name: String,
    /// What the client shows.
    pub key: Secret,
}

impl Secret {
    /// A secret of these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes, for whoever compares or signs with them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugging_shows_no_secret() {
        let key = ApiKey { name: "alice".to_owned(), key: Secret::new("hunter2") };
        assert_eq!(format!("{key:?}"), "ApiKey { name: \"alice\", key: Secret }");
        assert_eq!(key.key.expose(), b"hunter2");
    }
}
