//! CORS: what tells a browser that a page of another origin may read our answers, as mcpo tells it.
//!
//! Which pages those are is one list, that of the guard: a page that may call may also read. What is beyond mcpo are
//! the headers that scripts may look at, and a cache is told of the origin also where no page asks.

use hyper::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, HeaderValue,
    ORIGIN, VARY,
};
use hyper::{HeaderMap, Method, Request};

use super::body::ResponseBody;
use super::refusal::Refusal;
use super::response::{HttpResponse, empty};
use super::who::guard::Guard;

/// The methods that a page may use: all.
const METHODS: HeaderValue =
    HeaderValue::from_static("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");

/// How long a browser need not ask again, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// What a script needs besides the headers that it sees anyway: its session, the files of a call, when to try again,
/// and what to name to the operator.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("X-MCPO-Job-Id, Link, Mcp-Session-Id, Traceparent, Retry-After");

/// Which page may read the answer to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum PageAccess {
    /// None, whoever asks.
    Never,
    /// None this time: others may.
    NotThis,
    /// The page of this origin.
    Granted(HeaderValue),
}

impl PageAccess {
    /// What holds for a request with these headers.
    pub fn of(guard: &Guard, headers: &HeaderMap) -> Self {
        if guard.origins().is_empty() {
            return Self::Never;
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (Some(origin), None) if origin.to_str().is_ok_and(|it| guard.origins().has(it)) => {
                Self::Granted(origin.clone())
            }
            _ => Self::NotThis,
        }
    }

    /// The answer to a browser that asks whether a page may make a request; `None` if it is no such question. No key is
    /// asked for, because browsers show none here, but the host has to be one of ours.
    pub fn preflight<B>(&self, guard: &Guard, request: &Request<B>) -> Option<HttpResponse> {
        let asked = request.headers();
        let is_question = request.method() == Method::OPTIONS
            && asked.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
            && matches!(self, Self::Granted(_));
        if !is_question {
            return None;
        }
        if let Err(refusal) = guard.check(asked) {
            return Some(Refusal::into_detail(refusal));
        }
        let mut answer = empty(200);
        *answer.body_mut() = ResponseBody::text(&bytes::Bytes::from_static(b"OK").into());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        if let Some(wanted) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        Some(answer)
    }

    /// Says it in the headers of an answer.
    pub fn tell(self, headers: &mut HeaderMap) {
        if self == Self::Never {
            return;
        }
        // Also where no page is granted: else a cache could give this answer to one that is.
        headers.append(VARY, HeaderValue::from_static("Origin"));
        let Self::Granted(origin) = self else { return };
        if !headers.contains_key(ACCESS_CONTROL_ALLOW_METHODS) {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    }
}

#[cfg(test)]
mod tests {
    use crate::app::test_bridge::request::{bare, initialize, modern, post};
    use crate::app::test_bridge::{TestBridge, TestResponse, ToolServer};
    use crate::config::{AllowedOrigins, ApiKey, BridgeSettings, KeyName, Secret};
    use pontoon_wire::Era;

    const PAGE: (&str, &str) = ("origin", "https://chat.example");

    fn bridge(change: impl FnOnce(&mut BridgeSettings)) -> TestBridge {
        let servers = ToolServer::new(Era::Legacy).servers();
        TestBridge::start(servers, |settings, _| {
            settings.allowed_origins = AllowedOrigins::These(vec![PAGE.1.to_owned()]);
            change(settings);
        })
    }

    fn locked(settings: &mut BridgeSettings) {
        let key = ApiKey { name: KeyName::Unnamed, key: Secret::new("hunter22") };
        (settings.api_keys, settings.strict_auth) = (vec![key], true);
    }

    /// What CORS says in an answer, in the order of the names.
    fn told(response: &TestResponse) -> Vec<String> {
        let names = ["origin", "credentials", "headers", "methods", "max-age", "expose"];
        let names = names.map(|name| match name {
            "expose" => "access-control-expose-headers".to_owned(),
            "max-age" => "access-control-max-age".to_owned(),
            name => format!("access-control-allow-{name}"),
        });
        let told = names.iter().filter_map(|name| response.header(name)).map(str::to_owned);
        told.chain(response.header("vary").map(|vary| format!("vary {vary}"))).collect()
    }

    const EXPOSED_NAMES: &str = "X-MCPO-Job-Id, Link, Mcp-Session-Id, Traceparent, Retry-After";

