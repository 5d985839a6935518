//! The application of `examples/live-app`, which serves its tools by `pontoon-host`, behind `pontoon connect`.

use std::path::Path;

use pontoon_tests::example_app::{ExampleApp, TOKEN, TOKEN_VARIABLE};

use super::*;

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_example-live-app"))
}

/// A client that has the token.
fn client(home: &Home, app: &ExampleApp) -> StdioServer {
    let mut command = home.command(&app.url(), &["--token-env", TOKEN_VARIABLE]);
    let mut client = StdioServer::start(command.env(TOKEN_VARIABLE, TOKEN));
    client.initialize();
    client
}

fn position() -> Value {
    json!({"patch": "demo", "text": "metro 500", "position": [120.5, 40]})
}

#[test]
fn all_tools_of_the_application_are_listed_and_called() {
    let home = Home::new();
    let mut app = ExampleApp::start(program(), home.0.path(), 0, &[]);
    let mut client = client(&home, &app);
    assert_eq!(tools(&mut client, "list").len(), 11);
    let patches = client.call("patches", "list_active_patches", json!({}));
    assert_eq!(patches["structuredContent"], json!({"count": 1, "patches": ["demo"]}));
    let made = client.call("add", "add_max_object", position());
    assert_eq!(made["structuredContent"], json!({"object": "obj-3"}), "{made}");
    let cord = json!({"patch": "demo", "from": "obj-3", "outlet": 0, "to": "obj-1", "inlet": 0});
    assert_ne!(client.call("cord", "connect_max_objects", cord)["isError"], true);
    let color =
        json!({"patch": "demo", "object": "obj-3", "attribute": "bgcolor", "value": [1, 0, 0]});
    assert_ne!(client.call("set", "set_object_attribute", color)["isError"], true);
    let objects = client.call("objects", "get_objects_in_patch", json!({"patch": "demo"}));
    let metro = &objects["structuredContent"]["objects"][2];
    assert_eq!(
        (&metro["position"], &metro["attributes"]),
        (&json!([120.5, 40.0]), &json!({"bgcolor": [1.0, 0.0, 0.0]}))
    );
    let gone = json!({"patch": "demo", "object": "obj-1"});
    assert_ne!(client.call("remove", "remove_max_object", gone)["isError"], true);
    let cords = client.call("cords", "get_patchlines", json!({"patch": "demo"}));
    assert_eq!(cords["structuredContent"], json!({"cords": []}));
    assert_ne!(client.call("new", "create_patch", json!({"name": "second"}))["isError"], true);
    assert_eq!(text(&client.call("front", "get_frontmost_patch", json!({}))), "second");
    let info = client.call("info", "get_patch_info", json!({"patch": "demo"}));
    assert_eq!(info["structuredContent"], json!({"name": "demo", "objects": 2, "cords": 0}));
    app.enter("log hello from the terminal");
    app.wait_for("hello from the terminal");
    let log = client.call("log", "get_console_log", json!({"lines": 2}));
    assert_eq!(text(&log), "hello from the terminal\nget_console_log begins");
    let wrong = client.call("wrong", "get_patch_info", json!({"patch": "none"}));
    assert!(wrong["isError"] == true && text(&wrong).contains("open are: demo, second"), "{wrong}");
    let unfit = json!({"patch": "demo", "text": "x", "position": ["one", 2]});
    assert_eq!(client.call("unfit", "add_max_object", unfit)["isError"], true);
    home.finish(client);
    app.close();
}

#[test]
fn it_is_killed_in_the_middle_of_a_call_and_comes_back() {
    let home = Home::new();
    let mut app = ExampleApp::start(program(), home.0.path(), 0, &[]);
    let mut client = client(&home, &app);
    app.enter("hang 600 add_max_object");
    client.send_call("lost", "add_max_object", position());
    app.wait_for("hangs");
    // Lists are answered meanwhile, by the application itself.
    let port = app.port();
    drop(app);
    let lost = client.answer("lost")["result"].clone();
    assert!(lost["isError"] == true && text(&lost).contains("outcome is unknown"), "{lost}");
    client.send_call("again", "add_max_object", position());
    let app = ExampleApp::start(program(), home.0.path(), port, &[]);
    let again = client.answer("again")["result"].clone();
    // The third object of a new application: the lost call was not made again.
    assert_eq!(again["structuredContent"], json!({"object": "obj-3"}), "{again}");
    home.finish(client);
    app.close();
}

#[test]
fn its_server_is_started_anew_and_its_tools_change() {
    let home = Home::new();
    let mut app = ExampleApp::start(program(), home.0.path(), 0, &[]);
    let mut client = client(&home, &app);
    assert_eq!(tools(&mut client, "before").len(), 11);
    app.enter("add play_drums");
    tools_changed(&mut client);
    assert_eq!(tools(&mut client, "more").len(), 12);
    assert_eq!(text(&client.call("new", "play_drums", json!({}))), "play_drums was played");
    app.enter("restart");
    app.wait_for(&format!("listens on {}/", app.url()));
    assert_eq!(text(&client.call("same", "play_drums", json!({}))), "play_drums was played");
    app.enter("remove play_drums");
    tools_changed(&mut client);
    assert_eq!(tools(&mut client, "fewer").len(), 11);
    home.finish(client);
    app.close();
}

#[test]
fn it_tells_where_it_is_as_long_as_it_runs() {
    let home = Home::new();
    let app = ExampleApp::start(program(), home.0.path(), 0, &[]);
    let folder = home.0.path().join(".local/state/pontoon/apps");
    let file = |app: &ExampleApp| folder.join(format!("live-app-{}.json", app.pid()));
    let text: Value = serde_json::from_slice(&std::fs::read(file(&app)).unwrap()).unwrap();
    assert_eq!((&text["url"], &text["token"]), (&json!(format!("{}/", app.url())), &json!(TOKEN)));
    // One that was killed is tidied up after by the next.
    let left = file(&app);
    drop(app);
    assert!(left.exists());
    let app = ExampleApp::start(program(), home.0.path(), 0, &[]);
    assert!(!left.exists() && file(&app).exists());
    app.close();
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn a_client_without_the_token_is_told_so() {
    let home = Home::new();
    let app = ExampleApp::start(program(), home.0.path(), 0, &[]);
    let mut client = home.client(&app.url(), &["--connect-wait", "1s"]);
    let refused = client.call("refused", "list_active_patches", json!({}));
    assert!(refused["isError"] == true && text(&refused).contains("token"), "{refused}");
    home.finish(client);
    app.close();
}
