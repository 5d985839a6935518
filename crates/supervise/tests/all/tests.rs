//! The tests. Each gets a spawner of its own and must leave nothing below it.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use pontoon_supervise::{Command, Exit, Ladder, Limits, SpawnError, Spawner};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::*;

tests! {
    a_child_talks_over_its_streams
    a_child_has_exactly_its_environment
    a_child_has_its_three_descriptors_and_no_other
    a_child_is_confined
    a_child_begins_with_default_signals
    a_child_runs_in_its_directory_with_its_limits
    what_cannot_start_says_which_step_failed
    a_large_command_arrives_whole
    a_command_too_large_is_a_clear_error
    a_polite_child_ends_with_its_input
    a_child_that_ignores_its_input_is_asked
    a_deaf_child_is_killed
    a_child_is_killed_at_once
    many_can_wait_for_the_end
    the_last_words_are_there_when_the_end_is_told
    a_listener_hears_every_line
    a_flood_of_complaints_costs_no_memory
    the_group_ends_with_its_leader
    an_orphan_that_escaped_ends_with_its_leader
    what_children_computed_is_added_up_once_they_have_ended
    an_orphan_lives_as_long_as_its_leader
    an_orphan_of_an_orphan_ends_too
    a_process_that_keeps_forking_is_caught
    a_spawner_below_a_child_ends_with_it
    orphans_that_end_are_reaped_while_the_leader_lives
    a_start_that_nobody_awaits_leaves_nothing
    a_dropped_child_is_stopped_in_the_background
    a_child_dropped_without_a_runtime_is_killed
    a_cancelled_stop_goes_on
    two_hundred_at_once_leave_nothing
    stop_all_stops_all
    signals_to_the_spawner_are_ignored
    a_killed_spawner_is_told_to_everyone
    a_killed_program_leaves_nothing
}

async fn a_child_talks_over_its_streams(spawner: Spawner) {
    let mut child = spawner.spawn(&Command::new("/bin/cat")).await.unwrap();
    assert!(runs(child.id()));
    assert_eq!(spawner.living(), 1);
    let (mut input, mut output) = child.take_streams().unwrap();
    assert!(child.take_streams().is_none());
    // More than a pipe holds, so both directions have to wait for each other.
    let sent = "日本語 ".repeat(100_000);
    let write = async {
        input.write_all(sent.as_bytes()).await.unwrap();
        drop(input);
    };
    let mut received = String::new();
    let (_, read) = tokio::join!(write, output.read_to_string(&mut received));
    read.unwrap();
    assert!(received == sent);
    assert_eq!(child.exited().await, Exit::Code(0));
}

async fn a_child_has_exactly_its_environment(spawner: Spawner) {
    let env = vec![("A".into(), "1".into()), ("EMPTY".into(), "".into())];
    let command = Command { env, ..Command::new("/usr/bin/env") };
    assert_eq!(output(&spawner, &command).await, "A=1\nEMPTY=\n");
    assert_eq!(output(&spawner, &Command::new("/usr/bin/env")).await, "");
}

async fn a_child_has_its_three_descriptors_and_no_other(spawner: Spawner) {
    leak_descriptors(20);
    // Others are on their way at the same time, and one is there already.
    let (other, ..) = start(&spawner, &sh("echo ready; exec sleep 1000")).await;
    let command = Command { args: vec!["/proc/self/fd".into()], ..Command::new("/bin/ls") };
    let (first, second) = tokio::join!(output(&spawner, &command), output(&spawner, &command));
    // The fourth is the directory that `ls` reads.
    assert_eq!(first, "0\n1\n2\n3\n");
    assert_eq!(second, "0\n1\n2\n3\n");
    other.kill();
}

async fn a_child_is_confined(spawner: Spawner) {
    let (child, _input, _output, line) = start(
        &spawner,
        &sh(
            "echo $(umask) $(ulimit -c) $(grep NoNewPrivs /proc/self/status | cut -f2); sleep 1000",
        ),
    )
    .await;
    assert_eq!(line, "0077 0 1");
    let stat = stat(child.id()).unwrap();
    assert_eq!(stat[1], spawner.pid().to_string(), "parent");
    assert_eq!(stat[2], child.id().to_string(), "group");
    expect_to_go_first(child.id());
    child.kill();
}

