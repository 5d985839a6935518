//! Open WebUI's signed identity: a JSON web token under a secret that both sides know (HS256).
//!
//! Open WebUI signs once for a turn of a chat, which may take long, and by default ends its tokens after five
//! minutes. So it is their age that counts here, and not the end that they name.
//!
//! Read by hand: one algorithm is wanted, and a crate for all of them brings RSA and elliptic curves
//! with it, and the confusion between algorithms that this file cannot have.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;

use crate::config::Secret;

/// How far two clocks may be apart.
const LEEWAY: Duration = Duration::from_secs(60);

/// The longest token read, in bytes.
const MAX_TOKEN: usize = 8 * 1024;

/// Who signs.
const ISSUER: &str = "open-webui";

/// What a token says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Claims {
    /// The user's id.
    pub sub: String,
    /// The user's mail address.
    pub email: Option<String>,
    /// The user's name.
    pub name: Option<String>,
    /// The user's role.
    pub role: Option<String>,
    iss: String,
    iat: Option<f64>,
    exp: Option<f64>,
    nbf: Option<f64>,
}

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is too long, or not three parts of base64 with JSON in them.
    #[error("it is not a token")]
    Form,
    /// It is signed in a way that is not taken, or not at all.
    #[error("it is signed with {0:?}, and only HS256 is taken")]
    Algorithm(String),
    /// It names rules that we do not know and must not ignore.
    #[error("it asks for extensions (`crit`) that are not known here")]
    Critical,
    /// The secrets differ, or it was changed on its way.
    #[error(
        "the signature is wrong: MCPO_OWUI_JWT_SECRET here must be \
             FORWARD_USER_INFO_HEADER_JWT_SECRET there"
    )]
    Signature,
    /// A claim is missing or of another kind than it must be.
    #[error("it must hold `sub`, `iss` and `iat` (or `exp`), each once and of the right kind")]
    Claims,
    /// It was signed by another program.
    #[error("it is issued by {0:?}, not by \"open-webui\"")]
    Issuer(String),
    /// It was signed too long ago.
    #[error(
        "it was signed {age_seconds} s ago and counts for {max_seconds} s: it is an old one, the \
             clocks differ, or a turn took longer than MCPO_OWUI_JWT_MAX_AGE"
    )]
    Old {
        /// How long ago it was signed.
        age_seconds: u64,
        /// How long it counts.
        max_seconds: u64,
    },
    /// Its time is over, and it does not say when it was signed.
    #[error("it expired {0} s ago: the clocks differ, or it is an old one")]
    Expired(u64),
    /// Its time has not come.
    #[error("it is from {0} s in the future: the clocks differ")]
    Future(u64),
    /// It names no user.
    #[error("`sub` names nobody")]
    Nobody,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    crit: Option<serde::de::IgnoredAny>,
}

/// Reads tokens.
#[derive(Debug)]
pub struct Verifier {
    /// What they must be signed with.
    pub secret: Secret,
    /// How long one counts from the moment it was signed.
    pub max_age: Duration,
}

impl Verifier {
    /// What a token says, if it is signed with our secret and counts `now`.
    ///
    /// # Errors
    ///
    /// [`TokenError`], written for the person who connects the two.
    pub fn verify(&self, token: &str, now: SystemTime) -> Result<Claims, TokenError> {
        let claims = signed_claims(token, self.secret.expose())?;
        self.check_times(&claims, now)?;
        match claims.sub.trim() {
            "" => Err(TokenError::Nobody),
            _ => Ok(claims),
        }
    }

    fn check_times(&self, claims: &Claims, now: SystemTime) -> Result<(), TokenError> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let leeway = LEEWAY.as_secs_f64();
        let begins = [claims.iat, claims.nbf].into_iter().flatten().reduce(f64::max);
        if let Some(begins) = begins.filter(|begins| *begins > now + leeway) {
            return Err(TokenError::Future((begins - now) as u64));
        }
        match (claims.iat, claims.exp) {
            (Some(iat), _) if now > iat + self.max_age.as_secs_f64() + leeway => {
                Err(TokenError::Old {
                    age_seconds: (now - iat) as u64,
                    max_seconds: self.max_age.as_secs(),
                })
            }
            (None, Some(exp)) if now > exp + leeway => Err(TokenError::Expired((now - exp) as u64)),
            (None, None) => Err(TokenError::Claims),
            _ => Ok(()),
        }
    }
}

