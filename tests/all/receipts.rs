//! What a response tells of its job and its files: in its head where that can still be said, else in the answer; and a
//! result that is too large for an event.

use std::time::Duration;

use pontoon_tests::client::{Legacy, Modern, Request, Response, Speaker};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::{Value, json};

use crate::{rig, shell};

/// A server that tells its progress where it is asked for, writes a file in the tool `file`, the same with a link of its
/// own in `own` and with something for programs in `sum`, and gives a result of over
/// 2 MB in the tool `large`, of which a member for programs has half or next to nothing.
const SERVER: &str = r#"
    while IFS= read -r line; do
        id=${line#*\"id\":}
        id=${id%%,*}
        case $line in
        *'"initialize"'*)
            printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25",' "$id"
            printf '"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}\n' ;;
        *'"tools/list"'*)
            printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[' "$id"
            printf '{"name":"file","inputSchema":{"type":"object"}},'
            printf '{"name":"own","inputSchema":{"type":"object"}},'
            printf '{"name":"sum","inputSchema":{"type":"object"}},'
            printf '{"name":"large","inputSchema":{"type":"object"}}]}}\n' ;;
        *'"tools/call"'*)
            case $line in *'"progressToken":'*)
                token=${line#*\"progressToken\":}
                printf '{"jsonrpc":"2.0","method":"notifications/progress",'
                printf '"params":{"progressToken":%s,"progress":1}}\n' "${token%%[,\}]*}" ;;
            esac
            case $line in
            *'"own"'*)
                echo made > made.txt
                printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"three"}' "$id"
                printf ',{"type":"resource_link","uri":"https://h/own","name":"own"}]}}\n' ;;
            *'"sum"'*)
                echo made > made.txt
                printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"3"}]' "$id"
                printf ',"structuredContent":{"sum":3}}}\n' ;;
            *'"file"'*)
                echo made > made.txt
                printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}\n' "$id" ;;
            *)
                printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' "$id"
                head -c 1200000 /dev/zero | tr '\0' x
                printf '"}],"isError":true,"structuredContent":{"text":"'
                case $line in *'"half"'*) head -c 1200000 /dev/zero | tr '\0' y ;; esac
                printf '"}}}\n' ;;
            esac ;;
        *'"id":'*)
            printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
        esac
    done"#;

const MODES: [&str; 2] = ["stateless", "stateful"];

/// The parameters of a call that wants progress or not.
fn params(tool: &str, arguments: &Value, wants_progress: bool) -> Value {
    let mut params = json!({"name": tool, "arguments": arguments});
    if wants_progress {
        params["_meta"] = json!({"progressToken": "t"});
    }
    params
}

/// The responses that a client of each kind gets: modern, legacy, and legacy that would rather have events.
fn ask(rig: &Rig, params: &Value) -> [Response; 3] {
    let endpoint = rig.endpoint("shell");
    let mut session = Legacy::open(&endpoint);
    let of_modern = Modern::new(&endpoint).ask(1, "tools/call", params.clone());
    let of_legacy = session.ask(1, "tools/call", params.clone());
    let message = session.message(&json!(1), "tools/call", params.clone());
    let events_first = "text/event-stream, application/json";
    let events: Request = session.request(&message).with("Accept", events_first);
    let of_events = events.send(rig.address()).unwrap();
    session.end();
    [of_modern, of_legacy, of_events]
}

/// The links in the content of an answer.
fn linked(response: &Response) -> Vec<Value> {
    let content = response.answer()["result"]["content"].clone();
    let blocks = content.as_array().unwrap_or_else(|| panic!("{content}")).clone();
    blocks.into_iter().filter(|block| block["type"] == "resource_link").collect()
}

