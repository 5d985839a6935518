//! Who asks: the address, the user, the chat and the credential behind a request.
//!
//! Any client can write any header, so most count only from a proxy that is trusted, or beside an API
//! key. What follows from an identity, whose child it is and which limits hold, is decided elsewhere.

use std::net::IpAddr;
use std::time::SystemTime;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use pontoon_wire::error::code;
use sha2::{Digest, Sha256};

use super::super::headers::only;
use super::super::refusal::Refusal;
use super::address::client_address;
use super::token::{TokenError, Verifier};
use crate::config::{AddressBlock, IdentityHeaders, KeyName};

/// The longest id, name or address of mail that is believed, in bytes.
const MAX_ID: usize = 256;

/// A header in which a browser names its conversation.
static SESSION: HeaderName = HeaderName::from_static("x-session-id");

/// What a request says of itself that can be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The client's address; an IPv4 address is never written as IPv6.
    pub address: IpAddr,
    /// False when a trusted proxy did not say who is behind it: then `address` is only the proxy's,
    /// and two such requests must never be taken for one client.
    pub is_known_address: bool,
    /// The API key that was shown. It is part of who asks: what one key says of people and chats
    /// says nothing of those that another names alike.
    pub key: Option<KeyName>,
    /// The user.
    pub user: Option<User>,
    /// The chat.
    pub chat: Option<String>,
    /// What the client calls its conversation (`X-Session-Id`). Any client may say it.
    pub session: Option<String>,
    /// A hash of the API key's name, or of an `Authorization` that is none of our keys.
    pub credential: Option<[u8; 32]>,
}

/// A user of the program that calls us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Never changes.
    pub id: String,
    /// The mail address.
    pub email: Option<String>,
    /// As it is written, in any script.
    pub name: Option<String>,
    /// `admin`, `user` and the like.
    pub role: Option<String>,
}

/// How requests are identified.
#[derive(Debug)]
pub struct Identities {
    trusted: Vec<AddressBlock>,
    names: IdentityHeaders,
    verifier: Option<Verifier>,
    any_client: bool,
}

impl Identities {
    /// Believes these proxies, or any client about who calls. With a verifier, only a signed token names a user.
    pub fn new(
        trusted: Vec<AddressBlock>,
        names: IdentityHeaders,
        verifier: Option<Verifier>,
        any_client: bool,
    ) -> Self {
        Self { trusted, names, verifier, any_client }
    }

    /// Who asks. `key` is the API key that was shown.
    ///
    /// # Errors
    ///
    /// 400 for a header that stands twice and would count, 401 for a token that is not valid.
    pub fn identify(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
        key: Option<&KeyName>,
    ) -> Result<Identity, Refusal> {
        self.identify_at(headers, peer, key, SystemTime::now())
    }

    /// Where a request comes from, as far as that is known.
    pub fn address(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let is_trusted = |address| self.is_trusted(address);
        client_address(headers, peer, is_trusted).map_or(peer, |client| client.address)
    }

    /// Whether a peer is believed about those it speaks for.
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        self.trusted.iter().any(|block| block.contains(peer))
    }

    fn identify_at(
        &self,
        headers: &HeaderMap,
        peer: IpAddr,
        key: Option<&KeyName>,
        now: SystemTime,
    ) -> Result<Identity, Refusal> {
        let is_trusted = |address| self.is_trusted(address);
        let client = client_address(headers, peer, is_trusted)?;
        let (user, chat) = match self.any_client || is_trusted(peer) || key.is_some() {
            true => self.user_and_chat(headers, now)?,
            false => (None, None),
        };
        Ok(Identity {
            address: client.address,
            is_known_address: client.is_known,
            key: key.cloned(),
            user,
            chat,
            session: only(headers, &SESSION)?.and_then(plain),
            credential: credential(headers, key)?,
        })
    }

    fn user_and_chat(
        &self,
        headers: &HeaderMap,
        now: SystemTime,
    ) -> Result<(Option<User>, Option<String>), Refusal> {
        let names = &self.names;
        let value = |name: &str| Ok::<_, Refusal>(only(headers, name)?.and_then(plain));
        let chat = value(&names.chat)?;
        let Some(verifier) = &self.verifier else {
            let user = value(&names.user)?.map(|id| {
                Ok::<_, Refusal>(User {
                    id,
                    email: value(&names.email)?,
                    name: value(&names.name)?.map(decoded).and_then(checked),
                    role: value(&names.role)?,
                })
            });
            return Ok((user.transpose()?, chat));
        };
        // The chat is not signed, so it counts only together with the user who is.
        let Some(token) = only(headers, names.jwt.as_str())? else { return Ok((None, None)) };
        let refused = |why: &dyn std::fmt::Display| {
            let text = format!("the identity token in {} is refused: {why}", names.jwt);
            Refusal::new(401, code::UNAUTHORIZED, text)
        };
        let token =
            std::str::from_utf8(token.as_bytes()).map_err(|_| refused(&TokenError::Form))?;
        let claims = verifier.verify(token, now).map_err(|why| refused(&why))?;
        let Some(id) = checked(claims.sub) else {
            return Err(refused(&format!("`sub` is longer than {MAX_ID} bytes or not plain text")));
        };
        let user = User {
            id,
            email: claims.email.and_then(checked),
            name: claims.name.and_then(checked),
            role: claims.role.and_then(checked),
        };
        Ok((Some(user), chat))
    }
}