async fn a_child_begins_with_default_signals(spawner: Spawner) {
    let args = vec!["-E".into(), "^Sig(Blk|Ign)".into(), "/proc/self/status".into()];
    let text = output(&spawner, &Command { args, ..Command::new("/bin/grep") }).await;
    // Two signals belong to the C library, which neither blocks nor resets them for anyone.
    let of_libc = 0b11 << 31;
    let sets = text.lines().map(|line| u64::from_str_radix(line.split('\t').nth(1).unwrap(), 16));
    let sets: Vec<u64> = sets.map(|set| set.unwrap() & !of_libc).collect();
    assert_eq!(sets, [0, 0], "blocked, ignored");
    // A program that writes into nothing ends, as every shell pipeline expects.
    let mut child = spawner.spawn(&Command::new("/usr/bin/yes")).await.unwrap();
    drop(child.take_streams());
    assert_eq!(child.exited().await, Exit::Signal(libc::SIGPIPE));
}

async fn a_child_runs_in_its_directory_with_its_limits(spawner: Spawner) {
    let directory = tempfile::tempdir().unwrap();
    let command = Command {
        directory: Some(directory.path().into()),
        limits: Limits { open_files: Some(123), ..Limits::default() },
        ..sh("pwd; ulimit -n; ulimit -Hn")
    };
    let expected = format!("{}\n123\n123\n", directory.path().display());
    assert_eq!(output(&spawner, &command).await, expected);
}

async fn what_cannot_start_says_which_step_failed(spawner: Spawner) {
    let failure = async |command: Command| {
        let error = spawner.spawn(&command).await.unwrap_err();
        let source = std::error::Error::source(&error)
            .and_then(|source| source.downcast_ref::<std::io::Error>()?.raw_os_error());
        (error.to_string(), source)
    };
    let check = async |command: Command, text: &str, source: Option<i32>| {
        assert_eq!(failure(command).await, (text.to_owned(), source));
    };
    let missing = Command::new("/no/such/program");
    check(missing, "`/no/such/program` could not be executed", Some(libc::ENOENT)).await;
    let text = "`/etc/passwd` could not be executed";
    check(Command::new("/etc/passwd"), text, Some(libc::EACCES)).await;
    let lost = Command { directory: Some("/no/where".into()), ..sh("exit") };
    let text = "`/no/where` could not be entered to run `/bin/sh`";
    check(lost, text, Some(libc::ENOENT)).await;
    check(Command::new("sh"), "`sh` is not an absolute path", None).await;
    let text = "the command line or environment of `/bin/sh` contains a zero byte";
    check(sh("exit\0"), text, None).await;
    let greedy = Limits { open_files: Some(u64::MAX - 1), ..Limits::default() };
    let error = spawner.spawn(&Command { limits: greedy, ..sh("exit") }).await.unwrap_err();
    assert!(matches!(error, SpawnError::Limits { .. }), "{error}");
    assert_eq!(spawner.living(), 0);
    eventually("no zombie", || children_of(spawner.pid()).is_empty()).await;
    // And the next one starts.
    assert_eq!(output(&spawner, &sh("echo fine")).await, "fine\n");
}

async fn a_large_command_arrives_whole(spawner: Spawner) {
    let mut command = Command::new("/usr/bin/wc");
    command.args = vec!["-c".into(), "/proc/self/cmdline".into(), "/proc/self/environ".into()];
    command.env = (0..12).map(|n| (format!("V{n}").into(), "x".repeat(100_000).into())).collect();
    let expected: usize = command.env.iter().map(|(name, _)| name.len() + 100_002).sum();
    // Several at once, so that their bytes would mix if they could.
    let outputs = [(); 4].map(|()| output(&spawner, &command));
    for output in outputs {
        let text = output.await;
        assert!(text.contains(&format!("{expected} /proc/self/environ")), "{text}");
    }
}

async fn a_command_too_large_is_a_clear_error(spawner: Spawner) {
    for (count, size) in [(1, 200_000), (60, 100_000), (100, 100_000)] {
        let args = vec!["x".repeat(size).into(); count];
        let error =
            spawner.spawn(&Command { args, ..Command::new("/bin/true") }).await.unwrap_err();
        assert!(error.to_string().contains("are larger than the system allows"), "{error}");
        assert!(matches!(error, SpawnError::TooLarge { bytes, .. } if bytes > count * size));
    }
    assert_eq!(output(&spawner, &sh("echo fine")).await, "fine\n");
}

async fn a_polite_child_ends_with_its_input(spawner: Spawner) {
    let child = spawner.spawn(&sh("read line; exit 3")).await.unwrap();
    assert_eq!(child.try_exit(), None);
    let patient = Ladder { after_close: DEADLINE, after_terminate: DEADLINE };
    assert_eq!(child.stop(&patient).await, Exit::Code(3));
}

