//! Several bridges of one user share the connection to an application.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pontoon_tests::live_app::{Deeds, LiveApp, Manner, Place};
use pontoon_tests::rig::wait_until;
use pontoon_tests::stdio::StdioServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Home, SOON, text, tools, tools_changed};

/// An application that has room for one connection.
fn narrow_app(deeds: &Deeds) -> LiveApp {
    let manner = Manner { takes_one: true, ..Manner::default() };
    LiveApp::start(&Place::WebSocket(0), manner, deeds)
}

/// The first owns the connection: it has called before the others come.
fn three_clients(home: &Home, app: &LiveApp, options: &[&str]) -> [StdioServer; 3] {
    [1, 2, 3].map(|number| {
        let mut client = home.client(&app.url(), options);
        let said = format!("hello of {number}");
        assert_eq!(text(&client.call(1, "echo", json!({"text": said}))), said);
        client
    })
}

/// Ends these bridges in order, one after the other, and sees that nothing is left of them.
fn finish(home: &Home, clients: impl IntoIterator<Item = StdioServer>) {
    clients.into_iter().for_each(|client| assert!(client.finish().success()));
    let run = home.0.path().join(".local/state/pontoon/run");
    let left: Vec<_> = std::fs::read_dir(run).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn three_clients_with_equal_ids_share_one_connection_and_nothing_crosses() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let mut clients = three_clients(&home, &app, &[]);
    for round in 0..50 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.send_call(round, "echo", json!({"text": format!("{number}: {round}")}));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(text(&client.answer(round)["result"]), format!("{number}: {round}"));
        }
    }
    assert_eq!((app.accepted(), app.sent_away()), (1, 0));
    // What changes is told to each.
    clients[1].call("grow", "grow", json!({"text": "grown"}));
    for client in &mut clients {
        tools_changed(client);
        assert!(tools(client, "now").contains(&"grown".to_owned()));
    }
    finish(&home, clients.into_iter().rev());
    home.is_tidy();
    wait_until("the application hears that this was on purpose", SOON, || app.closed() == 1);
}

/// The notifications that a client has heard by the end of another call.
fn notes(client: &mut StdioServer) -> Vec<Value> {
    assert_eq!(text(&client.call("by now", "echo", json!({"text": "by now"}))), "by now");
    client.unheard().into_iter().filter(|message| message.get("method").is_some()).collect()
}

#[test]
fn a_note_that_may_be_about_a_call_of_one_client_reaches_no_other() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let mut clients = three_clients(&home, &app, &[]);
    let notes_of_apps = [
        json!({"jsonrpc": "2.0", "method": "notifications/app/opened", "params": {"file": "secret"}}),
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "error", "data": "secret"}}),
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "app://secret"}}),
    ];
    for caller in 0..3 {
        for (number, note) in notes_of_apps.iter().enumerate() {
            let told = json!({"text": "told", "note": note});
            assert_eq!(text(&clients[caller].call(number, "tell", told)), "told");
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let heard = notes(client);
            assert!(heard.is_empty(), "{number} heard what {caller} did: {heard:?}");
        }
    }
    finish(&home, clients);
}

#[test]
fn progress_reaches_the_client_that_asked_for_it_though_all_call_it_the_same() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let mut clients = three_clients(&home, &app, &["--max-in-flight", "3"]);
    for (number, client) in clients.iter_mut().enumerate() {
        let arguments = json!({"text": format!("of {number}")});
        let meta = json!({"progressToken": "p"});
        let params = json!({"name": "tell", "arguments": arguments, "_meta": meta});
        client.send(7, "tools/call", &params);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let own = format!("of {number}");
        assert_eq!(text(&client.answer(7)["result"]), own);
        let heard = notes(client);
        let said: Vec<_> = heard.iter().map(|note| note["params"]["message"].as_str()).collect();
        assert_eq!(said, [Some(&*own)], "{heard:?}");
        assert_eq!(heard[0]["params"]["progressToken"], "p");
    }
    finish(&home, clients);
}

