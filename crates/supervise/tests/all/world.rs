//! What the tests see of the system, and the frame each of them runs in.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::IntoRawFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pontoon_supervise::{
    Child, ChildInput, ChildOutput, Command, Confinement, Exit, FileRules, Ladder, Network,
    Spawner, Starting,
};
use tokio::io::AsyncReadExt;

/// No wait in a test is longer. Generous, as other builds may have the machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Runs a test in a runtime of its own, and checks that it leaves no process behind.
pub(crate) fn in_runtime<F: Future<Output = ()>>(
    starting: Starting,
    test: impl FnOnce(Spawner) -> F,
) {
    let pid = starting.pid();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let spawner = starting.attach().expect("attached");
        tokio::time::timeout(2 * DEADLINE, test(spawner.clone())).await.expect("in time");
        eventually("all children ended", || spawner.living() == 0).await;
        // An orphan that came to us last may still have to be reaped.
        eventually("nothing left below the spawner", || children_of(pid).is_empty()).await;
    });
    drop(runtime);
    // Its handles are gone, so it must be as well.
    wait_until("the spawner ended", || state_of(pid).is_none_or(|state| state == 'Z'));
}

/// When memory is scarce, the system ends a child before this program.
pub(crate) fn expect_to_go_first(pid: u32) {
    let score = |who: &str| -> i32 {
        let text = std::fs::read_to_string(format!("/proc/{who}/oom_score_adj")).expect("a score");
        text.trim().parse().expect("a number")
    };
    assert_eq!(score(&pid.to_string()), (score("self") + 500).min(1000));
}

/// `/bin/sh -c script` with a path and nothing else.
pub(crate) fn sh(script: &str) -> Command {
    Command {
        args: vec!["-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        ..Command::new("/bin/sh")
    }
}

/// Everything a command writes, when it is left alone.
pub(crate) async fn output(spawner: &Spawner, command: &Command) -> String {
    outcome(spawner.spawn(command).await.expect("started")).await.0
}

/// Everything a child writes when it is left alone, and how it ends.
pub(crate) async fn outcome(mut child: Child) -> (String, Exit) {
    let (input, mut output) = child.take_streams().expect("taken once");
    drop(input);
    let mut text = String::new();
    output.read_to_string(&mut text).await.expect("text");
    (text, child.exited().await)
}

/// Starts a command and waits for its first line of output.
pub(crate) async fn start(
    spawner: &Spawner,
    command: &Command,
) -> (Child, ChildInput, ChildOutput, String) {
    let mut child = spawner.spawn(command).await.expect("started");
    let (input, mut output) = child.take_streams().expect("taken once");
    let mut line = String::new();
    let reading = async {
        loop {
            match output.read_u8().await {
                Ok(b'\n') => break,
                Ok(byte) => line.push(char::from(byte)),
                Err(error) => panic!("no line after {line:?}: {error}"),
            }
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("a line in time");
    (child, input, output, line)
}

/// This program as a hostile child that tries one thing.
pub(crate) fn hostile(attempt: &[&str]) -> Command {
    let mut args = vec!["--hostile".into()];
    args.extend(attempt.iter().map(Into::into));
    Command { args, ..Command::new(std::env::current_exe().expect("known")) }
}

/// A system call with up to four arguments.
pub(crate) fn call(number: i64, arguments: [i64; 4]) -> std::io::Result<i64> {
    let [a, b, c, d] = arguments;
    // SAFETY: the tests give numbers and pointers to strings that are never freed.
    match unsafe { libc::syscall(number, a, b, c, d, 0, 0) } {
        -1 => Err(std::io::Error::last_os_error()),
        result => Ok(result),
    }
}

/// A ladder for the impatient.
pub(crate) fn quick() -> Ladder {
    Ladder { after_close: Duration::from_millis(50), after_terminate: Duration::from_millis(50) }
}

/// Waits for what must come true.
pub(crate) async fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < DEADLINE, "never: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The same where there is no runtime.
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < DEADLINE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    began.elapsed()
}

/// Whether the process runs; one that ended and was not reaped does not.
pub(crate) fn runs(pid: u32) -> bool {
    state_of(pid).is_some_and(|state| state != 'Z' && state != 'X')
}

pub(crate) fn state_of(pid: u32) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

/// The children of a process, ended ones included.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let parent = parent.to_string();
    processes().filter(|pid| stat(*pid).is_some_and(|stat| stat[1] == parent)).collect()
}

/// The fields of `/proc/PID/stat` from the third on: state, parent, group, session.
pub(crate) fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_ascii_whitespace().map(str::to_owned).collect())
}

/// The processes with `mark` in their arguments.
pub(crate) fn marked(mark: &str) -> Vec<u32> {
    processes()
        .filter(|pid| {
            let text = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&text).contains(mark)
        })
        .collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc is there");
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The memory of this process that is in use, in bytes.
pub(crate) fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("readable");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
    pages.expect("a number") * 4096
}

