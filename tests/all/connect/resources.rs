//! An application with resources: what its clients wanted of them is told to each new connection, and what was cut off is
//! asked again.

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::rig::wait_until;
use serde_json::json;

use super::{Home, SOON, text};

fn app_with_resources(deeds: &Deeds) -> LiveApp {
    let manner = Manner { has_resources: true, ..Manner::default() };
    LiveApp::start(&Place::WebSocket(0), manner, deeds)
}

#[test]
fn a_subscription_is_made_again_over_each_new_connection_until_it_is_taken_back() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app_with_resources(&deeds);
    let mut client = home.client(&app.url(), &[]);
    let read = client.ask("read", "resources/read", &json!({"uri": "app://scene"}));
    assert_eq!(read["result"]["contents"][0]["text"], "app://scene", "{read}");
    let subscribed = client.ask("on", "resources/subscribe", &json!({"uri": "app://scene"}));
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    let updated = json!({
        "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "app://scene"},
    });
    for times in 1..4 {
        wait_until("it is subscribed", SOON, || app.heard("resources/subscribe") == times);
        let told = client.call(times, "tell", json!({"text": "told", "note": updated}));
        assert_eq!(text(&told), "told");
        client.wait_for("the update", |message| message["method"] == updated["method"]);
        app.drop_connections();
    }
    wait_until("it is subscribed", SOON, || app.heard("resources/subscribe") == 4);
    let taken_back = client.ask("off", "resources/unsubscribe", &json!({"uri": "app://scene"}));
    assert_eq!(taken_back["result"], json!({}), "{taken_back}");
    let before = app.heard("notifications/initialized");
    app.drop_connections();
    wait_until("it is back", SOON, || app.heard("notifications/initialized") > before);
    // What a new connection begins with goes before its first call.
    assert_eq!(text(&client.call("next", "echo", json!({"text": "next"}))), "next");
    assert_eq!(app.heard("resources/subscribe"), 4);
    home.finish(client);
}

#[test]
fn a_reading_that_was_cut_off_is_made_again_and_a_call_beside_it_is_not() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = app_with_resources(&deeds);
    let mut client = home.client(&app.url(), &["--max-in-flight", "2"]);
    client.send_call("call", "silent", json!({"text": "beside"}));
    wait_until("it is at the application", SOON, || deeds.count("beside") == 1);
    let read = client.ask("read", "resources/read", &json!({"uri": "app://once"}));
    assert_eq!(read["result"]["contents"][0]["text"], "app://once", "{read}");
    let lost = client.answer("call")["result"].take();
    assert_eq!(lost["_meta"]["pontoon/outcome"], "unknown", "{lost}");
    assert_eq!((deeds.count("app://once"), deeds.count("beside")), (2, 1));
    home.finish(client);
}