#[test]
fn an_application_that_talks_like_a_bridge_that_leaves_is_none() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let mut clients = three_clients(&home, &app, &[]);
    let leaving = json!({"jsonrpc": "2.0", "method": "notifications/pontoon/leaving"});
    for client in &mut clients {
        let told = json!({"text": "told", "note": leaving});
        assert_eq!(text(&client.call(7, "tell", told)), "told");
    }
    for client in &mut clients {
        assert_eq!(notes(client), [] as [Value; 0], "it is for bridges alone");
    }
    assert_eq!((app.accepted(), app.closed()), (1, 0), "the connection was not given up");
    finish(&home, clients);
}

#[test]
fn an_application_that_says_what_a_bridge_says_that_leaves_is_asked_once() {
    let error = "the bridge is stopping; try again in a moment";
    for (options, told) in [
        (["--heal", "H25=off"], "/error/message"),
        (["--heal", "repair"], "/result/content/0/text"),
    ] {
        let (home, deeds) = (Home::new(), Deeds::default());
        let app = narrow_app(&deeds);
        let mut clients = three_clients(&home, &app, &options);
        for (number, client) in clients.iter_mut().enumerate() {
            let said = format!("once {number}");
            let params = json!({"name": "fail", "arguments": {"text": said, "error": error}});
            let answer = client.ask(7, "tools/call", &params);
            assert_eq!(answer.pointer(told), Some(&json!(error)), "{answer}");
            assert_eq!(deeds.count(&said), 1);
        }
        finish(&home, clients);
    }
}

#[test]
fn a_bridge_that_is_killed_in_a_call_leaves_the_application_to_the_others_at_once() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let [mut owner, mut killed, other] = three_clients(&home, &app, &[]);
    killed.send_call(7, "silent", json!({"text": "left behind"}));
    wait_until("it is at the application", SOON, || deeds.count("left behind") == 1);
    killed.kill();
    // A client that only closes its input has half a minute.
    wait_until("it is cancelled", SOON / 3, || app.heard("notifications/cancelled") == 1);
    assert_eq!(text(&owner.call(8, "echo", json!({"text": "next"}))), "next");
    finish(&home, [owner, other]);
}

#[test]
fn an_owner_whose_files_were_removed_is_found_again_when_it_has_connected_anew() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let mut owner = home.client(&app.url(), &[]);
    assert_eq!(text(&owner.call(1, "echo", json!({"text": "before"}))), "before");
    std::fs::remove_dir_all(home.0.path().join(".local/state/pontoon/run")).unwrap();
    app.drop_connections();
    wait_until("it has connected anew", SOON, || app.heard("notifications/initialized") == 2);
    // It goes through the socket that the owner has made then.
    let mut second = home.client(&app.url(), &["--connect-wait", "60s"]);
    assert_eq!(text(&second.call(1, "echo", json!({"text": "after"}))), "after");
    assert_eq!((app.accepted(), app.sent_away()), (2, 0));
    finish(&home, [second, owner]);
}

#[test]
fn when_the_owner_is_killed_in_a_call_the_others_go_on() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let [mut owner, mut second, mut third] = three_clients(&home, &app, &["--max-in-flight", "2"]);
    owner.send_call(7, "silent", json!({"text": "the owner's"}));
    second.send_call(7, "silent", json!({"text": "the second's"}));
    wait_until("the calls are there", SOON, || {
        deeds.count("the owner's") == 1 && deeds.count("the second's") == 1
    });
    let killed = Instant::now();
    owner.kill();
    let lost = second.answer(7)["result"].take();
    assert_eq!(lost["_meta"]["pontoon/outcome"], "unknown", "{lost}");
    let went_on = third.call(7, "echo", json!({"text": "the third's"}));
    assert_eq!(text(&went_on), "the third's");
    let again = second.call(8, "echo", json!({"text": "the second's, again"}));
    assert_eq!(text(&again), "the second's, again");
    println!("went on after {:?}", killed.elapsed());
    assert_eq!((deeds.count("the owner's"), deeds.count("the second's")), (1, 1));
    assert_eq!(app.accepted(), 2);
    finish(&home, [second, third]);
}