/// A value as an id, if it can be one.
fn plain(value: &HeaderValue) -> Option<String> {
    checked(std::str::from_utf8(value.as_bytes()).ok()?.to_owned())
}

/// A text, if it is something, not too long, and cannot break a line anywhere.
fn checked(text: String) -> Option<String> {
    let is_fine = !text.trim().is_empty() && text.len() <= MAX_ID;
    (is_fine && !text.contains(char::is_control)).then_some(text)
}

/// A name as it was before it was percent-encoded; one that was not stays as it is.
fn decoded(name: String) -> String {
    match percent_decode_str(&name).decode_utf8() {
        Ok(decoded) => decoded.into_owned(),
        Err(_) => name,
    }
}

/// What tells one credential from another, and gives none away.
fn credential(headers: &HeaderMap, key: Option<&KeyName>) -> Result<Option<[u8; 32]>, Refusal> {
    let foreign = only(headers, &AUTHORIZATION)?.filter(|value| !value.is_empty());
    // The kinds are kept apart: a client cannot pass for a key by sending its name.
    let (kind, value) = match (key, foreign) {
        (Some(name), _) => ("key", name.as_str().as_bytes()),
        (None, Some(value)) => ("authorization", value.as_bytes()),
        (None, None) => return Ok(None),
    };
    let hash = Sha256::new().chain_update(kind).chain_update([0]).chain_update(value);
    Ok(Some(hash.finalize().into()))
}

#[cfg(test)]
mod tests {
    use super::super::token;
    use super::*;
    use crate::config::{BridgeSettings, Secret};
    use std::time::{Duration, UNIX_EPOCH};

    /// A proxy that is trusted.
    const PROXY: &str = "10.0.0.1";
    /// A peer that is not.
    const STRANGER: &str = "203.0.113.9";
    const SECRET: &[u8] = b"a secret of both";
    const NOW: u64 = 1_800_000_000;

    type Headers<'a> = &'a [(&'static str, &'a str)];

    fn identities(secret: Option<&[u8]>) -> Identities {
        let trusted = vec!["10.0.0.0/8".parse().unwrap()];
        let max_age = Duration::from_secs(3600);
        let verifier = secret.map(|secret| Verifier { secret: Secret::new(secret), max_age });
        Identities::new(trusted, BridgeSettings::unset().identity, verifier, false)
    }

