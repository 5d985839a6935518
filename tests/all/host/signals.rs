//! A program that asked for it leaves nothing when a signal ends it, and loses nothing when none does.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A program with two sessions in a directory of its own.
struct Victim {
    place: tempfile::TempDir,
    child: Child,
    /// Kept open: waiting for the child would close it, and the program ends with its input.
    _input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Victim {
    /// With these words before the program and after its directory.
    fn start(before: &[&str], after: &[&str]) -> Self {
        let place = tempfile::Builder::new().prefix("ph").tempdir_in("/tmp").unwrap();
        let program = env!("CARGO_BIN_EXE_host-program");
        // This test may have been started by `nohup`, or by a shell in the background: what such ignore is inherited.
        let reset: &[_] = if cfg!(target_os = "linux") {
            &["/usr/bin/env", "--default-signal=HUP,INT,TERM"]
        } else {
            &[]
        };
        let mut words = reset.iter().chain(before).copied().chain([program]);
        #[expect(clippy::disallowed_methods, reason = "it is killed, and must not be by us alone")]
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg(place.path()).args(after);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let _input = child.stdin.take();
        let mut victim = Self { place, child, _input, output };
        assert_eq!(victim.says(), "ready");
        assert_eq!(victim.sessions(), 2);
        victim
    }

    fn says(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn sessions(&self) -> usize {
        let sockets = |directory: &Path| {
            let files = std::fs::read_dir(directory).unwrap();
            files
                .filter(|file| file.as_ref().unwrap().path().extension().unwrap() == "sock")
                .count()
        };
        let directories = std::fs::read_dir(self.place.path()).unwrap();
        directories.map(|directory| sockets(&directory.unwrap().path())).sum()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// It ends by this signal and leaves nothing.
    fn ends_by(mut self, signal: Signal) {
        self.signal(signal);
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
        assert_eq!(std::fs::read_dir(self.place.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_signal_that_ends_a_program_leaves_nothing() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        Victim::start(&[], &[]).ends_by(signal);
    }
}

#[test]
fn a_signal_that_the_program_handles_takes_nothing_from_it() {
    for when in ["early", "late"] {
        let mut victim = Victim::start(&[], &[when]);
        for _ in 0..3 {
            victim.signal(Signal::INT);
            assert_eq!(victim.says(), "handled");
            assert_eq!(victim.sessions(), 2, "{when}");
        }
        victim.ends_by(Signal::TERM);
    }
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    // As `nohup` does it.
    let victim = Victim::start(&["/bin/sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""], &[]);
    if let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", victim.child.id())) {
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
        let ignored = u64::from_str_radix(ignored, 16).unwrap();
        assert_eq!(ignored & 1, 1, "{ignored:x}");
    }
    victim.signal(Signal::HUP);
    assert_eq!(victim.sessions(), 2);
    victim.ends_by(Signal::TERM);
}
