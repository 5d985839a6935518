//! A process that is everybody's: what clients share of it, and what each has for itself.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pontoon_wire::{Era, Message, Revision, Slot, method, quoted};

use crate::back::child::in_memory::{InMemoryServers, ServerEnd};
use crate::back::pair::{MadeCall, Pair, client, naming, result, serve_legacy};
use crate::call::CallError;
use crate::client::Client;
use crate::config::{FileLinks, Mode, Server};

const IDLE: Duration = Duration::from_secs(1800);

/// As the configuration makes it.
fn shared(server: &mut Server) {
    server.mode = Mode::Shared { idle: IDLE };
    server.files = FileLinks::Off;
}

fn legacy(conversation: &str) -> Arc<Client> {
    client(Revision::V2025_11_25, conversation, "{\"elicitation\":{},\"roots\":{}}")
}

fn modern(conversation: &str) -> Arc<Client> {
    client(Revision::NEWEST_MODERN, conversation, "{\"elicitation\":{},\"roots\":{}}")
}

fn with_level(client: &Arc<Client>, level: &str) -> Arc<Client> {
    Arc::new(Client { log_level: Some(quoted(level).into()), ..Client::clone(client) })
}

/// A call of this tool, which is under way when this returns.
fn begin(pair: &Pair, client: &Arc<Client>, tool: &str) -> MadeCall {
    pair.call(client, Era::Legacy, method::CALL_TOOL, &format!("{{\"name\":\"{tool}\"}}"))
}

fn said(text: &str) -> String {
    format!("{{\"content\":[],\"said\":\"{text}\"}}")
}

/// What servers were told, one line each.
type Told = Arc<Mutex<Vec<String>>>;

async fn until_told(told: &Told, what: &str) {
    while !told.lock().unwrap().iter().any(|line| line.contains(what)) {
        tokio::task::yield_now().await;
    }
}

/// Servers that note each line, and answer the tools `a` and `b` when the tool `go` is called, the later call first.
/// `log` says a log line, `ask` a question whose answer it answers with, and `die` ends the process.
fn playing() -> (InMemoryServers, Told) {
    let told = Told::default();
    let heard = Arc::clone(&told);
    let servers = InMemoryServers::new(move |end| play(end, Arc::clone(&heard)));
    (servers, told)
}

