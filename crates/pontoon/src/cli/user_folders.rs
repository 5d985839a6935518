//! The folders of the user who runs a command: what is kept from one start to the next, and where programs of the user meet.

use std::path::PathBuf;

use crate::config::Environment;

/// The folders of a user. Where there is no home, there may be none.
#[derive(Debug)]
pub(super) struct UserFolders {
    /// What is kept from one start to the next.
    pub(super) state: Option<PathBuf>,
    /// What goes with the user's session.
    runtime: Option<PathBuf>,
    /// What is kept for the user, whatever a command was told.
    home: Option<PathBuf>,
}

impl UserFolders {
    /// Those of this environment; the one for what is kept may be another.
    pub(super) fn of(environment: &Environment, state: Option<PathBuf>) -> Self {
        let folder = |name: &str| {
            let value = environment.get(name).filter(|value| !value.is_empty())?;
            Some(PathBuf::from(value)).filter(|path| path.is_absolute())
        };
        let home = folder("XDG_STATE_HOME").map(|folder| folder.join("pontoon"));
        let home = home.or_else(|| Some(folder("HOME")?.join(".local/state/pontoon")));
        let state = state.or_else(|| folder("MCPO_STATE_DIR")).or_else(|| home.clone());
        let runtime = folder("XDG_RUNTIME_DIR").map(|folder| folder.join("pontoon"));
        Self { state, runtime, home }
    }

    /// Where the bridges of this user meet.
    pub(super) fn meeting(&self) -> Option<PathBuf> {
        self.runtime.clone().or_else(|| Some(self.state.as_ref()?.join("run")))
    }

    /// Where bridges that run make themselves known: in the first of these that can be used. All commands of a user
    /// have the same, wherever they keep their state.
    pub(super) fn status(&self) -> Vec<PathBuf> {
        [&self.runtime, &self.home]
            .into_iter()
            .flatten()
            .map(|folder| folder.join("status"))
            .collect()
    }

    /// Where applications leave files by which they are found.
    pub(super) fn apps(&self) -> Option<PathBuf> {
        self.runtime.as_ref().or(self.state.as_ref()).map(|folder| folder.join("apps"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(variables: &[(&str, &str)], expected: [Option<&str>; 3]) {
        let folders = UserFolders::of(&Environment::new(variables.iter().copied()), None);
        let expected = expected.map(|folder| folder.map(PathBuf::from));
        assert_eq!([folders.state.clone(), folders.meeting(), folders.apps()], expected);
    }

    #[test]
    fn folders_are_those_that_the_user_s_session_names_or_in_the_home() {
        let home = ("HOME", "/home/a");
        let kept = "/home/a/.local/state/pontoon";
        let beneath = |name: &str| format!("{kept}/{name}");
        check(&[home], [Some(kept), Some(&beneath("run")), Some(&beneath("apps"))]);
        let session = [home, ("XDG_RUNTIME_DIR", "/run/a"), ("XDG_STATE_HOME", "/s")];
        check(&session, [Some("/s/pontoon"), Some("/run/a/pontoon"), Some("/run/a/pontoon/apps")]);
        check(&[("HOME", "relative")], [None, None, None]);
        check(&[], [None, None, None]);
    }

    #[test]
    fn bridges_are_found_wherever_they_keep_their_state() {
        let variables =
            [("HOME", "/home/a"), ("XDG_RUNTIME_DIR", "/run/a"), ("MCPO_STATE_DIR", "/s")];
        let folders = UserFolders::of(&Environment::new(variables), Some(PathBuf::from("/mine")));
        let expected = ["/run/a/pontoon/status", "/home/a/.local/state/pontoon/status"];
        assert_eq!(folders.status(), expected.map(PathBuf::from));
    }
}