pub(crate) fn signal(pid: u32, signal: i32) {
    // SAFETY: no memory is involved.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), signal) }, 0, "signal {signal} to {pid}");
}

/// Opens descriptors that are inherited by whatever is started carelessly.
pub(crate) fn leak_descriptors(count: usize) {
    for _ in 0..count {
        let file = std::fs::File::open("/dev/zero").expect("it is there").into_raw_fd();
        // SAFETY: clears a flag of a descriptor that was just opened and is never closed.
        unsafe { libc::fcntl(file, libc::F_SETFD, 0) };
    }
}

/// A program on a kernel that lacks some system calls, which tries to start a child with one
/// restriction: it says the error, or what the hostile child says.
pub(crate) fn without(calls: &str, mut attempt: impl Iterator<Item = String>) -> ExitCode {
    refuse_calls(calls.split(',').map(|call| call.parse().expect("a number")));
    let restriction = attempt.next().expect("a restriction");
    let mut confinement = Confinement::default();
    match restriction.as_str() {
        "files" => {
            let mut rules = FileRules::system();
            rules.read.push(std::env::current_exe().expect("known"));
            confinement.files = Some(rules);
        }
        "calls" => confinement.deny_calls = true,
        "network" => confinement.network = Network::None,
        other => panic!("no restriction `{other}`"),
    }
    let attempt: Vec<String> = attempt.collect();
    let attempt: Vec<&str> = attempt.iter().map(String::as_str).collect();
    let command = if attempt.is_empty() { Command::new("/bin/true") } else { hostile(&attempt) };
    let mut command = Command { confinement, ..command };
    with_spawner(async |spawner| match spawner.spawn(&command).await {
        Ok(child) => print!("{}", outcome(child).await.0),
        Err(error) => {
            println!("{error}");
            println!("softened: {:?}", spawner.support().soften(&mut command));
            let child = spawner.spawn(&command).await.expect("started without");
            assert!(child.exited().await.is_success());
        }
    })
}

/// Runs `test` with a spawner, in a program that is about nothing else.
pub(crate) fn with_spawner(test: impl AsyncFnOnce(Spawner)) -> ExitCode {
    let starting = Spawner::start().expect("a spawner");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async { test(starting.attach().expect("attached")).await });
    ExitCode::SUCCESS
}

/// Makes this process, and all it starts, one for which some system calls do not exist.
fn refuse_calls(calls: impl Iterator<Item = u32>) {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for number in calls {
        let is_it = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        filter.push(libc::sock_filter { code: is_it as u16, jt: 0, jf: 1, k: number });
        filter.push(statement(libc::BPF_RET | libc::BPF_K, refuse));
    }
    filter.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let len = u16::try_from(filter.len()).expect("a few");
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel copies the filter, which lives until after the call.
    let result = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Kills programs with children of every kind, and waits until nothing is left of them.
pub(crate) fn kill_victims(kind: &str) {
    for round in 0..5 {
        let mark = format!("{}{round}", std::process::id());
        #[expect(clippy::disallowed_methods, reason = "it must not be below a spawner of ours")]
        let mut victim = std::process::Command::new(std::env::current_exe().unwrap())
            .args([kind, &mark])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(victim.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let its_spawner = line.trim().parse().unwrap();
        let sleeping = format!("1000.{mark}");
        assert!(marked(&sleeping).len() >= 5, "{:?}", marked(&sleeping));
        victim.kill().unwrap();
        victim.wait().unwrap();
        let took =
            wait_until("nothing left", || marked(&sleeping).is_empty() && !runs(its_spawner));
        assert!(took < Duration::from_secs(1), "took {took:?}");
    }
}

/// A program with children of every kind that waits to be killed. Says a line when all run.
pub(crate) fn victim(starting: Starting, mark: &str, confinement: &Confinement) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime
        .block_on(async {
            let spawner = starting.attach().expect("attached");
            let mut kept = Vec::new();
            for script in [
                "echo ready; exec sleep 1000",
                "trap '' TERM HUP INT; echo ready; while :; do sleep 1000; done",
                "sleep 1000 & sleep 1000 & echo ready; wait",
                "env -i setsid sh -c 'setsid sleep 1000 <&- >&- 2>&- & ' ; echo ready; sleep 1000",
            ] {
                // The mark goes where even a program with an empty environment carries it.
                let script = script.replace("sleep 1000", &format!("sleep 1000.{mark}"));
                let command = Command { confinement: confinement.clone(), ..sh(&script) };
                kept.push(start(&spawner, &command).await);
            }
            println!("{}", spawner.pid());
            std::io::stdout().flush().expect("read by the test");
            // Until killed, or until the test is gone.
            tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await
        })
        .expect("read")
        .expect("read");
    ExitCode::SUCCESS
}
