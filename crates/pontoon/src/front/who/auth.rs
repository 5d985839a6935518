//! May they: API keys, as mcpo has them, with its exact answers.
//!
//! A key is shown in `Authorization`, or in `X-API-Key` where a front end puts the user's own token for
//! the server there. What opened the bridge is not for the server to see.
//!
//! Who asks is another question, and `identity` answers it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use pontoon_wire::error::code;

use super::super::refusal::Refusal;
use crate::config::{ApiKey, KeyName};

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// Tools: MCP in each of its forms, and calls by plain HTTP.
    Tool,
    /// `/health` and `/ready`. Open always, because a container's probe has no key; without one it
    /// tells only the status.
    Health,
    /// What tools there are, for clients that read OpenAPI, and the pages that show it.
    Document,
    /// `/metrics`.
    Metrics,
    /// `/files`.
    Files {
        /// Whether the link was signed by us, and so is a key itself.
        is_signed: bool,
    },
}

/// The keys that open the bridge.
pub struct Auth {
    keys: Vec<KnownKey>,
    is_strict: bool,
}

struct KnownKey {
    name: KeyName,
    /// Hashed, so that a comparison takes the same time for every length.
    hash: [u8; 32],
}

/// The header for a key whose client needs `Authorization` for something else.
pub const API_KEY: &str = "x-api-key";

/// What let a request pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass<'a> {
    /// Whose key it is.
    pub key: &'a KeyName,
    /// The headers that hold it, which are for us alone.
    pub headers: &'static [&'static str],
}

/// Why a request may not pass, in mcpo's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denied {
    status: u16,
    detail: &'static str,
    schemes: Option<&'static str>,
}

/// How a request showed a key.
enum Shown<'h> {
    Bearer(&'h [u8]),
    Basic(&'h [u8]),
    Other,
    Nothing,
}

impl Auth {
    /// These keys. Without any, everything is open; if `is_strict`, almost nothing is.
    pub fn new(keys: &[ApiKey], is_strict: bool) -> Self {
        let key = |key: &ApiKey| KnownKey { name: key.name.clone(), hash: hash(key.key.expose()) };
        Self { keys: keys.iter().map(key).collect(), is_strict }
    }

    /// Whether there is any key.
    pub fn is_on(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether there is the key without a name.
    pub fn has_unnamed_key(&self) -> bool {
        self.keys.iter().any(|key| key.name == KeyName::Unnamed)
    }

    /// Lets a request pass, and gives the key it showed.
    ///
    /// # Errors
    ///
    /// Why it may not: 401 without a key, 403 with a wrong one, 400 with two.
    pub fn check(&self, headers: &HeaderMap, area: Area) -> Result<Option<Pass<'_>>, Denied> {
        if self.keys.is_empty() {
            return Ok(None);
        }
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (value, None) = (values.next(), values.next()) else {
            return Err(Denied::new(400, "Authorization must be sent once", None));
        };
        let shown = Shown::of(value.map(HeaderValue::as_bytes));
        let mut others = headers.get_all(API_KEY).iter();
        let other = match (others.next(), others.next()) {
            (Some(value), None) => self.find(value.as_bytes().trim_ascii()),
            _ => None,
        };
        let pass = |key, headers| Ok(Some(Pass { key, headers }));
        match (self.admit(&shown, area), other) {
            (Ok(key), Some(other)) if key != other => {
                Err(Denied::new(400, "Authorization and X-API-Key hold two different keys", None))
            }
            (Ok(key), Some(_)) => pass(key, &["authorization", API_KEY]),
            (Ok(key), None) => pass(key, &["authorization"]),
            // What stands in `Authorization` is for the server, and not for us to judge.
            (Err(_), Some(key)) => pass(key, &[API_KEY]),
            (Err(_), None) if self.is_open(area) => Ok(None),
            (Err(denied), None) => Err(denied),
        }
    }

    fn is_open(&self, area: Area) -> bool {
        match area {
            Area::Health => true,
            Area::Tool | Area::Metrics => false,
            Area::Document => !self.is_strict,
            Area::Files { is_signed } => is_signed || !self.is_strict,
        }
    }

    /// The name of the key that was shown, or mcpo's words for why it was none.
    fn admit(&self, shown: &Shown<'_>, area: Area) -> Result<&KeyName, Denied> {
        let both = "Bearer, Basic";
        let missing = "Missing or invalid Authorization header";
        match shown {
            Shown::Bearer(key) => {
                self.find(key).ok_or_else(|| Denied::new(403, "Invalid API key", None))
            }
            Shown::Basic(encoded) if self.is_strict => {
                let Some(password) = password(encoded) else {
                    let text = "Invalid Basic Authentication format";
                    return Err(Denied::new(401, text, Some(both)));
                };
                let name = self.find(&password);
                let name = name.ok_or_else(|| Denied::new(403, "Invalid credentials", None))?;
                // A browser that has stored a password sends it by itself, so it runs no tool.
                match area {
                    Area::Tool => Err(Denied::new(401, missing, Some("Bearer"))),
                    _ => Ok(name),
                }
            }
            Shown::Other if self.is_strict => {
                Err(Denied::new(401, "Unsupported authorization method", Some(both)))
            }
            _ => Err(Denied::new(401, missing, Some(if self.is_strict { both } else { "Bearer" }))),
        }
    }

    /// The name of a key. Every key is compared, so that the time says nothing of which was near.
    fn find(&self, shown: &[u8]) -> Option<&KeyName> {
        let shown = hash(shown);
        let mut found = None;
        for key in &self.keys {
            if bool::from(key.hash.ct_eq(&shown)) {
                found = Some(&key.name);
            }
        }
        found
    }
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.keys.iter().map(|key| key.name.as_str()).collect();
        f.debug_struct("Auth").field("keys", &names).field("is_strict", &self.is_strict).finish()
    }
}

