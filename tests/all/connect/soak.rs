//! Many calls of several clients to an application that is closed, started again elsewhere, changed, hangs, refuses and
//! drops its connections all the while.
//!
//! `PONTOON_SOAK` says how many calls; the part `soak` of the tests makes as many as it says there.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pontoon_tests::live_app::{Deeds, Illness, LiveApp, Manner, Place, UnwellApp};
use pontoon_tests::rig::wait_until;
use pontoon_tests::stdio::StdioServer;
use serde_json::{Value, json};

use super::finding::leave;
use super::{Home, SOON, text};

/// Calls that each client has under way.
const WINDOW: usize = 4;

/// From this many calls on they are many: then the application also wants a token that the bridges do not have, after which
/// they leave it alone for five seconds.
const MANY: usize = 2000;

/// How the clients find the application: two share a connection, by its file; one wants its own; one looks at ports.
const WAYS: [&[&str]; 4] =
    [&["--app", "soak"], &["--app", "soak"], &["--app", "soak", "--no-share"], &["PORTS"]];

/// As many connections are made to it by then.
const CONNECTIONS: usize = 3;

/// Within this time of the opening of its port the application has a connection back, in the middle of many times.
const RETURN: Duration = Duration::from_millis(250);

/// What became of the calls of a client.
#[derive(Debug, Default)]
struct Tally {
    answered: AtomicUsize,
    /// The texts of those whose outcome is unknown, as the client was told.
    unknown: Mutex<Vec<String>>,
    /// The same of those that were not made.
    not_made: Mutex<Vec<String>>,
}

impl Tally {
    fn counts(&self) -> [usize; 3] {
        let [unknown, not_made] =
            [&self.unknown, &self.not_made].map(|texts| texts.lock().unwrap().len());
        [self.answered.load(Ordering::SeqCst), unknown, not_made]
    }

    fn all(&self) -> usize {
        self.counts().iter().sum()
    }
}

/// The tool of a call: most are plain, some may be made twice, some have little time, a few close everything or are never
/// answered.
fn tool(number: usize) -> &'static str {
    match number % 200 {
        0 => "die",
        1 | 2 => "die_once",
        46 => "silent",
        number if number % 16 == 7 => "tell",
        3..=40 => "read",
        41..=45 => "wait",
        _ => "echo",
    }
}

/// Whether a call has so little time that it may be over before the application is back.
fn is_hasty(tool: &str) -> bool {
    matches!(tool, "silent" | "tell")
}

/// The number of the call with this text.
fn number(text: &str) -> usize {
    text.rsplit(' ').next().unwrap().parse().unwrap()
}

fn may_repeat(tool: &str) -> bool {
    matches!(tool, "read" | "die_once")
}

/// The application, at one of some ports, with the file that tells where it is.
struct Stage<'s> {
    home: &'s Home,
    deeds: &'s Deeds,
    ports: std::ops::RangeInclusive<u16>,
    starts: usize,
}

impl Stage<'_> {
    /// The next port that is free, or the same again.
    fn port(&self, moves: bool) -> u16 {
        let at = |turn: usize| *self.ports.start() + u16::try_from(turn % 5).unwrap();
        let turns = self.starts / 3 + usize::from(moves)..;
        let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
        turns.map(at).take(5).find(is_free).expect("one of five ports is free")
    }

    /// Starts it, with other tools than the last time.
    fn start(&mut self, port: u16) -> LiveApp {
        self.starts += 1;
        let more_tools = vec![format!("tool-{}", self.starts % 3)];
        let manner = Manner { more_tools, ..Manner::default() };
        let app = LiveApp::start(&Place::WebSocket(port), manner, self.deeds);
        self.tell(&app.url());
        app
    }

    /// Tells where it is, in place of what was told before.
    fn tell(&self, url: &str) {
        let _ = std::fs::remove_dir_all(self.home.0.path().join(".local/state/pontoon/apps"));
        leave(self.home, "soak", url, "");
    }

    /// Closes it, and starts it again after something else was in its place for a while.
    fn fall_ill(&mut self, app: LiveApp, illness: Illness) -> LiveApp {
        let Place::WebSocket(port) = app.place() else { unreachable!("it was made so") };
        app.close();
        let unwell = UnwellApp::start(port, illness);
        // Those that share go through one.
        wait_until("every connection was tried", SOON, || unwell.met() >= CONNECTIONS);
        drop(unwell);
        self.start(port)
    }

    /// One thing after the other that goes wrong.
    fn disturb(&mut self, app: LiveApp, round: usize, are_many: bool) -> LiveApp {
        let Place::WebSocket(port) = app.place() else { unreachable!("it was made so") };
        // No event is waited for here: this is how long it hangs.
        let while_it_hangs = Duration::from_millis([30, 150, 400][round % 3]);
        match round % 10 {
            0 => app.drop_connections(),
            1 => app.cut_next_answer(),
            2 => {
                app.hang(true);
                thread::park_timeout(while_it_hangs);
                app.hang(false);
            }
            3 => {
                app.close();
                return self.start(port);
            }
            4 => {
                app.hang(true);
                thread::park_timeout(while_it_hangs);
                app.close();
                let port = self.port(true);
                return self.start(port);
            }
            5 => return self.fall_ill(app, Illness::Silent),
            6 => return self.fall_ill(app, Illness::Mute),
            7 => return self.fall_ill(app, Illness::Refuses(503)),
            8 => return self.fall_ill(app, Illness::Resets),
            _ if are_many && round % 100 == 59 => {
                return self.fall_ill(app, Illness::Refuses(401));
            }
            _ => {
                app.close();
                let port = self.port(true);
                return self.start(port);
            }
        }
        app
    }
}

