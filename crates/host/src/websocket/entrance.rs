//! Who may come in: the Host, the Origin and the token of a request, looked at before anything is answered.
//!
//! A web page that the user opens can reach every port of this machine. It cannot hide its origin; a name of its own that
//! suddenly means 127.0.0.1 shows in `Host`; and it does not know the token.

use subtle::ConstantTimeEq;
use tokio_tungstenite::tungstenite::handshake::server::Request;
use tokio_tungstenite::tungstenite::http::header::{
    AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL,
};
use tokio_tungstenite::tungstenite::http::{HeaderName, StatusCode};

use super::options::WebSocketError;

/// The sub-protocol of MCP, the only one that is ever agreed to.
pub(super) const SUB_PROTOCOL: &str = "mcp";

/// How a web page shows its token, which cannot set headers.
const TOKEN_PROTOCOL: &str = "bearer.";

/// Who may come in.
#[derive(Debug)]
pub(super) struct Entrance {
    token: Option<String>,
    origins: Vec<String>,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// What is wrong, and what to do.
    pub(super) words: &'static str,
}

impl Entrance {
    /// An entrance for those who show the token, if one is needed, and for pages of these origins.
    pub(super) fn new(token: Option<String>, origins: &[String]) -> Result<Self, WebSocketError> {
        let origins = origins.iter().map(|origin| {
            let plain = origin.trim_end_matches('/').to_ascii_lowercase();
            let is_origin = plain.split_once("://").is_some_and(|(scheme, host)| {
                !scheme.is_empty() && !host.is_empty() && !host.contains('/')
            });
            is_origin.then_some(plain).ok_or_else(|| WebSocketError::Origin(origin.clone()))
        });
        Ok(Self { token, origins: origins.collect::<Result<_, _>>()? })
    }

    /// Whether the request is for us and not of a foreign page.
    pub(super) fn check_place(&self, request: &Request) -> Result<(), Refusal> {
        let refuse = |words| Err(Refusal { status: StatusCode::FORBIDDEN, words });
        let is_ours = |host: &str| {
            let end = host.rfind(':').filter(|colon| !host[*colon..].contains(']'));
            let name = &host[..end.unwrap_or(host.len())];
            ["127.0.0.1", "[::1]", "localhost"].iter().any(|it| name.eq_ignore_ascii_case(it))
        };
        if !only(request, &HOST).is_some_and(is_ours)
            || request.uri().authority().is_some_and(|it| !is_ours(it.as_str()))
        {
            return refuse(
                "the Host is not this machine: connect to 127.0.0.1, [::1] or localhost",
            );
        }
        let has_origin = request.headers().contains_key(ORIGIN);
        let is_known = |origin: &str| self.origins.contains(&origin.to_ascii_lowercase());
        if has_origin && !only(request, &ORIGIN).is_some_and(is_known) {
            return refuse(
                "pages of this Origin may not connect: the application has to name it in `origins`",
            );
        }
        Ok(())
    }

    /// Whether the request shows the token.
    pub(super) fn check_token(&self, request: &Request) -> Result<(), Refusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let shown = match request.headers().contains_key(AUTHORIZATION) {
            true => only(request, &AUTHORIZATION).and_then(|it| {
                let (scheme, shown) = it.split_once(' ')?;
                scheme.eq_ignore_ascii_case("bearer").then(|| shown.trim())
            }),
            false => protocols(request).find_map(|it| it.strip_prefix(TOKEN_PROTOCOL)),
        };
        if shown.is_some_and(|shown| shown.as_bytes().ct_eq(token.as_bytes()).into()) {
            return Ok(());
        }
        let words = match shown {
            None => {
                "a token is needed: `Authorization: Bearer TOKEN`, or from a web page the sub-protocols `mcp` and `bearer.TOKEN`"
            }
            Some(_) => {
                "the token is not the right one: the application shows it, and may have a new one each time"
            }
        };
        Err(Refusal { status: StatusCode::UNAUTHORIZED, words })
    }

    /// Whether the client offers our sub-protocol.
    pub(super) fn offers_sub_protocol(request: &Request) -> bool {
        protocols(request).any(|it| it == SUB_PROTOCOL)
    }
}

/// The sub-protocols that the client offers.
fn protocols(request: &Request) -> impl Iterator<Item = &str> {
    let offers = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    offers.filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(',')).map(str::trim)
}

/// A header that is there once.
fn only<'r>(request: &'r Request, name: &HeaderName) -> Option<&'r str> {
    let mut all = request.headers().get_all(name).iter();
    let one = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    /// What becomes of a request with these headers: the status of its refusal, or zero.
    #[track_caller]
    fn check(headers: &[(&str, &str)], expected: u16) {
        let origins = ["http://Localhost:3000/".to_owned()];
        let entrance = Entrance::new(Some(TOKEN.to_owned()), &origins).unwrap();
        let mut request = Request::builder().uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let checked = entrance.check_place(&request).and_then(|()| entrance.check_token(&request));
        assert_eq!(checked.err().map_or(0, |it| it.status.as_u16()), expected, "{headers:?}");
    }

    const RIGHT: (&str, &str) = ("Authorization", "bearer 0123456789abcdef");

    #[test]
    fn only_names_of_this_machine_are_ours() {
        for ours in ["127.0.0.1", "127.0.0.1:7400", "[::1]", "[::1]:7400", "LocalHost:1"] {
            check(&[("Host", ours), RIGHT], 0);
        }
        for foreign in [
            "",
            "evil.example",
            "evil.example:7400",
            "127.0.0.1.evil.example",
            "::1",
            "[::2]:1",
            "localhost@evil",
            "0.0.0.0:7400",
        ] {
            check(&[("Host", foreign), RIGHT], 403);
        }
        check(&[RIGHT], 403);
        check(&[("Host", "localhost"), ("Host", "localhost"), RIGHT], 403);
    }

    #[test]
    fn pages_of_other_origins_are_refused_whatever_they_show() {
        let host = ("Host", "localhost:7400");
        check(&[host, ("Origin", "http://localhost:3000"), RIGHT], 0);
        for foreign in [
            "https://evil.example",
            "null",
            "http://localhost:3001",
            "https://localhost:3000",
            "http://localhost:3000.evil",
            "",
        ] {
            check(&[host, ("Origin", foreign), RIGHT], 403);
        }
        let twice = ("Origin", "http://localhost:3000");
        check(&[host, twice, twice, RIGHT], 403);
    }

    #[test]
    fn a_token_is_shown_in_a_header_or_as_a_sub_protocol() {
        let host = ("Host", "localhost");
        let protocol = |it| ("Sec-WebSocket-Protocol", it);
        check(&[host], 401);
        check(&[host, protocol("mcp")], 401);
        check(&[host, protocol("mcp, bearer.0123456789abcdef")], 0);
        check(&[host, protocol("bearer.0123456789abcdef,mcp")], 0);
        check(&[host, protocol("mcp"), protocol("bearer.0123456789abcdef")], 0);
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcde",
            "Bearer",
            "Bearer ",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
        ] {
            check(&[host, ("Authorization", wrong)], 401);
            // A wrong header is not made good by something else.
            check(&[host, ("Authorization", wrong), protocol("bearer.0123456789abcdef")], 401);
        }
        check(&[host, protocol("bearer.0123456789abcdeF")], 401);
        check(&[host, RIGHT, RIGHT], 401);
    }

    #[test]
    fn an_origin_has_a_scheme_and_a_host() {
        for bad in ["localhost", "http://", "*", "http://a/b", "://x"] {
            assert!(Entrance::new(None, &[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