    fn identify(
        secret: Option<&[u8]>,
        peer: &str,
        key: Option<&str>,
        headers: Headers<'_>,
    ) -> Result<Identity, Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let now = UNIX_EPOCH + Duration::from_secs(NOW);
        let key = key.map(|name| KeyName::Named(name.into()));
        identities(secret).identify_at(&map, peer.parse().unwrap(), key.as_ref(), now)
    }

    /// What is left of an identity on one line: address, user, chat, session.
    fn line(found: &Result<Identity, Refusal>) -> String {
        match found {
            Err(refusal) => refusal.status().to_string(),
            Ok(identity) => {
                let user = identity.user.as_ref().map(|user| user.id.as_str());
                let known = if identity.is_known_address { "" } else { "?" };
                let or_dash = |text: Option<&str>| text.unwrap_or("-").to_owned();
                format!(
                    "{}{known} {} {} {}",
                    identity.address,
                    or_dash(user),
                    or_dash(identity.chat.as_deref()),
                    or_dash(identity.session.as_deref()),
                )
            }
        }
    }

    /// Compares what plain headers give.
    #[track_caller]
    fn check(peer: &str, key: Option<&str>, headers: Headers<'_>, expected: &str) {
        assert_eq!(line(&identify(None, peer, key, headers)), expected, "{peer} {headers:?}");
    }

    /// Compares what they give where a secret is set.
    #[track_caller]
    fn check_signed(peer: &str, key: Option<&str>, headers: Headers<'_>, expected: &str) {
        let found = identify(Some(SECRET), peer, key, headers);
        assert_eq!(line(&found), expected, "{peer} {headers:?}");
    }

    const FROM: (&str, &str) = ("x-forwarded-for", "198.51.100.7");
    const USER: (&str, &str) = ("x-openwebui-user-id", "u1");
    const CHAT: (&str, &str) = ("x-openwebui-chat-id", "c1");

    #[test]
    fn nothing_a_stranger_says_of_himself_counts() {
        let plain = "203.0.113.9 - - -";
        check(STRANGER, None, &[], plain);
        check(STRANGER, None, &[FROM], plain);
        check(STRANGER, None, &[("x-real-ip", "198.51.100.7")], plain);
        check(STRANGER, None, &[("forwarded", "for=198.51.100.7")], plain);
        check(STRANGER, None, &[USER, CHAT], plain);
        check(STRANGER, None, &[FROM, FROM, USER, USER, CHAT, CHAT], plain);
        check_signed(STRANGER, None, &[USER, CHAT, ("x-openwebui-user-jwt", "rubbish")], plain);
        // A session is only the client's own word for its conversation.
        check(STRANGER, None, &[("x-session-id", "s1")], "203.0.113.9 - - s1");
    }

    #[test]
    fn a_trusted_proxy_says_who_and_where() {
        check(PROXY, None, &[FROM, USER, CHAT], "198.51.100.7 u1 c1 -");
        check(PROXY, None, &[USER, CHAT], "10.0.0.1? u1 c1 -");
        check(PROXY, None, &[FROM, CHAT], "198.51.100.7 - c1 -");
        check("::ffff:10.0.0.1", None, &[FROM, USER], "198.51.100.7 u1 - -");
        check(PROXY, None, &[FROM, ("x-session-id", "s1")], "198.51.100.7 - - s1");
        // Not even a proxy is asked for `Forwarded`: one way to say it is enough.
        check(PROXY, None, &[("forwarded", "for=198.51.100.7")], "10.0.0.1? - - -");
    }

    #[test]
    fn an_api_key_makes_a_user_believable_but_no_address() {
        check(STRANGER, Some("k"), &[FROM, USER, CHAT], "203.0.113.9 u1 c1 -");
        check(STRANGER, Some("k"), &[("x-real-ip", "198.51.100.7")], "203.0.113.9 - - -");
    }

    #[test]
    fn an_id_that_is_none_is_no_id() {
        let long = "x".repeat(MAX_ID + 1);
        for id in ["", " ", "a\tb", &long] {
            check(PROXY, None, &[FROM, ("x-openwebui-user-id", id), CHAT], "198.51.100.7 - c1 -");
            check(PROXY, None, &[FROM, ("x-openwebui-chat-id", id), USER], "198.51.100.7 u1 - -");
            check(STRANGER, None, &[("x-session-id", id)], "203.0.113.9 - - -");
        }
        let longest = "x".repeat(MAX_ID);
        let expected = format!("203.0.113.9 - - {longest}");
        check(STRANGER, None, &[("x-session-id", &longest)], &expected);
        check(
            PROXY,
            None,
            &[FROM, ("x-openwebui-chat-id", "channel:9 é")],
            "198.51.100.7 - channel:9 é -",
        );
    }

    #[test]
    fn a_header_that_stands_twice_and_would_count_is_refused() {
        check(PROXY, None, &[USER, USER], "400");
        check(PROXY, None, &[CHAT, ("x-openwebui-chat-id", "c2")], "400");
        let mail = ("x-openwebui-user-email", "a@b.c");
        check(PROXY, None, &[USER, mail, mail], "400");
        check(PROXY, None, &[("x-real-ip", "1.2.3.4"), ("x-real-ip", "1.2.3.4")], "400");
        check(STRANGER, None, &[("x-session-id", "a"), ("x-session-id", "a")], "400");
        check(STRANGER, None, &[("authorization", "a"), ("authorization", "a")], "400");
        check(STRANGER, Some("k"), &[USER, USER], "400");
        check_signed(
            PROXY,
            None,
            &[("x-openwebui-user-jwt", "a"), ("x-openwebui-user-jwt", "a")],
            "400",
        );
    }

    #[test]
    fn all_that_is_known_of_a_user_is_kept() {
        let found = identify(
            None,
            PROXY,
            None,
            &[
                USER,
                ("x-openwebui-user-email", "taro@example.com"),
                ("x-openwebui-user-name", "%E5%B1%B1%E7%94%B0 %E5%A4%AA%E9%83%8E"),
                ("x-openwebui-user-role", "admin"),
            ],
        );
        let user = found.unwrap().user.unwrap();
        assert_eq!(user.email.as_deref(), Some("taro@example.com"));
        assert_eq!(user.name.as_deref(), Some("山田 太郎"));
        assert_eq!(user.role.as_deref(), Some("admin"));
    }

    #[test]
    fn a_name_cannot_smuggle_a_line_break_or_break_off() {
        let name = |value: &str| {
            let found = identify(None, PROXY, None, &[USER, ("x-openwebui-user-name", value)]);
            found.unwrap().user.unwrap().name
        };
        assert_eq!(name("a%0d%0ab"), None);
        assert_eq!(name("a%00"), None);
        assert_eq!(name("%ff"), Some("%ff".to_owned()));
        assert_eq!(name("50%"), Some("50%".to_owned()));
        assert_eq!(name("山田"), Some("山田".to_owned()));
    }

    fn signed(changes: &str, secret: &[u8]) -> String {
        let claims = format!(
            "{{\"sub\":\"u9\",\"iss\":\"open-webui\",\"iat\":{NOW},\"exp\":{}{changes}}}",
            NOW + 300
        );
        token::sign(r#"{"alg":"HS256"}"#, &claims, secret)
    }

    #[test]
    fn with_a_secret_only_a_signed_token_names_a_user() {
        let token = signed("", SECRET);
        let jwt = ("x-openwebui-user-jwt", token.as_str());
        check_signed(PROXY, None, &[FROM, jwt, CHAT], "198.51.100.7 u9 c1 -");
        check_signed(PROXY, None, &[FROM, jwt, USER], "198.51.100.7 u9 - -");
        check_signed(STRANGER, Some("k"), &[jwt, CHAT], "203.0.113.9 u9 c1 -");
        check_signed(STRANGER, None, &[jwt, CHAT], "203.0.113.9 - - -");
        check_signed(PROXY, None, &[FROM, USER, CHAT], "198.51.100.7 - - -");
        // Without a secret nobody can tell whether a token is true, so it says nothing.
        check(PROXY, None, &[FROM, jwt, USER], "198.51.100.7 u1 - -");
    }

    #[test]
    fn a_forged_token_is_refused_with_the_reason() {
        let refused = |token: &str, reason: &str| {
            let headers = [("x-openwebui-user-jwt", token), USER, CHAT];
            let refusal = identify(Some(SECRET), PROXY, None, &headers).unwrap_err();
            assert_eq!(refusal.status(), 401);
            let text = refusal.text();
            assert!(text.contains(reason) && text.contains("x-openwebui-user-jwt"), "{text}");
        };
        refused(&signed("", b"another"), "signature is wrong");
        refused(&signed(",\"nbf\":1900000000", SECRET), "future");
        refused("rubbish", "not a token");
        refused("", "not a token");
        let long =
            format!("{{\"sub\":\"{}\",\"iss\":\"open-webui\",\"exp\":1e10}}", "x".repeat(300));
        refused(&token::sign(r#"{"alg":"HS256"}"#, &long, SECRET), "longer than 256 bytes");
        refused(&token::sign(r#"{"alg":"none"}"#, "{}", SECRET), "only HS256");
    }

    #[test]
    fn credentials_differ_and_nobody_passes_for_a_key_by_its_name() {
        let credential = |key: Option<&str>, headers: Headers<'_>| {
            identify(None, STRANGER, key, headers).unwrap().credential
        };
        assert_eq!(credential(None, &[]), None);
        assert_eq!(credential(None, &[("authorization", "")]), None);
        let all = [
            credential(Some("alice"), &[("authorization", "Bearer K1")]),
            credential(Some("bob"), &[("authorization", "Bearer K1")]),
            credential(None, &[("authorization", "alice")]),
            credential(None, &[("authorization", "Bearer K1")]),
        ];
        let different: std::collections::HashSet<_> = all.iter().flatten().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(all[0], credential(Some("alice"), &[]), "a key is known by its name");
    }
}
