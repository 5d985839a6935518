//! Downloads: a file of a job, opened so that no name and no link leads anywhere else.

use std::fs::File;
use std::io;
use std::time::SystemTime;

use rustix::process::geteuid;
use uuid::Uuid;

use super::beneath::{open_folder, open_to_read};
use super::key::TOKEN;
use super::names::{is_served, media_type};
use super::node::FileNode;
use super::record::with_date;
use super::root::{FILES, Root, SESSIONS};
use super::shared::SharedStore;
use super::workspace::is_workspace_name;

/// A file to be sent. Its size is what it was when it was opened.
#[derive(Debug)]
pub struct Download {
    /// The open file. It stays readable when the job is collected meanwhile.
    pub file: File,
    /// How many bytes to send.
    pub size: u64,
    /// Its media type, by its name.
    pub mime: &'static str,
    /// The last part of its path.
    pub name: String,
    /// When it was last changed: between 1970 and 9999, whatever the child set.
    pub modified: SystemTime,
}

/// There is no such file, or it is not one to be served. Nobody is told which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such file")]
pub struct NotServed;

/// Opens the file `path` below `files/` of a job, or of a session's directory.
pub(super) fn open(store: &SharedStore, job: &str, path: &str) -> Result<Download, NotServed> {
    let folder = match session_of(store, job, path) {
        Some(session) => format!("{SESSIONS}/{session}/{FILES}"),
        None if is_job_name(job) => format!("{job}/{FILES}"),
        None => return Err(NotServed),
    };
    if !is_served(path) {
        return Err(NotServed);
    }
    open_plain(&store.root, &folder, path).ok().flatten().ok_or(NotServed)
}

/// The session whose file `path` this id opens: its name, and the token of the file behind it.
fn session_of<'i>(store: &SharedStore, id: &'i str, path: &str) -> Option<&'i str> {
    let (session, token) = id.split_at_checked(id.len().checked_sub(TOKEN)?)?;
    let is_ours = is_workspace_name(session) && store.key().ok()?.opens(token, session, path);
    is_ours.then_some(session)
}

/// Whether this is the id of a job in the one form we write it.
pub(super) fn is_job_name(name: &str) -> bool {
    Uuid::try_parse(name).is_ok_and(|id| id.get_version_num() == 4 && id.to_string() == name)
}

