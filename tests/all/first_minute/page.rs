//! The address of a server in a browser, and for clients as ever.

use pontoon_tests::client::{Request, Response};
use pontoon_tests::rig::Rig;

use super::{demo, demo_plan};
use crate::{fixture, plan};

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

fn get(rig: &Rig, path: &str, accept: &str) -> Response {
    Request::new("GET", path).header("Accept", accept).send(rig.address()).unwrap()
}

#[test]
fn a_browser_gets_a_page_and_clients_what_they_always_got() {
    let rig = demo();
    rig.wait_for_state("demo", "ready");
    let page = get(&rig, "/mcp/demo", BROWSER);
    assert_eq!(
        (page.status(), page.head.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = page.head.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
    let text = page.text();
    // As the request named the host.
    let url = "http://127.0.0.1/mcp/demo";
    for says in
        ["make_report", "Writes a title", "claude mcp add", "VS Code", "Make a sample file", url]
    {
        assert!(text.contains(says), "{says} is not in {text}");
    }
    assert!(!text.contains("<mark>"), "{text}");
    for (accept, status) in
        [("*/*", 405), ("text/event-stream", 405), ("text/html, text/event-stream", 405)]
    {
        assert_eq!(get(&rig, "/mcp/demo", accept).status(), status, "{accept}");
    }
    assert_eq!(get(&rig, "/mcp/other", BROWSER).status(), 404);
    rig.stop();
}

#[test]
fn to_look_at_a_page_starts_nothing() {
    let rig = plan([fixture("stateless")]).start();
    rig.wait_for_state("fixture", "ready");
    // Those that it was learnt with are gone.
    rig.wait_for_children(0);
    let starts = || rig.metric("pontoon_child_starts_total{server=\"fixture\"}");
    let learnt_with = starts();
    assert!(learnt_with > 0.0);
    let page = get(&rig, "/mcp/fixture", BROWSER);
    assert!(page.status() == 200 && page.text().contains("write_file"), "{}", page.text());
    assert_eq!((rig.children().len(), starts().to_string()), (0, learnt_with.to_string()));
    rig.stop();
}

#[test]
fn a_page_marks_where_a_key_goes_and_is_locked_where_all_is() {
    for (is_strict, status) in [("false", 200), ("true", 401)] {
        let rig = demo_plan()
            .variable("MCPO_API_KEY", "the-key-of-all")
            .variable("MCPO_STRICT_AUTH", is_strict)
            .start();
        rig.wait_for_state("demo", "ready");
        let page = get(&rig, "/mcp/demo", BROWSER);
        assert_eq!(page.status(), status);
        let text = page.text();
        assert!(!text.contains("the-key-of-all"), "{text}");
        assert_eq!(text.matches("Bearer <mark>KEY</mark>").count() >= 4, status == 200, "{text}");
        rig.stop();
    }
}
