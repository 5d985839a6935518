//! What a child may use, and what happens when it takes more: memory, processes, time, files.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pontoon_supervise::{Cgroup, Command, Confinement, Exit, Limits, Restriction, Spawner, User};

use crate::attempts::*;
use crate::world::*;

tests! {
    a_file_ends_at_the_exact_byte
    computing_time_runs_out
    a_child_deaf_to_the_end_of_its_time_is_killed
    memory_runs_out_in_one_process
    memory_runs_out_in_a_cgroup
    shared_memory_counts_in_a_cgroup
    a_grandchild_out_of_memory_is_told
    forks_end_at_the_limit_of_a_cgroup
    forks_end_at_the_limit_of_a_user
    a_fork_bomb_is_contained_and_removed
    a_share_of_the_processor_is_kept
    processes_of_our_own_user_cannot_be_limited
    every_child_has_a_cgroup_of_its_own_and_leaves_none
    a_failed_start_leaves_no_cgroup
    a_killed_program_leaves_no_processes_in_cgroups
    what_a_killed_spawner_left_is_swept
}

const MIB: u64 = 1 << 20;

fn in_cgroup() -> Confinement {
    Confinement { cgroup: Some(Cgroup::default()), ..Confinement::default() }
}

async fn check(spawner: &Spawner, command: Command, text: &str, exit: Exit) {
    if let Some(result) = outcome_or_refusal(spawner, &command).await {
        assert_eq!(result, (text.to_owned(), exit));
    }
}

async fn a_file_ends_at_the_exact_byte(spawner: Spawner) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    let limits = Limits { file_size_bytes: Some(12_345), ..Limits::default() };
    let command = Command { limits, ..hostile(&["grow", &path.display().to_string()]) };
    check(&spawner, command, "", Exit::Signal(libc::SIGXFSZ)).await;
    assert_eq!(fs::metadata(&path).unwrap().len(), 12_345);
}

async fn computing_time_runs_out(spawner: Spawner) {
    let limits = Limits { cpu_seconds: Some(1), ..Limits::default() };
    let command = Command { limits, ..hostile(&["spin for ever"]) };
    check(&spawner, command, "", Exit::Signal(libc::SIGXCPU)).await;
}

async fn a_child_deaf_to_the_end_of_its_time_is_killed(spawner: Spawner) {
    let limits = Limits { cpu_seconds: Some(1), ..Limits::default() };
    let command = Command { limits, ..hostile(&["spin deaf"]) };
    check(&spawner, command, "", Exit::Signal(libc::SIGKILL)).await;
}

async fn memory_runs_out_in_one_process(spawner: Spawner) {
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    let take = |bytes: u64| Command {
        limits: limits.clone(),
        ..hostile(&["take memory", &bytes.to_string()])
    };
    check(&spawner, take(32 * MIB), "ok\n", Exit::Code(0)).await;
    check(&spawner, take(65 * MIB), "ENOMEM\n", Exit::Code(0)).await;
}

async fn memory_runs_out_in_a_cgroup(spawner: Spawner) {
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    let take = |bytes: u64| Command {
        limits: limits.clone(),
        confinement: in_cgroup(),
        ..hostile(&["take memory", &bytes.to_string()])
    };
    check(&spawner, take(32 * MIB), "ok\n", Exit::Code(0)).await;
    check(&spawner, take(256 * MIB), "", Exit::OutOfMemory).await;
}

async fn shared_memory_counts_in_a_cgroup(spawner: Spawner) {
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    let bytes = (256 * MIB).to_string();
    let command = hostile(&["take shared memory", &bytes]);
    let command = Command { limits, confinement: in_cgroup(), ..command };
    check(&spawner, command, "", Exit::OutOfMemory).await;
}

async fn a_grandchild_out_of_memory_is_told(spawner: Spawner) {
    let limits = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    let program = std::env::current_exe().unwrap();
    let script = format!("{} --hostile 'take memory' {}; exit $?", program.display(), 256 * MIB);
    let command = Command { limits, confinement: in_cgroup(), ..sh(&script) };
    check(&spawner, command, "", Exit::OutOfMemory).await;
}

async fn forks_end_at_the_limit_of_a_cgroup(spawner: Spawner) {
    let limits = Limits { processes: Some(20), ..Limits::default() };
    let command = Command { limits, confinement: in_cgroup(), ..hostile(&["fork"]) };
    // The child itself is the twentieth.
    check(&spawner, command, "19 EAGAIN\n", Exit::Code(0)).await;
}

async fn forks_end_at_the_limit_of_a_user(spawner: Spawner) {
    let limits = Limits { processes: Some(20), ..Limits::default() };
    let user = Some(User { uid: 61_300, gid: 61_300 });
    let confinement = Confinement { user, ..Confinement::default() };
    let script = "n=0; while [ $n -lt 40 ]; do sleep 1000 & n=$((n+1)); done; echo $n";
    let command = Command { limits, confinement, ..sh(script) };
    let Some((text, exit)) = outcome_or_refusal(&spawner, &command).await else { return };
    // A shell that cannot fork gives up, sooner or later.
    assert_eq!(text, "");
    assert!(!exit.is_success(), "{exit}");
}

