//! Secrets of our own, which never show in a log.

use std::fmt;
use std::sync::Arc;

/// The variables that hold them. The same name with `_FILE` names a file with the secret.
pub(super) const SECRETS: &[&str] = &[
    "MCPO_API_KEY",
    "MCPO_API_KEYS",
    "MCPO_LINK_SECRET",
    "MCPO_OWUI_JWT_SECRET",
    "MCPO_SESSION_SECRET",
];

/// The variables of OpenTelemetry that hold one: what a collector is shown.
const COLLECTOR_SECRETS: &[&str] =
    &["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"];

/// Whether `name` is a variable with a secret of ours, which is no server's business.
pub(super) fn is_own_secret(name: &str) -> bool {
    SECRETS.contains(&name) || COLLECTOR_SECRETS.contains(&name)
}

/// Bytes that nobody may see.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

/// A key by which a client may come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKey {
    /// Whose it is.
    pub name: KeyName,
    /// What the client shows.
    pub key: Secret,
}

/// Whose an API key is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyName {
    /// The key of `MCPO_API_KEY`: of a front end with many people behind it, or of all who were told.
    Unnamed,
    /// A key of `MCPO_API_KEYS`: of a person, or of a program that stands for one.
    Named(Arc<str>),
}

impl KeyName {
    /// The name in the log, and where people and their folders are told apart.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Unnamed => "default",
            Self::Named(name) => name,
        }
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
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
        let key = ApiKey { name: KeyName::Named("alice".into()), key: Secret::new("hunter2") };
        assert_eq!(format!("{key:?}"), "ApiKey { name: Named(\"alice\"), key: Secret }");
        assert_eq!(key.key.expose(), b"hunter2");
    }
}
