//! A place to be confined to, and attempts to get out of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use pontoon_supervise::{Command, Confinement, Exit, FileRules, Network, SpawnError, Spawner};
use tempfile::TempDir;

use crate::world::*;

/// A place to work in, and something beside it that is none of its business.
pub(crate) struct Place {
    _kept: TempDir,
    pub(crate) workspace: PathBuf,
    pub(crate) secret: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let kept = tempfile::tempdir().unwrap();
        let (workspace, beside) = (kept.path().join("workspace"), kept.path().join("beside"));
        fs::create_dir(&workspace).unwrap();
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("secret"), "secret").unwrap();
        fs::write(workspace.join("own"), "own").unwrap();
        Self { secret: beside.join("secret"), workspace, _kept: kept }
    }

    pub(crate) fn in_workspace(&self, name: &str) -> String {
        self.workspace.join(name).display().to_string()
    }

    pub(crate) fn secret(&self) -> String {
        self.secret.display().to_string()
    }

    /// The system, this program, and the workspace.
    pub(crate) fn rules(&self) -> FileRules {
        let mut rules = FileRules::system();
        rules.read.push(std::env::current_exe().unwrap());
        rules.write.push(self.workspace.clone());
        rules
    }

    pub(crate) fn files(&self) -> Confinement {
        Confinement { files: Some(self.rules()), ..Confinement::default() }
    }

    pub(crate) fn all(&self) -> Confinement {
        Confinement { deny_calls: true, network: Network::None, ..self.files() }
    }
}

/// What a hostile child says to each attempt: one of the expected words. Where the system cannot confine it so, the refusal
/// is checked instead.
pub(crate) async fn check(
    spawner: &Spawner,
    confinement: &Confinement,
    attempts: &[(&[&str], &str)],
) {
    for (attempt, expected) in attempts {
        let command = Command { confinement: confinement.clone(), ..hostile(attempt) };
        if let Some(said) = output_or_refusal(spawner, &command).await {
            let said = said.trim_end();
            assert!(
                expected.split('|').any(|it| it == said),
                "{attempt:?}: {said}, not {expected}"
            );
        }
    }
}

/// What a command writes, or `None` when the system cannot confine it and said so.
pub(crate) async fn output_or_refusal(spawner: &Spawner, command: &Command) -> Option<String> {
    Some(outcome_or_refusal(spawner, command).await?.0)
}

/// What a command writes and how it ends, or `None` when the system cannot confine it and said so.
pub(crate) async fn outcome_or_refusal(
    spawner: &Spawner,
    command: &Command,
) -> Option<(String, Exit)> {
    if is_refused(spawner, command).await {
        return None;
    }
    Some(outcome(spawner.spawn(command).await.unwrap()).await)
}

/// Whether the system cannot confine a command as it asks. Then it must say so.
pub(crate) async fn is_refused(spawner: &Spawner, command: &Command) -> bool {
    let Some(missing) = spawner.support().missing(command).first().copied() else {
        return false;
    };
    let error = spawner.spawn(command).await.unwrap_err();
    let is_it =
        matches!(error, SpawnError::Impossible { restriction, .. } if restriction == missing);
    assert!(is_it, "{error}");
    println!("  refused here: {error}");
    true
}

/// This program where every user can run it.
pub(crate) fn public_copy() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let copy = folder.path().join("program");
    // Not by ourselves: what we have open for writing cannot be run, and a process that another
    // test starts meanwhile has all our open files for a moment.
    #[expect(clippy::disallowed_methods, reason = "it ends before this returns")]
    let cp =
        std::process::Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status();
    assert!(cp.unwrap().success());
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    (folder, copy)
}
