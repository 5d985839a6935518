//! Clients that send what they should not.

use super::*;

/// Sends this frame, and sees that the connection is closed with this code while another client goes on.
async fn check(frames: Vec<Frame>, code: u16) {
    let server = start(&echo());
    let (mut bad, mut good) = (Client::connect(&server).await, Client::connect(&server).await);
    for frame in frames {
        // It may be closed before the last of it is sent.
        let _ = bad.send_frame(frame).await;
    }
    assert_eq!(bad.close_code().await, code);
    good.echoes("still here").await;
}

#[tokio::test]
async fn a_message_has_up_to_64_mib_in_one_frame_or_in_many() {
    let server = start(&echo());
    let mut client = Client::connect(&server).await;
    let around = json!({"jsonrpc": "2.0", "id": "echo", "method": "tools/call",
                        "params": {"name": "echo", "arguments": {"text": ""}}})
    .to_string()
    .len();
    // Its answer has a little more around it.
    let text = "x".repeat((64 << 20) - around - 100);
    client.echoes(&text).await;
    let message = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
                         "params": {"name": "echo", "arguments": {"text": "y".repeat(1 << 20)}}});
    let message = message.to_string();
    let pieces: Vec<_> = message.as_bytes().chunks(4096).collect();
    use tokio_tungstenite::tungstenite::protocol::frame::Frame as RawFrame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
    for (number, piece) in pieces.iter().enumerate() {
        let kind = if number == 0 { Data::Text } else { Data::Continue };
        let is_last = number + 1 == pieces.len();
        let frame = RawFrame::message(piece.to_vec(), OpCode::Data(kind), is_last);
        client.send_frame(Frame::Frame(frame)).await.unwrap();
        if number == 1 {
            // In the middle of a message.
            client.is_alive().await;
        }
    }
    let answer = client.message().await;
    assert_eq!(answer["result"]["content"][0]["text"].as_str().unwrap().len(), 1 << 20);
}

#[tokio::test]
async fn a_longer_message_ends_its_connection_with_1009() {
    check(vec![Frame::text("x".repeat((64 << 20) + 1))], 1009).await;
}

#[tokio::test]
async fn a_longer_result_is_an_error_of_its_call() {
    let long = Tool::new("long", |(), _| async { "x".repeat(64 << 20) });
    let server = start(&echo().with(long).unwrap());
    let mut client = Client::connect(&server).await;
    client.begin_call(1, "long", json!({})).await;
    let answer = client.message().await;
    assert!(
        answer["result"]["isError"] == true && answer.to_string().contains("are the most"),
        "{answer}"
    );
    client.echoes("still here").await;
}

#[tokio::test]
async fn what_is_no_message_is_an_error_and_nothing_else() {
    let server = start(&echo());
    let mut client = Client::connect(&server).await;
    for garbage in ["nonsense", "[]", "{\"id\":7,\"x\":\"\\ud800\"}", "\"\"", "null", "{"] {
        client.send_frame(Frame::text(garbage)).await.unwrap();
        let answer = client.message().await;
        assert!(answer["error"]["code"].as_i64().unwrap() <= -32600, "{garbage}: {answer}");
    }
    client
        .send_frame(Frame::binary(&br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#[..]))
        .await
        .unwrap();
    assert_eq!(client.message().await["result"], json!({}));
    client.echoes("still here").await;
}

#[tokio::test]
async fn what_is_no_websocket_ends_its_connection() {
    let server = start(&echo());
    let mut good = Client::connect(&server).await;
    let opening = request(&format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"));
    // Unmasked text, text that is not UTF-8, an unknown kind of frame, a length without end, plain garbage.
    let garbage: [&[u8]; 5] = [
        b"\x81\x02{}",
        b"\x81\x82\0\0\0\0\xff\xff",
        b"\x83\x80\0\0\0\0",
        b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for (bytes, code) in garbage.into_iter().zip([1002_u16, 1007, 1002, 1009, 1002]) {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
        // With the request, as an impatient client would.
        stream.write_all(&[opening.as_bytes(), bytes].concat()).await.unwrap();
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        tokio::time::timeout(SOON, read).await.expect("it is closed").unwrap();
        let end = answer.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
        let close = &answer[end..];
        assert_eq!((close[0], &close[2..4]), (0x88, code.to_be_bytes().as_slice()), "{bytes:?}");
    }
    good.echoes("still here").await;
}

#[tokio::test]
async fn a_client_that_vanishes_in_the_middle_of_a_frame_costs_nothing() {
    let few = WebSocketOptions { max_clients: 2, ..options() };
    let server = WebSocketServer::start("few", &[echo()], few).unwrap();
    let mut good = Client::connect(&server).await;
    let opening = request(&format!("Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"));
    for _ in 0..20 {
        let answer = loop {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
            stream.write_all(opening.as_bytes()).await.unwrap();
            let mut answer = vec![0; 1024];
            let length = stream.read(&mut answer).await.unwrap();
            // The place of the one before is free when the server has seen its end.
            if answer[..length].starts_with(b"HTTP/1.1 101") {
                stream.write_all(b"\x81\xfe\x10\0\0\0\0\0{\"jsonrpc\"").await.unwrap();
                break length;
            }
        };
        assert!(answer > 0);
    }
    good.echoes("still here").await;
}

#[tokio::test]
async fn a_flood_of_calls_is_bounded_and_others_go_on() {
    let stuck = Tool::new("stuck", |(), _| std::future::pending::<()>());
    let server = start(&echo().with(stuck).unwrap());
    let (mut flood, mut good) = (Client::connect(&server).await, Client::connect(&server).await);
    for id in 0..2000 {
        flood.begin_call(id, "stuck", json!({})).await;
        if id % 100 == 0 {
            good.echoes("meanwhile").await;
        }
    }
    let refused = flood.message().await;
    assert!(refused.to_string().contains("1024 calls are under way"), "{refused}");
    good.echoes("still here").await;
}