/// What a bridge has: descriptors, and memory in kB.
fn uses(pid: u32) -> (usize, usize) {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    (descriptors, line.split_whitespace().nth(1).unwrap().parse().unwrap())
}

fn take(client: &mut StdioServer, open: &mut HashMap<u64, String>, tally: &Tally) {
    let answer = client.wait_for("an answer", |message| message["id"].is_u64());
    let id = answer["id"].as_u64().unwrap();
    let expected = open.remove(&id).unwrap_or_else(|| panic!("it is answered twice: {answer}"));
    let result = &answer["result"];
    match (&result["isError"], &result["_meta"]["pontoon/outcome"]) {
        (Value::Null, _) if result.is_object() => {
            assert_eq!(text(result), expected, "an answer of another call");
            tally.answered.fetch_add(1, Ordering::SeqCst);
        }
        (Value::Bool(true), Value::String(outcome)) if outcome == "unknown" => {
            tally.unknown.lock().unwrap().push(expected);
        }
        (Value::Bool(true), Value::String(outcome)) if outcome == "not made" => {
            tally.not_made.lock().unwrap().push(expected);
        }
        _ => panic!("{expected}: {answer}"),
    }
}

/// Makes this many calls, of which as many as are allowed, and gives what the bridge used after a quarter of them.
fn call(
    name: usize,
    client: &mut StdioServer,
    calls: usize,
    allowed: &AtomicUsize,
    tally: &Tally,
) -> (usize, usize) {
    let (mut open, mut early) = (HashMap::new(), None);
    let may_go_on = |number| allowed.load(Ordering::SeqCst) > number;
    for number in 0..calls {
        while open.len() >= WINDOW || !(open.is_empty() || may_go_on(number)) {
            take(client, &mut open, tally);
        }
        wait_until("the next disturbance is over", 2 * SOON, || may_go_on(number));
        // Each client has the same ids.
        let text = format!("{name}: call {number}");
        client.send_call(number, tool(number), json!({"text": text, "ms": 3}));
        open.insert(number as u64, text);
        if number == calls / 4 {
            early = Some(uses(client.pid()));
        }
    }
    while !open.is_empty() {
        take(client, &mut open, tally);
    }
    early.expect("a quarter of the calls was made")
}

/// How long it took from the opening of its port until the application had all its connections, each of them.
fn times_to_return(stage: &mut Stage<'_>, mut app: LiveApp, rounds: usize) -> Vec<Duration> {
    let mut times = Vec::new();
    for round in 0..rounds {
        let Place::WebSocket(port) = app.place() else { unreachable!("it was made so") };
        app.close();
        thread::park_timeout(Duration::from_millis([100, 700, 350, 1300][round % 4]));
        let (opened, before) = (Instant::now(), times.len());
        app = stage.start(port);
        wait_until("all have come back", SOON, || {
            let greeted = app.heard("notifications/initialized");
            times.resize(times.len().max(before + greeted.min(CONNECTIONS)), opened.elapsed());
            greeted >= CONNECTIONS
        });
    }
    times.sort();
    times
}

/// Five ports in a row that are free and that the system gives to no one by itself.
fn free_ports() -> std::ops::RangeInclusive<u16> {
    let first = 20_000 + u16::try_from(std::process::id() % 1000).unwrap() * 10;
    let is_free = |port| std::net::TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut rows = (first..first + 1000).step_by(5).map(|first| first..=first + 4);
    rows.find(|row| row.clone().all(is_free)).expect("five ports are free")
}

