//! Requests that are too large.

use super::{rpc, server};
use crate::app::test_bridge::TestBridge;
use crate::app::test_bridge::request::{bare, post};

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |settings, _| settings.max_body = 1000);
    bridge.until_known().await;
    let large = format!("{{\"x\":\"{}\"}}", "y".repeat(1000));
    let why = "the body is larger than 1000 bytes (MCPO_MAX_BODY)";
    let refused = format!("{{\"detail\":\"{why}\"}}");
    for path in ["/demo/wait", "/mcpo/demo/wait"] {
        let response = bridge.connect().send(&post(path, &[], &large)).await;
        assert_eq!((response.status, response.header("connection")), (413, Some("close")));
        assert_eq!(response.body().await, refused, "{path}");
    }
    // What is said to come is enough.
    let said = bare("POST", "/demo/wait", &[("content-length", "1001")]);
    assert_eq!(bridge.connect().send(&said).await.status, 413);
    let call = rpc("\"id\":1,", "wait", &large);
    let response = bridge.connect().send(&post("/mcpo/demo", &[], &call)).await;
    assert_eq!((response.status, response.header("connection")), (413, Some("close")));
    let body = response.body().await;
    assert!(body.starts_with("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":"), "{body}");
    assert!(body.contains(why), "{body}");
    assert_eq!(server.work_heard(), []);
    let fits = bridge.connect().send(&post("/demo/wait", &[], "{}")).await;
    assert_eq!(fits.status, 200);
}
