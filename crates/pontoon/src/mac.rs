//! The one place that makes and checks message authentication codes (HMAC-SHA-256).
//!
//! Each use begins with a label of its own, so that a code made for one thing is good for no other.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// A key, ready to be used.
#[derive(Clone)]
pub struct MacKey(Hmac<Sha256>);

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey")
    }
}

impl MacKey {
    /// The key made of this secret.
    pub fn new(secret: &[u8]) -> Self {
        Self(Hmac::new_from_slice(secret).expect("HMAC takes a key of any length"))
    }

    /// Begins a code for the use with this label.
    pub fn begin(&self, label: &str) -> Signing {
        let mut mac = self.0.clone();
        mac.update(label.as_bytes());
        Signing(mac)
    }
}

/// A code in the making.
pub struct Signing(Hmac<Sha256>);

impl Signing {
    /// Adds a part. Its length stands before it, so that no other parts give the same bytes.
    pub fn part(self, part: &[u8]) -> Self {
        self.last(&(part.len() as u64).to_be_bytes()).last(part)
    }

    /// Adds what comes last, or has one length only.
    pub fn last(mut self, part: &[u8]) -> Self {
        self.0.update(part);
        self
    }

    /// The code.
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into_bytes().into()
    }

    /// Whether this is the code or, if it is shorter, how the code begins. Takes as long for a wrong one as
    /// for the right one.
    pub fn matches(self, code: &[u8]) -> bool {
        self.0.verify_truncated_left(code).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_holds_for_its_key_label_and_parts_only() {
        let code = |secret: &[u8], label: &str, parts: [&[u8]; 2]| {
            let [first, second] = parts;
            MacKey::new(secret).begin(label).part(first).part(second).finish()
        };
        let right = code(b"k", "use 1", [b"ab", b"c"]);
        assert_eq!(right, code(b"k", "use 1", [b"ab", b"c"]));
        for other in [
            code(b"j", "use 1", [b"ab", b"c"]),
            code(b"k", "use 2", [b"ab", b"c"]),
            code(b"k", "use 1", [b"a", b"bc"]),
        ] {
            assert_ne!(right, other);
        }
    }

    #[test]
    fn a_shortened_code_is_compared_with_the_beginning() {
        let signing = || MacKey::new(b"k").begin("use");
        let code = signing().finish();
        assert!(signing().matches(&code) && signing().matches(&code[..16]));
        assert!(!signing().matches(&code[1..17]) && !signing().matches(b""));
    }
}