async fn a_child_that_ignores_its_input_is_asked(spawner: Spawner) {
    let ladder = Ladder { after_terminate: DEADLINE, ..quick() };
    let child = spawner.spawn(&sh("exec sleep 1000")).await.unwrap();
    assert_eq!(child.stop(&ladder).await, Exit::Signal(libc::SIGTERM));
    // It hears the question, and takes its time for the answer.
    let script = "trap 'sleep 0.1; exit 7' TERM; echo ready; while :; do sleep 1000 & wait; done";
    let (child, ..) = start(&spawner, &sh(script)).await;
    assert_eq!(child.stop(&ladder).await, Exit::Code(7));
}

async fn a_deaf_child_is_killed(spawner: Spawner) {
    let script = "trap '' TERM HUP INT; echo ready; while :; do sleep 1000; done";
    let (child, ..) = start(&spawner, &sh(script)).await;
    assert_eq!(child.stop(&quick()).await, Exit::Signal(libc::SIGKILL));
}

async fn a_child_is_killed_at_once(spawner: Spawner) {
    let (child, _input, _output, pid) = start(&spawner, &sh("sleep 1000 & echo $!; wait")).await;
    child.kill();
    assert_eq!(child.exited().await, Exit::Signal(libc::SIGKILL));
    assert!(!runs(pid.parse().unwrap()));
    // Too late, and harmless.
    child.kill();
    child.terminate();
}

async fn many_can_wait_for_the_end(spawner: Spawner) {
    let child = spawner.spawn(&sh("read line; exit 5")).await.unwrap();
    let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(child.exited())).collect();
    let last = child.exited();
    assert_eq!(child.stop(&Ladder::default()).await, Exit::Code(5));
    for wait in waiting {
        assert_eq!(wait.await.unwrap(), Exit::Code(5));
    }
    assert_eq!(last.await, Exit::Code(5));
}

async fn the_last_words_are_there_when_the_end_is_told(spawner: Spawner) {
    for _ in 0..50 {
        let child = spawner.spawn(&sh("printf '\\033[31mno\\033[0m\noops' >&2; exit 3")).await;
        let child = child.unwrap();
        assert_eq!(child.exited().await, Exit::Code(3));
        assert_eq!(child.complaints().last_lines(), ["no", "oops"]);
        assert_eq!(child.try_exit(), Some(Exit::Code(3)));
    }
}

async fn a_listener_hears_every_line(spawner: Spawner) {
    let child = spawner.spawn(&sh("read line; seq 50 >&2")).await.unwrap();
    let (listener, mut heard) = tokio::sync::mpsc::channel(100);
    let complaints = child.complaints();
    complaints.set_listener(listener);
    child.stop(&Ladder::default()).await;
    for n in 1..=50 {
        assert_eq!(heard.recv().await, Some(n.to_string()));
    }
    assert_eq!(complaints.last_lines().len(), 20);
    assert_eq!(complaints.last_lines()[19], "50");
}

async fn a_flood_of_complaints_costs_no_memory(spawner: Spawner) {
    let before = resident_bytes();
    let gibibyte = sh("head -c 1073741824 /dev/zero >&2; echo done");
    let lines = sh("yes complaint | head -c 67108864 >&2; echo done");
    let (first, second) = tokio::join!(output(&spawner, &gibibyte), output(&spawner, &lines));
    assert_eq!((first.as_str(), second.as_str()), ("done\n", "done\n"));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "grown by {grown} bytes");
}

async fn the_group_ends_with_its_leader(spawner: Spawner) {
    let script = "trap '' TERM; sleep 1000 & sh -c 'sleep 1000 & echo $!'";
    let (child, _input, _output, pid) = start(&spawner, &sh(script)).await;
    // The leader is done after its line, and its end is told after that of the others.
    assert_eq!(child.exited().await, Exit::Code(0));
    assert!(!runs(pid.parse().unwrap()));
    assert_eq!(children_of(spawner.pid()), []);
}

async fn what_children_computed_is_added_up_once_they_have_ended(spawner: Spawner) {
    const WORK: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    for (script, does_work) in [
        ("echo ready; exec sleep 1000".to_owned(), false),
        (format!("{WORK}; echo ready; exec sleep 1000"), true),
        // One that it waits for, one of its group that outlives it, and one that left both.
        (format!("({WORK}); echo ready; exec sleep 1000"), true),
        (format!("({WORK}; echo ready; exec sleep 1000) & exec sleep 1000"), true),
        (format!("(setsid sh -c '{WORK}; echo ready; exec sleep 1000' &); exec sleep 1000"), true),
    ] {
        let command = sh(&script);
        let computed = command.computed.clone();
        let (child, ..) = start(&spawner, &command).await;
        assert_eq!(computed.sum(), Duration::ZERO, "it has not ended");
        child.kill();
        child.exited().await;
        let sum = computed.sum();
        assert_eq!(sum > Duration::from_millis(40), does_work, "{script}: {sum:?}");
    }
}

