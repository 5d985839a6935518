//! Pages of other origins, as a browser asks for them: the real program, by its option and its variable.

use pontoon_tests::client::{Legacy, Modern, Request, Response, Speaker};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::json;

use crate::{fixture, plan};

const CHAT: &str = "https://chat.example";

fn ask(rig: &Rig, path: &str, origin: &str) -> Response {
    Request::new("OPTIONS", path)
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "authorization,content-type")
        .send(rig.address())
        .unwrap()
}

fn granted(response: &Response) -> Option<&str> {
    response.head.header("access-control-allow-origin")
}

#[test]
fn pages_that_are_named_may_call_and_read_and_no_others() {
    let rig = plan([fixture("stateless")])
        .variable("MCPO_API_KEY", "the-key-of-all")
        .variable("MCPO_STRICT_AUTH", "true")
        .variable("MCPO_ALLOWED_ORIGINS", "https://elsewhere.example")
        .argument("--cors-allow-origins")
        .argument(CHAT)
        .argument("--cors-allow-origins=http://localhost:3000")
        .start();
    for path in ["/mcp/fixture", "/fixture/echo", "/mcpo/fixture/openapi.json", "/health"] {
        for origin in [CHAT, "http://localhost:3000"] {
            let answer = ask(&rig, path, origin);
            assert_eq!((answer.status(), granted(&answer)), (200, Some(origin)), "{path}");
            assert_eq!(
                answer.head.header("access-control-allow-headers"),
                Some("authorization,content-type")
            );
        }
        // The option stands in place of the variable.
        let answer = ask(&rig, path, "https://elsewhere.example");
        assert_eq!((answer.status(), granted(&answer)), (403, None), "{path}");
    }
    let call = |key: &str, delay: u32| {
        let body = json!({"ms": delay}).to_string();
        let request = Request::post("/fixture/wait", body).header("Origin", CHAT);
        request.header("Authorization", &format!("Bearer {key}")).send(rig.address()).unwrap()
    };
    for (key, status) in [("the-key-of-all", 200), ("another", 403)] {
        let answer = call(key, 1);
        assert_eq!((answer.status(), granted(&answer)), (status, Some(CHAT)), "{}", answer.text());
        assert_eq!(answer.head.header("access-control-allow-credentials"), Some("true"));
    }
    rig.stop();
}

#[test]
fn streams_and_refusals_for_want_of_room_can_be_read_by_a_page() {
    let rig = plan([fixture("stateless").with("timeout", 60)])
        .variable("MCPO_MAX_CONCURRENT", "1")
        .variable("MCPO_ALLOWED_ORIGINS", CHAT)
        .start();
    let stream = Request::new("GET", "/sse/fixture")
        .header("Accept", "text/event-stream")
        .header("Origin", CHAT)
        .begin(rig.address())
        .unwrap();
    assert_eq!((stream.head.status, stream.head.is_stream()), (200, true));
    assert_eq!(stream.head.header("access-control-allow-origin"), Some(CHAT));
    drop(stream);
    let long = Modern::new(&rig.endpoint("fixture")).send_call(1, "wait", json!({"ms": 3000}));
    rig.wait_for_gauge("running", 1);
    let body = json!({"ms": 1}).to_string();
    let busy = Request::post("/fixture/wait", body).header("Origin", CHAT);
    let busy = busy.send(rig.address()).unwrap();
    assert_eq!((busy.status(), granted(&busy)), (429, Some(CHAT)), "{}", busy.text());
    assert!(busy.head.header("retry-after").is_some());
    assert!(busy.head.header("access-control-expose-headers").unwrap().contains("Retry-After"));
    drop(long.begin().unwrap().finish().unwrap());
    // A page that nobody has named is refused as ever, and others hear nothing of CORS but that caches keep them apart.
    let foreign = Request::new("GET", "/health").header("Origin", "https://evil.example");
    assert_eq!(foreign.send(rig.address()).unwrap().status(), 403);
    let mut legacy = Legacy::open(&rig.endpoint("fixture"));
    let plain = legacy.call(1, "echo", json!({"text": "x"}));
    assert_eq!((granted(&plain), plain.head.header("vary")), (None, Some("Origin")));
    legacy.end();
    rig.stop();
}

#[test]
fn every_page_may_call_only_with_a_warning() {
    let rig = plan([fixture("stateless")]).argument("--cors-allow-origins=*").start();
    let warning = "--cors-allow-origins: every web page may call, and there is no API key";
    wait_until("it is told", std::time::Duration::from_secs(10), || rig.stderr().contains(warning));
    for origin in ["https://any.example", "null"] {
        let answer = ask(&rig, "/mcp/fixture", origin);
        assert_eq!((answer.status(), granted(&answer)), (200, Some(origin)));
    }
    // The name by which it is called has to be one of ours all the same: that is what a page cannot choose.
    let rebound = Request::new("GET", "/health").header("Origin", "https://any.example");
    let rebound = rebound.with("Host", "any.example").send(rig.address()).unwrap();
    assert_eq!(rebound.status(), 403, "{}", rebound.text());
    rig.stop();
}