impl Denied {
    fn new(status: u16, detail: &'static str, schemes: Option<&'static str>) -> Self {
        Self { status, detail, schemes }
    }

    /// The refusal where mcpo's clients ask.
    pub fn plain(self) -> Refusal {
        self.with_schemes(Refusal::plain(self.status, self.detail))
    }

    /// The refusal where MCP clients ask, which show the text of an error and nothing else.
    pub fn mcp(self) -> Refusal {
        let (code, what_to_do) = match self.status {
            401 => (
                code::UNAUTHORIZED,
                "show a key of this bridge (MCPO_API_KEY or MCPO_API_KEYS) as `Authorization: Bearer KEY` or `X-API-Key: KEY`",
            ),
            403 => (
                code::FORBIDDEN,
                "what was shown is none of the keys of this bridge (MCPO_API_KEY, MCPO_API_KEYS); if it is for the \
                 server behind, show the key of the bridge as `X-API-Key: KEY`",
            ),
            _ => (code::INVALID_REQUEST, "show one key, once"),
        };
        let text = format!("{}: {what_to_do}", self.detail);
        self.with_schemes(Refusal::new(self.status, code, text))
    }

    fn with_schemes(self, refusal: Refusal) -> Refusal {
        match self.schemes {
            // Each in a line of its own: browsers read no more of a line than its first scheme.
            Some(schemes) => schemes.split(", ").fold(refusal, |refusal, scheme| {
                refusal.with_header(WWW_AUTHENTICATE, HeaderValue::from_static(scheme))
            }),
            None => refusal,
        }
    }
}

impl<'h> Shown<'h> {
    fn of(value: Option<&'h [u8]>) -> Self {
        let Some(value) = value.map(<[u8]>::trim_ascii).filter(|value| !value.is_empty()) else {
            return Self::Nothing;
        };
        let end = value.iter().position(|byte| *byte == b' ').unwrap_or(value.len());
        let (scheme, rest) = value.split_at(end);
        match rest.trim_ascii_start() {
            [] => Self::Other,
            key if scheme.eq_ignore_ascii_case(b"bearer") => Self::Bearer(key),
            key if scheme.eq_ignore_ascii_case(b"basic") => Self::Basic(key),
            _ => Self::Other,
        }
    }
}

