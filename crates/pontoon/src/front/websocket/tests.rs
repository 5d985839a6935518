//! WebSockets of clients that do well, badly or nothing, on a bridge in memory with a stopped clock.

use std::time::Duration;

use pontoon_wire::{Era, method};
use serde_json::Value;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message as Frame;

use crate::app::test_bridge::request::{bare, described, initialize, request};
use crate::app::test_bridge::{TestBridge, TestSocket, ToolServer, masked};
use crate::config::{ApiKey, KeyName, Mode, Secret};

const KEPT: Mode =
    Mode::Stateful { idle: Duration::from_secs(600), per_address: 1, per_client: 32 };

fn bridge(server: &ToolServer) -> TestBridge {
    TestBridge::start(server.servers(), |_, _| {})
}

fn call(id: u32, tool: &str, seconds: u32) -> String {
    let params = format!("{{\"name\":\"{tool}\",\"arguments\":{{\"seconds\":{seconds}}}}}");
    request(id, method::CALL_TOOL, &params)
}

fn modern_call(id: u32, tool: &str, seconds: u32) -> String {
    let members = format!("\"name\":\"{tool}\",\"arguments\":{{\"seconds\":{seconds}}}");
    described(id, method::CALL_TOOL, &members)
}

/// Waits until the last WebSocket is gone, and all that was done for it.
async fn until_left(bridge: &TestBridge) {
    while bridge.site.websockets.in_use() > 0 {
        tokio::task::yield_now().await;
    }
    bridge.until_quiet().await;
    assert_eq!(bridge.site.sessions.count(), 0);
}

/// What an answer is: its id, and whether it has a result.
fn told(answer: &Value) -> (Option<u64>, bool) {
    (answer["id"].as_u64(), answer.get("result").is_some())
}

#[tokio::test(start_paused = true)]
async fn clients_of_both_eras_get_each_answer_under_its_id_as_it_is_ready() {
    for era in [Era::Legacy, Era::Modern] {
        let bridge = bridge(&ToolServer::new(era));
        let mut socket = TestSocket::open(&bridge).await;
        socket.say(&call(1, "wait", 5)).await;
        socket.say(&modern_call(2, "wait", 3)).await;
        socket.send(Frame::binary(call(3, "wait", 1))).await;
        socket.say(&request(4, method::LIST_TOOLS, "{}")).await;
        socket.say(&request(5, method::PING, "{}")).await;
        let mut answers = Vec::new();
        for _ in 0..5 {
            answers.push(told(&socket.next().await));
        }
        // Those that need no process come first, in whatever order.
        answers[..2].sort_unstable();
        let expected = [(4, true), (5, true), (3, true), (2, true), (1, true)];
        assert_eq!(answers, expected.map(|(id, is_result)| (Some(id), is_result)), "{era:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_put_and_answered_in_the_middle_of_a_call() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |_, server| {
        server.mode = KEPT;
    });
    let mut socket = TestSocket::open(&bridge).await;
    socket.say(&call(1, "ask", 0)).await;
    let question = socket.next().await;
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let id = &question["id"];
    socket
        .say(&format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"action\":\"decline\"}}}}"))
        .await;
    assert_eq!(told(&socket.next().await), (Some(1), true));
}

