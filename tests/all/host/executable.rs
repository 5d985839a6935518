//! The bridge executable as a model finds and uses it: it starts the children of this program, too.

use std::path::Path;
use std::process::Stdio;

use pontoon_host::{IpcError, bridge};
use pontoon_tests::rig::{processes, wait_until};

use super::SOON;
use crate::binaries;

#[test]
fn the_executable_starts_the_children_of_a_program() {
    let starting = bridge::start_spawner(&binaries().pontoon).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exit = runtime.block_on(async {
        let spawner = starting.attach().unwrap();
        spawner.spawn(&pontoon_supervise::Command::new("/bin/true")).await.unwrap().exited().await
    });
    assert!(exit.is_success());
}

/// Not even as a zombie.
#[test]
#[cfg(target_os = "linux")]
fn no_spawner_is_left_when_it_or_its_runtime_has_ended() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let start = || bridge::start_spawner(&binaries().pontoon).unwrap();
    let pid = runtime().block_on(async {
        let spawner = start().attach().unwrap();
        let pid = spawner.pid();
        spawner.end().await;
        pid
    });
    assert_eq!(processes::read(pid), None);
    let pid = runtime().block_on(async { start().attach().unwrap().pid() });
    wait_until("it is reaped", SOON, || processes::read(pid).is_none());
}

#[test]
fn what_is_no_executable_of_ours_is_no_bridge() {
    for (path, expected) in [
        ("/nowhere/pontoon", "`/nowhere/pontoon` cannot be executed: No such file"),
        ("/etc", "`/etc` cannot be executed: Permission denied"),
        ("/bin/true", "`/bin/true` is no pontoon of version"),
    ] {
        let error = bridge::start_spawner(Path::new(path)).unwrap_err();
        assert!(matches!(error, IpcError::BridgeStartup(_)));
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

#[test]
fn a_user_who_types_the_hidden_words_is_told() {
    #[expect(clippy::disallowed_methods, reason = "it ends before this returns")]
    let mut command = std::process::Command::new(binaries().pontoon);
    let command = command.args(["ipc", "--spawner"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("is for programs that use pontoon-host"), "{said}");
}

#[test]
fn an_executable_that_is_named_is_found() {
    let pontoon = binaries().pontoon;
    assert_eq!(bridge::find(Some(&pontoon)).unwrap(), pontoon);
    let missing = bridge::find(Some(Path::new("/nowhere/pontoon"))).unwrap_err();
    assert!(missing.to_string().contains("PONTOON_BIN"), "{missing}");
}
