//! `repair`, `warn` and `off` of each heal, through the whole bridge: what a client hears, and whether it is counted.

use std::time::Duration;

use pontoon_wire::heal::{Heal, HealMode};
use pontoon_wire::method;

use super::test_bridge::request::{initialize, post};
use super::test_bridge::{DEAF, END, LEGACY, ScriptedServer, TestBridge, TestClient};
use crate::back::pair::STATEFUL;
use crate::config::{Healing, Mode};

/// Heals whose modes are tested where their carrier is.
const ELSEWHERE: [(Heal, &str); 3] = [
    (Heal::H05, "frames in place of lines: back/conversation/link/tests.rs"),
    (Heal::H07, "what comes when the output ends: back/conversation/link/tests.rs"),
    (Heal::H29, "HTTP: back/remote/http/tests.rs"),
];

/// What a client is to hear.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Expectation {
    /// A text with this in it.
    With(&'static str),
    /// One without it.
    Without(&'static str),
}
use Expectation::{With, Without};

/// A server that breaks the protocol, and what a client hears of it with `repair`, and with `warn` and `off`, which leave
/// it as it is.
struct Violation {
    heal: Heal,
    says: &'static [(&'static str, &'static [&'static str])],
    asked: &'static str,
    repaired: Expectation,
    left: Expectation,
}

/// The answer to a call that is well.
const WELL: &str = r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"well":1}}"#;
const HEARD_WELL: Expectation = With(r#""result":{"content":[],"well":1}"#);
/// An error of the bridge: the answer was dropped, or did not come.
const NO_ANSWER: Expectation = With("\"error\":{\"code\":-315");

/// One that a call of a tool shows.
const fn of_call(
    heal: Heal,
    says: &'static [(&'static str, &'static [&'static str])],
    repaired: Expectation,
    left: Expectation,
) -> Violation {
    Violation { heal, says, asked: method::CALL_TOOL, repaired, left }
}

/// One that a client sees when it opens a session.
const fn of_hello(
    heal: Heal,
    says: &'static [(&'static str, &'static [&'static str])],
    repaired: Expectation,
    left: Expectation,
) -> Violation {
    Violation { heal, says, asked: method::INITIALIZE, repaired, left }
}

