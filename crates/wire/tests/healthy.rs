//! What is well passes byte for byte: for each heal the form that its row asks for, as bytes of a server through the
//! lines, the doctor and the peer, with everything healed. Each has beside it what only looks like the violation.
//!
//! How the violations are healed is told by the tests beside each heal, and by the transcripts.

use pontoon_wire::framing::lines::Lines;
use pontoon_wire::heal::lines::{Found, LineDoctor};
use pontoon_wire::heal::{Heal, HealMode};
use pontoon_wire::peer::PeerEvent;
use pontoon_wire::{MAX_DEPTH, Message, Peer, Rewrite};

const LIMIT: usize = 1 << 20;

/// Heals whose healthy form is no message.
const NO_MESSAGE: [(Heal, &str); 6] = [
    (Heal::H07, "a message that is written at once has the same bytes as one that comes late"),
    (Heal::H08, "a notification is answered with nothing"),
    (Heal::H20, "`notifications/initialized` is answered with nothing"),
    (Heal::H27, "a process ends with its input"),
    (Heal::H28, "a process stays while it is needed"),
    (Heal::H29, "statuses and types of HTTP, which have no lines"),
];

const PING: &str = r#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#;
const CALL: &str = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","_meta":{"progressToken":1}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#;
const OPEN: &str =
    r#"{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
const LOG: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":null}}"#;

/// What is asked, and what a healthy server says to that, each message on its line.
fn healthy_forms() -> Vec<(Heal, &'static str, Vec<String>)> {
    let one = |heal, asked, said: &str| (heal, asked, vec![said.to_owned()]);
    let deep = MAX_DEPTH - 2;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"a":{}1{},"x":1,"x":2}}}}"#,
        "[".repeat(deep),
        "]".repeat(deep)
    );
    vec![
        one(Heal::H01, PING, r#"{"jsonrpc":"2.0","id":1,"result":{"log":"[info] {\"id\":1}"}}"#),
        one(Heal::H02, PING, r#"{ "jsonrpc" : "2.0", "id" :1,  "result": { "a": "one\ntwo\r\n{" } }"#),
        (
            Heal::H03,
            PING,
            vec![LOG.to_owned(), r#"{"jsonrpc":"2.0","id":1,"result":{"a":"}{"}}"#.to_owned()],
        ),
        one(
            Heal::H04,
            PING,
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"\u{feff}\\u0000\\r\",\"b\" : \" \\t\"}}",
        ),
        one(
            Heal::H05,
            PING,
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":"Content-Length: 2\r\n\r\n{}"}}"#,
        ),
        one(
            Heal::H06,
            PING,
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":"é😀\ud83d\ude00\u00e9\ufffd�"}}"#,
        ),
        one(Heal::H09, PING, r#"{"jsonrpc":"2.0","id":1,"result":{"id":"1","n":1.0}}"#),
        one(Heal::H10, PING, r#"{"jsonrpc":"2.0","result":{},"id":1}"#),
        one(
            Heal::H11,
            CALL,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32700,"message":"not read"}}"#,
        ),
        (
            Heal::H12,
            CALL,
            vec![
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5,"total":2}}"#.to_owned(),
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1e0,"progressToken":1,"message":"half"}}"#.to_owned(),
                r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#.to_owned(),
            ],
        ),
        one(Heal::H13, PING, r#"{"id":1,"result":{"jsonrpc":"1.0"},"jsonrpc":"2.0"}"#),
        one(
            Heal::H14,
            PING,
            r#"{"jsonrpc":"2.0","id":1,"error":{"message":"no","code":-32001,"data":{"result":null}}}"#,
        ),
        (
            Heal::H15,
            PING,
            vec![LOG.to_owned(), r#"{"jsonrpc":"2.0","id":1,"result":{"a":[{"id":2}]}}"#.to_owned()],
        ),
        one(
            Heal::H16,
            CALL,
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[],"structuredContent":{"a":null,"_meta":null}}}"#,
        ),
        one(
            Heal::H17,
            CALL,
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"},{"type":"image","data":"","mimeType":"image/png"}]}}"#,
        ),
        one(
            Heal::H18,
            CALL,
            r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"n\": 1}"}],"structuredContent":{"n" : 1.0}}}"#,
        ),
        one(
            Heal::H19,
            OPEN,
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#,
        ),
        one(
            Heal::H21,
            OPEN,
            r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"already initialized"}}}"#,
        ),
        one(
            Heal::H22,
            CALL,
            r#"{"jsonrpc":"2.0","id":"own 1","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}"#,
        ),
        one(
            Heal::H23,
            OPEN,
            r#"{"jsonrpc":"2.0","id":1,"result":{"capabilities":{"tools":{"listChanged":true},"prompts":{},"resources":{}},"protocolVersion":"2025-11-25","serverInfo":{"name":"s","version":"1"}}}"#,
        ),
        one(Heal::H24, LIST, r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[ ]}}"#),
        one(
            Heal::H25,
            CALL,
            r#"{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[{"type":"text","text":"MCP error -32602: no"}]}}"#,
        ),
        (Heal::H26, PING, vec![deep]),
        one(
            Heal::H30,
            PING,
            r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"instruction":"stay"},"method":"own"}}"#,
        ),
    ]
}

/// All that is passed on of what a server says, each message as it is.
fn passed_on(peer: &mut Peer<()>, bytes: &[u8]) -> Vec<String> {
    let mut lines = Lines::new(LIMIT);
    lines.take_frames(true);
    lines.buffer().extend_from_slice(bytes);
    let mut doctor = LineDoctor::new(LIMIT);
    while let Some(line) = lines.next_line() {
        doctor.take(line.expect("it is not too long"), peer.heals());
    }
    doctor.finish(lines.finish(), peer.heals());
    let mut passed = Vec::new();
    while let Some(found) = doctor.next_found() {
        let message = match found {
            Found::Message(message) => message,
            Found::Noise(text) => panic!("noise: {}", String::from_utf8_lossy(&text)),
            Found::Refused(_, why) => panic!("refused: {why}"),
        };
        let bytes = match peer.handle(message).expect("it means something") {
            PeerEvent::Answer((), message)
            | PeerEvent::Ask(message)
            | PeerEvent::Loose(message) => message.text().to_vec(),
            PeerEvent::Note(_, note) => note.to_bytes().to_vec(),
            PeerEvent::Ended(()) | PeerEvent::TimedOut((), _) => panic!("nothing ends here"),
        };
        passed.push(String::from_utf8(bytes).expect("a message is UTF-8"));
    }
    passed
}

#[test]
fn the_healthy_form_of_each_heal_passes_byte_for_byte() {
    for (heal, asked, said) in healthy_forms() {
        let mut peer = Peer::new(HealMode::Repair);
        let asked = Message::parse(asked.as_bytes()).expect("a request");
        peer.request(Rewrite::new(asked), None, ());
        let bytes: String = said.iter().map(|message| format!("{message}\n")).collect();
        assert_eq!(passed_on(&mut peer, bytes.as_bytes()), said, "{heal:?}");
        assert_eq!(peer.heals().take(), [], "{heal:?}");
    }
}

#[test]
fn every_heal_has_a_healthy_form_or_a_reason_for_none() {
    let forms = healthy_forms();
    for heal in Heal::ALL {
        let count = forms.iter().filter(|(of, ..)| of == heal).count()
            + NO_MESSAGE.iter().filter(|(of, _)| of == heal).count();
        assert_eq!(count, 1, "{heal:?}");
    }
}
