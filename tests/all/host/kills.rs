//! `kill -9` at any moment of a request, of any process that takes part: nothing hangs, nothing is left after the
//! next start, and a session that lives is not harmed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pontoon_tests::rig::processes::{self, Process};
use pontoon_tests::rig::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Program, SOON, text, tools};
use crate::binaries;

/// The variable that all processes of one request carry.
const TAG: &str = "PONTOON_KILLED_TEST";

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Victim {
    Program,
    Cli,
    Bridge,
    Spawner,
}

/// In turns.
const VICTIMS: [Victim; 7] = {
    use Victim::{Bridge, Cli, Program, Spawner};
    [Program, Cli, Bridge, Program, Cli, Spawner, Program]
};

/// Requests that are killed, all in one temporary directory, beside a session that lives.
pub(crate) struct Killing {
    cli: PathBuf,
    prompt: String,
    environment: Vec<(String, String)>,
    /// How long a request may take until something is killed.
    longest: Duration,
    living: Program,
    random: u64,
}

impl Killing {
    pub(crate) fn new(
        cli: &Path,
        prompt: String,
        environment: Vec<(String, String)>,
        longest: Duration,
    ) -> Self {
        let living = Program::start(&tools());
        Self { cli: cli.to_owned(), prompt, environment, longest, living, random: 0x5eed }
    }

    /// A number below `limit`, others with each call and the same with each run.
    fn below(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    fn start(&self, tag: &str) -> Child {
        #[expect(
            clippy::disallowed_methods,
            reason = "what is killed must not be ended by us as well"
        )]
        let mut command = Command::new(env!("CARGO_BIN_EXE_model-program"));
        command.arg(&self.cli).arg(&self.prompt).env_clear().envs(self.environment.clone());
        command.env("PONTOON_BIN", binaries().pontoon).env("TMPDIR", self.living.place.path());
        command.env(TAG, tag).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
    }

    /// Has one request in which one process is killed at a moment that nobody chose.
    pub(crate) fn kill_one(&mut self, number: usize) {
        let victim = VICTIMS[number % VICTIMS.len()];
        let tag = format!("{}-{number}", std::process::id());
        let delay = Duration::from_micros(self.below(self.longest.as_micros() as u64));
        let mut program = self.start(&tag);
        std::thread::sleep(delay);
        let mut family = processes::below(&processes::all(), program.id());
        let is_killed = self.kill(victim, &tag, &mut program);
        wait_until("the program ends", SOON, || program.try_wait().unwrap().is_some());
        let output = program.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        if victim != Victim::Program {
            assert!(said.starts_with("ok ") || said.starts_with("error "), "{victim:?}: {said}");
        }
        wait_until("its processes end", SOON, || {
            family.retain(|it| {
                let now = processes::read(it.pid);
                now.is_some_and(|now| now.started == it.started && !now.is_zombie())
            });
            family.is_empty() && self.left(&tag).is_empty()
        });
        // What a killed program leaves, the next start removes.
        let expected = if victim == Victim::Program && is_killed { 2 } else { 1 };
        let sessions = self.sessions();
        assert!(sessions.len() <= expected, "{victim:?}: {sessions:?}");
    }

    /// Kills the victim as soon as it is there. False if the program ended before.
    fn kill(&self, victim: Victim, tag: &str, program: &mut Child) -> bool {
        loop {
            let found = match victim {
                Victim::Program => Some(program.id()),
                // It has no environment.
                Victim::Spawner => processes::below(&processes::all(), program.id())
                    .iter()
                    .find(|it| role(it) == Some(victim))
                    .map(|it| it.pid),
                _ => self.left(tag).iter().find(|it| role(it) == Some(victim)).map(|it| it.pid),
            };
            if program.try_wait().unwrap().is_some() {
                return false;
            }
            if let Some(pid) = found {
                let pid = Pid::from_raw(pid.cast_signed()).unwrap();
                return kill_process(pid, Signal::KILL).is_ok();
            }
        }
    }

    fn left(&self, tag: &str) -> Vec<Process> {
        processes::tagged(TAG, tag).into_iter().filter(|process| !process.is_zombie()).collect()
    }

    /// The directories of sessions. A CLI may have others beside them.
    fn sessions(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.living.place.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().path());
        names.filter(|path| path.to_str().unwrap().contains("/claudecode_ipc_")).collect()
    }

    /// The session that lives still answers, and has all its files.
    fn check_living(&self) {
        let mut bridge = self.living.bridge();
        bridge.initialize();
        let answer = bridge.call(1, "echo", json!({"text": "still here"}));
        assert_eq!(text(&answer), "still here");
    }

    /// A request that is left alone is answered, and then nothing is left of any.
    pub(crate) fn check_next(&self) {
        let program = self.start("next");
        let output = program.wait_with_output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.starts_with("ok "), "{said}");
        wait_until("its processes end", SOON, || self.left("next").is_empty());
        assert_eq!(self.sessions().len(), 1, "only the session that lives is there");
        self.check_living();
    }
}

/// What a process of a request is.
fn role(process: &Process) -> Option<Victim> {
    let words = std::fs::read(format!("/proc/{}/cmdline", process.pid)).ok()?;
    let words: Vec<_> = words.split(|byte| *byte == 0).collect();
    match words.as_slice() {
        [_, b"ipc", b"--spawner", ..] => Some(Victim::Spawner),
        [_, b"ipc", ..] => Some(Victim::Bridge),
        words if words.contains(&b"--strict-mcp-config".as_slice()) => Some(Victim::Cli),
        _ => None,
    }
}

/// Calls the tool many times, one after another.
fn script() -> Value {
    let call = |number: usize| json!({"call": [{"tool": "mcp__host_tools__echo", "input": {"text": number.to_string()}}]});
    let mut steps: Vec<_> = (0..20).map(call).collect();
    steps.push(json!({"text": "{{result}}"}));
    steps.into()
}

#[test]
fn nothing_is_left_whatever_is_killed() {
    let cli = Path::new(env!("CARGO_BIN_EXE_stand-in-claude"));
    let environment = vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let mut killing =
        Killing::new(cli, script().to_string(), environment, Duration::from_millis(60));
    for number in 0..280 {
        killing.kill_one(number);
        if number % 40 == 0 {
            killing.check_living();
        }
    }
    killing.check_next();
}
