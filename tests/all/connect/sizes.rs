//! Long messages: what both sides take, and an application that does not.

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use serde_json::{Value, json};

use super::{Home, text};

fn app_with(manner: Manner, deeds: &Deeds) -> LiveApp {
    LiveApp::start(&Place::WebSocket(0), manner, deeds)
}

fn is_not_made(result: &Value) -> bool {
    result["isError"] == true && result["_meta"]["pontoon/outcome"] == "not made"
}

#[test]
fn messages_of_17_and_of_64_mib_go_both_ways_in_one_frame_and_in_pieces() {
    let (home, deeds) = (Home::new(), Deeds::default());
    for fragment in [None, Some(1_000_003)] {
        let app = app_with(Manner { fragment, ..Manner::default() }, &deeds);
        let mut client = home.client(&app.url(), &[]);
        for length in [17 << 20, (64 << 20) - 1024] {
            let long = "x".repeat(length);
            let result = client.call(length, "echo", json!({"text": long}));
            assert!(text(&result) == long, "{length} {fragment:?}");
        }
        assert_eq!(app.accepted(), 1);
        home.finish(client);
    }
}

#[test]
fn a_call_that_is_too_long_for_the_application_fails_alone_and_the_next_is_not_sent() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let manner = Manner { max_message: 100_000, ..Manner::default() };
    let app = app_with(manner, &deeds);
    let mut client = home.client(&app.url(), &["--max-in-flight", "4"]);
    let long = |length: usize| json!({"text": "x".repeat(length)});
    client.send_call("other", "silent", json!({"text": "other"}));
    let refused = client.call(1, "echo", long(2_000_000));
    assert!(is_not_made(&refused), "{refused}");
    assert!(
        text(&refused).contains("this call is 2000") && text(&refused).contains("send less"),
        "{refused}"
    );
    let other = client.answer("other");
    assert_eq!(other["result"]["_meta"]["pontoon/outcome"], "unknown", "{other}");
    // What is shorter may do, until it is known that it does not.
    assert_eq!(text(&client.call(2, "echo", json!({"text": "well"}))), "well");
    assert!(is_not_made(&client.call(3, "echo", long(150_000))));
    assert_eq!(text(&client.call(4, "echo", long(90_000))).len(), 90_000);
    let connections = app.accepted();
    for id in 10..20 {
        let refused = client.call(id, "echo", long(150_000));
        assert!(
            is_not_made(&refused) && text(&refused).contains("so it was not sent"),
            "{refused}"
        );
    }
    assert_eq!((app.accepted(), connections), (3, 3), "each refusal cost one connection");
    assert_eq!(deeds.count(&"x".repeat(150_000)), 0);
    // Another version of it is tried again.
    let place = app.place();
    app.close();
    let manner = Manner { version: "2".to_owned(), ..Manner::default() };
    let _app = LiveApp::start(&place, manner, &deeds);
    assert_eq!(text(&client.call(5, "echo", long(150_000))).len(), 150_000);
    home.finish(client);
}

#[test]
fn a_call_that_may_be_made_twice_is_not_if_it_is_too_long() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app_with(Manner { max_message: 50_000, ..Manner::default() }, &deeds);
    let mut client = home.client(&app.url(), &[]);
    assert_eq!(text(&client.call(0, "read", json!({"text": "short"}))), "short");
    let refused = client.call(1, "read", json!({"text": "x".repeat(60_000)}));
    assert!(is_not_made(&refused), "{refused}");
    assert_eq!(text(&client.call(2, "read", json!({"text": "again"}))), "again");
    assert_eq!(app.accepted(), 2);
    home.finish(client);
}
