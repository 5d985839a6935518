//! Tools of a bridge that runs, from a shell.

use std::fs;

use pontoon_tests::rig::{Rig, Server, holds_within};
use std::time::Duration;

use super::{demo, demo_plan, run, run_with};
use crate::{binaries, fixture, plan};

const REPORT: [&str; 4] = ["make_report", "title=Sales", "lines=[\"one\",\"two\"]", "format=md"];

fn urls(rig: &Rig, server: &str) -> [String; 2] {
    let address = rig.address();
    [format!("http://{address}/mcp/{server}"), format!("ws://{address}/ws/{server}")]
}

#[test]
fn a_tool_of_a_bridge_that_runs_is_listed_and_called() {
    let rig = demo();
    let place = tempfile::tempdir().unwrap();
    for url in urls(&rig, "demo") {
        let listed = run(place.path(), &["tools", "--url", &url]);
        assert!(
            listed.code == Some(0) && listed.out.contains("\nmake_report title=string"),
            "{listed:?}"
        );
        let greeted = run(place.path(), &["call", "--url", &url, "greet", "name=Ada"]);
        assert_eq!((greeted.code, greeted.out.as_str()), (Some(0), "Hello, Ada!\n"), "{greeted:?}");
        let words = ["call", "--url", &url, "--answer", "name=Bob", "ask_name"];
        let asked = run(place.path(), &words);
        assert_eq!((asked.code, asked.out.as_str()), (Some(0), "Hello, Bob!\n"), "{asked:?}");
        let wrong = run(place.path(), &["call", "--url", &url, "gret"]);
        assert!(wrong.code == Some(1) && wrong.err.contains("there are: greet"), "{wrong:?}");
    }
    // No session is left behind.
    assert!(holds_within(Duration::from_secs(10), || rig.gauge("sessions") == 0));
    rig.stop();
}

#[test]
fn files_stay_with_the_bridge_as_links_and_are_saved_where_that_is_wanted() {
    let rig = demo();
    for url in urls(&rig, "demo") {
        let place = tempfile::tempdir().unwrap();
        let linked = run(place.path(), &[&["call", "--url", &url], &REPORT[..]].concat());
        assert_eq!(linked.code, Some(0), "{linked:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "{linked:?}");
        assert_eq!(linked.out.matches("http://").count(), 1, "it is said once: {linked:?}");
        let (_, link) = linked.out.split_once("](http://").expect("a link");
        let (link, _) = link.split_once(')').unwrap();
        let (host, path) = link.split_at(link.find('/').unwrap());
        assert_eq!(host, rig.address().to_string());
        assert_eq!(rig.get(path).text(), "# Sales\n\n- one\n- two\n");
        for name in ["Sales.md", "Sales-2.md"] {
            let words = [&["call", "--save", "--url", &url], &REPORT[..]].concat();
            let saved = run(place.path(), &words);
            assert!(
                saved.code == Some(0) && saved.err.contains(&format!("saved {name}")),
                "{saved:?}"
            );
            let text = fs::read_to_string(place.path().join(name)).unwrap();
            assert_eq!(text, "# Sales\n\n- one\n- two\n");
        }
    }
    rig.stop();
}

#[test]
fn a_server_chooses_no_name_that_means_something_in_the_current_folder() {
    let rig = plan([fixture("stateless")]).start();
    let names_here = |place: &std::path::Path| {
        let entries = fs::read_dir(place).unwrap();
        let mut names: Vec<_> =
            entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    for url in urls(&rig, "fixture") {
        let place = tempfile::tempdir().unwrap();
        for name in ["mcp-servers.json", "-rf.md"] {
            let name = format!("name={name}");
            let words = ["call", "--save", "--url", &url, "write_file", &name, "text={}"];
            let saved = run(place.path(), &words);
            assert_eq!(saved.code, Some(0), "{saved:?}");
        }
        assert_eq!(names_here(place.path()), ["file-rf.md", "mcp-servers-2.json"]);
    }
    rig.stop();
}

#[test]
fn a_key_is_shown_as_a_token_or_a_header_and_files_need_it_too() {
    let rig = demo_plan()
        .variable("MCPO_API_KEYS", "me=the-key-of-me")
        .variable("MCPO_STRICT_AUTH", "true")
        .start();
    for url in urls(&rig, "demo") {
        let place = tempfile::tempdir().unwrap();
        let keyless = run(place.path(), &["tools", "--url", &url]);
        assert_eq!(keyless.code, Some(1), "{keyless:?}");
        assert!(
            keyless.err.contains("HTTP 401: it wants a token; give it with --token-env"),
            "{keyless:?}"
        );
        let wrong =
            run_with(place.path(), &["tools", "--url", &url, "--token-env", "K"], |command| {
                command.env("K", "another-key");
            });
        assert!(wrong.err.contains("HTTP 403: it does not accept the token"), "{wrong:?}");
        let words = [&["call", "--url", &url, "--token-env", "K", "--save"], &REPORT[..]].concat();
        let saved = run_with(place.path(), &words, |command| {
            command.env("K", "the-key-of-me");
        });
        assert!(saved.code == Some(0) && place.path().join("Sales.md").exists(), "{saved:?}");
        let header = ["--header", "X-API-Key: the-key-of-me"];
        let words = [&["call", "--url", &url][..], &header, &["greet", "name=Ada"]].concat();
        let greeted = run(place.path(), &words);
        assert_eq!(greeted.out, "Hello, Ada!\n", "{greeted:?}");
    }
    rig.stop();
}

#[test]
fn a_file_at_another_host_is_not_fetched_and_is_shown_no_token() {
    let rig = demo_plan().variable("MCPO_BASE_URL", "http://127.0.0.1:9").start();
    let place = tempfile::tempdir().unwrap();
    let [url, _] = urls(&rig, "demo");
    let saved = run(place.path(), &[&["call", "--save", "--url", &url], &REPORT[..]].concat());
    assert_eq!(saved.code, Some(1), "{saved:?}");
    assert!(saved.err.contains("it is at another host than the one that was called"), "{saved:?}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    rig.stop();
}

#[test]
fn a_server_that_cannot_be_used_is_told_at_once_with_what_to_do() {
    let rig = plan([fixture("stateless")]).start();
    let place = tempfile::tempdir().unwrap();
    let address = rig.address();
    for (url, says) in [
        ("http://127.0.0.1:1/mcp/x".to_owned(), "nothing answers there"),
        ("http://127.0.0.1:1/mcp/x".to_owned(), "start the server, or correct the address"),
        (format!("http://{address}/mcp/other"), "there is no server \"other\"; there are: fixture"),
        (format!("http://{address}"), "a server of a bridge is at http://"),
        (format!("ws://{address}/mcp/fixture"), "/ws/fixture"),
    ] {
        let said = run(place.path(), &["call", "--url", &url, "echo", "text=x"]);
        assert!(said.code == Some(1) && said.err.contains(says), "{url}: {said:?}");
        assert!(!said.err.contains("in the other era"), "{url}: {said:?}");
    }
    rig.stop();
}

#[test]
fn a_server_of_either_era_alone_is_reached_through_the_bridge() {
    for era in ["legacy", "modern"] {
        let server = Server::new("fixture", &binaries().fixture_server, &["--era", era]);
        let rig = plan([server.with("mode", "stateless")]).start();
        let place = tempfile::tempdir().unwrap();
        for url in urls(&rig, "fixture") {
            let said = run(place.path(), &["call", "--url", &url, "echo", "text=x"]);
            assert_eq!((said.code, said.out.as_str()), (Some(0), "x\n"), "{era} {url}: {said:?}");
        }
        rig.stop();
    }
}