#[test]
fn the_others_go_on_within_a_second_when_the_owner_is_killed_in_a_call() {
    let mut times: Vec<_> = (0..5)
        .map(|_| {
            let (home, deeds) = (Home::new(), Deeds::default());
            let app = narrow_app(&deeds);
            let [mut owner, mut second, mut third] = three_clients(&home, &app, &[]);
            owner.send_call(7, "silent", json!({"text": "the owner's"}));
            wait_until("the call is there", SOON, || deeds.count("the owner's") == 1);
            let killed = Instant::now();
            owner.kill();
            second.send_call(7, "echo", json!({"text": "the second's"}));
            third.send_call(7, "echo", json!({"text": "the third's"}));
            assert_eq!(text(&second.answer(7)["result"]), "the second's");
            assert_eq!(text(&third.answer(7)["result"]), "the third's");
            let took = killed.elapsed();
            finish(&home, [second, third]);
            took
        })
        .collect();
    times.sort();
    println!("went on after {times:.0?}");
    // In the middle: a machine that is busy with other things may once take longer.
    assert!(times[2] < Duration::from_secs(1), "{times:?}");
}

#[test]
fn a_call_that_waited_at_an_owner_that_is_killed_is_made_by_the_next() {
    for _ in 0..3 {
        let (home, deeds) = (Home::new(), Deeds::default());
        let app = narrow_app(&deeds);
        let [mut owner, mut second, mut third] = three_clients(&home, &app, &[]);
        owner.send_call(7, "silent", json!({"text": "the owner's"}));
        wait_until("the call is there", SOON, || deeds.count("the owner's") == 1);
        // The application does one thing at a time, so these wait.
        second.send_call(7, "echo", json!({"text": "the second's"}));
        third.send_call(7, "echo", json!({"text": "the third's"}));
        owner.kill();
        assert_eq!(text(&second.answer(7)["result"]), "the second's");
        assert_eq!(text(&third.answer(7)["result"]), "the third's");
        assert_eq!((deeds.repeated(), app.accepted()), (Vec::<String>::new(), 2));
        for client in [&mut second, &mut third] {
            let heard = client.unheard();
            assert!(heard.is_empty(), "what bridges say is not for clients: {heard:?}");
        }
        finish(&home, [second, third]);
    }
}

#[test]
fn nothing_is_made_twice_whenever_the_owner_is_killed() {
    for round in 0..14 {
        let (home, deeds) = (Home::new(), Deeds::default());
        let app = narrow_app(&deeds);
        let [mut owner, mut second, mut third] =
            three_clients(&home, &app, &["--connect-wait", "60s"]);
        let said = |name: &str, number: usize| format!("{name}: {number}");
        for number in 0..40 {
            second.send_call(number, "echo", json!({"text": said("second", number)}));
            third.send_call(number, "echo", json!({"text": said("third", number)}));
        }
        // In the middle of them, each time elsewhere, and at last when they are about to be done.
        owner.send_call("last", "echo", json!({"text": "the owner's"}));
        wait_until("some are made", SOON, || deeds.count(&said("second", 3 * round)) == 1);
        owner.kill();
        let mut unknown = 0;
        for (client, name) in [(&mut second, "second"), (&mut third, "third")] {
            for number in 0..40 {
                let result = client.answer(number)["result"].take();
                let made = deeds.count(&said(name, number));
                match result["_meta"]["pontoon/outcome"].as_str() {
                    None => assert_eq!((text(&result), made), (&*said(name, number), 1)),
                    Some("unknown") => unknown += 1,
                    outcome => panic!("{outcome:?}: {result}"),
                }
            }
        }
        // All of them may have been answered by the first owner; the next one is on its way then.
        wait_until("the next owner is there", SOON, || app.accepted() == 2);
        assert_eq!(deeds.repeated(), Vec::<String>::new());
        assert!(unknown <= 4, "one call at a time is with the application: {unknown}");
        finish(&home, [second, third]);
    }
}

