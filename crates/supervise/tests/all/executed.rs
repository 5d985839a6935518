//! A spawner that is run: by any thread, from an executable that may be the wrong one.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use pontoon_supervise::{Command, Confinement, Exit, RunError, Spawner, Starting};

use crate::world::*;

tests! {
    any_thread_of_a_busy_program_can_run_one
    it_keeps_nothing_of_the_program
    it_supports_what_a_forked_one_does
    a_wrong_executable_is_told_apart
    one_that_is_not_attached_leaves_nothing
    a_killed_program_that_ran_one_leaves_nothing
    a_trusted_child_has_what_it_would_have_in_a_shell
}

/// This program as a spawner.
fn run() -> Result<Starting, RunError> {
    Spawner::run(&std::env::current_exe().unwrap(), &["--spawner".into()])
}

fn run_other(program: &str, args: &[&str]) -> RunError {
    let args: Vec<OsString> = args.iter().map(Into::into).collect();
    Spawner::run(Path::new(program), &args).expect_err("no spawner")
}

async fn any_thread_of_a_busy_program_can_run_one(_spawner: Spawner) {
    let work = |thread: usize| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for round in 0..5 {
            let said = runtime.block_on(async {
                let spawner = run().unwrap().attach().unwrap();
                let child = spawner.spawn(&sh(&format!("echo {thread} {round}"))).await.unwrap();
                let (said, exit) = outcome(child).await;
                assert_eq!(exit, Exit::Code(0));
                said
            });
            assert_eq!(said, format!("{thread} {round}\n"));
        }
    };
    let threads: Vec<_> = (0..8).map(|it| std::thread::spawn(move || work(it))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

async fn it_keeps_nothing_of_the_program(_spawner: Spawner) {
    leak_descriptors(20);
    let spawner = run().unwrap().attach().unwrap();
    let pid = spawner.pid();
    // It has settled in when it obeys.
    assert_eq!(output(&spawner, &sh("pwd")).await, "/\n");
    let stat = stat(pid).unwrap();
    assert_eq!(stat[3], pid.to_string(), "its own session");
    for ignored in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGUSR1] {
        signal(pid, ignored);
    }
    // As root its files can be seen, otherwise nothing of it.
    if let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) {
        let mut files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        files.sort();
        assert_eq!(files, ["0", "1", "2", "3"]);
        assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
        let env = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let env = String::from_utf8_lossy(&env);
        assert!(!env.contains("CARGO_"), "{env}");
    }
    assert_eq!(output(&spawner, &sh("echo still there")).await, "still there\n");
    drop(spawner);
    eventually("it ended and was reaped", || state_of(pid).is_none()).await;
}

async fn it_supports_what_a_forked_one_does(spawner: Spawner) {
    assert_eq!(run().unwrap().support(), spawner.support());
}

async fn a_wrong_executable_is_told_apart(_spawner: Spawner) {
    let exec = |program: &str, expected: std::io::ErrorKind| match run_other(program, &[]) {
        RunError::Exec { source, .. } => assert_eq!(source.kind(), expected, "{program}"),
        other => panic!("{program}: {other}"),
    };
    exec("/nowhere/pontoon", std::io::ErrorKind::NotFound);
    exec("/etc", std::io::ErrorKind::PermissionDenied);
    exec("/etc/passwd", std::io::ErrorKind::PermissionDenied);
    exec("/etc\0", std::io::ErrorKind::InvalidInput);
    let stranger = |program: &str, args: &[&str], expected: &str| {
        let error = run_other(program, args);
        assert!(matches!(error, RunError::Stranger { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    stranger("/bin/true", &[], "exited with code 0 without a word");
    stranger("/bin/sh", &["-c", "exit 3"], "exited with code 3 without a word");
    stranger("/bin/sh", &["-c", "exec sleep 1000 <&-"], "closed its input without a word");
    stranger("/bin/sh", &["-c", "echo hello >&0"], "answers something else");
    stranger("/bin/sh", &["-c", "yes >&0"], "answers something else");
    stranger(
        "/bin/sh",
        &[
            "-c",
            "printf 'pontoon-spawner %s yes\\n' $0 >&0",
            concat!(env!("CARGO_PKG_VERSION"), "-2"),
        ],
        "answers something else",
    );
    let began = Instant::now();
    stranger("/bin/sleep", &["1000.5050"], "said nothing for 5 s");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(marked("1000.5050"), []);

    match run_other("/bin/sh", &["-c", "echo pontoon-spawner 0.0.9 what else >&0; sleep 1000"]) {
        RunError::OtherVersion { theirs, .. } => assert_eq!(theirs, "0.0.9"),
        other => panic!("{other}"),
    }
}

async fn one_that_is_not_attached_leaves_nothing(_spawner: Spawner) {
    let starting = run().unwrap();
    let pid = starting.pid();
    assert!(runs(pid));
    drop(starting);
    assert_eq!(state_of(pid), None);
}

async fn a_killed_program_that_ran_one_leaves_nothing(_spawner: Spawner) {
    kill_victims("--victim-that-runs");
}

async fn a_trusted_child_has_what_it_would_have_in_a_shell(forked: Spawner) {
    let script = "echo $(umask) $(ulimit -Sc) $(ulimit -Hc) $(cat /proc/self/oom_score_adj) \
                  $(grep NoNewPrivs /proc/self/status | cut -f2)";
    let trusted = Command { trusted: true, ..sh(script) };
    // SAFETY: no memory is involved. Tests run one after the other.
    let before = unsafe { libc::umask(0o027) };
    let executed = run().unwrap().attach().unwrap();
    #[expect(clippy::disallowed_methods, reason = "it is what the child is compared with")]
    let mut shell = std::process::Command::new("/bin/sh");
    let expected = shell.args(["-c", script]).output().unwrap().stdout;
    let expected = String::from_utf8(expected).unwrap();
    assert!(expected.starts_with("0027 "), "{expected}");
    assert_eq!(output(&executed, &trusted).await, expected);
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    let own = expected.replacen("0027", &format!("{before:04o}"), 1);
    assert_eq!(output(&forked, &trusted).await, own);

    // Others have none of it, also beside one that is trusted.
    for spawner in [&executed, &forked] {
        let said = output(spawner, &sh(script)).await;
        let words: Vec<&str> = said.split_ascii_whitespace().collect();
        assert_eq!([words[0], words[1], words[2], words[4]], ["0077", "0", "0", "1"], "{said}");
    }
    // What confines a trusted child holds.
    if executed.support().seccomp {
        let confinement = Confinement { deny_calls: true, ..Confinement::default() };
        let said = output(&executed, &Command { confinement, ..trusted }).await;
        assert!(said.starts_with("0027 ") && said.ends_with(" 1\n"), "{said}");
    }
}
