//! Where an application may be right now: at its address, at one of some ports, or where its own file says.
//!
//! An application that wants to be found leaves a file in a folder of its user, which names its process, its address and
//! its token. A file whose process is gone says nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};
use serde::Deserialize;

use crate::config::{AppOptions, AppPlace, AppTarget, Endpoint, Secret, TokenSource};
use crate::plain_file::{self, FileKind};

/// The longest file of an application.
const LONGEST: u64 = 64 * 1024;

/// As many files are looked at.
const MOST: usize = 1000;

/// Why it is not known where an application is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoTarget {
    #[error("no application called {name:?} runs{}", but(.others))]
    NotFound { name: String, others: Vec<String> },
    #[error("several applications run: name one of {}", .0.join(", "))]
    Several(Vec<String>),
}

impl NoTarget {
    /// What the user can do about it.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => super::dial::START_IT,
            Self::Several(_) => "choose one with --app",
        }
    }
}

fn but(others: &[String]) -> String {
    match others {
        [] => String::new(),
        others => format!(", but there are {}", others.join(", ")),
    }
}

/// What an application says of itself in its file.
#[derive(Debug, Deserialize)]
struct AppFile {
    pid: u32,
    url: String,
    name: String,
    token: Option<String>,
}

/// Where to look now, in this order.
pub(crate) fn targets(options: &AppOptions) -> Result<Vec<AppTarget>, NoTarget> {
    let with = |endpoint: Endpoint| options.target(endpoint, options.token.clone());
    Ok(match &options.place {
        AppPlace::At(endpoint) => vec![with(endpoint.clone())],
        AppPlace::Ports { first, last } => first.to_port(*last).into_iter().map(with).collect(),
        AppPlace::Named { name, folder } => vec![named(options, name, folder)?],
        // It is not looked for.
        AppPlace::Comes(_) => Vec::new(),
    })
}

fn named(options: &AppOptions, name: &str, folder: &Path) -> Result<AppTarget, NoTarget> {
    let running = running(folder);
    let mut found: Vec<_> =
        running.iter().filter(|(file, app)| file == name || app.name == name).collect();
    let names = |apps: &[&(String, AppFile)]| apps.iter().map(|(file, _)| file.clone()).collect();
    match (found.pop(), found.as_slice()) {
        (None, _) => {
            let others = running.iter().map(|(file, _)| file.clone()).collect();
            Err(NoTarget::NotFound { name: name.to_owned(), others })
        }
        (Some((_, app)), []) => {
            let token = app.token.as_ref().map(|token| TokenSource::Value(Secret::new(&**token)));
            let endpoint = app.url.parse().expect("parsed when it was read");
            Ok(options.target(endpoint, token.or_else(|| options.token.clone())))
        }
        (Some(last), first) => Err(NoTarget::Several(names(&[first, &[last]].concat()))),
    }
}

/// The applications that run, each with the name of its file.
fn running(folder: &Path) -> Vec<(String, AppFile)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut running: Vec<_> =
        entries.flatten().take(MOST).filter_map(|entry| read(&entry.path())).collect();
    running.sort_by(|(one, _), (other, _)| one.cmp(other));
    running
}

fn read(path: &Path) -> Option<(String, AppFile)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".json")?.to_owned();
    let app = read_own(path).and_then(|bytes| Ok(serde_json::from_slice::<AppFile>(&bytes)?));
    let app = app.inspect_err(|error| {
        tracing::debug!(file = %path.display(), %error, "not the file of an application");
    });
    let app = app.ok().filter(|app| lives(app.pid))?;
    // What a file says is believed of this machine alone.
    let endpoint = app.url.parse::<Endpoint>().ok()?;
    endpoint.is_local().then_some((name, app))
}

/// The bytes of a file that only its owner can have written or read.
fn read_own(path: &Path) -> std::io::Result<Vec<u8>> {
    let status = fs::symlink_metadata(path)?;
    if status.uid() != geteuid().as_raw() || status.mode() & 0o077 != 0 {
        return Err(std::io::Error::other("it is not its owner's alone (chmod 600)"));
    }
    plain_file::read(path, FileKind::Own, LONGEST)
}

fn lives(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| !matches!(test_kill_process(pid), Err(Errno::SRCH)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::{AppHeaders, CONNECT_WAIT, Silence, TlsFiles};

    fn options(place: AppPlace) -> AppOptions {
        let tls = TlsFiles::default();
        AppOptions {
            place,
            token: None,
            headers: AppHeaders::default(),
            tls,
            connect_wait: CONNECT_WAIT,
            silence: Silence::USUAL,
            close_codes: Vec::new(),
            over_http: false,
        }
    }

    /// Writes a file as an application does.
    fn leave(folder: &Path, file: &str, pid: u32, name: &str, url: &str) {
        let path = folder.join(file);
        let text =
            format!("{{\"pid\":{pid},\"url\":\"{url}\",\"name\":\"{name}\",\"token\":\"t\"}}");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn find(folder: &Path, name: &str) -> Result<String, NoTarget> {
        let place = AppPlace::Named { name: name.to_owned(), folder: folder.to_owned() };
        targets(&options(place)).map(|targets| targets[0].endpoint.to_string())
    }

    #[test]
    fn an_application_is_found_by_the_file_that_it_left() {
        let folder = tempfile::tempdir().unwrap();
        let (own, folder) = (std::process::id(), folder.path());
        let none = |others: &[&str]| {
            let others = others.iter().map(|&other| other.to_owned()).collect();
            Err(NoTarget::NotFound { name: "max".to_owned(), others })
        };
        assert_eq!(find(folder, "max"), none(&[]));
        leave(folder, "blender-1.json", own, "blender", "ws://127.0.0.1:9876");
        assert_eq!(find(folder, "max"), none(&["blender-1"]));
        leave(folder, "max-1.json", own, "max", "ws://127.0.0.1:7400");
        assert_eq!(find(folder, "max").unwrap(), "ws://127.0.0.1:7400/");
        leave(folder, "max-2.json", own, "max", "ws://127.0.0.1:7401");
        let several = NoTarget::Several(vec!["max-1".to_owned(), "max-2".to_owned()]);
        assert_eq!(find(folder, "max"), Err(several));
        assert_eq!(find(folder, "max-2").unwrap(), "ws://127.0.0.1:7401/");
    }

    #[test]
    fn files_of_dead_processes_of_other_machines_and_that_others_can_read_say_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (own, folder) = (std::process::id(), folder.path());
        leave(folder, "dead.json", i32::MAX.cast_unsigned(), "max", "ws://127.0.0.1:1");
        leave(folder, "none.json", 0, "max", "ws://127.0.0.1:1");
        leave(folder, "far.json", own, "max", "ws://example.org:1");
        leave(folder, "open.json", own, "max", "ws://127.0.0.1:1");
        fs::set_permissions(folder.join("open.json"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(folder.join("torn.json"), "{").unwrap();
        assert!(matches!(find(folder, "max"), Err(NoTarget::NotFound { .. })));
    }

    #[test]
    fn all_ports_of_a_range_are_looked_at() {
        let targets = targets(&options("ws://localhost:7-9/x".parse().unwrap())).unwrap();
        let urls: Vec<_> = targets.iter().map(|target| target.endpoint.to_string()).collect();
        assert_eq!(urls, ["ws://localhost:7/x", "ws://localhost:8/x", "ws://localhost:9/x"]);
    }
}