#[test]
fn links_are_in_the_head_or_where_that_is_gone_in_the_answer() {
    for mode in MODES {
        for files in ["append", "header", "off"] {
            let rig = rig([shell(SERVER, mode).with("files", files)]);
            for wants_progress in [false, true] {
                let params = params("file", &json!({}), wants_progress);
                for (index, response) in ask(&rig, &params).iter().enumerate() {
                    let case = format!("{mode} {files} {wants_progress} {index}");
                    let is_stream = response.head.is_stream();
                    assert_eq!(is_stream, wants_progress || index == 2, "{case}");
                    let (job, link) =
                        (response.head.header("x-mcpo-job-id"), response.head.header("link"));
                    // A job that is made for the files is not known before there are some.
                    let has_job = match (mode, files) {
                        ("stateless", _) => true,
                        (_, "off") => false,
                        _ => !wants_progress,
                    };
                    assert_eq!(job.is_some(), has_job, "{case}: {:?}", response.head);
                    assert_eq!(link.is_some(), files != "off" && !wants_progress, "{case}");
                    let is_in_answer = match files {
                        "append" => true,
                        "header" => wants_progress,
                        _ => false,
                    };
                    let names: Vec<_> =
                        linked(response).iter().map(|link| link["name"].clone()).collect();
                    assert_eq!(names == ["made.txt"], is_in_answer, "{case}: {names:?}");
                    if let (Some(job), [link]) = (job, &linked(response)[..]) {
                        assert!(link["uri"].as_str().unwrap().contains(job), "{case}: {link}");
                    }
                }
            }
            rig.stop();
        }
    }
}

#[test]
fn over_rest_files_are_one_more_element_and_nothing_of_the_tool_is_taken_for_them() {
    for files in ["append", "header", "off"] {
        let rig = rig([shell(SERVER, "stateless").with("files", files)]);
        let own = json!({"type": "resource_link", "uri": "https://h/own", "name": "own"});
        for (tool, said) in
            [("file", vec![]), ("own", vec![json!("three"), own.clone()]), ("sum", vec![json!(3)])]
        {
            let path = format!("/mcpo/shell/{tool}");
            let request = Request::post(&path, "{}").with("Content-Type", "application/json");
            let response = request.send(rig.address()).unwrap();
            let case = format!("{files} {tool}: {:?}", response.head);
            assert_eq!(response.head.header("link").is_some(), files != "off", "{case}");
            let found: Value = serde_json::from_slice(&response.body).unwrap();
            let mut found = match found {
                Value::Array(items) => items,
                one => vec![one],
            };
            if files == "append" {
                let told = found.pop().unwrap();
                assert!(told.as_str().unwrap().contains("[made.txt]("), "{case} {told}");
            }
            // Some clients show no links, so the model is told of those of the tool.
            if (files, tool) == ("append", "own") {
                assert_eq!(
                    found.pop().unwrap(),
                    "Links given by this tool:\n- [own](https://h/own)"
                );
            }
            assert_eq!(found, said, "{case}");
        }
        rig.stop();
    }
}

#[test]
fn a_result_too_large_for_an_event_is_a_file_and_the_answer_links_to_it() {
    for mode in MODES {
        let rig = rig([shell(SERVER, mode)]);
        for half in [false, true] {
            let arguments = if half { json!({"half": true}) } else { json!({}) };
            // By itself it goes out whole, also to a client that would rather have an event.
            let params = |wants_progress| params("large", &arguments, wants_progress);
            for response in ask(&rig, &params(false)) {
                assert!(!response.head.is_stream() && linked(&response).is_empty(), "{mode}");
                assert!(response.body.len() > 1_200_000, "{}", response.body.len());
            }
            for response in ask(&rig, &params(true)) {
                assert!(response.head.is_stream(), "{mode}");
                if half {
                    // What a program was promised cannot be left out.
                    assert!(response.body.len() > 2_400_000 && linked(&response).is_empty());
                    continue;
                }
                assert!(response.body.len() < 10_000, "{}", response.body.len());
                let result = &response.answer()["result"];
                assert_eq!(result["isError"], true, "{result}");
                let text = result["content"][0]["text"].as_str().unwrap();
                assert!(text.contains("in the file result.json"), "{text}");
                let [link] = &linked(&response)[..] else { panic!("{result}") };
                assert_eq!(link["name"], "result.json");
                let uri = link["uri"].as_str().unwrap();
                let file = rig.get(&uri[uri.find("/files/").unwrap()..]);
                let whole: Value = serde_json::from_slice(&file.body).unwrap();
                let length = |part: &str| whole.pointer(part).unwrap().as_str().unwrap().len();
                assert_eq!(length("/content/0/text"), 1_200_000);
                assert_eq!(length("/structuredContent/text"), 0);
                assert_eq!(result["structuredContent"], json!({"text": ""}), "{result}");
            }
        }
        rig.stop();
    }
}

