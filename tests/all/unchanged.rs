//! With `files: off` and `heal: off` the bridge passes payloads on byte for byte, in both directions.

use pontoon_tests::client::{Legacy, Speaker};
use pontoon_tests::rig::Rig;
use serde_json::{Value, json};

use crate::{rig, shell};

/// A server that answers a call with the parameters as they arrived, and with what the bridge adds links for
/// and repairs by default: a new file, and members that are null.
pub(crate) const ECHO: &str = r#"
    while IFS= read -r line; do
        id=${line#*\"id\":}
        id=${id%%,*}
        case $line in
        *'"initialize"'*)
            printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25",' "$id"
            printf '"capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}}\n' ;;
        *'"tools/list"'*)
            printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[' "$id"
            printf '{"name":"echo","inputSchema":{"type":"object"}}]}}\n' ;;
        *'"tools/call"'*)
            echo made > made.txt
            params=${line#*\"params\":}
            printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[] , "_meta":null,' "$id"
            printf '"arrived":%s,"isError":null,"last" : -0.0}}\n' "${params%?}" ;;
        *'"id":'*)
            printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
        esac
    done"#;

/// Numbers that no float holds or that a reader would write otherwise, names in an order of their own, escapes
/// beside the letters they stand for, and spaces.
const ODD: &str =
    r#"{"name":"echo","arguments":{"z":123456789012345678901234567890,"a":1.0,"exp":1E+2,"#;
const ODDER: &str = r#""tiny":1e-400,"minus":-0,"text":"\u00e9é\/\ud83d\ude00😀\u0007","":null,"10":[ 1 ,2],"9":{}} }"#;

/// The body that a client gets for a call with this id and these parameters.
fn answer(rig: &Rig, id: &str, params: &str) -> String {
    let session = Legacy::open_as(&rig.endpoint("shell"), "2025-11-25", &json!({}));
    let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#);
    let response = session.request(&Value::Null).body(call).send(rig.address()).unwrap();
    session.end();
    response.text()
}

/// What the server says to that, to the byte.
fn said(id: &str, params: &str) -> String {
    let odd = r#""content":[] , "_meta":null,"arrived":"#;
    let last = r#","isError":null,"last" : -0.0"#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{{odd}{params}{last}}}}}"#)
}

#[test]
fn payloads_pass_byte_for_byte_where_files_and_healing_are_off() {
    let odd = format!("{ODD}{ODDER}");
    for mode in ["stateless", "stateful"] {
        let server = shell(ECHO, mode).with("files", "off").with("heal", "off");
        let rig = rig([server]);
        for (id, params) in [("7", odd.as_str()), (r#""a\u0062\/é""#, r#"{"name":"echo"}"#)] {
            assert_eq!(answer(&rig, id, params), said(id, params), "{mode}");
        }
        rig.stop();
    }
}

#[test]
fn the_answers_of_a_healthy_server_pass_byte_for_byte_where_everything_is_healed() {
    let healthy =
        ECHO.replace(r#" "_meta":null,"#, r#" "_meta" : {},"#).replace(r#""isError":null,"#, "");
    let odd = format!("{ODD}{ODDER}");
    for mode in ["stateless", "stateful"] {
        let rig = rig([shell(&healthy, mode).with("files", "off")]);
        let expected = said("7", &odd)
            .replace(r#" "_meta":null,"#, r#" "_meta" : {},"#)
            .replace(r#""isError":null,"#, "");
        assert_eq!(answer(&rig, "7", &odd), expected, "{mode}");
        rig.stop();
    }
}

#[test]
fn by_default_links_are_added_and_what_is_null_is_left_out() {
    let rig = rig([shell(ECHO, "stateless")]);
    let answer = answer(&rig, "7", r#"{"name":"echo"}"#);
    assert!(answer.contains("/made.txt"), "{answer}");
    assert!(!answer.contains("null"), "{answer}");
    rig.stop();
}
