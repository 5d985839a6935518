//! The web pages whose scripts may call and read what is answered.

use super::values::is_host;

/// Which origins may call, beside our own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowedOrigins {
    /// These, in lower case.
    These(Vec<String>),
    /// Every one, as `*` says.
    Any,
}

impl Default for AllowedOrigins {
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

impl AllowedOrigins {
    /// Whether no page of another origin may call.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this origin, as a browser writes it, may call.
    pub fn has(&self, origin: &str) -> bool {
        match self {
            Self::These(origins) => origins.iter().any(|known| known.eq_ignore_ascii_case(origin)),
            Self::Any => true,
        }
    }
}

/// Origins with commas between, or `*`.
pub(super) fn origins(text: &str) -> Result<AllowedOrigins, &'static str> {
    let origins: Vec<_> = text.split(',').map(|item| item.trim().to_lowercase()).collect();
    if !origins.iter().all(|origin| origin == "*" || is_origin(origin)) {
        return Err("origins such as https://chat.example.org, or *");
    }
    match origins.iter().any(|origin| origin == "*") {
        true => Ok(AllowedOrigins::Any),
        false => Ok(AllowedOrigins::These(origins)),
    }
}

/// Whether this is a scheme and a host, without a path. Applications have schemes of their own.
fn is_origin(text: &str) -> bool {
    let Some((scheme, host)) = text.split_once("://") else { return false };
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    !scheme.is_empty() && scheme.chars().all(is_letter) && is_host(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_a_scheme_and_a_host() {
        for text in ["https://a.example", "http://a:3000", "http://[::1]:8", "tauri://localhost"] {
            assert_eq!(origins(text), Ok(AllowedOrigins::These(vec![text.to_owned()])));
        }
        for text in
            ["", "a.example", "https://", "https://a/", "https://a/b", "null", "://a", "*.a"]
        {
            assert!(origins(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_star_is_every_origin_also_among_others() {
        for text in ["*", " * ", "https://a.example, *"] {
            assert_eq!(origins(text), Ok(AllowedOrigins::Any), "{text}");
        }
        assert!(AllowedOrigins::Any.has("null") && !AllowedOrigins::Any.is_empty());
        let both = origins("https://A.example,http://b:1").unwrap();
        for (origin, is_known) in [
            ("https://a.example", true),
            ("HTTPS://A.Example", true),
            ("http://b:1", true),
            ("http://b", false),
            ("http://a.example", false),
            ("null", false),
        ] {
            assert_eq!(both.has(origin), is_known, "{origin}");
        }
    }
}