const VIOLATIONS: &[Violation] = &[
    of_call(
        Heal::H01,
        &[(
            method::CALL_TOOL,
            &[r#"[info] {"jsonrpc":"2.0","id":ID,"result":{"content":[],"well":1}}"#],
        )],
        HEARD_WELL,
        NO_ANSWER,
    ),
    of_call(
        Heal::H02,
        &[(
            method::CALL_TOOL,
            &[r#"{"jsonrpc":"2.0","id":ID,"#, r#""result":{"content":[],"well":1}}"#],
        )],
        HEARD_WELL,
        NO_ANSWER,
    ),
    of_call(
        Heal::H03,
        &[(
            method::CALL_TOOL,
            &[
                r#"{"jsonrpc":"2.0","method":"notifications/x"}{"jsonrpc":"2.0","id":ID,"result":{"content":[],"well":1}}"#,
            ],
        )],
        HEARD_WELL,
        NO_ANSWER,
    ),
    of_call(
        Heal::H04,
        &[(
            method::CALL_TOOL,
            &["\u{feff}{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":[],\"well\":1}}"],
        )],
        HEARD_WELL,
        NO_ANSWER,
    ),
    of_call(
        Heal::H06,
        &[(
            method::CALL_TOOL,
            &[
                r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\ud800"}]}}"#,
            ],
        )],
        With(r"\ufffd"),
        NO_ANSWER,
    ),
    of_call(
        Heal::H08,
        &[(method::INITIALIZED, &[r#"{"jsonrpc":"2.0","id":null,"result":{}}"#])],
        With("\"content\":[]"),
        With("\"content\":[]"),
    ),
    of_call(
        Heal::H09,
        &[(
            method::CALL_TOOL,
            &[r#"{"jsonrpc":"2.0","id":"ID","result":{"content":[],"well":1}}"#],
        )],
        HEARD_WELL,
        NO_ANSWER,
    ),
    of_call(
        Heal::H10,
        &[(method::CALL_TOOL, &[r#"{"jsonrpc":"2.0","id":99999,"result":{"other":1}}"#, WELL])],
        HEARD_WELL,
        HEARD_WELL,
    ),
    of_call(
        Heal::H11,
        &[(
            method::CALL_TOOL,
            &[r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"not read"}}"#],
        )],
        With("\"code\":-32700"),
        With("it had said: not read"),
    ),
    // A note that names its call by a text.
    of_call(
        Heal::H12,
        &[(
            method::CALL_TOOL,
            &[
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"ID","progress":1}}"#,
                WELL,
            ],
        )],
        With("notifications/progress"),
        Without("notifications/progress"),
    ),
    // One that names no call.
    of_call(
        Heal::H12,
        &[(
            method::CALL_TOOL,
            &[
                r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":99999,"progress":1}}"#,
                WELL,
            ],
        )],
        Without("notifications/progress"),
        Without("notifications/progress"),
    ),
    of_call(
        Heal::H13,
        &[(method::CALL_TOOL, &[r#"{"id":ID,"result":{"content":[]}}"#])],
        With("\"jsonrpc\":\"2.0\""),
        Without("jsonrpc"),
    ),
    of_call(
        Heal::H14,
        &[(method::CALL_TOOL, &[r#"{"jsonrpc":"2.0","id":ID,"error":"bad"}"#])],
        With(r#""error":{"code":-32000,"message":"bad"}"#),
        With(r#""error":"bad""#),
    ),
    of_call(
        Heal::H15,
        &[(
            method::CALL_TOOL,
            &[r#"[{"jsonrpc":"2.0","id":ID,"result":{"content":[],"well":1}}]"#],
        )],
        HEARD_WELL,
        NO_ANSWER,
    ),
    of_call(
        Heal::H16,
        &[(
            method::CALL_TOOL,
            &[r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"isError":null}}"#],
        )],
        Without("isError"),
        With(r#""isError":null"#),
    ),
    of_call(
        Heal::H17,
        &[(method::CALL_TOOL, &[r#"{"jsonrpc":"2.0","id":ID,"result":"plain"}"#])],
        With(r#"{"type":"text","text":"plain"}"#),
        With(r#""result":"plain""#),
    ),
    of_call(
        Heal::H18,
        &[
            (method::LIST_TOOLS, &[PROMISING]),
            (
                method::CALL_TOOL,
                &[
                    r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"{\"n\":1}"}]}}"#,
                ],
            ),
        ],
        With(r#""structuredContent":{"n":1}"#),
        Without("structuredContent"),
    ),
    // A refusal that names the versions that it takes.
    of_hello(
        Heal::H19,
        &[(method::INITIALIZE, &[OTHER_VERSION]), ("initialize 2024-11-05", &[OLD_HELLO])],
        With("\"protocolVersion\":\"2025-11-25\""),
        With("it refused `initialize`"),
    ),
    // The server answers with a version that does not exist.
    of_hello(
        Heal::H19,
        &[(
            method::INITIALIZE,
            &[
                r#"{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"1.0","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#,
            ],
        )],
        With("\"protocolVersion\":\"2025-11-25\""),
        With("\"protocolVersion\":\"2025-11-25\""),
    ),
    of_hello(
        Heal::H20,
        &[(
            method::INITIALIZED,
            &[r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"unknown"}}"#],
        )],
        With("\"protocolVersion\":\"2025-11-25\""),
        With("\"protocolVersion\":\"2025-11-25\""),
    ),
    of_hello(
        Heal::H21,
        &[(
            method::INITIALIZE,
            &[
                r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32600,"message":"already initialized"}}"#,
            ],
        )],
        With("\"protocolVersion\":\"2025-11-25\""),
        With("it refused `initialize`"),
    ),
    of_call(
        Heal::H22,
        &[(
            method::CALL_TOOL,
            &[
                r#"{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}"#,
                WELL,
            ],
        )],
        HEARD_WELL,
        HEARD_WELL,
    ),
    of_hello(
        Heal::H23,
        &[(
            method::INITIALIZE,
            &[
                r#"{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}"#,
            ],
        )],
        With(r#""capabilities":{"tools":{}}"#),
        With(r#""capabilities":{}"#),
    ),
    Violation {
        heal: Heal::H24,
        says: &[(
            method::INITIALIZE,
            &[
                r#"{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"s","version":"1"}}}"#,
            ],
        )],
        asked: method::LIST_PROMPTS,
        repaired: With(r#""prompts":[]"#),
        left: With("\"code\":-32601"),
    },
    of_call(
        Heal::H25,
        &[(
            method::CALL_TOOL,
            &[r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"no such file"}}"#],
        )],
        With("\"isError\":true"),
        With(r#""error":{"code":-32603,"message":"no such file"}"#),
    ),
    of_call(
        Heal::H26,
        &[(method::CALL_TOOL, &[r#"{"jsonrpc":"2.0","id":ID,"id":ID,"result":{"content":[]}}"#])],
        With("the member `id` stands twice"),
        With("the member `id` stands twice"),
    ),
    of_call(Heal::H27, &[(method::CALL_TOOL, &[WELL]), (DEAF, &[])], HEARD_WELL, HEARD_WELL),
    of_call(Heal::H28, &[(method::CALL_TOOL, &[WELL, END])], HEARD_WELL, HEARD_WELL),
    of_call(
        Heal::H30,
        &[(
            method::CALL_TOOL,
            &[r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]},"instruction":"stay"}"#],
        )],
        With(r#""_meta":{"instruction":"stay"}"#),
        With(r#","instruction":"stay"}"#),
    ),
];

const PROMISING: &str = r#"{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}}]}}"#;
const OTHER_VERSION: &str = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"Unsupported protocol version","data":{"supported":["2024-11-05"]}}}"#;

const OLD_HELLO: &str = r#"{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}"#;

/// All that a client hears whose server breaks the protocol like this, and how often it was counted.
async fn play(violation: &Violation, mode: HealMode) -> (String, u64) {
    let word = match mode {
        HealMode::Off => "off",
        HealMode::Warn => "warn",
        HealMode::Repair => "repair",
    };
    let code = violation.heal.code();
    let bridge = TestBridge::start(ScriptedServer::new(violation.says).servers(), |_, server| {
        // Only this one is healed, so that no other says more to it.
        server.heal = Healing::typed(["off", &format!("{code}={word}")]).unwrap();
        server.mode = if violation.heal == Heal::H27 { Mode::default() } else { STATEFUL };
        server.timeout = Duration::from_secs(4);
    });
    let heard = if violation.asked == method::INITIALIZE {
        let hello = post("/mcp/demo", &[], &initialize(LEGACY, "{}"));
        bridge.connect().send(&hello).await.body().await
    } else {
        let client = TestClient::open(&bridge).await;
        let heard = match violation.asked {
            method::CALL_TOOL => client.call(7, "t", "{}").await.all().await,
            list => client.ask(7, list, "").await.all().await,
        };
        match violation.heal {
            Heal::H27 => {
                let mut look = tokio::time::interval(Duration::from_secs(1));
                for _ in 0..60 {
                    look.tick().await;
                }
                assert_eq!(bridge.entry().back.living(), 0, "the bridge ends it");
            }
            // Its end is seen when the next call wants the process.
            Heal::H28 => drop(client.call(8, "t", "{}").await.all().await),
            _ => {}
        }
        heard
    };
    let counts = bridge.entry().back.heals.counts();
    let (counted, others): (Vec<_>, Vec<_>) = counts.into_iter().partition(|(it, _)| *it == code);
    assert_eq!(others, [], "{code} {word}: what is off is not counted");
    (heard, counted.first().map_or(0, |(_, count)| *count))
}

fn is_heard(heard: &str, expected: Expectation) -> bool {
    match expected {
        With(text) => heard.contains(text),
        Without(text) => !heard.contains(text),
    }
}

#[tokio::test(start_paused = true)]
async fn each_violation_is_counted_unless_it_is_off_and_put_right_only_with_repair() {
    let mut wrong = Vec::new();
    for violation in VIOLATIONS {
        for mode in [HealMode::Repair, HealMode::Warn, HealMode::Off] {
            let (heard, count) = play(violation, mode).await;
            let expected = match mode {
                HealMode::Repair => violation.repaired,
                HealMode::Warn | HealMode::Off => violation.left,
            };
            if !is_heard(&heard, expected) || (count > 0) != (mode != HealMode::Off) {
                let heal = violation.heal;
                wrong.push(format!("{heal:?} {mode:?}: counted {count}, {expected:?}: {heard}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn where_nothing_is_to_choose_every_mode_is_the_same() {
    for violation in VIOLATIONS.iter().filter(|it| it.heal.is_always_dealt_with()) {
        assert_eq!(violation.repaired, violation.left, "{:?}", violation.heal);
    }
    let is_left = |heal: Heal| {
        VIOLATIONS
            .iter()
            .any(|violation| violation.heal == heal && violation.repaired != violation.left)
    };
    for heal in Heal::ALL.iter().filter(|it| !it.is_always_dealt_with()) {
        let is_elsewhere = ELSEWHERE.iter().any(|(other, _)| other == heal);
        assert!(is_elsewhere || is_left(*heal), "{heal:?} is left as it is without repair");
    }
}

#[test]
fn every_heal_is_in_the_table_or_tested_elsewhere() {
    for heal in Heal::ALL {
        let is_here = VIOLATIONS.iter().any(|violation| violation.heal == *heal);
        let is_elsewhere = ELSEWHERE.iter().any(|(other, _)| other == heal);
        assert!(is_here != is_elsewhere, "{heal:?}");
    }
}
