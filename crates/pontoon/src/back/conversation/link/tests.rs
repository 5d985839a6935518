//! Links to servers that are the ends of pipes in the test.

use pontoon_wire::heal::HealMode;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe::pipe;

use super::*;

fn options() -> LinkOptions {
    LinkOptions {
        heal: HealModes::default(),
        writes_frames: false,
        max_message: 1024,
        held: HeldBytes::new(1 << 20),
        one_client: true,
        heals: Arc::new(HealLog::new("demo")),
        messages: None,
        span: Span::none(),
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_costs_the_call_that_it_names_and_no_other() {
    let ((input, told), (mut server, output)) = (pipe().unwrap(), pipe().unwrap());
    let link = Link::start(Carrier::Pipes(input, output), &options());
    let mut told = BufReader::new(told).lines();
    let mut calls = Vec::new();
    for _ in 0..2 {
        let request = Message::own("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}");
        let call = link.ask(Rewrite::new(request), None, Purpose::Call);
        let line = told.next_line().await.unwrap().unwrap();
        let id = Message::own(line).copy(Slot::Id).unwrap();
        calls.push((call, String::from_utf8(id.to_vec()).unwrap()));
    }
    let answer = |at: usize, text: &str| {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{{\"x\":\"{text}\"}}}}\n", calls[at].1)
    };
    let lines = answer(0, &"x".repeat(5000)) + &answer(1, "well");
    server.write_all(lines.as_bytes()).await.unwrap();
    assert!(matches!(calls[0].0.next_event().await, ServerEvent::Lost(_)));
    assert!(matches!(calls[1].0.next_event().await, ServerEvent::Answer(_)));
    // One that names no call may be any's.
    let request = Message::own("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}");
    let mut call = link.ask(Rewrite::new(request), None, Purpose::Call);
    server.write_all(format!("{{\"a\":\"{}\"}}\n", "x".repeat(5000)).as_bytes()).await.unwrap();
    assert!(matches!(call.next_event().await, ServerEvent::Lost(_)));
    assert!(link.is_gone());
}

#[tokio::test]
async fn what_a_dead_server_never_began_to_read_may_be_asked_elsewhere() {
    let ((input, unread), (silent, output)) = (pipe().unwrap(), pipe().unwrap());
    let link = Link::start(Carrier::Pipes(input, output), &options());
    let ask = |text: &str| {
        let request =
            format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":\"{text}\"}}");
        link.ask(Rewrite::new(Message::own(request)), None, Purpose::Call)
    };
    // More than the pipe holds, so that the next has to wait.
    let mut begun = ask(&"x".repeat(1 << 20));
    unread.readable().await.unwrap();
    let mut waiting = ask("y");
    drop((silent, unread));
    assert!(matches!(begun.next_event().await, ServerEvent::Gone));
    assert!(matches!(waiting.next_event().await, ServerEvent::Unsent));
    assert!(matches!(ask("z").next_event().await, ServerEvent::Unsent));
}

/// A link to a server, and the server's ends of it.
fn linked(options: &LinkOptions) -> (Link, BufReader<ServerInput>, ServerOutput) {
    let ((input, told), (server, output)) = (pipe().unwrap(), pipe().unwrap());
    (Link::start(Carrier::Pipes(input, output), options), BufReader::new(told), server)
}

type ServerInput = tokio::net::unix::pipe::Receiver;
type ServerOutput = tokio::net::unix::pipe::Sender;

fn ask(link: &Link) -> PendingRequest {
    let request = Message::own("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\"}");
    link.ask(Rewrite::new(request), None, Purpose::Call)
}

/// The next message of a line or of a frame, and whether it was the latter.
async fn next_told(told: &mut BufReader<ServerInput>) -> (Message, bool) {
    let mut line = String::new();
    told.read_line(&mut line).await.unwrap();
    let Some(length) = line.strip_prefix("Content-Length: ") else {
        return (Message::own(line), false);
    };
    let mut body = vec![0; length.trim().parse().unwrap()];
    told.read_line(&mut line).await.unwrap();
    told.read_exact(&mut body).await.unwrap();
    (Message::own(body), true)
}

fn answer(request: &Message) -> String {
    let id = String::from_utf8(request.copy(Slot::Id).unwrap().to_vec()).unwrap();
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}")
}

#[tokio::test]
async fn a_server_that_writes_frames_is_written_to_in_frames_from_then_on() {
    let options = options();
    let (link, mut told, mut server) = linked(&options);
    for is_framed in [false, true, true] {
        let mut call = ask(&link);
        let (request, was_framed) = next_told(&mut told).await;
        assert_eq!(was_framed, is_framed);
        let body = answer(&request);
        let frame = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        server.write_all(frame.as_bytes()).await.unwrap();
        assert!(matches!(call.next_event().await, ServerEvent::Answer(_)));
    }
    assert!(link.has_framed());
    assert_eq!(options.heals.counts(), [("H05", 1)]);
}

#[tokio::test]
async fn a_server_that_began_with_a_line_may_log_headers() {
    let options = options();
    let (link, mut told, mut server) = linked(&options);
    for before in ["", "Content-Length: 500\n\n"] {
        let mut call = ask(&link);
        let (request, is_framed) = next_told(&mut told).await;
        assert!(!is_framed);
        server.write_all(format!("{before}{}\n", answer(&request)).as_bytes()).await.unwrap();
        assert!(matches!(call.next_event().await, ServerEvent::Answer(_)));
    }
    assert_eq!(options.heals.counts(), [("H01", 1)]);
    assert_eq!(link.explanation(), " (H01: log or banner text on stdout)");
}

#[tokio::test]
async fn frames_are_noted_or_not_where_they_are_not_healed() {
    for (mode, counts) in [(HealMode::Warn, vec![("H05", 1)]), (HealMode::Off, Vec::new())] {
        let heal = HealModes::from(HealMode::Off).with(Heal::H05, mode);
        let options = LinkOptions { heal, ..options() };
        let (link, _told, mut server) = linked(&options);
        server.write_all(b"Content-Length: 2\r\n\r\n{}\n").await.unwrap();
        drop(server);
        link.gone().await;
        assert_eq!(options.heals.counts(), counts);
    }
}

#[tokio::test]
async fn messages_that_came_only_when_the_server_ended_are_noted_unless_that_is_off() {
    for (mode, is_heard_before, counts) in [
        (HealMode::Repair, false, vec![("H07", 1)]),
        (HealMode::Warn, false, vec![("H07", 1)]),
        (HealMode::Off, false, Vec::new()),
        (HealMode::Repair, true, Vec::new()),
    ] {
        let heal = HealModes::from(HealMode::Off).with(Heal::H07, mode);
        let options = LinkOptions { heal, ..options() };
        let (link, _told, mut server) = linked(&options);
        let note = b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"}\n";
        if is_heard_before {
            let (heard, hear) = std::sync::mpsc::channel();
            let _listening = link.listen(Arc::new(move |_| heard.send(()).unwrap()));
            server.write_all(note).await.unwrap();
            while hear.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
        }
        link.close_input();
        server.write_all(note).await.unwrap();
        drop(server);
        link.gone().await;
        assert_eq!(options.heals.counts(), counts);
    }
}
