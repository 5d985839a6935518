//! An application that is lost in the middle of something.

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::rig::{send_signal, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Home, SOON, app, text, unasked};

#[test]
fn the_outcome_of_a_call_that_was_under_way_is_unknown_and_it_is_not_made_again() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut client = home.client(&app.url(), &[]);
    let lost = client.call(1, "die", json!({"text": "once"}));
    assert_eq!(
        (&lost["isError"], &lost["_meta"]["pontoon/outcome"]),
        (&json!(true), &json!("unknown"))
    );
    assert!(text(&lost).contains("outcome is unknown"), "{lost}");
    assert_eq!(text(&client.call(2, "echo", json!({"text": "next"}))), "next");
    assert_eq!(deeds.count("once"), 1);
    home.finish(client);
}

#[test]
fn a_call_that_may_be_made_twice_is() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut client = home.client(&app.url(), &[]);
    assert_eq!(text(&client.call(1, "die_once", json!({"text": "twice"}))), "twice");
    assert_eq!(deeds.count("twice"), 2);
    home.finish(client);
}

#[test]
fn one_that_could_not_be_made_again_has_an_unknown_outcome() {
    let (home, deeds) = (Home::new(), Deeds::default());
    for options in [&["--connect-wait", "300ms"][..], &["--tool-timeout", "read=1s"]] {
        let app = app(&deeds);
        let mut client = home.client(&app.url(), options);
        let said = options[0];
        client.send_call(1, "read", json!({"text": said, "ms": "for ever"}));
        wait_until("it is at the application", SOON, || deeds.count(said) == 1);
        app.close();
        let lost = client.answer(1)["result"].clone();
        assert_eq!(lost["_meta"]["pontoon/outcome"], "unknown", "{lost}");
        assert!(!text(&lost).contains("not made"), "{lost}");
        home.finish(client);
    }
}

#[test]
fn what_a_signal_cuts_off_is_cancelled_at_the_application() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut client = home.client(&app.url(), &["--no-share"]);
    client.send_call(1, "silent", json!({"text": "cut off"}));
    wait_until("it is at the application", SOON, || deeds.count("cut off") == 1);
    send_signal(client.pid(), Signal::TERM).unwrap();
    wait_until("it is cancelled", SOON, || app.heard("notifications/cancelled") == 1);
}

#[test]
fn an_application_that_is_closed_and_started_again_is_used_again_without_a_word() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let first = app(&deeds);
    let (url, place) = (first.url(), first.place());
    let mut client = home.client(&url, &[]);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "one"}))), "one");
    first.close();
    client.send_call(2, "echo", json!({"text": "two"}));
    let _second = LiveApp::start(&place, Manner::default(), &deeds);
    assert_eq!(text(&client.answer(2)["result"]), "two");
    assert_eq!((deeds.count("one"), deeds.count("two")), (1, 1));
    home.finish(client);
}

#[test]
fn an_application_that_does_not_answer_is_given_up_in_time_and_its_late_answer_is_dropped() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app(&deeds);
    let mut client = home.client(&app.url(), &["--timeout", "30s", "--tool-timeout", "wait=200ms"]);
    let late = client.call(1, "wait", json!({"text": "late", "ms": 600}));
    assert_eq!(late["_meta"]["pontoon/outcome"], "unknown", "{late}");
    assert!(text(&late).contains("did not answer within"), "{late}");
    // The application works on one call at a time, so the late answer comes before this one.
    assert_eq!(text(&client.call(2, "echo", json!({"text": "after"}))), "after");
    assert_eq!(unasked(&mut client), Vec::<Value>::new());
    home.finish(client);
}

#[test]
fn an_application_that_takes_connections_and_says_nothing_does_not_stop_the_bridge() {
    let home = Home::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let mut client = home.client(&url, &["--connect-wait", "200ms"]);
    let away = client.call(1, "echo", json!({"text": "x"}));
    assert_eq!(away["_meta"]["pontoon/outcome"], "not made", "{away}");
    assert_eq!(client.ask(2, "ping", &json!({}))["result"], json!({}));
    home.finish(client);
    drop(listener);
}

#[test]
fn a_bridge_that_is_killed_leaves_the_application_as_it_was() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let mut client = home.client(&app.url(), &[]);
    client.send_call(1, "echo", json!({"text": "first"}));
    client.answer(1);
    client.kill();
    let mut client = home.client(&app.url(), &[]);
    assert_eq!(text(&client.call(1, "echo", json!({"text": "second"}))), "second");
    assert!(client.finish().success());
}