#[test]
fn a_call_that_may_be_made_twice_survives_the_owner() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let [mut owner, mut second, third] = three_clients(&home, &app, &[]);
    owner.send_call(7, "silent", json!({"text": "the owner's"}));
    wait_until("the call is there", SOON, || deeds.count("the owner's") == 1);
    second.send_call(7, "read", json!({"text": "read"}));
    owner.kill();
    assert_eq!(text(&second.answer(7)["result"]), "read");
    finish(&home, [third, second]);
}

#[test]
fn an_owner_whose_client_leaves_answers_the_others_and_hands_over() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let [mut owner, mut second, mut third] = three_clients(&home, &app, &[]);
    second.send_call(7, "wait", json!({"text": "slow", "ms": 700}));
    wait_until("the call is there", SOON, || deeds.count("slow") == 1);
    third.send_call(7, "echo", json!({"text": "queued"}));
    let pid = Pid::from_raw(i32::try_from(owner.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(text(&second.answer(7)["result"]), "slow");
    assert_eq!(text(&third.answer(7)["result"]), "queued");
    assert_eq!(owner.wait().code(), Some(143));
    for client in [&mut second, &mut third] {
        assert_eq!(text(&client.call(8, "echo", json!({"text": "after"}))), "after");
        let heard = client.unheard();
        assert!(heard.is_empty(), "what bridges say to each other is not for clients: {heard:?}");
    }
    assert_eq!((deeds.count("slow"), deeds.count("queued"), app.accepted()), (1, 1, 2));
    finish(&home, [third, second]);
    home.is_tidy();
}

/// Calls again and again, three at a time, until it is told to stop, and counts the answers.
fn call_on(client: &mut StdioServer, name: &str, is_over: &AtomicBool, answers: &AtomicUsize) {
    let said = |number: usize| format!("{name}: {number}");
    let (mut sent, mut heard) = (0, 0);
    while heard < sent || !is_over.load(Ordering::SeqCst) {
        while sent < heard + 3 && !is_over.load(Ordering::SeqCst) {
            client.send_call(sent, "echo", json!({"text": said(sent)}));
            sent += 1;
        }
        if heard < sent {
            let answer = client.answer(heard);
            assert!(answer["result"]["isError"].is_null(), "{answer}");
            assert_eq!(text(&answer["result"]), said(heard));
            heard += 1;
            answers.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn calls_go_on_while_the_owner_leaves() {
    for round in 0..4 {
        let (home, deeds) = (Home::new(), Deeds::default());
        let app = narrow_app(&deeds);
        let options = ["--connect-wait", "60s"];
        let [owner, mut second, mut third] = three_clients(&home, &app, &options);
        let (is_over, answers) = (AtomicBool::new(false), AtomicUsize::new(0));
        let more = |count: usize| {
            let before = answers.load(Ordering::SeqCst);
            wait_until("calls are answered", SOON, || {
                answers.load(Ordering::SeqCst) >= before + count
            });
        };
        std::thread::scope(|scope| {
            for (client, name) in [(&mut second, "second"), (&mut third, "third")] {
                let (is_over, answers) = (&is_over, &answers);
                scope.spawn(move || call_on(client, name, is_over, answers));
            }
            more(20 + 10 * round);
            assert!(owner.finish().success());
            more(20);
            is_over.store(true, Ordering::SeqCst);
        });
        assert_eq!((deeds.repeated(), app.accepted()), (Vec::<String>::new(), 2));
        finish(&home, [second, third]);
    }
}

#[test]
fn an_owner_that_is_stopped_is_named_and_its_calls_are_given_up() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let mut owner = home.client(&app.url(), &[]);
    let mut second = home.client(&app.url(), &["--connect-wait", "12s"]);
    for client in [&mut owner, &mut second] {
        assert_eq!(text(&client.call(0, "echo", json!({"text": "hello"}))), "hello");
    }
    let pid = Pid::from_raw(i32::try_from(owner.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let lost = second.call(1, "echo", json!({"text": "lost"}));
    assert_eq!(lost["_meta"]["pontoon/outcome"], "unknown", "{lost}");
    let away = second.call(2, "echo", json!({"text": "not made"}));
    assert_eq!(away["_meta"]["pontoon/outcome"], "not made", "{away}");
    let named = format!("another `pontoon connect` (process {})", owner.pid());
    assert!(text(&away).contains(&named) && text(&away).contains("--no-share"), "{away}");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(text(&second.call(3, "echo", json!({"text": "again"}))), "again");
    finish(&home, [second, owner]);
}

#[test]
fn bridges_with_other_tokens_or_that_want_no_sharing_have_their_own_connections() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = LiveApp::start(&Place::WebSocket(0), Manner::default(), &deeds);
    let mut clients = vec![home.client(&app.url(), &[]), home.client(&app.url(), &["--no-share"])];
    for token in ["one", "two", "two"] {
        let mut command = home.command(&app.url(), &[]);
        let mut client = StdioServer::start(command.env("PONTOON_TOKEN", token));
        client.initialize();
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(text(&client.call(1, "echo", json!({"text": "x"}))), "x");
    }
    assert_eq!(app.accepted(), 4);
    finish(&home, clients);
    home.is_tidy();
}

#[test]
fn each_bridge_answers_at_once_though_the_application_is_away() {
    let home = Home::new();
    let options = ["--connect-wait", "300ms"];
    let mut clients = [(); 2].map(|()| home.client("ws://127.0.0.1:1", &options));
    for client in &mut clients {
        let away = client.call(1, "echo", json!({"text": "x"}));
        assert_eq!(away["_meta"]["pontoon/outcome"], "not made", "{away}");
        assert!(text(&away).contains("start the application"), "{away}");
    }
    finish(&home, clients);
    home.is_tidy();
}

/// The socket at which the owner of a connection waits for other bridges.
fn meeting_socket(home: &Home) -> std::path::PathBuf {
    let run = home.0.path().join(".local/state/pontoon/run");
    let files = std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    files.into_iter().find(|path| path.extension().is_some_and(|it| it == "sock")).unwrap()
}

#[test]
fn connections_that_say_nothing_keep_no_bridge_out() {
    use std::os::unix::net::UnixStream;
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let mut owner = home.client(&app.url(), &[]);
    assert_eq!(text(&owner.call(1, "echo", json!({"text": "x"}))), "x");
    let socket = meeting_socket(&home);
    let idle: Vec<_> = (0..64).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let mut second = home.client(&app.url(), &["--connect-wait", "30s"]);
    assert_eq!(text(&second.call(1, "echo", json!({"text": "y"}))), "y");
    assert_eq!((app.accepted(), app.sent_away()), (1, 0));
    drop(idle);
    finish(&home, [second, owner]);
}

#[test]
fn long_messages_of_other_bridges_arrive_whole() {
    let (home, deeds) = (Home::new(), Deeds::default());
    let app = narrow_app(&deeds);
    let mut clients = three_clients(&home, &app, &[]);
    for (round, bytes) in [100, 20_000, 3 << 20, 50, 17_000].into_iter().enumerate() {
        for client in &mut clients {
            let said = "x".repeat(bytes);
            assert_eq!(text(&client.call(10 + round, "echo", json!({"text": said}))), said);
        }
    }
    finish(&home, clients.into_iter().rev());
}
