//! REST and JSON-RPC in the whole bridge, in memory.

use std::time::Duration;

use pontoon_wire::{Era, json, string_value};

use crate::app::test_bridge::request::{bare, post};
use crate::app::test_bridge::{TestBridge, TestResponse, ToolServer};
use crate::back::pair::STATEFUL;
use crate::config::{ApiKey, KeyName, Secret, SessionKey, Template};

mod limits;
mod rpc;

const TOOLS: &[&str] = &["wait", "fail", "end", "never", "docs"];

fn server() -> ToolServer {
    ToolServer::new(Era::Legacy).listing(TOOLS)
}

async fn get(bridge: &TestBridge, path: &str) -> TestResponse {
    bridge.connect().send(&bare("GET", path, &[])).await
}

/// Posts a body, and gives the status and the body of the response.
async fn posted(bridge: &TestBridge, path: &str, body: &str) -> (u16, String) {
    let response = bridge.connect().send(&post(path, &[], body)).await;
    (response.status, response.body().await)
}

fn rpc(id: &str, method: &str, params: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",{id}\"method\":\"{method}\",\"params\":{params}}}")
}

/// The name by which clients know the tool `pick it0`.
async fn picker(bridge: &TestBridge) -> String {
    let (_, listed) = posted(bridge, "/mcpo/demo", &rpc("\"id\":1,", "tools/list", "{}")).await;
    let result = json::find(listed.as_bytes(), "result").unwrap();
    let tools = json::find(result, "tools").unwrap();
    let second = json::elements(tools, 0..tools.len()).nth(1).unwrap();
    string_value(json::find(&tools[second], "name").unwrap()).unwrap().into_owned()
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_a_path_below_its_server() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    for path in ["/mcpo/demo/wait", "/demo/wait", "/mcpo/demo/wait/", "/demo/wait/"] {
        assert_eq!(
            posted(&bridge, path, "{\"seconds\":0}").await,
            (200, "[]".to_owned()),
            "{path}"
        );
    }
    let empty =
        bridge.connect().send(&bare("POST", "/demo/wait", &[("content-length", "0")])).await;
    assert_eq!(empty.status, 200, "a tool that needs nothing needs no body");
    assert_eq!(server.work_heard().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_told_as_mcpo_does_and_starts_nothing() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    bridge.until_known().await;
    let not_found = "{\"detail\":\"Not Found\"}";
    let not_allowed = "{\"detail\":\"Method Not Allowed\"}";
    for (method, path, status, says) in [
        ("POST", "/mcpo/demo/nothing", 404, not_found),
        ("POST", "/demo/nothing", 404, not_found),
        ("GET", "/demo/nothing", 404, not_found),
        ("GET", "/demo/", 404, not_found),
        ("POST", "/demo", 404, not_found),
        ("GET", "/demo/wait", 405, not_allowed),
        ("DELETE", "/mcpo/demo/wait/", 405, not_allowed),
        ("POST", "/demo/redoc", 405, not_allowed),
        ("PUT", "/demo/openapi.json", 405, not_allowed),
        ("POST", "/openapi.json", 405, not_allowed),
        ("GET", "/mcpo/demo", 405, "JSON-RPC is posted here"),
        ("POST", "/mcpo/other/wait", 404, not_found),
        ("POST", "/mcpo/other", 404, "there is no server \\\"other\\\"; there are: demo"),
        ("GET", "/other/openapi.json", 404, not_found),
    ] {
        let request = bare(method, path, &[("content-length", "0")]);
        let response = bridge.connect().send(&request).await;
        let allow = response.header("allow").map(str::to_owned);
        assert_eq!(response.status, status, "{method} {path}");
        let body = response.body().await;
        assert!(body.contains(says), "{method} {path}: {body}");
        assert_eq!(allow.is_some(), status == 405, "{method} {path}");
    }
    assert_eq!(server.work_heard(), []);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_fit_is_told_without_a_process() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    let tool = format!("/mcpo/demo/{}", picker(&bridge).await);
    for (body, says) in [
        ("", r#"{"type":"missing","loc":["body"],"msg":"Field required","input":null}"#),
        ("null", r#"{"type":"missing","loc":["body"],"msg":"Field required","input":null}"#),
        ("{", r#""type":"json_invalid","loc":["body",1],"msg":"JSON decode error","input":{}"#),
        ("{}},\"x\":{", "json_invalid"),
        ("\"\\ud800\"", "the body cannot be passed on"),
        // Neither of the two that one of which is needed.
        (
            "{\"other\": 1}",
            r#"[{"type":"value_error","loc":["body"],"msg":"the arguments do not fit"#,
        ),
        ("{\"other\": 1}", r#""input":{"other": 1}}]"#),
        (
            r#"{"list":[1,2,3,4]}"#,
            r#"{"type":"too_long","loc":["body","list"],"msg":"List should have at most 3 items after validation, not 4","input":[1,2,3,4],"ctx":{"field_type":"List","max_length":3,"actual_length":4}}"#,
        ),
    ] {
        let (status, found) = posted(&bridge, &tool, body).await;
        assert!(found.contains(says), "{body}: {found}");
        assert_eq!(status, if says.contains("passed on") { 400 } else { 422 }, "{body}");
    }
    for (media, status) in [("text/plain", 422), ("application/x-www-form-urlencoded", 422)] {
        let form = bare("POST", &tool, &[("content-type", media), ("content-length", "2")]);
        let response = bridge.connect().send(&(form + "{}")).await;
        assert_eq!(response.status, status, "{media}: a text is no object");
    }
    assert_eq!(server.work_heard(), []);
}

#[tokio::test(start_paused = true)]
async fn arguments_reach_the_server_as_it_knows_them() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    let tool = picker(&bridge).await;
    let (status, _) = posted(&bridge, &format!("/demo/{tool}"), "{\"top\":5,\"more\":1.50}").await;
    assert_eq!(status, 200);
    server.until_heard("tools/call pick it0").await;
    for (body, got) in [
        ("{\"$top\":5,\"more\":1.50}", r#"{"$top":5,"more":1.50}"#),
        ("{\"$top\":\"5\"}", r#"{"$top":5}"#),
    ] {
        let path = "/demo/pick%20it0";
        assert_eq!(posted(&bridge, path, body).await.0, 200, "by its own names: {body}");
        assert_eq!(server.picked(), got, "{body}");
    }
    let document = get(&bridge, "/demo/openapi.json").await.body().await;
    assert!(document.contains("\"/pick it0\":") && document.contains("\"$top\":"), "{document}");
}

#[tokio::test(start_paused = true)]
async fn what_went_wrong_has_the_status_of_mcpo() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |settings, server| {
        settings.max_concurrent = 1;
        server.timeout = Duration::from_secs(20);
    });
    bridge.until_known().await;
    let message = |text: &str| format!("{{\"detail\":{{\"message\":\"{text}");
    let (status, body) = posted(&bridge, "/demo/fail", "{}").await;
    assert_eq!((status, body), (404, message("not here") + "\"}}"));
    let (status, body) = posted(&bridge, "/demo/end", "{}").await;
    assert!(status == 500 && body.starts_with(&message("")), "{status} {body}");
    let mut slow = bridge.connect();
    slow.write(&post("/demo/never", &[], "{}")).await;
    server.until_heard("tools/call never").await;
    let busy = bridge.connect().send(&post("/demo/wait", &[], "{}")).await;
    assert_eq!((busy.status, busy.header("retry-after")), (429, Some("5")));
    assert!(busy.body().await.contains("try again in 5 s"));
    let call = post("/mcpo/demo", &[], &rpc("\"id\":1,", "wait", "{}"));
    let busy = bridge.connect().send(&call).await;
    assert_eq!((busy.status, busy.header("retry-after")), (429, Some("5")));
    assert!(busy.body().await.contains("\"httpStatus\":429"));
    let late = slow.begin().await;
    assert_eq!(late.status, 504);
    assert!(late.body().await.contains("within 20 s"));
    bridge.until_quiet().await;
    let (status, late) = posted(&bridge, "/mcpo/demo", &rpc("\"id\":1,", "never", "{}")).await;
    assert!(status == 504 && late.contains("\"id\":1,\"error\""), "{late}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_away_cancels_its_call() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    for request in
        [post("/demo/never", &[], "{}"), post("/mcpo/demo", &[], &rpc("\"id\":1,", "never", "{}"))]
    {
        let before = server.work_heard().len();
        let heard = async |count: usize| {
            server.until_work_heard(before + count).await;
            server.work_heard().split_off(before)
        };
        let mut connection = bridge.connect();
        connection.write(&request).await;
        let called = heard(1).await;
        assert_eq!(called[0].1, "tools/call never", "{called:?}");
        let left = tokio::time::Instant::now();
        drop(connection);
        let all = heard(2).await;
        assert!(left.elapsed() < Duration::from_secs(1), "not when its time is over");
        assert_eq!(all[1], (called[0].0, "notifications/cancelled".to_owned()), "{all:?}");
        bridge.until_quiet().await;
    }
    assert_eq!(server.work_heard().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn keys_are_asked_for_as_mcpo_does() {
    let keyed = |is_strict| {
        TestBridge::start(server().servers(), move |settings, _| {
            let key = ApiKey { name: KeyName::Named("me".into()), key: Secret::new("K") };
            settings.api_keys = vec![key];
            settings.strict_auth = is_strict;
        })
    };
    let (lax, strict) = (keyed(false), keyed(true));
    let (none, bearer): (&[_], &[_]) = (&[], &[("authorization", "Bearer K")]);
    let wrong: &[_] = &[("authorization", "Bearer X")];
    let basic: &[_] = &[("authorization", "Basic dTpL")];
    let missing = "{\"detail\":\"Missing or invalid Authorization header\"}";
    for (bridge, path, headers, status, says) in [
        (&lax, "/demo/wait", none, 401, missing),
        (&lax, "/demo/wait", wrong, 403, "{\"detail\":\"Invalid API key\"}"),
        (&lax, "/demo/wait", bearer, 200, "[]"),
        (&lax, "/mcpo/demo", none, 401, "\"jsonrpc\":\"2.0\""),
        (&strict, "/demo/wait", basic, 401, missing),
        (&strict, "/demo/wait", bearer, 200, "[]"),
    ] {
        let response = bridge.connect().send(&post(path, headers, "{}")).await;
        assert_eq!(response.status, status, "{path} {headers:?}");
        let body = response.body().await;
        assert!(body.contains(says), "{path} {headers:?}: {body}");
    }
    for path in
        ["/demo/openapi.json", "/mcpo/demo/docs", "/openapi.json", "/mcpo/openapi.json", "/"]
    {
        for (bridge, headers, status) in
            [(&lax, none, 200), (&strict, none, 401), (&strict, basic, 200), (&strict, bearer, 200)]
        {
            let response = bridge.connect().send(&bare("GET", path, headers)).await;
            assert_eq!(response.status, status, "{path} {headers:?}");
        }
    }
    let document = get(&lax, "/demo/openapi.json").await.body().await;
    assert!(document.contains("\"security\":[{\"HTTPBearer\":[]}]"), "{document}");
    assert!(document.contains(
        "\"securitySchemes\":{\"HTTPBearer\":{\"type\":\"http\",\"scheme\":\"bearer\"}}"
    ));
}

#[tokio::test(start_paused = true)]
async fn documents_come_from_the_catalogue() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    bridge.until_known().await;
    let starts = server.starts().len();
    for (path, address) in [
        ("/mcpo/demo/openapi.json", "\"servers\":[{\"url\":\"/mcpo/demo\"}]"),
        ("/demo/openapi.json", "\"servers\":[{\"url\":\"/demo\"}]"),
        ("/demo/openapi.json/", "\"paths\":{\"/tool0\":{\"post\":{\"summary\":\"Tool0\""),
        ("/mcpo/demo/openapi.json", "\"operationId\":\"tool_wait_post\""),
        ("/demo/openapi.json", "\"description\":\"Give at least one of: `$top`; `list`.\""),
        ("/mcpo/openapi.json", "\"operationId\":\"tool_demo_wait_post\""),
        ("/mcpo/openapi.json", "\"paths\":{\"/demo/tool0\":"),
        ("/openapi.json", "\"paths\":{}"),
        ("/openapi.json", "\\n    - [demo](/demo/docs)"),
    ] {
        let response = get(&bridge, path).await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (200, Some("application/json"))
        );
        let document = response.body().await;
        assert!(document.contains(address), "{path}: {document}");
        serde_json::from_str::<serde_json::Value>(&document).unwrap();
    }
    assert_eq!(server.starts().len(), starts);
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_not_known_yet_is_waited_for_a_while() {
    let server = server();
    server.slow_starts(Duration::from_secs(20));
    let bridge = TestBridge::start(server.servers(), |_, _| {});
    let began = tokio::time::Instant::now();
    let early = get(&bridge, "/demo/openapi.json").await;
    assert_eq!((early.status, early.header("retry-after")), (503, Some("5")));
    assert_eq!(began.elapsed().as_secs(), 8);
    assert!(early.body().await.contains("still being learnt"));
    let all = get(&bridge, "/mcpo/openapi.json").await.body().await;
    assert!(all.contains("Not there now: demo."), "{all}");
    bridge.until_known().await;
    assert_eq!(get(&bridge, "/demo/openapi.json").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn pages_load_nothing_but_what_is_beside_them() {
    let bridge = TestBridge::start(server().servers(), |_, _| {});
    for (path, base) in [
        ("/demo/docs", "./"),
        ("/mcpo/demo/docs/", "../"),
        ("/demo/redoc", "./"),
        ("/docs", "./"),
        ("/mcpo/docs", "./"),
    ] {
        let response = get(&bridge, path).await;
        assert_eq!(response.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        let page = response.body().await;
        assert!(page.contains(&format!("<base href=\"{base}\">")), "{path}: {page}");
        assert!(!page.contains("http"), "{page}");
    }
    for (path, media) in [
        ("/demo/docs/swagger-ui.css", "text/css"),
        ("/mcpo/demo/docs/swagger-ui-bundle.js", "text/javascript"),
        ("/docs/page.js", "text/javascript; charset=utf-8"),
    ] {
        let response = get(&bridge, path).await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (200, Some(media)),
            "{path}"
        );
    }
    let page = bare("GET", "/", &[("accept", "text/html,*/*")]);
    let page = bridge.connect().send(&page).await.body().await;
    assert!(
        page.contains("claude mcp add --transport http demo http://127.0.0.1:8080/mcp/demo"),
        "{page}"
    );
    let text = get(&bridge, "/").await.body().await;
    assert!(text.contains("OpenAPI  http://127.0.0.1:8080/mcpo/demo"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_switched_off_is_not_there() {
    let bridge = TestBridge::start(server().servers(), |_, server| {
        server.disabled_tools = vec!["wait".to_owned()];
    });
    let document = get(&bridge, "/demo/openapi.json").await.body().await;
    assert!(document.contains("/fail") && !document.contains("/wait"), "{document}");
    assert_eq!(posted(&bridge, "/demo/wait", "{}").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn all_who_do_not_say_who_they_are_share_a_process_where_that_is_wanted() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |settings, server| {
        (server.mode, server.session_key) = (STATEFUL, SessionKey::Together);
        settings.trusted_proxies = vec!["10.0.0.0/8".parse().unwrap()];
    });
    bridge.until_known().await;
    let known: &[_] = &[("x-openwebui-user-id", "ada")];
    assert_eq!(server.asked_with(), ["{}"], "what a client of theirs can be asked");
    for (address, headers) in
        [("127.0.0.1:1", &[][..]), ("10.0.0.7:1", &[]), ("127.0.0.1:2", &[]), ("10.0.0.7:2", known)]
    {
        let request = post("/demo/wait", headers, "{\"seconds\":0}");
        assert_eq!(bridge.connect_from(address).send(&request).await.status, 200);
    }
    let work: Vec<_> = server.work_heard().into_iter().map(|(number, _)| number).collect();
    assert!(work[0] == work[1] && work[1] == work[2] && work[2] != work[3], "{work:?}");
    tokio::time::sleep(Duration::from_secs(100_000)).await;
    bridge.entry().back.stop_idle();
    bridge.servers.until_living(1).await;
    let again = post("/demo/wait", &[], "{\"seconds\":0}");
    assert_eq!(bridge.connect().send(&again).await.status, 200, "it is there still");
    assert_eq!(server.work_heard()[4].0, work[0]);
    assert_eq!(posted(&bridge, "/demo/end", "{}").await.0, 500);
    assert_eq!(posted(&bridge, "/demo/wait", "{}").await.0, 200, "nothing of theirs was lost");
}

#[tokio::test(start_paused = true)]
async fn paths_may_have_something_before_them() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |settings, server| {
        settings.rest.root_path = "/rp".to_owned();
        settings.rest.path_prefix = "/tools/".to_owned();
        settings.rest.single = Some(server.name.clone());
        settings.rest.has_bare_ids = true;
    });
    for path in
        ["/tools/demo/wait", "/rp/tools/demo/wait", "/rp/mcpo/demo/wait", "/wait", "/rp/wait/"]
    {
        assert_eq!(posted(&bridge, path, "{}").await.0, 200, "{path}");
    }
    assert_eq!(posted(&bridge, "/demo/wait", "{}").await.0, 404);
    let (status, answer) = posted(&bridge, "/rp/mcpo/demo", &rpc("\"id\":1,", "ping", "{}")).await;
    assert!(status == 200 && answer.contains("\"result\":{}"), "{answer}");
    for (path, says) in [
        ("/openapi.json", "\"servers\":[{\"url\":\"/rp\"}]"),
        ("/rp/openapi.json", "\"operationId\":\"wait\""),
        ("/tools/demo/openapi.json", "\"servers\":[{\"url\":\"/rp/tools/demo\"}]"),
        ("/mcpo/demo/openapi.json", "\"servers\":[{\"url\":\"/rp/mcpo/demo\"}]"),
        ("/mcpo/openapi.json", "\"servers\":[{\"url\":\"/rp/mcpo\"}]"),
        ("/rp/health", "\"uptime\":"),
    ] {
        let found = get(&bridge, path).await.body().await;
        assert!(found.contains(says), "{path}: {found}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_key_no_process_is_started_to_learn_what_a_person_is_offered() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |settings, server| {
        server.env.push(("USER".to_owned(), Template::of_user()));
        let key = ApiKey { name: KeyName::Named("me".into()), key: Secret::new("K") };
        settings.api_keys = vec![key];
    });
    // The bridge learns the server once at its start, with no person's values.
    bridge.until_known().await;
    let starts = server.starts().len();
    for (method, path, status) in [
        ("GET", "/demo/openapi.json", 401),
        ("POST", "/demo/openapi.json", 401),
        ("GET", "/demo/wait", 401),
        ("OPTIONS", "/demo/wait", 405),
        ("OPTIONS", "/demo/nothing", 405),
        ("OPTIONS", "/demo/openapi.json", 405),
        ("POST", "/demo/docs", 401),
        ("GET", "/mcpo/openapi.json", 200),
    ] {
        let found = bridge.connect().send(&bare(method, path, &[("content-length", "0")])).await;
        assert_eq!(found.status, status, "{method} {path}");
        assert_eq!(server.starts().len(), starts, "{method} {path}");
    }
    let known: &[_] = &[("authorization", "Bearer K"), ("x-openwebui-user-id", "ada")];
    let document = bridge.connect().send(&bare("GET", "/demo/openapi.json", known)).await;
    assert!(document.body().await.contains("/wait"));
    assert!(server.starts().len() > starts, "it was learnt for the one with the key");
}

#[tokio::test(start_paused = true)]
async fn tools_of_the_only_server_may_be_called_like_paths_of_ours() {
    let server = ToolServer::new(Era::Legacy).listing(&["wait", "demo", "health", "mcp", "docs"]);
    let bridge = TestBridge::start(server.servers(), |settings, server| {
        settings.rest.single = Some(server.name.clone());
    });
    bridge.until_known().await;
    for tool in ["wait", "demo", "health", "mcp", "docs"] {
        let mut connection = bridge.connect();
        connection.write(&post(&format!("/{tool}"), &[], "{}")).await;
        server.until_heard(&format!("tools/call {tool}")).await;
    }
    for (path, says) in [("/health", "uptime"), ("/docs", "swagger"), ("/demo/docs", "swagger")] {
        let found = get(&bridge, path).await.body().await;
        assert!(found.contains(says), "{path}: {found}");
    }
    assert_eq!(posted(&bridge, "/nothing", "{}").await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn rest_may_be_where_mcp_is() {
    let server = server();
    let bridge = TestBridge::start(server.servers(), |settings, _| {
        settings.rest.path_prefix = "/mcp/".to_owned();
        settings.rest.root_path = "/demo".to_owned();
    });
    for path in ["/mcp/demo/wait", "/demo/mcp/demo/wait", "/demo/mcpo/demo/wait"] {
        assert_eq!(posted(&bridge, path, "{}").await.0, 200, "{path}");
    }
    let (status, answer) = posted(&bridge, "/mcp/demo", &rpc("\"id\":1,", "ping", "{}")).await;
    assert!(status == 200 && answer.contains("\"result\":{}"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_a_tool_makes_is_shown_where_that_is_wanted() {
    for (shows, media, says) in
        [(true, "text/html; charset=utf-8", "<p>hello</p>"), (false, "application/json", "\"<p>")]
    {
        let server = ToolServer::new(Era::Legacy).listing(&["page"]);
        let bridge = TestBridge::start(server.servers(), |_, server| server.rest.html = shows);
        let response = bridge.connect().send(&post("/demo/page", &[], "{}")).await;
        assert_eq!(response.header("content-type"), Some(media));
        assert_eq!(response.header("content-disposition"), shows.then_some("inline"));
        let policy = shows.then_some("sandbox allow-scripts");
        assert_eq!(response.header("content-security-policy"), policy);
        let body = response.body().await;
        assert!(body.starts_with(says), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn people_who_say_who_they_are_are_kept_apart_without_a_key_where_that_is_wanted() {
    for (any_identity, processes) in [(true, 2), (false, 1)] {
        let server = server();
        let bridge = TestBridge::start(server.servers(), |settings, server| {
            (server.mode, server.session_key) = (STATEFUL, SessionKey::Together);
            settings.any_identity = any_identity;
        });
        bridge.until_known().await;
        for user in ["ada", "bob", "ada"] {
            let who: &[_] = &[("x-openwebui-user-id", user)];
            let request = post("/demo/wait", who, "{\"seconds\":0}");
            assert_eq!(bridge.connect().send(&request).await.status, 200);
        }
        let heard = server.work_heard();
        let mut work: Vec<_> = heard.iter().map(|(number, _)| *number).collect();
        assert_eq!(work[0], work[2]);
        work.sort_unstable();
        work.dedup();
        assert_eq!(work.len(), processes);
    }
}