/// A shell script that starts an orphan in a session of its own, without environment and streams,
/// and says its pid.
const ESCAPE: &str = "env -i setsid sh -c 'sleep 1000 <&- >&- 2>&- & echo $!'";

async fn an_orphan_that_escaped_ends_with_its_leader(spawner: Spawner) {
    for end in ["", "kill -9 $$", "exec sleep 1000"] {
        let (child, _input, _output, pid) = start(&spawner, &sh(&format!("{ESCAPE}; {end}"))).await;
        let pid = pid.parse().unwrap();
        if end.starts_with("exec") {
            let stat = stat(pid).unwrap();
            assert_ne!(stat[2], child.id().to_string(), "it left the group");
            child.terminate();
        }
        child.exited().await;
        assert!(!runs(pid), "after {end:?}");
    }
}

async fn an_orphan_lives_as_long_as_its_leader(spawner: Spawner) {
    let script = format!("{ESCAPE}; exec sleep 1000");
    let (child, _input, _output, pid) = start(&spawner, &sh(&script)).await;
    let orphan = pid.parse().unwrap();
    eventually("adopted", || children_of(spawner.pid()).contains(&orphan)).await;
    // Others come and go, with orphans of their own.
    for _ in 0..5 {
        let (other, _input, _output, pid) = start(&spawner, &sh(ESCAPE)).await;
        other.exited().await;
        assert!(!runs(pid.parse().unwrap()));
    }
    assert!(runs(orphan));
    child.kill();
    child.exited().await;
    assert!(!runs(orphan));
}

async fn an_orphan_of_an_orphan_ends_too(spawner: Spawner) {
    // A chain of sessions: each is adopted only when the one above it is dead.
    let script =
        "setsid sh -c 'setsid sh -c \"setsid sleep 1000 & echo \\$!; wait\" & wait' & wait";
    let (child, _input, _output, pid) = start(&spawner, &sh(script)).await;
    child.kill();
    child.exited().await;
    assert!(!runs(pid.parse().unwrap()));
    assert_eq!(children_of(spawner.pid()), []);
}

async fn a_process_that_keeps_forking_is_caught(spawner: Spawner) {
    let mark = format!("chain{}", std::process::id());
    // Each process lives only until the next is there, in a session none of us knows.
    let script = format!("setsid sh -c '{mark}() {{ {mark} & }}; {mark}' & echo ready; sleep 1000");
    let (child, ..) = start(&spawner, &sh(&script)).await;
    child.kill();
    child.exited().await;
    eventually("caught", || marked(&mark).is_empty()).await;
}

async fn a_spawner_below_a_child_ends_with_it(spawner: Spawner) {
    let mark = format!("{}7", std::process::id());
    let program = std::env::current_exe().unwrap();
    let args = vec!["--victim".into(), mark.clone().into()];
    let victim = Command { program, args, ..sh("") };
    let (child, _input, _output, its_spawner) = start(&spawner, &victim).await;
    let sleeping = format!("1000.{mark}");
    assert!(marked(&sleeping).len() >= 5);
    child.kill();
    child.exited().await;
    assert!(!runs(its_spawner.parse().unwrap()));
    // Its orphans become ours when it dies, with tags of its own making.
    eventually("nothing left", || marked(&sleeping).is_empty()).await;
}

async fn orphans_that_end_are_reaped_while_the_leader_lives(spawner: Spawner) {
    let script = "for n in 1 2 3 4 5; do setsid sh -c 'sleep 0.01 &'; done; echo; exec sleep 1000";
    let (child, ..) = start(&spawner, &sh(script)).await;
    eventually("reaped", || children_of(spawner.pid()) == [child.id()]).await;
    child.kill();
}

async fn a_start_that_nobody_awaits_leaves_nothing(spawner: Spawner) {
    let command = sh("exec sleep 1000");
    let mut context = Context::from_waker(Waker::noop());
    let mut abandoned = 0;
    while abandoned < 50 {
        // The order is out after the first poll; the answer is not, unless this thread had to wait
        // for its turn in the middle of it.
        let spawn = pin!(spawner.spawn(&command));
        match spawn.poll(&mut context) {
            Poll::Pending => abandoned += 1,
            Poll::Ready(child) => child.unwrap().kill(),
        }
    }
    eventually("all gone", || spawner.living() == 0).await;
    assert_eq!(children_of(spawner.pid()), []);
}