#[tokio::test(start_paused = true)]
async fn one_id_for_two_calls_at_once_is_answered_twice_and_a_cancelled_call_never() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let mut socket = TestSocket::open(&bridge).await;
    socket.say(&call(7, "wait", 2)).await;
    socket.say(&call(7, "wait", 2)).await;
    socket.say(&call(8, "never", 0)).await;
    server.until_heard("tools/call never").await;
    socket.say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":8}}").await;
    for _ in 0..2 {
        assert_eq!(told(&socket.next().await), (Some(7), true));
    }
    bridge.until_quiet().await;
    socket.say(&request(9, method::PING, "{}")).await;
    assert_eq!(told(&socket.next().await), (Some(9), true), "and nothing about 8");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_message_is_refused_and_the_connection_goes_on() {
    let bridge = bridge(&ToolServer::new(Era::Legacy));
    let mut socket = TestSocket::connect(&bridge).await;
    let bare_call = call(3, "echo", 0);
    for (text, code, id) in [
        ("{", -32700, None),
        ("[]", -32600, None),
        ("7", -32600, None),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"ping\"}", -32600, None),
        (&*bare_call, -32600, Some(3)),
    ] {
        // These say nothing, and get no answer.
        for nothing in ["", " \n", "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}"] {
            socket.say(nothing).await;
        }
        socket.say(text).await;
        let answer = socket.next().await;
        assert_eq!(
            (answer["error"]["code"].as_i64(), answer["id"].as_u64()),
            (Some(code), id),
            "{answer}"
        );
    }
    for answer in ["\"protocolVersion\"", "the session is open already"] {
        socket.say(&initialize("2025-11-25", "{}")).await;
        let told = socket.next().await.to_string();
        assert!(told.contains(answer), "{told}");
    }
    assert_eq!(bridge.site.sessions.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn messages_that_come_before_the_session_is_open_wait_and_pings_are_answered() {
    let server = ToolServer::new(Era::Legacy);
    server.slow_starts(Duration::from_secs(5));
    let bridge = bridge(&server);
    let mut socket = TestSocket::connect(&bridge).await;
    let began = Instant::now();
    socket.say(&initialize("2025-11-25", "{}")).await;
    socket.send(Frame::Ping("are you there?".into())).await;
    assert!(matches!(socket.frame().await, Some(Frame::Pong(_))));
    assert_eq!(began.elapsed(), Duration::ZERO);
    socket.say("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}").await;
    socket.say(&request(1, method::LIST_TOOLS, "{}")).await;
    assert_eq!(told(&socket.next().await), (Some(0), true));
    assert_eq!(told(&socket.next().await), (Some(1), true));
    assert!(began.elapsed() >= Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_opens_none_is_told_what_to_do() {
    let bridge = bridge(&ToolServer::new(Era::Legacy));
    let hello = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let with = |at: usize, value| {
        let mut headers = hello;
        headers[at].1 = value;
        headers.to_vec()
    };
    let and = |name, value| [&hello[..], &[(name, value)]].concat();
    for (method, path, headers, status, says) in [
        ("GET", "/ws/demo", Vec::new(), 426, "connect with a WebSocket client"),
        ("GET", "/ws/demo", with(0, "close"), 426, "connect with a WebSocket client"),
        ("GET", "/ws/demo", with(1, "h2c"), 426, "connect with a WebSocket client"),
        ("GET", "/ws/demo", with(2, "8"), 426, "only version 13"),
        ("GET", "/ws/demo", with(3, "c2hvcnQ="), 400, "16 bytes"),
        ("POST", "/ws/demo", hello.to_vec(), 405, "GET opens a WebSocket"),
        ("GET", "/ws/other", hello.to_vec(), 404, "there are: demo"),
        ("GET", "/ws/demo/more", hello.to_vec(), 404, "nothing is served"),
        ("GET", "/ws", hello.to_vec(), 404, "nothing is served"),
        ("GET", "/ws/demo", and("origin", "https://evil.example"), 403, "is foreign"),
        ("GET", "/ws/demo", and("origin", "null"), 403, "is foreign"),
        ("GET", "/ws/demo", and("host", "evil.example"), 400, "one `Host`"),
        ("GET", "/ws/demo", and("content-length", "1"), 400, "no body"),
    ] {
        let response = bridge.connect().send(&bare(method, path, &headers)).await;
        assert_eq!(response.status, status, "{method} {path} {headers:?}");
        let upgrade = response.header("upgrade").map(str::to_owned);
        assert_eq!(upgrade.as_deref(), (status == 426).then_some("websocket"));
        let body = response.body().await;
        assert!(body.contains(says), "{body}");
    }
    let same = TestSocket::ask(&bridge, &[("origin", "http://127.0.0.1:8080")]).await;
    assert_eq!((same.status, same.header("sec-websocket-protocol")), (101, None));
    assert_eq!(bridge.site.websockets.in_use(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_opens_it_in_a_header_or_as_a_sub_protocol_and_is_not_said_back() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |settings, _| {
        let key = Secret::new("K:1");
        settings.api_keys = vec![ApiKey { name: KeyName::Named("alice".into()), key }];
    });
    for (name, value, status) in [
        ("authorization", "Bearer K:1", 101),
        ("x-api-key", "K:1", 101),
        ("sec-websocket-protocol", "mcp, bearer64.Szoy", 403),
        ("sec-websocket-protocol", "mcp, bearer.K1", 403),
        ("sec-websocket-protocol", "mcp, bearer.K:1", 101),
        ("sec-websocket-protocol", "bearer64.Szox, mcp", 101),
        ("sec-websocket-protocol", "mcp", 401),
    ] {
        let response = TestSocket::ask(&bridge, &[(name, value)]).await;
        assert_eq!(response.status, status, "{name}: {value}");
        let chosen = response.header("sec-websocket-protocol");
        let is_offered = status == 101 && value.contains("mcp");
        assert_eq!(chosen, is_offered.then_some("mcp"), "{name}: {value}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_long_is_told_before_it_is_read() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |settings, _| settings.max_body = 1000);
    let whole = masked(0x81, &[b' '; 1001]);
    let parts = [masked(0x01, &[b' '; 600]), masked(0x80, &[b' '; 401])].concat();
    let endless = [&[0x81, 0xff][..], &u64::MAX.to_be_bytes(), &[0; 4]].concat();
    for bytes in [&whole[..], &parts, &endless] {
        let mut socket = TestSocket::open(&bridge).await;
        socket.say(&call(1, "never", 0)).await;
        socket.write(bytes).await;
        let expected = "the message is longer than 1000 bytes (MCPO_MAX_BODY)";
        assert_eq!(socket.closed().await, (1009, expected.to_owned()));
        drop(socket);
    }
    until_left(&bridge).await;
    assert_eq!(bridge.metric("pontoon_refused_total{limit=\"body\"}").await, 3);
    let mut socket = TestSocket::open(&bridge).await;
    let mut longest = request(1, method::PING, "{}");
    longest += &" ".repeat(1000 - longest.len());
    socket.say(&longest).await;
    assert_eq!(told(&socket.next().await), (Some(1), true));
}

#[tokio::test(start_paused = true)]
async fn a_message_in_parts_with_pings_between_them_is_taken_whole() {
    let bridge = bridge(&ToolServer::new(Era::Legacy));
    let mut socket = TestSocket::open(&bridge).await;
    for _ in 0..3 {
        let text = request(1, method::PING, &format!("{{\"x\":{:?}}}", "y".repeat(100_000)));
        let (first, rest) = text.as_bytes().split_at(70_000);
        let (middle, last) = rest.split_at(20_000);
        for frame in
            [masked(0x01, first), masked(0x89, b"?"), masked(0, middle), masked(0x89, b"!")]
        {
            socket.write(&frame).await;
        }
        for expected in ["?", "!"] {
            let answer = socket.frame().await;
            assert!(
                matches!(&answer, Some(Frame::Pong(content)) if content == expected),
                "{answer:?}"
            );
        }
        assert!(bridge.site.held.used().0 >= 90_000);
        socket.write(&masked(0x80, last)).await;
        assert_eq!(told(&socket.next().await), (Some(1), true));
        assert_eq!(bridge.site.held.used().0, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn frames_that_break_the_protocol_end_the_connection_with_its_code() {
    let bridge = bridge(&ToolServer::new(Era::Legacy));
    for (bytes, code) in [
        (vec![0x81, 2, b'{', b'}'], 1002),          // no mask
        (masked(0x81, b"\xff\xfe").to_vec(), 1007), // no UTF-8
        (masked(0xc1, b"{}").to_vec(), 1002),       // a reserved bit
        (masked(0x80, b"{}").to_vec(), 1002),       // the rest of nothing
        (masked(0x83, b"{}").to_vec(), 1002),       // an unknown kind
        (masked(0x89, &[0; 126]).to_vec(), 1002),   // too long a ping
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 1002),
    ] {
        let mut socket = TestSocket::open(&bridge).await;
        socket.write(&bytes).await;
        assert_eq!(socket.closed().await.0, code, "{bytes:?}");
    }
    let mut socket = TestSocket::open(&bridge).await;
    socket.send(Frame::Close(None)).await;
    assert!(matches!(socket.frame().await, Some(Frame::Close(_))));
    assert!(socket.frame().await.is_none());
    until_left(&bridge).await;
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_a_client_that_leaves_are_cancelled_and_its_session_ends() {
    for says_goodbye in [true, false] {
        let server = ToolServer::new(Era::Legacy);
        let bridge = TestBridge::start(server.servers(), |_, server| {
            server.mode = KEPT;
        });
        let mut socket = TestSocket::open(&bridge).await;
        socket.say(&call(1, "never", 0)).await;
        server.until_heard("tools/call never").await;
        assert_eq!((bridge.site.sessions.count(), bridge.site.websockets.in_use()), (1, 1));
        if says_goodbye {
            socket.send(Frame::Close(None)).await;
        }
        drop(socket);
        until_left(&bridge).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_answers_pings_and_then_none_is_given_up_after_a_minute() {
    let bridge = bridge(&ToolServer::new(Era::Legacy));
    let mut socket = TestSocket::open(&bridge).await;
    let began = Instant::now();
    // A ping is answered when the next frame is waited for: so is the first, and not the second.
    for seconds in [15, 30] {
        assert!(matches!(socket.frame().await, Some(Frame::Ping(_))));
        assert_eq!(began.elapsed().as_secs(), seconds);
    }
    // From now on it only takes bytes.
    while socket.read().await > 0 {}
    assert_eq!(began.elapsed().as_secs(), 75, "the last answer was heard after 15 s");
    until_left(&bridge).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_at_first_is_let_go_and_one_that_has_spoken_stays() {
    let bridge = bridge(&ToolServer::new(Era::Legacy));
    let mut silent = TestSocket::connect(&bridge).await;
    let mut modern = TestSocket::connect(&bridge).await;
    let began = Instant::now();
    modern.say(&described(1, method::LIST_TOOLS, "")).await;
    assert_eq!(told(&modern.next().await), (Some(1), true));
    let (code, words) = silent.closed().await;
    assert_eq!((code, began.elapsed().as_secs()), (1008, 60), "{words}");
    let pinged = tokio::spawn(async move {
        for _ in 0..20 {
            let frame = modern.frame().await;
            assert!(matches!(frame, Some(Frame::Ping(_))), "{frame:?}");
        }
        modern.say(&described(2, method::LIST_TOOLS, "")).await;
        modern.next().await
    });
    assert_eq!(told(&pinged.await.unwrap()), (Some(2), true));
    assert!(began.elapsed().as_secs() > 200);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_never_ends_is_given_up() {
    let bridge = bridge(&ToolServer::new(Era::Legacy));
    let mut socket = TestSocket::open(&bridge).await;
    let began = Instant::now();
    let message = masked(0x81, &[b' '; 1000]);
    for byte in message.chunks(1) {
        socket.write(byte).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        if bridge.site.websockets.in_use() == 0 {
            break;
        }
    }
    let took = began.elapsed().as_secs();
    assert!((60..90).contains(&took), "{took} s");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_heard_no_more_and_loses_nothing() {
    let bridge = bridge(&ToolServer::new(Era::Legacy));
    let mut socket = TestSocket::open(&bridge).await;
    // Each is refused at once. Its refusals fill what is on the way to it, and then what may wait.
    let garbage = masked(0x81, b"{");
    let mut sent: usize = 0;
    while tokio::time::timeout(Duration::from_secs(1), socket.write(&garbage)).await.is_ok() {
        sent += 1;
        assert!(sent < 100_000, "it is still heard");
    }
    let mut refused: usize = 0;
    // The last may have been sent in part.
    while refused < sent {
        let answer = socket.next().await;
        assert_eq!(answer["error"]["code"], -32700, "{answer}");
        refused += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_floods_hears_that_each_call_too_many_was_not_made() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |_, server| {
        server.mode = KEPT;
    });
    let mut socket = TestSocket::open(&bridge).await;
    for id in 0..1000 {
        socket.say(&call(id, "wait", 1)).await;
    }
    let mut answers = std::collections::BTreeMap::new();
    while answers.len() < 1000 {
        let answer = socket.next().await;
        let (id, is_result) = told(&answer);
        assert!(answers.insert(id, is_result).is_none(), "answered twice: {answer}");
    }
    assert!(answers.values().any(|is_result| *is_result));
    assert!(answers.values().any(|is_result| !is_result));
    drop(socket);
    bridge.until_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_bridge_that_stops_gives_the_answers_that_are_under_way_and_says_goodbye() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let mut idle = TestSocket::open(&bridge).await;
    let mut unused = TestSocket::connect(&bridge).await;
    let mut busy = TestSocket::open(&bridge).await;
    busy.say(&call(1, "wait", 9)).await;
    server.until_heard("tools/call wait").await;
    let site = std::sync::Arc::clone(&bridge.site);
    let stopping = tokio::spawn(bridge.stop());
    let expected = (1001, "the bridge is stopping: connect again".to_owned());
    assert_eq!(idle.closed().await, expected);
    assert_eq!(unused.closed().await, expected);
    busy.say(&call(2, "wait", 9)).await;
    let answers = [busy.next().await, busy.next().await];
    assert_eq!((told(&answers[0]), told(&answers[1])), ((Some(2), false), (Some(1), true)));
    assert_eq!(busy.closed().await, expected);
    assert!(busy.frame().await.is_none());
    assert!(stopping.await.unwrap().is_ok());
    assert_eq!(site.websockets.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_changes_is_used_from_then_on_and_one_that_goes_ends_the_connection() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = bridge(&server);
    let mut socket = TestSocket::open(&bridge).await;
    let disabled = ["tool0", "pick it0"].map(str::to_owned);
    bridge.reload(|server| server.disabled_tools = disabled.to_vec()).await;
    socket.say(&request(1, method::LIST_TOOLS, "{}")).await;
    assert_eq!(socket.next().await["result"]["tools"], serde_json::json!([]));
    socket.say(&call(2, "wait", 9)).await;
    server.until_heard("tools/call wait").await;
    bridge.remove_server().await;
    assert_eq!(told(&socket.next().await), (Some(2), true));
    let (code, words) = socket.closed().await;
    assert_eq!((code, &*words), (1001, "the server `demo` is not served here any more"));
    assert_eq!(bridge.site.sessions.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_comes_is_counted_before_it_is_whole() {
    let server = ToolServer::new(Era::Legacy);
    let bridge = TestBridge::start(server.servers(), |settings, _| {
        settings.memory_budget = Some(32 * 1024 * 1024);
        settings.max_body = 10 * 1024 * 1024;
    });
    let message = masked(0x81, &vec![b' '; 9 * 1024 * 1024]);
    let part = &message[..8 * 1024 * 1024];
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut socket = TestSocket::open(&bridge).await;
        socket.write(part).await;
        open.push(socket);
    }
    let used = bridge.site.held.used().0;
    assert!(used >= 15 * 1024 * 1024, "{used}");
    // One address may have half of the budget, or its share.
    let mut refused = TestSocket::open(&bridge).await;
    let sending = async {
        for piece in part.chunks(4096) {
            if bridge.site.websockets.in_use() < 3 {
                break;
            }
            refused.write(piece).await;
        }
    };
    sending.await;
    drop(open);
    let (code, words) = refused.closed().await;
    assert_eq!((code, words.contains("MCPO_MEMORY_BUDGET")), (1013, true), "{words}");
    drop(refused);
    until_left(&bridge).await;
    assert_eq!(bridge.site.held.used().0, 0);
}

#[tokio::test(start_paused = true)]
async fn there_are_only_so_many_and_room_is_left_for_requests() {
    let server = ToolServer::new(Era::Legacy);
    let bridge =
        TestBridge::start(server.servers(), |settings, _| settings.memory_budget = Some(1));
    let limit = bridge.site.websockets.limit();
    assert_eq!((limit, bridge.site.held.max_connections()), (96, 128));
    let mut open = Vec::new();
    for _ in 0..limit {
        open.push(TestSocket::connect(&bridge).await);
    }
    let refused = TestSocket::ask(&bridge, &[]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("10")));
    assert_eq!(bridge.metric("pontoon_websockets").await, 96);
    assert_eq!(bridge.metric("pontoon_refused_total{limit=\"websockets\"}").await, 1);
    open.pop();
    while bridge.site.websockets.in_use() == limit {
        tokio::task::yield_now().await;
    }
    assert_eq!(TestSocket::ask(&bridge, &[]).await.status, 101);
}