#[test]
fn a_client_that_comes_back_to_its_stream_finds_the_same_answer() {
    let rig = rig([shell(SERVER, "stateful")]);
    let session = Legacy::open(&rig.endpoint("shell"));
    let params = params("large", &json!({}), true);
    let message = session.message(&json!(1), "tools/call", params);
    let response = session.request(&message).send(rig.address()).unwrap();
    let messages = response.messages().unwrap();
    let mut events = pontoon_tests::client::EventReader::new();
    events.push(&response.body);
    let first = events.next_event().expect("a first event").id.expect("its id");
    let mut again = session.listen(Some(&first));
    let mut heard = Vec::new();
    while heard.len() < messages.len() {
        let event = again.next_event().unwrap().expect("an event");
        heard.push(serde_json::from_str::<Value>(&event.data).unwrap());
    }
    assert!(heard == messages, "it is the same");
    assert_eq!(messages[1]["result"]["content"][2]["name"], "result.json");
    session.end();
    rig.stop();
}

#[test]
fn where_links_are_not_added_a_large_result_stays_as_it_is() {
    for files in ["header", "off"] {
        let rig = rig([shell(SERVER, "stateless").with("files", files)]);
        for response in ask(&rig, &params("large", &json!({}), true)) {
            assert!(response.head.is_stream() && response.body.len() > 1_200_000, "{files}");
        }
        rig.stop();
    }
}

/// A server that says `first` to `sixty` on its standard error in each call, and the number of the call; then it writes
/// a file.
const TALKER: &str = r#"
    calls=0
    echo 'it starts' >&2
    while IFS= read -r line; do
        id=${line#*\"id\":}
        id=${id%%,*}
        case $line in
        *'"initialize"'*)
            printf '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25",' "$id"
            printf '"capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}\n' ;;
        *'"tools/list"'*)
            printf '{"jsonrpc":"2.0","id":%s,"result":{"tools":[' "$id"
            printf '{"name":"talk","inputSchema":{"type":"object"}}]}}\n' ;;
        *'"tools/call"'*)
            calls=$((calls + 1))
            number=1
            while [ $number -le 60 ]; do
                echo "line $number of call $calls" >&2
                number=$((number + 1))
            done
            echo made > made-$calls.txt
            printf '{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}\n' "$id" ;;
        *'"id":'*)
            printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id" ;;
        esac
    done"#;

#[test]
fn all_that_a_server_said_during_a_call_is_in_the_log_of_its_job() {
    let lines = |call: usize| (1..=60).map(move |line| format!("line {line} of call {call}"));
    for (mode, workspace) in
        [("stateless", "job"), ("stateless", "session"), ("stateful", "session")]
    {
        let rig = rig([shell(TALKER, mode).with("workspace", workspace)]);
        let mut session = Legacy::open(&rig.endpoint("shell"));
        for call in 1..=2 {
            let response = session.call(call, "talk", json!({}));
            let job = response.head.header("x-mcpo-job-id").expect("a job").to_owned();
            let log = rig.directory().join("jobs").join(job).join("server.log");
            wait_until("it is written", Duration::from_secs(10), || log.exists());
            let said = std::fs::read_to_string(&log).unwrap();
            let said: Vec<_> = said.lines().collect();
            // A process for each call is in its first, and what it says at its start is part of that.
            let expected: Vec<_> = match mode {
                "stateless" => std::iter::once("it starts".to_owned()).chain(lines(1)).collect(),
                _ => lines(call).collect(),
            };
            assert_eq!(said, expected, "{mode} {workspace}");
        }
        session.end();
        rig.stop();
    }
}
