//! Where the bridge executable is: `pontoon`, or the program itself.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Access;

use crate::protocol::IpcError;

/// The word after `ipc` by which a program starts the spawner of its children, and no bridge.
#[cfg(feature = "spawner")]
pub(super) const SPAWNER: &str = "--spawner";

/// Names the bridge executable, if it is not the one on `PATH`.
const VARIABLE: &str = "PONTOON_BIN";

/// What it is called.
const NAME: &str = "pontoon";

/// Whether this program runs the bridge when it is started as one.
static IS_OWN_BRIDGE: AtomicBool = AtomicBool::new(false);

/// Notes that this program can be started as a bridge.
pub(super) fn note_dispatch() {
    IS_OWN_BRIDGE.store(true, Ordering::Relaxed);
}

/// The absolute path of the bridge executable, for [`Session::mcp_server_config`]: `explicit` if there is
/// one, else what the variable `PONTOON_BIN` names, else this program if it has called
/// [`dispatch`](super::dispatch), else `pontoon` in a directory of `PATH`. A name without a slash is looked
/// for in `PATH` as well.
///
/// [`Session::mcp_server_config`]: crate::Session::mcp_server_config
///
/// # Errors
///
/// [`IpcError::BridgeStartup`] says where it was looked for and what to do.
pub fn find(explicit: Option<&Path>) -> Result<PathBuf, IpcError> {
    Search {
        explicit,
        variable: env::var_os(VARIABLE).filter(|value| !value.is_empty()),
        own: IS_OWN_BRIDGE.load(Ordering::Relaxed).then(env::current_exe),
        path: env::var_os("PATH").unwrap_or_default(),
    }
    .find()
}

/// Runs the bridge executable as the process that starts and ends the children of this program. It may be
/// called in any thread, and takes some milliseconds.
///
/// # Errors
///
/// [`IpcError::BridgeStartup`] when it is no executable, none of pontoon, or one of another version.
#[cfg(feature = "spawner")]
pub fn start_spawner(executable: &Path) -> Result<pontoon_supervise::Starting, IpcError> {
    use std::error::Error as _;
    let started = pontoon_supervise::Spawner::run(executable, &["ipc".into(), SPAWNER.into()]);
    started.map_err(|error| {
        let why = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        IpcError::BridgeStartup(format!("{error}{why}"))
    })
}

/// What is known of where it may be.
struct Search<'a> {
    explicit: Option<&'a Path>,
    variable: Option<OsString>,
    own: Option<io::Result<PathBuf>>,
    path: OsString,
}

impl Search<'_> {
    fn find(&self) -> Result<PathBuf, IpcError> {
        // What is named is meant: another one in its place would be a surprise.
        if let Some(path) = self.explicit {
            return self.named(path).map_err(|why| missing(&[format!("as given: {why}")]));
        }
        if let Some(value) = &self.variable {
            let named = self.named(Path::new(value));
            return named.map_err(|why| missing(&[format!("{VARIABLE}: {why}")]));
        }
        let not_own = match &self.own {
            None => "does not call `pontoon_host::bridge::dispatch()`".to_owned(),
            Some(Err(error)) => format!("its path is not known: {error}"),
            // Its file may have been removed or replaced while it runs.
            Some(Ok(own)) => match check(own) {
                Ok(()) => return Ok(own.clone()),
                Err(why) => format!("{}: {why}", own.display()),
            },
        };
        let found = self.on_path(NAME.as_ref());
        found.map_err(|why| missing(&[format!("this program: {not_own}"), why]))
    }

    /// A path that was named, or a name to look for.
    fn named(&self, path: &Path) -> Result<PathBuf, String> {
        if path.components().count() == 1 && !path.has_root() && path != Path::new(".") {
            return self.on_path(path.as_os_str());
        }
        check(path).map_err(|why| format!("{}: {why}", path.display()))?;
        // The client may be in another directory.
        std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn on_path(&self, name: &OsStr) -> Result<PathBuf, String> {
        let directories = env::split_paths(&self.path).filter(|directory| directory.is_absolute());
        let found = directories.map(|it| it.join(name)).find(|path| check(path).is_ok());
        let name = name.display();
        found.ok_or_else(|| format!("PATH: no executable `{name}` in {}", self.path.display()))
    }
}

fn missing(tried: &[String]) -> IpcError {
    let tried = tried.join("\n  ");
    IpcError::BridgeStartup(format!(
        "the bridge executable was not found; it was looked for here:\n  {tried}\nInstall `pontoon`, name \
         it by {VARIABLE}, or call `pontoon_host::bridge::dispatch()` first in `main`."
    ))
}

/// Whether it is a file that may be executed.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("is no file".to_owned());
    }
    rustix::fs::access(path, Access::EXEC_OK).map_err(|error| format!("not executable: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory with an executable `pontoon`, an executable `mine`, and a file that is none.
    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for (name, mode) in [("pontoon", 0o755), ("mine", 0o700), ("text", 0o644)] {
            let path = place.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        place
    }

    fn search(path: &Path) -> Search<'static> {
        Search { explicit: None, variable: None, own: None, path: path.into() }
    }

    fn refusal(search: &Search<'_>) -> String {
        let error = search.find().unwrap_err();
        assert!(matches!(error, IpcError::BridgeStartup(_)));
        error.to_string()
    }

    #[test]
    fn each_place_comes_before_the_next() {
        let (place, other) = (place(), place());
        let [pontoon, mine] = ["pontoon", "mine"].map(|name| place.path().join(name));
        let mut search = search(place.path());
        assert_eq!(search.find().unwrap(), pontoon);
        search.own = Some(Ok(mine.clone()));
        assert_eq!(search.find().unwrap(), mine);
        search.variable = Some(other.path().join("mine").into());
        assert_eq!(search.find().unwrap(), other.path().join("mine"));
        let explicit = other.path().join("pontoon");
        search.explicit = Some(&explicit);
        assert_eq!(search.find().unwrap(), explicit);
        search.explicit = Some(Path::new("mine"));
        assert_eq!(search.find().unwrap(), mine, "a name is looked for in PATH");
    }

    #[test]
    fn what_is_named_and_missing_is_not_replaced() {
        let place = place();
        let text = place.path().join("text");
        for (named, expected) in [
            (place.path().join("none"), "No such file"),
            (place.path().to_owned(), "is no file"),
            (text, "not executable"),
            ("none".into(), "no executable `none`"),
        ] {
            let said =
                refusal(&Search { variable: Some(named.clone().into()), ..search(place.path()) });
            assert!(said.contains("PONTOON_BIN: ") && said.contains(expected), "{said}");
            let said = refusal(&Search { explicit: Some(&named), ..search(place.path()) });
            assert!(said.contains("as given: ") && said.contains(expected), "{said}");
        }
    }

    #[test]
    fn every_place_is_named_when_there_is_none() {
        let place = place();
        let empty = tempfile::tempdir().unwrap();
        let mut search = search(empty.path());
        let said = refusal(&search);
        let directory = empty.path().display().to_string();
        for expected in ["does not call", "PATH: no executable `pontoon` in", &directory] {
            assert!(said.contains(expected), "{said}");
        }
        search.own = Some(Ok(place.path().join("gone")));
        assert!(refusal(&search).contains("gone: No such file"));
        // The current directory, which an empty entry means, may be anyone's.
        search.path = "::.".into();
        assert!(refusal(&search).contains("PATH: no executable"));
    }
}