async fn a_fork_bomb_is_contained_and_removed(spawner: Spawner) {
    let mark = format!("bomb{}", std::process::id());
    let limits = Limits { processes: Some(30), ..Limits::default() };
    let command =
        Command { limits, confinement: in_cgroup(), ..hostile(&["fork for ever", &mark]) };
    if is_refused(&spawner, &command).await {
        return;
    }
    let (child, _input, ..) = start(&spawner, &command).await;
    eventually("it is as large as it may be", || marked(&mark).len() == 30).await;
    // The machine has room for others meanwhile.
    assert_eq!(output(&spawner, &sh("echo fine")).await, "fine\n");
    assert!(marked(&mark).len() <= 30);
    child.kill();
    let began = Instant::now();
    child.exited().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    eventually("nothing of it is left", || marked(&mark).is_empty()).await;
}

async fn a_share_of_the_processor_is_kept(spawner: Spawner) {
    let confinement =
        Confinement { cgroup: Some(Cgroup { cpu_percent: Some(20) }), ..Confinement::default() };
    let command = Command { confinement, ..hostile(&["spin", "200"]) };
    let Some((text, exit)) = outcome_or_refusal(&spawner, &command).await else { return };
    assert!(exit.is_success(), "{exit}");
    let took: u64 = text.trim_end().parse().unwrap();
    // A fifth of the time, but for the first period, which may be used up at once.
    assert!(took >= 600, "200 ms of computing took {took} ms");
}

async fn processes_of_our_own_user_cannot_be_limited(spawner: Spawner) {
    let limits = Limits { processes: Some(20), ..Limits::default() };
    let error = spawner.spawn(&Command { limits, ..sh("exit") }).await.unwrap_err();
    let restriction = Restriction::Processes;
    assert_eq!(
        error.to_string(),
        format!(
            "this system cannot limit its processes, as asked for `/bin/sh`: {}, or allow less \
             (`isolation.best_effort`)",
            restriction.remedy()
        )
    );
}

/// The directories of cgroups that this spawner made.
fn cgroups_of(spawner: u32) -> Vec<PathBuf> {
    let prefix = format!("pontoon-{spawner}-");
    let mut found = Vec::new();
    let mut next = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = next.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() && !path.is_symlink() {
                if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
                {
                    found.push(path.clone());
                }
                next.push(path);
            }
        }
    }
    found
}

fn limited() -> Command {
    let limits = Limits { memory_bytes: Some(64 * MIB), processes: Some(20), ..Limits::default() };
    Command { limits, confinement: in_cgroup(), ..sh("echo ready; exec sleep 1000") }
}

async fn every_child_has_a_cgroup_of_its_own_and_leaves_none(spawner: Spawner) {
    if is_refused(&spawner, &limited()).await {
        return;
    }
    let mut children = Vec::new();
    for _ in 0..5 {
        children.push(start(&spawner, &limited()).await);
    }
    let made = cgroups_of(spawner.pid());
    assert!(made.len() >= 5, "{made:?}");
    for (child, ..) in &children {
        let text = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
        assert!(text.contains(&format!("/pontoon-{}-", spawner.pid())), "{text}");
    }
    // Some end by themselves, some are stopped, some with grandchildren.
    for (child, ..) in children {
        child.kill();
        child.exited().await;
    }
    let escaping = sh("setsid sh -c 'sleep 1000 <&- >&- 2>&- &'; exit 3");
    let escaping = Command { args: escaping.args, ..limited() };
    assert_eq!(
        outcome_or_refusal(&spawner, &escaping).await.map(|(_, exit)| exit),
        Some(Exit::Code(3))
    );
    eventually("all are removed", || cgroups_of(spawner.pid()).is_empty()).await;
}

async fn a_failed_start_leaves_no_cgroup(spawner: Spawner) {
    let command = Command { program: "/no/such/program".into(), ..limited() };
    assert!(spawner.spawn(&command).await.is_err());
    eventually("it is removed", || cgroups_of(spawner.pid()).is_empty()).await;
}

async fn a_killed_program_leaves_no_processes_in_cgroups(spawner: Spawner) {
    if is_refused(&spawner, &limited()).await {
        return;
    }
    let mark = format!("{}8", std::process::id());
    let args = vec!["--victim-in-cgroup".into(), mark.clone().into()];
    let program = std::env::current_exe().unwrap();
    let victim = Command { program, args, ..sh("") };
    let (child, _input, _output, its_spawner) = start(&spawner, &victim).await;
    let its_spawner: u32 = its_spawner.parse().unwrap();
    assert!(!cgroups_of(its_spawner).is_empty());
    // The spawner sees the end of its program, and takes everything with it.
    signal(child.id(), libc::SIGKILL);
    child.exited().await;
    eventually("nothing left", || marked(&format!("1000.{mark}")).is_empty()).await;
    eventually("and no cgroup", || swept(&cgroups_of(its_spawner))).await;
}

async fn what_a_killed_spawner_left_is_swept(spawner: Spawner) {
    if is_refused(&spawner, &limited()).await {
        return;
    }
    let (child, ..) = start(&spawner, &limited()).await;
    let left = cgroups_of(spawner.pid());
    assert!(!left.is_empty());
    signal(spawner.pid(), libc::SIGKILL);
    child.exited().await;
    eventually("swept", || swept(&left)).await;
}

/// Whether the cgroups are gone once another program has started: it finds them empty, and who
/// made them gone.
fn swept(left: &[PathBuf]) -> bool {
    #[expect(clippy::disallowed_methods, reason = "it must not be below a spawner of ours")]
    let mut later = std::process::Command::new(std::env::current_exe().unwrap());
    later.arg("--sweep").status().unwrap();
    left.iter().all(|path| !path.exists())
}