async fn a_dropped_child_is_stopped_in_the_background(spawner: Spawner) {
    let (child, input, output, _) = start(&spawner, &sh("echo ready; exec cat")).await;
    let exited = child.exited();
    drop(child);
    drop((input, output));
    assert_eq!(exited.await, Exit::Code(0), "it had the time to end by itself");
}

async fn a_child_dropped_without_a_runtime_is_killed(spawner: Spawner) {
    let child = spawner.spawn(&sh("exec sleep 1000")).await.unwrap();
    let exited = child.exited();
    std::thread::spawn(move || drop(child)).join().unwrap();
    assert_eq!(exited.await, Exit::Signal(libc::SIGKILL));
}

async fn a_cancelled_stop_goes_on(spawner: Spawner) {
    let script = "trap '' TERM; echo ready; while :; do sleep 1000; done";
    let (child, ..) = start(&spawner, &sh(script)).await;
    let exited = child.exited();
    let ladder = quick();
    let stop = child.stop(&ladder);
    let _ = tokio::time::timeout(Duration::from_millis(1), stop).await;
    // By the ladder it was given, not by one that begins anew.
    let end = tokio::time::timeout(Duration::from_secs(8), exited).await;
    assert_eq!(end.unwrap(), Exit::Signal(libc::SIGKILL));
}

async fn two_hundred_at_once_leave_nothing(spawner: Spawner) {
    let tasks: Vec<_> = (0..200)
        .map(|n| {
            let spawner = spawner.clone();
            tokio::spawn(async move {
                let script = match n % 4 {
                    0 => "exit 1",
                    1 => "exec cat",
                    2 => "setsid sleep 1000 & sleep 1000 & exec cat",
                    _ => "exec sleep 1000",
                };
                let command = sh(script);
                let spawn = spawner.spawn(&command);
                if n % 5 == 0 {
                    // Some are given up, wherever they are.
                    let _ = tokio::time::timeout(Duration::from_millis(n / 5), spawn).await;
                    return;
                }
                let child = spawn.await.unwrap();
                match n % 3 {
                    0 => drop(child),
                    1 => child.kill(),
                    _ => drop(child.stop(&quick()).await),
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    eventually("all gone", || spawner.living() == 0).await;
    assert_eq!(children_of(spawner.pid()), []);
}

async fn stop_all_stops_all(spawner: Spawner) {
    let mut children = Vec::new();
    for script in ["exec cat", "exec sleep 1000", "trap '' TERM; sleep 1000 & wait; sleep 1000"] {
        let command = sh(&format!("echo ready; {script}"));
        children.push(start(&spawner, &command).await);
    }
    spawner.stop_all(&quick()).await;
    assert_eq!(spawner.living(), 0);
    assert_eq!(children_of(spawner.pid()), []);
    for (child, ..) in &children {
        assert!(matches!(child.exited().await, Exit::Signal(_)));
    }
}

async fn signals_to_the_spawner_are_ignored(spawner: Spawner) {
    let (child, ..) = start(&spawner, &sh("echo ready; exec sleep 1000")).await;
    for number in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGPIPE, libc::SIGUSR1] {
        signal(spawner.pid(), number);
    }
    assert_eq!(output(&spawner, &sh("echo fine")).await, "fine\n");
    assert_eq!(child.try_exit(), None);
    let stat = stat(spawner.pid()).unwrap();
    assert_eq!(stat[3], spawner.pid().to_string(), "a session of its own");
    child.kill();
}

async fn a_killed_spawner_is_told_to_everyone(spawner: Spawner) {
    let (child, _input, _output, _) = start(&spawner, &sh("echo ready; exec sleep 1000")).await;
    let pid = child.id();
    signal(spawner.pid(), libc::SIGKILL);
    assert_eq!(child.exited().await, Exit::Unknown);
    eventually("its children died with it", || !runs(pid)).await;
    let error = spawner.spawn(&sh("exit")).await.unwrap_err();
    assert!(matches!(error, SpawnError::SpawnerGone), "{error}");
    assert_eq!(spawner.living(), 0);
    spawner.stop_all(&quick()).await;
    eventually("it is reaped", || state_of(spawner.pid()).is_none()).await;
}

async fn a_killed_program_leaves_nothing(_spawner: Spawner) {
    kill_victims("--victim");
}