async fn play(mut end: ServerEnd, told: Told) {
    let number = end.number;
    let (mut open, mut asking) = (Vec::<(String, String)>::new(), String::new());
    while let Some(line) = end.next_line().await {
        told.lock().unwrap().push(line.clone());
        let message = Message::parse(line.as_bytes()).unwrap();
        let id = String::from_utf8_lossy(message.raw(Slot::Id).unwrap_or(b"null")).into_owned();
        let tool = message.string(Slot::Name).unwrap_or_default().into_owned();
        match (message.method().as_ref(), tool.as_str()) {
            (method::INITIALIZE, _) => {
                let hello = "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"logging\":{},\"tools\":{}},\
                             \"serverInfo\":{\"name\":\"demo\",\"version\":\"1\"}}";
                end.say(&result(&id, hello)).await;
            }
            (method::PING, _) => end.say(&result(&id, "{}")).await,
            (method::CALL_TOOL, "go") => {
                for (id, tool) in open.drain(..).rev() {
                    end.say(&result(&id, &said(&format!("{tool} by {number}")))).await;
                }
                end.say(&result(&id, &said(&format!("gone by {number}")))).await;
            }
            (method::CALL_TOOL, "log") => {
                for level in ["info", "error"] {
                    end.say(&format!(
                        "{{\"jsonrpc\":\"2.0\",\"method\":\"{}\",\"params\":{{\"level\":\"{level}\",\"data\":\"{level}\"}}}}",
                        method::LOG
                    ))
                    .await;
                }
                end.say(&result(&id, &said("logged"))).await;
            }
            (method::CALL_TOOL, "ask") => {
                asking = id;
                let question = method::ELICIT;
                end.say(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"{question}\",\"params\":{{}}}}"
                ))
                .await;
            }
            (method::CALL_TOOL, "die") => return,
            (method::CALL_TOOL, _) => open.push((id, tool)),
            _ if id == "\"q\"" => {
                let why = message.string(Slot::ErrorMessage).unwrap_or_default();
                end.say(&result(&asking, &said(&why))).await;
            }
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_clients_have_one_process_and_each_its_own_answer() {
    let (servers, told) = playing();
    let pair = Pair::new(servers, shared);
    let (first, second) = (begin(&pair, &legacy("ada"), "a"), begin(&pair, &modern("ben"), "b"));
    until_told(&told, "\"a\"").await;
    until_told(&told, "\"b\"").await;
    let third = begin(&pair, &legacy("eve"), "go");
    assert!(third.answer().await.contains("gone by 1"));
    // All of them have the id 7.
    assert_eq!(first.answer().await, result("7", &said("a by 1")));
    assert!(second.answer().await.contains("b by 1"));
    assert_eq!(pair.servers.started(), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_on_a_process_that_dies_are_each_told_once_and_no_state_is_mourned() {
    let (servers, told) = playing();
    let pair = Pair::new(servers, shared);
    assert!(begin(&pair, &legacy("ada"), "go").answer().await.contains("by 1"));
    let calls = ["a", "b"].map(|tool| begin(&pair, &legacy(tool), tool));
    until_told(&told, "\"a\"").await;
    until_told(&told, "\"b\"").await;
    let last = begin(&pair, &legacy("eve"), "die");
    for call in calls.iter().chain([&last]) {
        let why = call.failure().await.to_string();
        assert!(why.contains("exited with code 0, before it answered"), "{why}");
        assert!(!why.contains("memory"), "{why}");
    }
    for who in ["ada", "eve"] {
        assert!(begin(&pair, &legacy(who), "go").answer().await.contains("by 2"), "{who}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_killed_while_idle_is_replaced_without_a_word() {
    let pair = Pair::new(naming(), shared);
    assert!(pair.call_tool(&legacy("ada"), "x").await.contains("x by 1"));
    pair.back.kept_children()[0].1.kill();
    assert!(pair.call_tool(&legacy("ben"), "x").await.contains("x by 2"));
    assert!(pair.call_tool(&legacy("ada"), "x").await.contains("x by 2"));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_hangs_is_replaced_and_looked_at_once_for_all_calls() {
    let servers = InMemoryServers::new(|end| {
        let number = end.number;
        async move {
            match number {
                // It shakes hands, and then reads nothing more.
                1 => {
                    let mut end = end;
                    let line = end.next_line().await.unwrap();
                    let hello = Message::parse(line.as_bytes()).unwrap();
                    let id = String::from_utf8_lossy(hello.raw(Slot::Id).unwrap()).into_owned();
                    end.say(&result(
                        &id,
                        "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{}}",
                    ))
                    .await;
                    std::future::pending::<()>().await;
                }
                _ => serve_legacy(end, move |_, id| vec![result(id, &said("well"))]).await,
            }
        }
    });
    let pair = Pair::new(servers, |server| {
        shared(server);
        server.timeout = Duration::from_secs(10);
    });
    let calls = ["a", "b", "c", "d"].map(|who| begin(&pair, &legacy(who), who));
    for call in &calls {
        assert!(matches!(call.failure().await, CallError::TimedOut { .. }));
    }
    let began = tokio::time::Instant::now();
    assert!(begin(&pair, &legacy("ada"), "x").answer().await.contains("well"));
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(4), "it waited for one look of two seconds: {waited:?}");
    assert_eq!(pair.servers.started(), 2);
}

#[tokio::test(start_paused = true)]
async fn it_is_told_of_no_client_and_asks_none() {
    let (servers, told) = playing();
    let pair = Pair::new(servers, shared);
    for client in [legacy("ada"), modern("ben")] {
        let answer = begin(&pair, &client, "ask").answer().await;
        assert!(answer.contains("none of them can be asked"), "{answer}");
    }
    let told = told.lock().unwrap();
    let hellos: Vec<_> = told.iter().filter(|line| line.contains("\"initialize\"")).collect();
    assert_eq!(hellos.len(), 1);
    assert!(hellos[0].contains("\"capabilities\":{}"), "{}", hellos[0]);
}

#[tokio::test(start_paused = true)]
async fn what_it_logs_is_heard_by_the_only_call_and_within_the_level_of_its_client() {
    let (servers, told) = playing();
    let pair = Pair::new(servers, shared);
    for (client, heard) in [
        (legacy("ada"), &["info", "error"][..]),
        (with_level(&legacy("ben"), "warning"), &["error"]),
        (modern("eve"), &[]),
        (with_level(&modern("dan"), "error"), &["error"]),
        (legacy("ada"), &["info", "error"]),
    ] {
        let call = begin(&pair, &client, "log");
        for level in heard {
            assert_eq!(call.message().await.string(Slot::Level).unwrap(), *level);
        }
        assert!(matches!(call.outbox.next().await, crate::outbox::Next::End(Some(_))));
        let call = begin(&pair, &legacy("fay"), "log");
        let heard = call.outbox.next().await;
        assert!(matches!(heard, crate::outbox::Next::End(_)), "it may be about the call before");
        tokio::time::advance(Duration::from_secs(11)).await;
    }
    let open = begin(&pair, &legacy("ada"), "a");
    until_told(&told, "\"a\"").await;
    let call = begin(&pair, &legacy("ben"), "log");
    assert!(
        matches!(call.outbox.next().await, crate::outbox::Next::End(Some(_))),
        "it may be Ada's"
    );
    begin(&pair, &legacy("eve"), "go").answer().await;
    assert!(matches!(open.outbox.next().await, crate::outbox::Next::End(Some(_))), "or Ben's");
    assert!(!told.lock().unwrap().iter().any(|line| line.contains(method::SET_LEVEL)));
}

#[tokio::test(start_paused = true)]
async fn one_who_cancels_hurts_no_other() {
    let (servers, told) = playing();
    let pair = Pair::new(servers, shared);
    let calls = ["a", "b"].map(|tool| begin(&pair, &legacy(tool), tool));
    until_told(&told, "\"a\"").await;
    until_told(&told, "\"b\"").await;
    calls[0].cancel.cancel();
    assert_eq!(calls[0].answer().await, "cancelled");
    until_told(&told, method::CANCELLED).await;
    begin(&pair, &legacy("eve"), "go").answer().await;
    assert!(calls[1].answer().await.contains("b by 1"));
    let cancelled = |line: &&String| line.contains(method::CANCELLED);
    assert_eq!(told.lock().unwrap().iter().filter(cancelled).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_era_has_a_process() {
    let pair = Pair::new(naming(), shared);
    let call = |era, who| {
        let client = modern(who);
        pair.call(&client, era, method::CALL_TOOL, "{\"name\":\"x\"}")
    };
    for who in ["ada", "ben"] {
        assert!(call(Era::Legacy, who).answer().await.contains("x by 1"));
        assert!(call(Era::Modern, who).answer().await.contains("x by 2"));
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_started_ahead_and_let_go_of_when_all_left_it_alone() {
    let pair = Pair::new(naming(), shared);
    pair.back.keep_ready(Era::Legacy).await;
    assert_eq!(pair.servers.started(), 1);
    for who in ["ada", "ben"] {
        tokio::time::advance(IDLE - Duration::from_secs(1)).await;
        pair.back.stop_idle();
        assert!(pair.call_tool(&legacy(who), "x").await.contains("x by 1"));
    }
    tokio::time::advance(IDLE).await;
    pair.back.stop_idle();
    assert!(pair.back.kept_children().is_empty());
    assert!(pair.call_tool(&legacy("ada"), "x").await.contains("x by 2"));
}

#[tokio::test(start_paused = true)]
async fn a_head_start_is_everybodys_and_there_is_one() {
    let pair = Pair::new(naming(), shared);
    for who in [legacy("ada"), legacy("ben")] {
        pair.back.start_ahead(&who.key, &who.person);
    }
    while pair.back.living() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(pair.call_tool(&legacy("eve"), "x").await.contains("x by 1"));
    assert_eq!(pair.servers.started(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_takes_no_place_of_a_conversation_and_gives_none_up() {
    let stateful = Pair::new(naming(), |server| {
        server.mode = Mode::Stateful { idle: IDLE, per_address: 1, per_client: 100 };
    });
    let other = stateful.another(shared);
    other.call_tool(&legacy("ada"), "x").await;
    let pid = other.back.kept_children()[0].1.id();
    assert_eq!(stateful.around.keep.table.used().0, 0);
    // More conversations than there are places: each takes that of the oldest, and Ada's call was before all.
    for chat in 0..20 {
        tokio::time::advance(Duration::from_secs(1)).await;
        stateful.call_tool(&legacy(&format!("chat {chat}")), "x").await;
    }
    assert_eq!(stateful.back.kept_children().len(), stateful.around.keep.table.used().1);
    assert_eq!(other.back.kept_children()[0].1.id(), pid);
    assert!(other.call_tool(&legacy("ben"), "x").await.contains(&format!("x by {pid}")));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_start_is_not_tried_for_each_call() {
    let pair = Pair::new(InMemoryServers::new(|_| async {}), shared);
    let calls = ["a", "b", "c"].map(|who| begin(&pair, &legacy(who), who));
    for call in &calls {
        let why = call.failure().await.to_string();
        assert!(why.contains("did not start"), "{why}");
    }
    assert_eq!(pair.servers.started(), 1);
    let why = begin(&pair, &legacy("a"), "a").failure().await.to_string();
    assert!(why.contains("the next start is tried in 1 s"), "{why}");
    tokio::time::advance(Duration::from_secs(1)).await;
    begin(&pair, &legacy("a"), "a").failure().await;
    assert_eq!(pair.servers.started(), 2);
}

#[tokio::test(start_paused = true)]
async fn it_works_in_a_folder_that_goes_with_it_and_its_calls_leave_no_job() {
    let pair = Pair::new(naming(), shared);
    pair.call_tool(&legacy("ada"), "x").await;
    let children = pair.back.kept_children();
    let child = &children[0].1;
    let folders = [child.directory(), child.temporary_directory()].map(|it| it.unwrap().to_owned());
    assert_ne!(folders[0], folders[1]);
    assert!(folders.iter().all(|folder| folder.is_dir()));
    assert_eq!(pair.around.machine.store.usage().jobs, 0);
    drop(children);
    pair.back.drain();
    pair.until_ended().await;
    pair.around.machine.endings.close();
    pair.around.machine.endings.wait().await;
    pair.around.machine.writer.flush().await;
    assert!(folders.iter().all(|folder| !folder.exists()));
}

#[tokio::test(start_paused = true)]
async fn a_start_goes_on_when_the_client_that_began_it_leaves() {
    let servers = InMemoryServers::new(|end| async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        serve_legacy(end, |_, id| vec![result(id, &said("well"))]).await;
    });
    let pair = Pair::new(servers, shared);
    for _ in 0..4 {
        let hasty = begin(&pair, &legacy("ada"), "x");
        tokio::time::sleep(Duration::from_secs(2)).await;
        hasty.cancel.cancel();
    }
    assert_eq!(begin(&pair, &legacy("ben"), "x").answer().await, result("7", &said("well")));
    assert_eq!(pair.servers.started(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_times_out_costs_no_other_its_answer_and_new_ones_get_another_process() {
    let servers = InMemoryServers::new(|mut end| async move {
        let number = end.number;
        while let Some(line) = end.next_line().await {
            let message = Message::parse(line.as_bytes()).unwrap();
            let id = String::from_utf8_lossy(message.raw(Slot::Id).unwrap_or(b"null")).into_owned();
            // It works on one thing at a time, and reads nothing meanwhile.
            if message.string(Slot::Name).as_deref() == Some("long") {
                tokio::time::sleep(Duration::from_secs(100)).await;
            }
            let hello = "\"protocolVersion\":\"2025-11-25\",\"capabilities\":{},\"serverInfo\":{}";
            if id != "null" {
                end.say(&result(&id, &format!("{{{hello},\"content\":[],\"said\":{number}}}")))
                    .await;
            }
        }
    });
    let pair = Pair::new(servers, |server| {
        shared(server);
        server.timeout = Duration::from_secs(30);
        server.tool_timeouts = vec![("long".to_owned(), Duration::from_secs(300))];
    });
    assert!(begin(&pair, &legacy("ada"), "x").answer().await.contains("\"said\":1"));
    let long = begin(&pair, &legacy("ada"), "long");
    let short = begin(&pair, &legacy("ben"), "x");
    assert!(matches!(short.failure().await, CallError::TimedOut { .. }));
    assert!(begin(&pair, &legacy("ben"), "x").answer().await.contains("\"said\":2"));
    assert!(long.answer().await.contains("\"said\":1"), "it was only slow");
    pair.servers.until_living(1).await;
    assert!(begin(&pair, &legacy("ben"), "x").answer().await.contains("\"said\":2"));
}

#[tokio::test(start_paused = true)]
async fn a_modern_process_that_ends_before_it_answers_is_not_tried_for_each_call() {
    let servers = InMemoryServers::new(|mut end| async move {
        end.next_line().await;
    });
    let pair = Pair::new(servers, shared);
    let call = || pair.call(&modern("ada"), Era::Modern, method::CALL_TOOL, "{\"name\":\"x\"}");
    let why = call().failure().await.to_string();
    assert!(why.contains("before it answered"), "{why}");
    let why = call().failure().await.to_string();
    assert!(why.contains("the next start is tried in 1 s"), "{why}");
    assert_eq!(pair.servers.started(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    call().failure().await;
    assert_eq!(pair.servers.started(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_comes_late_to_a_server_that_is_no_longer_served_leaves_no_process() {
    let pair = Pair::new(naming(), shared);
    pair.back.drain();
    assert!(begin(&pair, &legacy("ada"), "x").answer().await.contains("x by 1"));
    // The table of what is kept is there for other servers, too.
    let Pair { back, servers, around, .. } = pair;
    assert_eq!(servers.living(), 1);
    drop(back);
    let gone = servers.until_living(0);
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the process ends");
    drop(around);
}