/// The password of a Basic value; any user has it.
fn password(encoded: &[u8]) -> Option<Vec<u8>> {
    let decoded = STANDARD.decode(encoded).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;
    use crate::front::body::ResponseBody;

    const LAX: bool = false;
    const STRICT: bool = true;
    const FILES: Area = Area::Files { is_signed: false };
    const SIGNED: Area = Area::Files { is_signed: true };

    const MISSING: &str = r#"401 {"detail":"Missing or invalid Authorization header"} Bearer"#;
    const STRICT_MISSING: &str =
        r#"401 {"detail":"Missing or invalid Authorization header"} Bearer, Basic"#;
    const WRONG: &str = r#"403 {"detail":"Invalid API key"}"#;
    const WRONG_PASSWORD: &str = r#"403 {"detail":"Invalid credentials"}"#;
    const BAD_BASIC: &str = r#"401 {"detail":"Invalid Basic Authentication format"} Bearer, Basic"#;
    const UNSUPPORTED: &str = r#"401 {"detail":"Unsupported authorization method"} Bearer, Basic"#;

    /// What an answer says on one line: status, body, schemes.
    fn line(refusal: Refusal) -> String {
        let answer = refusal.into_response();
        let schemes: Vec<_> = answer.headers().get_all(WWW_AUTHENTICATE).iter().collect();
        let schemes: Vec<_> = schemes.iter().map(|it| it.to_str().unwrap().to_owned()).collect();
        let status = answer.status().as_u16();
        let ResponseBody::Text(pieces) = answer.into_body() else { panic!("a text is expected") };
        let body = pieces.into_iter().flatten().collect::<Vec<u8>>();
        let schemes =
            if schemes.is_empty() { String::new() } else { format!(" {}", schemes.join(", ")) };
        format!("{status} {}{schemes}", String::from_utf8(body).unwrap())
    }

    fn asked(auth: &Auth, area: Area, values: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        match auth.check(&headers, area) {
            Ok(pass) => pass.map_or("open", |pass| pass.key.as_str()).to_owned(),
            Err(denied) => line(denied.plain()),
        }
    }

    fn keys(pairs: &[(&str, &str)]) -> Vec<ApiKey> {
        let key = |(name, key): &(&str, &str)| ApiKey {
            name: KeyName::Named((*name).into()),
            key: Secret::new(*key),
        };
        pairs.iter().map(key).collect()
    }

    /// Asks with two keys in place, `alice` = `K-one` and `bob` = `K:two`.
    #[track_caller]
    fn check(is_strict: bool, area: Area, value: &str, expected: &str) {
        let keys = keys(&[("alice", "K-one"), ("bob", "K:two")]);
        let values: &[&str] = if value == "-" { &[] } else { &[value] };
        let found = asked(&Auth::new(&keys, is_strict), area, values);
        assert_eq!(found, expected, "{is_strict} {area:?} {value}");
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn tools_need_a_bearer_key() {
        for area in [Area::Tool, Area::Metrics] {
            check(LAX, area, "Bearer K-one", "alice");
            check(LAX, area, "bearer  K:two", "bob");
            check(LAX, area, "-", MISSING);
            check(LAX, area, "", MISSING);
            check(LAX, area, "Bearer", MISSING);
            check(LAX, area, "Bearer ", MISSING);
            check(LAX, area, "K-one", MISSING);
            check(LAX, area, "BearerK-one", MISSING);
            check(LAX, area, "Digest K-one", MISSING);
            check(LAX, area, &basic("any:K-one"), MISSING);
            check(LAX, area, "Bearer K-on", WRONG);
            check(LAX, area, "Bearer K-one2", WRONG);
            check(LAX, area, "Bearer k-one", WRONG);
            check(LAX, area, "Bearer alice", WRONG);
            check(LAX, area, "Bearer K-one K:two", WRONG);
            check(LAX, area, "Bearer K-oné", WRONG);
        }
    }

    #[test]
    fn health_and_files_are_open_unless_auth_is_strict() {
        for area in [Area::Health, FILES, SIGNED] {
            check(LAX, area, "-", "open");
            check(LAX, area, "Bearer wrong", "open");
            check(LAX, area, "Bearer K-one", "alice");
        }
        for area in [FILES, Area::Metrics, Area::Tool] {
            check(STRICT, area, "-", STRICT_MISSING);
            check(STRICT, area, "Bearer wrong", WRONG);
            check(STRICT, area, "Bearer K-one", "alice");
        }
        for area in [Area::Health, SIGNED] {
            check(STRICT, area, "-", "open");
            check(STRICT, area, "Bearer wrong", "open");
            check(STRICT, area, "Bearer K-one", "alice");
        }
    }

    #[test]
    fn strict_auth_takes_a_password_of_any_user_for_all_but_tools() {
        check(STRICT, FILES, &basic("any:K-one"), "alice");
        check(STRICT, FILES, &basic(":K:two"), "bob");
        check(STRICT, Area::Metrics, &basic("a:K-one"), "alice");
        check(STRICT, FILES, &basic("a:K-one"), "alice");
        check(STRICT, Area::Tool, &basic("any:K-one"), MISSING);
        for area in [FILES, Area::Tool] {
            check(STRICT, area, &basic("any:wrong"), WRONG_PASSWORD);
            check(STRICT, area, &basic("K-one:"), WRONG_PASSWORD);
            check(STRICT, area, &basic("K-one"), BAD_BASIC);
            check(STRICT, area, "Basic ???", BAD_BASIC);
            check(STRICT, area, "Digest x", UNSUPPORTED);
            check(STRICT, area, "K-one", UNSUPPORTED);
        }
    }

    #[test]
    fn two_authorizations_are_refused_everywhere() {
        let auth = Auth::new(&keys(&[("alice", "K-one")]), LAX);
        let expected = r#"400 {"detail":"Authorization must be sent once"}"#;
        for area in [Area::Tool, Area::Health, FILES] {
            assert_eq!(asked(&auth, area, &["Bearer K-one", "Bearer K-one"]), expected);
            assert_eq!(asked(&auth, area, &["Bearer x", "Bearer K-one"]), expected);
        }
    }

    #[test]
    fn a_key_beside_an_authorization_of_the_servers_own_opens_as_well() {
        let auth = Auth::new(&keys(&[("alice", "K-one"), ("bob", "K:two")]), STRICT);
        let check = |authorization: &str, key: &str, area: Area, expected: &str| {
            let mut headers = HeaderMap::new();
            let values = [(AUTHORIZATION.as_str(), authorization), (API_KEY, key)];
            for (name, value) in values.into_iter().filter(|(_, value)| !value.is_empty()) {
                headers.append(name, HeaderValue::from_str(value).unwrap());
            }
            let found = match auth.check(&headers, area) {
                Ok(pass) => {
                    pass.map_or_else(String::new, |it| format!("{} {:?}", it.key, it.headers))
                }
                Err(denied) => denied.status.to_string(),
            };
            assert_eq!(found, expected, "{authorization:?} {key:?}");
        };
        for area in [Area::Tool, Area::Metrics] {
            check("Bearer the.users.own", "K-one", area, r#"alice ["x-api-key"]"#);
            check("Digest of-some-kind", "K-one", area, r#"alice ["x-api-key"]"#);
            check("", " K:two ", area, r#"bob ["x-api-key"]"#);
            check("Bearer K-one", "K-one", area, r#"alice ["authorization", "x-api-key"]"#);
            check("Bearer K-one", "of-the-server", area, r#"alice ["authorization"]"#);
            check("Bearer K-one", "K:two", area, "400");
            check("Bearer the.users.own", "wrong", area, "403");
            check("", "wrong", area, "401");
        }
    }

    #[test]
    fn an_mcp_client_is_told_what_to_do() {
        let auth = Auth::new(&keys(&[("alice", "K-one")]), LAX);
        let told = auth.check(&HeaderMap::new(), Area::Tool).unwrap_err().mcp();
        let expected = r#"401 {"jsonrpc":"2.0","id":null,"error":{"code":-31401,"message":"Missing or invalid Authorization header: show a key of this bridge (MCPO_API_KEY or MCPO_API_KEYS) as `Authorization: Bearer KEY` or `X-API-Key: KEY`"}} Bearer"#;
        assert_eq!(line(told), expected);
    }

    #[test]
    fn without_keys_everything_is_open() {
        let auth = Auth::new(&[], STRICT);
        assert!(!auth.is_on());
        for area in [Area::Tool, Area::Health, Area::Metrics, FILES] {
            assert_eq!(asked(&auth, area, &[]), "open");
            assert_eq!(asked(&auth, area, &["Bearer x"]), "open");
        }
    }

    #[test]
    fn no_key_shows_in_a_log() {
        let auth = Auth::new(&keys(&[("alice", "K-one")]), LAX);
        assert_eq!(format!("{auth:?}"), r#"Auth { keys: ["alice"], is_strict: false }"#);
    }
}