#[test]
fn every_call_is_answered_once_whatever_becomes_of_the_application() {
    let calls: usize =
        std::env::var("PONTOON_SOAK").map_or(400, |calls| calls.parse().expect("a number"));
    let (begun, are_many, each) = (Instant::now(), calls >= MANY, calls / WAYS.len());
    let (home, deeds, ports) = (Home::new(), Deeds::default(), free_ports());
    let (first, last) = (*ports.start(), *ports.end());
    let mut stage = Stage { home: &home, deeds: &deeds, ports, starts: 0 };
    let url = format!("ws://127.0.0.1:{first}-{last}");
    let mut clients = WAYS.map(|way| {
        let mut words = way[1..].to_vec();
        words.extend(["--max-in-flight", "8", "--connect-wait", "60s"]);
        words.extend(["--tool-timeout", "silent=300ms", "--tool-timeout", "tell=100ms"]);
        words.extend(["--log-level", "error"]);
        home.client(if way[0] == "PORTS" { &url } else { way[0] }, &words)
    });
    let tallies = WAYS.map(|_| Tally::default());
    let mut app = Some(stage.start(first));
    // Each disturbance comes after a part of the calls of each client, while some of the next part are open.
    let rounds = if are_many { 200 } else { 12 };
    let part = each / (rounds + 2);
    let allowed = AtomicUsize::new(2 * part);
    let early = thread::scope(|scope| {
        let calling =
            clients.iter_mut().zip(&tallies).enumerate().map(|(name, (client, tally))| {
                let allowed = &allowed;
                scope.spawn(move || call(name, client, each, allowed, tally))
            });
        let calling: Vec<_> = calling.collect();
        for round in 0..rounds {
            for (tally, calling) in tallies.iter().zip(&calling) {
                wait_until("every client gets on", 2 * SOON, || {
                    tally.all() >= part * (round + 1) || calling.is_finished()
                });
            }
            app = app.take().map(|app| stage.disturb(app, round, are_many));
            allowed.store(part * (round + 3), Ordering::SeqCst);
        }
        allowed.store(each, Ordering::SeqCst);
        calling.into_iter().map(|calling| calling.join().unwrap()).collect::<Vec<_>>()
    });
    let took = begun.elapsed();
    let all: Vec<_> = tallies.iter().map(Tally::counts).collect();
    println!(
        "{calls} calls of {} clients, {rounds} disturbances, {} starts, in {took:.0?}: {all:?} answered, unknown, not made",
        WAYS.len(),
        stage.starts,
    );
    for counts in &all {
        assert_eq!(counts.iter().sum::<usize>(), each);
        let hasty = (0..each).filter(|number| is_hasty(tool(*number))).count();
        assert!(counts[2] <= hasty, "others wait long enough: {counts:?}");
        // Each disturbance costs those that are under way.
        assert!(counts[0] >= each / 4, "{counts:?}");
    }
    // Of those that have time, only one that was under way when its connection was lost: one in fifty of the many.
    let unknown = tallies.iter().flat_map(|tally| tally.unknown.lock().unwrap().clone());
    let unknown = unknown.filter(|text| !is_hasty(tool(number(text)))).count();
    assert!(unknown <= calls / if are_many { 10 } else { 5 }, "{unknown} of {calls}");
    let not_made = tallies.iter().flat_map(|tally| tally.not_made.lock().unwrap().clone());
    let not_made: Vec<_> = not_made.collect();
    assert!(!(are_many && not_made.is_empty()), "none was in haste while the application was away");
    for text in not_made {
        assert_eq!(deeds.count(&text), 0, "{text}: the client heard that it was not made");
    }
    let repeated = deeds.repeated();
    let forbidden: Vec<_> =
        repeated.iter().filter(|text| !may_repeat(tool(number(text)))).collect();
    assert!(forbidden.is_empty(), "made twice without permission: {forbidden:?}");
    let times = times_to_return(&mut stage, app.unwrap(), if are_many { 24 } else { 4 });
    println!(
        "connected {:.0?} after its port was open, in the middle of {} times, {:.0?} at the most",
        times[times.len() / 2],
        times.len(),
        times[times.len() - 1],
    );
    if are_many {
        assert!(times[times.len() / 2] <= RETURN, "{times:?}");
    }
    for (client, before) in clients.into_iter().zip(early) {
        let after = uses(client.pid());
        println!("descriptors and kB: {before:?} -> {after:?}");
        assert!(after.0 <= before.0 + 8, "descriptors: {before:?} -> {after:?}");
        assert!(after.1 <= before.1 + 8 * 1024, "kB: {before:?} -> {after:?}");
        // It ends as it should, and has not ended before.
        assert!(client.finish().success());
    }
    home.is_tidy();
}