fn open_plain(root: &Root, folder: &str, path: &str) -> io::Result<Option<Download>> {
    let files = open_folder(root.fd(), folder.as_bytes())?;
    let child = FileNode::of(&files)?.owner;
    let file = open_to_read(&files, path.as_bytes())?;
    let node = FileNode::of(&file)?;
    let is_theirs = node.owner == child || node.owner == geteuid().as_raw();
    if !node.is_plain_file() || !is_theirs {
        return Ok(None);
    }
    Ok(Some(Download {
        file: File::from(file),
        size: node.size,
        mime: media_type(path),
        name: path.rsplit('/').next().unwrap_or(path).to_owned(),
        modified: with_date(node.modified),
    }))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::{chown, symlink};
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use rustix::fs::{CWD, FileType, Mode, makedev, mkfifoat, mknodat};

    use super::*;
    use crate::jobs::{Finished, Job, Store, StoreOptions};

    const SECRET: &str = "of somebody else";

    struct DownloadScene {
        store: Store,
        job: Job,
        _place: tempfile::TempDir,
    }

    /// A job with a few files, beside a secret in the jobs directory and one beyond it.
    fn scene() -> DownloadScene {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("secret"), SECRET).unwrap();
        let store = Store::open(&place.path().join("jobs"), StoreOptions::default()).unwrap();
        let job = store.new_job().unwrap();
        let now = SystemTime::now();
        job.finish(&Finished::new("demo", b"{\"prompt\":1}", now, now)).unwrap();
        job.write_log(&["a line".to_owned()]);
        fs::create_dir_all(job.files().join("folder/deeper")).unwrap();
        fs::create_dir(job.files().join(".tmp")).unwrap();
        for name in ["a.txt", "売上報告.pptx", "folder/deeper/b.csv", ".hidden", ".tmp/x"] {
            fs::write(job.files().join(name), "made by the call").unwrap();
        }
        DownloadScene { store, job, _place: place }
    }

    impl DownloadScene {
        fn check(&self, job: &str, name: &str, expected: Option<&str>) {
            let found = self.store.open_file(job, name).ok().map(|mut download| {
                let mut text = String::new();
                download.file.read_to_string(&mut text).unwrap();
                text
            });
            assert_eq!(found.as_deref(), expected, "{job} {name:?}");
        }

        fn refused(&self, name: &str) {
            self.check(&self.job.id().to_string(), name, None);
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.job.files().join(name)
        }
    }

    #[test]
    fn a_file_is_found_by_its_name() {
        let scene = scene();
        let job = scene.job.id().to_string();
        for name in ["a.txt", "売上報告.pptx", "folder/deeper/b.csv"] {
            scene.check(&job, name, Some("made by the call"));
        }
        let download = scene.store.open_file(&job, "folder/deeper/b.csv").unwrap();
        assert_eq!((download.size, download.name.as_str()), (16, "b.csv"));
        assert_eq!(download.mime, "text/csv; charset=utf-8");
    }

    #[test]
    fn the_newest_version_of_a_file_is_opened_by_its_own_token_only() {
        let scene = scene();
        let space = scene.store.workspace("excel", "user 1").unwrap();
        let other = scene.store.workspace("excel", "user 2").unwrap();
        for name in ["a.txt", "b.txt", ".hidden"] {
            fs::write(space.files().join(name), "first").unwrap();
        }
        symlink("a.txt", space.files().join("link")).unwrap();
        fs::write(other.files().join("a.txt"), "of another").unwrap();
        let id = |name: &str| scene.store.newest(&space, name).unwrap();
        scene.check(&id("a.txt"), "a.txt", Some("first"));
        fs::write(space.files().join("a.txt"), "second").unwrap();
        scene.check(&id("a.txt"), "a.txt", Some("second"));
        scene.check(&id("a.txt"), "b.txt", None);
        for name in [".hidden", "link", "../server.log", "..", "", "none"] {
            scene.check(&id(name), name, None);
        }
        let (id, token) = (id("a.txt"), &id("a.txt")[64..]);
        for wrong in [space.name(), token, &format!("{}{token}", other.name()), &id.to_uppercase()]
        {
            scene.check(wrong, "a.txt", None);
        }
        for at in 0..id.len() {
            let digit = if id.as_bytes()[at] == b'0' { "1" } else { "0" };
            let mut changed = id.clone();
            changed.replace_range(at..=at, digit);
            scene.check(&changed, "a.txt", None);
        }
        fs::remove_dir_all(space.files().parent().unwrap()).unwrap();
        scene.check(&id, "a.txt", None);
    }

    #[test]
    fn no_name_leads_out_of_the_files() {
        let scene = scene();
        let long = "n".repeat(256);
        let deep = vec!["folder"; 40].join("/");
        let names = [
            "",
            ".",
            "..",
            "/",
            "//",
            "../metadata.json",
            "../request.json",
            "../server.log",
            "../response.json",
            "metadata.json",
            "request.json",
            "server.log",
            "files/a.txt",
            "../files/a.txt",
            "./a.txt",
            "folder/../a.txt",
            "folder/../../request.json",
            "folder//deeper/b.csv",
            "/etc/passwd",
            "a.txt/",
            "/a.txt",
            "a.txt/.",
            "folder/",
            "folder",
            "folder/deeper",
            "..\\request.json",
            "folder\\deeper",
            "a.txt\0",
            "\0",
            "a.txt\n",
            "%2e%2e/request.json",
            "..%2frequest.json",
            "%252e%252e",
            "\u{ff0e}\u{ff0e}/request.json",
            "\u{2025}/request.json",
            "..\u{2215}request.json",
            ".hidden",
            ".tmp/x",
            ".tmp",
            "~/a.txt",
            "C:\\a.txt",
            "a.txt::$DATA",
            "A.TXT",
            "a.txt ",
            "\u{202e}txt.a",
            &long,
            &deep,
        ];
        for name in names {
            scene.refused(name);
        }
    }

    #[test]
    fn a_job_is_found_by_the_one_form_of_its_id() {
        let scene = scene();
        let id = scene.job.id();
        let forms = [
            id.to_string().to_uppercase(),
            id.simple().to_string(),
            id.braced().to_string(),
            id.urn().to_string(),
            format!(" {id}"),
            format!("{id} "),
            format!("{id}/"),
            format!("./{id}"),
            format!("{id}/files"),
            format!("{id}\0"),
            String::new(),
            ".".to_owned(),
            "..".to_owned(),
            ".sessions".to_owned(),
            ".trash".to_owned(),
            Uuid::new_v4().to_string(),
            Uuid::nil().to_string(),
            "*".to_owned(),
        ];
        for form in forms {
            scene.check(&form, "a.txt", None);
        }
        scene.check(&id.to_string(), "a.txt", Some("made by the call"));
    }

    #[test]
    fn a_file_of_a_session_is_not_served() {
        let scene = scene();
        let space = scene.store.workspace("demo", "key").unwrap();
        fs::write(space.files().join("a.txt"), SECRET).unwrap();
        let folder =
            space.files().parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        scene.check(&folder, "a.txt", None);
        scene.check(".sessions", &format!("{folder}/files/a.txt"), None);
    }

    #[test]
    fn links_are_not_followed() {
        let scene = scene();
        let other = scene.store.new_job().unwrap();
        fs::write(other.files().join("a.txt"), SECRET).unwrap();
        let theirs = other.files().join("a.txt");
        let targets = [
            Path::new("/etc/passwd"),
            Path::new("../metadata.json"),
            Path::new("a.txt"),
            &theirs,
            other.files(),
            Path::new("/"),
            Path::new(".."),
            Path::new("/proc/self/root"),
            Path::new("/proc/self/environ"),
        ];
        for target in targets {
            symlink(target, scene.path("link")).unwrap();
            for name in
                ["link", "link/a.txt", "link/etc/passwd", "link/metadata.json", "link/files/a.txt"]
            {
                scene.refused(name);
            }
            fs::remove_file(scene.path("link")).unwrap();
        }
    }

    #[test]
    fn a_files_folder_that_is_a_link_is_not_followed() {
        let scene = scene();
        let other = scene.store.new_job().unwrap();
        fs::write(other.files().join("b.txt"), SECRET).unwrap();
        fs::rename(scene.job.files(), scene.job.files().with_file_name("moved")).unwrap();
        symlink(other.files(), scene.job.files()).unwrap();
        scene.refused("b.txt");
    }

    #[test]
    fn a_second_name_of_a_file_is_not_served() {
        let scene = scene();
        fs::hard_link(scene.path("../../../secret"), scene.path("hard")).unwrap();
        scene.refused("hard");
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let scene = scene();
        let started = Instant::now();
        mkfifoat(CWD, scene.path("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(scene.path("socket"));
        if geteuid().is_root() {
            let null = makedev(1, 3);
            mknodat(CWD, scene.path("null"), FileType::CharacterDevice, Mode::RUSR, null).unwrap();
        }
        for name in ["pipe", "socket", "null", "folder"] {
            scene.refused(name);
        }
        assert!(started.elapsed() < Duration::from_secs(5), "it waited for somebody");
    }

    #[test]
    fn a_file_of_another_user_is_not_served() {
        let scene = scene();
        if !geteuid().is_root() {
            return;
        }
        let job = scene.job.id().to_string();
        chown(scene.path("a.txt"), Some(12345), None).unwrap();
        scene.refused("a.txt");
        scene.job.give_to(12345, 12345).unwrap();
        scene.check(&job, "a.txt", Some("made by the call"));
    }

    #[test]
    fn a_time_that_has_no_date_is_mended() {
        let scene = scene();
        let file = File::options().write(true).open(scene.path("a.txt")).unwrap();
        let job = scene.job.id().to_string();
        for odd in [SystemTime::UNIX_EPOCH - Duration::from_secs(9), far()] {
            // Not every file system takes it; what it takes is mended.
            drop(file.set_modified(odd));
            let modified = scene.store.open_file(&job, "a.txt").unwrap().modified;
            assert_eq!(with_date(modified), modified);
        }
    }

    fn far() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(300_000_000_000)
    }

    /// One thread swaps a name between a file and a way out, others ask for it.
    #[test]
    fn a_link_swapped_in_during_the_request_is_not_followed() {
        let scene = scene();
        let job = scene.job.id().to_string();
        let (over, served) = (AtomicBool::new(false), AtomicBool::new(false));
        let canary = scene.path("../../../secret").canonicalize().unwrap();
        fs::create_dir(scene.path("way")).unwrap();
        fs::write(scene.path("way/secret"), "mine").unwrap();
        symlink(canary.parent().unwrap(), scene.path("out")).unwrap();
        symlink(&canary, scene.path("link")).unwrap();
        fs::write(scene.path("file"), "mine").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    for (one, two) in [("way", "out"), ("file", "link")] {
                        let spare = scene.path("spare");
                        fs::rename(scene.path(one), &spare).unwrap();
                        fs::rename(scene.path(two), scene.path(one)).unwrap();
                        fs::rename(&spare, scene.path(two)).unwrap();
                    }
                }
            });
            let readers = [0, 1].map(|_| {
                scope.spawn(|| {
                    let until = Instant::now() + Duration::from_secs(2);
                    while Instant::now() < until {
                        for name in ["way/secret", "file"] {
                            if let Ok(mut download) = scene.store.open_file(&job, name) {
                                let mut text = String::new();
                                download.file.read_to_string(&mut text).unwrap();
                                assert_eq!(text, "mine");
                                served.store(true, Ordering::Relaxed);
                            }
                        }
                    }
                })
            });
            let ended = readers.map(std::thread::ScopedJoinHandle::join);
            over.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok), "a foreign file was read");
        });
        assert!(served.into_inner(), "the race was never won by the file, so nothing was shown");
    }
}
