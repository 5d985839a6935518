//! An application is found by its file, or at one of some ports.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use serde_json::json;

use super::{Home, app, text};

/// Leaves the file of an application, as one does that wants to be found.
pub(super) fn leave(home: &Home, name: &str, url: &str, token: &str) -> PathBuf {
    let folder = home.0.path().join(".local/state/pontoon/apps");
    std::fs::create_dir_all(&folder).unwrap();
    let pid = std::process::id();
    let file = folder.join(format!("{name}-{}.json", url.rsplit(':').next().unwrap()));
    let said = json!({"pid": pid, "url": url, "name": name, "token": token, "started": "now"});
    std::fs::write(&file, said.to_string()).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    file
}

fn secret_app(deeds: &Deeds, token: &str) -> LiveApp {
    let manner = Manner { token: Some(token.to_owned()), ..Manner::default() };
    LiveApp::start(&Place::WebSocket(0), manner, deeds)
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap().to_string_lossy().into_owned()
}

#[test]
fn an_application_that_left_its_file_is_found_with_its_token_and_followed_to_another_port() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let mut client = home.client("--app", &["max", "--connect-wait", "200ms"]);
    let away = client.call(0, "echo", json!({"text": "x"}));
    assert!(text(&away).contains("no application called \"max\" runs"), "{away}");
    let first = secret_app(&deeds, "one");
    let file = leave(&home, "max", &first.url(), "one");
    wait_for_call(&mut client, "first");
    first.close();
    std::fs::remove_file(file).unwrap();
    let second = secret_app(&deeds, "two");
    leave(&home, "max", &second.url(), "two");
    wait_for_call(&mut client, "second");
    assert_eq!((deeds.count("first"), deeds.count("second")), (1, 1));
    home.finish(client);
}

/// Calls until the call is made.
fn wait_for_call(client: &mut pontoon_tests::stdio::StdioServer, said: &str) {
    let mut number = 0;
    pontoon_tests::rig::wait_until("the call is made", super::SOON, || {
        number += 1;
        let result = client.call(format!("{said} {number}"), "echo", json!({"text": said}));
        result["isError"].is_null() && text(&result) == said
    });
}

#[test]
fn of_several_applications_one_has_to_be_chosen() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let (one, two) = (app(&deeds), app(&deeds));
    let files = [leave(&home, "max", &one.url(), ""), leave(&home, "max", &two.url(), "")];
    let mut client = home.client("--app", &["max", "--connect-wait", "200ms"]);
    let away = client.call(1, "echo", json!({"text": "x"}));
    for file in &files {
        assert!(text(&away).contains(&stem(file)), "{away}");
    }
    assert!(text(&away).contains("choose one with --app"), "{away}");
    home.finish(client);
    let mut client = home.client("--app", &[&stem(&files[1])]);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "chosen"}))), "chosen");
    assert_eq!((one.accepted(), two.accepted()), (0, 1));
    home.finish(client);
}

#[test]
fn an_application_is_found_at_one_of_some_ports_and_followed() {
    let (home, deeds) = (Home::new(), Deeds::default());
    // Some ports in a row, the first with something else.
    let (foreign, ports) = loop {
        let foreign = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let first = foreign.local_addr().unwrap().port();
        let Some(last) = first.checked_add(4) else { continue };
        let free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
        if (first + 1..=last).all(free) {
            break (foreign, first..=last);
        }
    };
    let hang_up = std::thread::spawn(move || {
        while let Ok((stream, _)) = foreign.accept() {
            let mut word = [0];
            let _ = std::io::Read::read(&mut &stream, &mut word);
            if word[0] == b'!' {
                return;
            }
        }
    });
    let (first, last) = (*ports.start(), *ports.end());
    let at = |port| LiveApp::start(&Place::WebSocket(port), Manner::default(), &deeds);
    let app = at(last - 1);
    let url = format!("ws://127.0.0.1:{first}-{last}");
    let mut client = home.client(&url, &[]);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "found"}))), "found");
    app.close();
    let _app = at(last);
    assert_eq!(text(&client.call(2, "echo", json!({"text": "followed"}))), "followed");
    home.finish(client);
    let end = std::net::TcpStream::connect(("127.0.0.1", first)).unwrap();
    std::io::Write::write_all(&mut &end, b"!").unwrap();
    hang_up.join().unwrap();
}
