//! What is well passes the whole bridge byte for byte, with everything healed: the healthy forms of what is put right
//! behind the lines of a server (H18, H19, H21, H23, H24, H25), where `wire` does not reach.
//!
//! The other forms are with `wire`, in `tests/healthy.rs`.

use pontoon_wire::method;

use super::test_bridge::request::{initialize, post};
use super::test_bridge::{LEGACY, ScriptedServer, TestBridge, TestClient};
use crate::back::pair::STATEFUL;
use crate::config::Mode;

/// Tools that promise what they give, one of them by a schema that only just fits.
const TOOLS: &str = r#"{"name":"n","inputSchema":{"type":"object","properties":{}},"outputSchema":{"type":"object","properties":{"n":{"type":"integer","description":"one ,two"}},"required":["n"]}} , {"inputSchema" : {"type":"object","properties":{}},"name":"t"}"#;

/// What a server says of itself that has all it names, with spaces of its own and words that look like a refusal.
const CAPABILITIES: &str = r#"{"tools" : {"listChanged": true}, "prompts":{ },"resources":{"subscribe" :true}, "experimental":{"x" :{}}}"#;
const INFO: &str = r#"{"version" : "already initialized","name":"s"}"#;
const INSTRUCTIONS: &str = r#""supported versions: 2024-11-05\n\u00e9é\/""#;

fn hello(version: &str, capabilities: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":ID,"result":{{"serverInfo":{INFO},"protocolVersion":"{version}","capabilities":{capabilities}, "instructions" : {INSTRUCTIONS}}}}}"#
    )
}

fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// A healthy server that answers a call of a tool with this outcome, `result` or `error`.
fn server(version: &str, outcome: &str) -> ScriptedServer {
    let hello = hello(version, CAPABILITIES);
    let tools = result("ID", &format!("{{\"tools\":[{TOOLS}]}}"));
    let [prompts, resources, templates] = ["prompts", "resources", "resourceTemplates"]
        .map(|it| result("ID", &format!("{{ \"{it}\" :[ ]}}")));
    let call = format!(r#"{{"jsonrpc":"2.0","id":ID,{outcome}}}"#);
    ScriptedServer::new(&[
        (method::INITIALIZE, &[&hello]),
        (method::LIST_TOOLS, &[&tools]),
        (method::LIST_PROMPTS, &[&prompts]),
        (method::LIST_RESOURCES, &[&resources]),
        (method::LIST_TEMPLATES, &[&templates]),
        (method::CALL_TOOL, &[&call]),
        (method::PING, &[r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#]),
    ])
}

/// A bridge that heals everything, in front of this server.
fn bridge(server: &ScriptedServer, mode: Mode) -> TestBridge {
    TestBridge::start(server.servers(), |_, entry| entry.mode = mode)
}

/// What a legacy client hears that opens a session.
async fn opened(bridge: &TestBridge) -> String {
    bridge.connect().send(&post("/mcp/demo", &[], &initialize(LEGACY, "{}"))).await.body().await
}

fn heals(bridge: &TestBridge) -> Vec<(&'static str, u64)> {
    bridge.entry().back.heals.counts()
}

#[tokio::test(start_paused = true)]
async fn a_healthy_handshake_passes_in_its_own_words_whichever_version_it_chose() {
    for version in [LEGACY, "2025-06-18", "2024-11-05"] {
        let bridge = bridge(&server(version, r#""result":{"content":[]}"#), STATEFUL);
        let said = format!(
            r#"{{"protocolVersion":"{LEGACY}","capabilities":{CAPABILITIES},"serverInfo":{INFO},"instructions":{INSTRUCTIONS}}}"#
        );
        assert_eq!(opened(&bridge).await, result("0", &said), "{version}");
        assert_eq!(heals(&bridge), [], "{version}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_names_nothing_and_has_nothing_stays_as_it_is() {
    let hello = hello(LEGACY, "{ }");
    let unknown = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"no"}}"#;
    for tools in [unknown, r#"{"jsonrpc":"2.0","id":ID,"result":{"tools":[ ]}}"#] {
        let lines: [(&str, &[&str]); 2] =
            [(method::INITIALIZE, &[&hello]), (method::LIST_TOOLS, &[tools])];
        let bridge = bridge(&ScriptedServer::new(&lines), STATEFUL);
        let opened = opened(&bridge).await;
        assert!(opened.contains("\"capabilities\":{ },"), "{opened}");
        assert_eq!(heals(&bridge), [], "{tools}");
    }
}

#[tokio::test(start_paused = true)]
async fn healthy_lists_pass_in_their_own_words_from_the_catalogue_and_from_a_process() {
    for mode in [Mode::default(), STATEFUL] {
        let bridge = bridge(&server(LEGACY, r#""result":{"content":[]}"#), mode);
        let client = TestClient::open(&bridge).await;
        let ask = async |method| client.ask(7, method, "").await.body().await;
        let tools = TOOLS.replace("} , {", "},{");
        assert_eq!(ask(method::LIST_TOOLS).await, result("7", &format!("{{\"tools\":[{tools}]}}")));
        assert_eq!(ask(method::LIST_PROMPTS).await, result("7", r#"{"prompts":[]}"#));
        assert_eq!(ask(method::LIST_RESOURCES).await, result("7", r#"{"resources":[]}"#));
        client.call(8, "t", "{}").await.body().await;
        // Those of a conversation with a process of its own come from there.
        let expected =
            if mode == STATEFUL { r#"{ "resources" :[ ]}"# } else { r#"{"resources":[]}"# };
        assert_eq!(ask(method::LIST_RESOURCES).await, result("7", expected));
        assert_eq!(heals(&bridge), []);
    }
}

#[tokio::test(start_paused = true)]
async fn healthy_answers_of_tools_pass_byte_for_byte() {
    for outcome in [
        // A promise that is kept, though a reader would write it otherwise.
        r#""result":{"content":[{"type":"text","text":"{\"n\": 1}"}], "structuredContent":{"n" : 1.0}}"#,
        r#""result":{"structuredContent":{"more":[ ],"n":1e0},"content":[]}"#,
        // The tool fails and says so, and need not keep its promise then.
        r#""result":{"isError" :true,"content":[{"text":"MCP error -32602: no", "type":"text"}]}"#,
        r#""result":{ "content":[{"type":"text","text":"no"}],"isError":true, "structuredContent":{"why" : null}}"#,
        // Errors that mean the request, or something of their own.
        r#""error":{"code":-32602,"message":"Unknown tool: n"}"#,
        r#""error":{"message":"Sign in first", "code":-32042,"data":{"elicitations" : []}}"#,
    ] {
        for mode in [Mode::default(), STATEFUL] {
            let bridge = bridge(&server(LEGACY, outcome), mode);
            let client = TestClient::open(&bridge).await;
            let heard = client.call(7, "n", "{}").await.body().await;
            assert_eq!(heard, format!(r#"{{"jsonrpc":"2.0","id":7,{outcome}}}"#), "{mode:?}");
            assert_eq!(heals(&bridge), [], "{outcome}");
        }
    }
}