    #[tokio::test(start_paused = true)]
    async fn a_browser_that_asks_first_hears_what_mcpo_says_on_every_path_and_without_a_key() {
        let bridge = bridge(locked);
        let wanted = "authorization,content-type,mcp-protocol-version";
        let ask = ("access-control-request-method", "POST");
        for path in ["/mcp/demo", "/mcpo/demo/greet", "/demo/openapi.json", "/", "/files/x", "/no"]
        {
            let headers = [PAGE, ask, ("access-control-request-headers", wanted)];
            let response = bridge.connect().send(&bare("OPTIONS", path, &headers)).await;
            assert_eq!(response.status, 200, "{path}");
            let methods = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT";
            let expected = [PAGE.1, "true", wanted, methods, "600", "vary Origin"];
            assert_eq!(told(&response), expected, "{path}");
            assert_eq!(response.body().await, "OK");
        }
        let page = ("origin", "https://evil.example");
        let response = bridge.connect().send(&bare("OPTIONS", "/mcp/demo", &[page, ask])).await;
        assert_eq!((response.status, told(&response)), (403, vec!["vary Origin".to_owned()]));
        // A name of ours is needed all the same.
        let foreign =
            bare("OPTIONS", "/mcp/demo", &[PAGE, ask]).replace("127.0.0.1", "evil.example");
        assert_eq!(bridge.connect().send(&foreign).await.status, 403);
        // Without the question it is a request like others.
        let response = bridge.connect().send(&bare("OPTIONS", "/mcp/demo", &[PAGE])).await;
        assert_eq!(response.status, 401);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_reads_every_answer_errors_and_streams_too() {
        let readable = || vec![PAGE.1, "true", EXPOSED_NAMES, "vary Origin"];
        let open = bridge(|_| {});
        let call = modern(1, "tools/call", "\"name\":\"wait\",\"arguments\":{\"seconds\":60}");
        let with_page =
            |request: &str| request.replacen("\r\n", &format!("\r\norigin: {}\r\n", PAGE.1), 1);
        let stream = open.connect().send(&with_page(&call)).await;
        assert!(stream.is_stream());
        assert_eq!(told(&stream), readable());
        let session = post("/mcp/demo", &[], &initialize("2025-11-25", "{}"));
        let response = open.connect().send(&with_page(&session)).await;
        assert!(response.header("mcp-session-id").is_some());
        assert_eq!(told(&response), readable());
        let locked = bridge(locked);
        let key = ("authorization", "Bearer hunter22");
        for (bridge, request, status) in [
            (&open, bare("GET", "/health", &[PAGE]), 200),
            (&open, bare("GET", "/demo/openapi.json", &[PAGE]), 200),
            (&open, bare("GET", "/nowhere/at/all", &[PAGE]), 404),
            (&open, bare("PUT", "/mcp/demo", &[PAGE]), 405),
            (&open, post("/mcp/demo", &[PAGE], "{"), 400),
            (&locked, bare("GET", "/demo/openapi.json", &[PAGE]), 401),
            (&locked, bare("GET", "/metrics", &[PAGE, ("authorization", "Bearer no")]), 403),
            (&locked, bare("GET", "/metrics", &[PAGE, key]), 200),
        ] {
            let response = bridge.connect().send(&request).await;
            assert_eq!(response.status, status, "{request}");
            assert_eq!(told(&response), readable(), "{request}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_pages_that_are_named_may_read() {
        let named = bridge(|_| {});
        let any = bridge(|settings| settings.allowed_origins = AllowedOrigins::Any);
        let none = bridge(|settings| settings.allowed_origins = AllowedOrigins::default());
        let get = |origins: &[&str]| {
            let headers: Vec<_> = origins.iter().map(|origin| ("origin", *origin)).collect();
            bare("GET", "/health", &headers)
        };
        for (bridge, origins, status, granted) in [
            (&named, &[][..], 200, None),
            // A page of this machine may call, as it always might.
            (&named, &["http://localhost:3000"], 200, None),
            (&named, &["https://chat.example.evil"], 403, None),
            (&named, &["HTTPS://CHAT.example"], 200, Some("HTTPS://CHAT.example")),
            (&named, &[PAGE.1, PAGE.1], 200, None),
            (&any, &["https://evil.example"], 200, Some("https://evil.example")),
            (&any, &["null"], 200, Some("null")),
            (&none, &[], 200, None),
            (&none, &[PAGE.1], 403, None),
        ] {
            let response = bridge.connect().send(&get(origins)).await;
            assert_eq!(response.status, status, "{origins:?}");
            assert_eq!(response.header("access-control-allow-origin"), granted, "{origins:?}");
            let vary = (!std::ptr::eq(bridge, &none)).then_some("Origin");
            assert_eq!(response.header("vary"), vary, "{origins:?}");
        }
        let ask = ("access-control-request-method", "POST");
        let response = none.connect().send(&bare("OPTIONS", "/demo/greet", &[ask])).await;
        assert_ne!(response.status, 200);
    }
}