/// What a token says, if it is Open WebUI's and signed with `secret`.
fn signed_claims(token: &str, secret: &[u8]) -> Result<Claims, TokenError> {
    if token.len() > MAX_TOKEN {
        return Err(TokenError::Form);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Form)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Form)?;
    let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Form);
    // A dot more would be in `claims`, and is not base64.
    let (header, claims, signature) = (bytes(header)?, bytes(claims)?, bytes(signature)?);
    let header: Header = serde_json::from_slice(&header).map_err(|_| TokenError::Form)?;
    if header.alg != "HS256" {
        return Err(TokenError::Algorithm(header.alg.chars().take(16).collect()));
    }
    if header.crit.is_some() {
        return Err(TokenError::Critical);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(signed.as_bytes());
    // Constant time: a guess learns nothing of how near it came.
    mac.verify_slice(&signature).map_err(|_| TokenError::Signature)?;
    let claims: Claims = serde_json::from_slice(&claims).map_err(|_| TokenError::Claims)?;
    match claims.iss.as_str() {
        ISSUER => Ok(claims),
        other => Err(TokenError::Issuer(other.chars().take(64).collect())),
    }
}

/// Signs claims, for the tests here and in `identity`.
#[cfg(test)]
pub(super) fn sign(header: &str, claims: &str, secret: &[u8]) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(signed.as_bytes());
    format!("{signed}.{}", encode(&mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HS256: &str = r#"{"alg":"HS256","typ":"JWT"}"#;
    const SECRET: &[u8] = b"a secret of both";
    /// The `now` of every test, in seconds.
    const NOW: u64 = 1_800_000_000;

    fn verified(token: &str) -> Result<Claims, TokenError> {
        let max_age = Duration::from_secs(3600);
        let verifier = Verifier { secret: Secret::new(SECRET), max_age };
        verifier.verify(token, UNIX_EPOCH + Duration::from_secs(NOW))
    }

    /// Claims that are right but for what is replaced; a member replaced by nothing is left out.
    fn claims(changes: &[(&str, &str)]) -> String {
        let (iat, exp) = (NOW.to_string(), (NOW + 300).to_string());
        let mut members =
            vec![("sub", "\"u1\""), ("iss", "\"open-webui\""), ("iat", &iat), ("exp", &exp)];
        for change in changes {
            match members.iter_mut().find(|(name, _)| *name == change.0) {
                Some(member) => *member = *change,
                None => members.push(*change),
            }
        }
        let members = members.iter().filter(|(_, value)| !value.is_empty());
        let members: Vec<_> = members.map(|(name, value)| format!("\"{name}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    }

    #[track_caller]
    fn check(changes: &[(&str, &str)], expected: Result<&str, TokenError>) {
        let found = verified(&sign(HS256, &claims(changes), SECRET));
        assert_eq!(found.map(|claims| claims.sub), expected.map(str::to_owned), "{changes:?}");
    }

    #[test]
    fn a_token_of_open_webui_names_its_user() {
        let text = claims(&[("email", "\"a@b.c\""), ("name", "\"山田\""), ("role", "\"user\"")]);
        let found = verified(&sign(HS256, &text, SECRET)).unwrap();
        assert_eq!(found.sub, "u1");
        assert_eq!(found.email.as_deref(), Some("a@b.c"));
        assert_eq!(found.name.as_deref(), Some("山田"));
        assert_eq!(found.role.as_deref(), Some("user"));
    }

    /// Made by another implementation (Python's `hmac`), so that both cannot be wrong together.
    #[test]
    fn a_token_of_another_implementation_is_read() {
        let token = concat!(
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI1YzFlOWYwYSIsImVtYWlsIjoidGFyb0B",
            "leGFtcGxlLmNvbSIsIm5hbWUiOiJUYXJvIiwicm9sZSI6InVzZXIiLCJpc3MiOiJvcGVuLXdlYnVpIiw",
            "iaWF0IjoxODAwMDAwMDAwLCJleHAiOjE4MDAwMDAzMDB9.-3Dv-z8m44XkCN_V3qMmtBwJ41eHYZQETm",
            "utpvRrmTM",
        );
        assert_eq!(verified(token).unwrap().sub, "5c1e9f0a");
    }

    #[test]
    fn a_token_is_good_for_a_long_turn_and_no_longer() {
        let at = |offset: i64| (i64::try_from(NOW).unwrap() + offset).to_string();
        let old = |age_seconds| Err(TokenError::Old { age_seconds, max_seconds: 3600 });
        // It says that it ends five minutes after it was signed.
        check(&[("iat", &at(-600)), ("exp", &at(-300))], Ok("u1"));
        check(&[("iat", &at(-3660)), ("exp", &at(-3360))], Ok("u1"));
        check(&[("iat", &at(-3661)), ("exp", &at(-3361))], old(3661));
        // To name a later end makes it no younger.
        check(&[("iat", &at(-3661)), ("exp", &at(90_000))], old(3661));
        check(&[("iat", &at(-3661)), ("exp", "")], old(3661));
        check(&[("iat", &at(-3600)), ("exp", "")], Ok("u1"));
    }

    #[test]
    fn a_token_that_does_not_say_when_it_was_signed_counts_until_it_ends() {
        let at = |offset: i64| (i64::try_from(NOW).unwrap() + offset).to_string();
        check(&[("iat", ""), ("exp", &at(-60))], Ok("u1"));
        check(&[("iat", ""), ("exp", &at(-61))], Err(TokenError::Expired(61)));
        check(&[("iat", ""), ("exp", &format!("{}.5", at(-60)))], Ok("u1"));
        check(&[("iat", ""), ("exp", "")], Err(TokenError::Claims));
    }

    #[test]
    fn a_token_of_the_future_is_refused_with_a_minute_of_leeway() {
        let at = |offset: i64| (i64::try_from(NOW).unwrap() + offset).to_string();
        check(&[("iat", &at(60))], Ok("u1"));
        check(&[("iat", &at(61))], Err(TokenError::Future(61)));
        check(&[("nbf", &at(90))], Err(TokenError::Future(90)));
        check(&[("iat", ""), ("nbf", &at(90))], Err(TokenError::Future(90)));
    }

    #[test]
    fn claims_that_are_missing_foreign_or_doubled_are_refused() {
        check(&[("iss", "\"evil\"")], Err(TokenError::Issuer("evil".to_owned())));
        check(&[("sub", "\"\"")], Err(TokenError::Nobody));
        check(&[("sub", "\"  \"")], Err(TokenError::Nobody));
        for missing in ["sub", "iss"] {
            check(&[(missing, "")], Err(TokenError::Claims));
            check(&[(missing, "null")], Err(TokenError::Claims));
        }
        for wrong in ["sub", "iss", "iat", "exp"] {
            check(&[(wrong, "[1]")], Err(TokenError::Claims));
        }
        check(&[("exp", "\"1900000000\"")], Err(TokenError::Claims));
        check(&[("exp", "1e999")], Err(TokenError::Claims));
        let twice = claims(&[]).replace('}', ",\"sub\":\"admin\"}");
        assert_eq!(verified(&sign(HS256, &twice, SECRET)), Err(TokenError::Claims));
    }

    #[test]
    fn only_hs256_under_our_secret_is_taken() {
        let good = sign(HS256, &claims(&[]), SECRET);
        let foreign = sign(HS256, &claims(&[]), b"another secret");
        assert_eq!(verified(&foreign), Err(TokenError::Signature));
        for algorithm in ["none", "None", "HS384", "hs256", "RS256", ""] {
            let header = format!("{{\"alg\":\"{algorithm}\"}}");
            let expected = Err(TokenError::Algorithm(algorithm.to_owned()));
            assert_eq!(verified(&sign(&header, &claims(&[]), SECRET)), expected);
        }
        let critical = r#"{"alg":"HS256","crit":["b64"],"b64":false}"#;
        assert_eq!(verified(&sign(critical, &claims(&[]), SECRET)), Err(TokenError::Critical));
        let (signed, _) = good.rsplit_once('.').unwrap();
        assert_eq!(verified(&format!("{signed}.")), Err(TokenError::Signature));
        assert_eq!(verified(signed), Err(TokenError::Form));
    }

    #[test]
    fn a_token_changed_in_any_place_is_refused() {
        let good = sign(HS256, &claims(&[]), SECRET);
        for place in 0..good.len() {
            let mut bytes = good.clone().into_bytes();
            bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(verified(&changed).is_err(), "place {place}");
        }
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let good = sign(HS256, &claims(&[]), SECRET);
        let long = format!("{good}{}", "A".repeat(MAX_TOKEN));
        for token in ["", ".", "..", "a.b", "a.b.c.d", "e30.e30.e30", &long] {
            assert_eq!(verified(token), Err(TokenError::Form), "{token}");
        }
        assert_eq!(verified(&format!("{good}=")), Err(TokenError::Form));
        assert_eq!(verified(&format!("{good}.x")), Err(TokenError::Form));
        assert_eq!(verified(&format!("Bearer {good}")), Err(TokenError::Form));
    }
}
