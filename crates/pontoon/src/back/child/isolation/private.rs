//! What is Pontoon's own, left out of the folders that a child may reach.
//!
//! Landlock only ever gives: who may read a folder may read all below it. So a folder that holds
//! something private, as the one that a program lies in may, is replaced by what is beside that.

use std::path::{Path, PathBuf};

/// With more than this many things beside what is private, none is given.
const MOST: usize = 512;

/// Paths that a child may reach.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenPaths {
    /// As they were named: one that is missing is told.
    pub(super) named: Vec<PathBuf>,
    /// What is beside something private: one that is missing has gone since, which is fine.
    pub(super) beside: Vec<PathBuf>,
}

impl OpenPaths {
    /// Without what is private. What is named to the letter stays open: somebody wants it so.
    pub(super) fn new(paths: impl IntoIterator<Item = PathBuf>, private: &[PathBuf]) -> Self {
        let mut open = Self::default();
        for path in paths {
            match path.canonicalize() {
                Ok(real) if holds(&real, private) => {
                    let mut beside = Vec::new();
                    if !add_beside(&real, private, &mut beside) {
                        let folder = path.display();
                        tracing::warn!(%folder, "a folder with much beside Pontoon's own stays shut");
                        continue;
                    }
                    open.beside.extend(beside);
                }
                _ => open.named.push(path),
            }
        }
        open
    }
}

/// Whether something private is below this folder.
pub(super) fn holds(folder: &Path, private: &[PathBuf]) -> bool {
    private.iter().any(|path| path != folder && path.starts_with(folder))
}

/// Adds what is in a folder beside what is private; `false` if it is too much.
fn add_beside(folder: &Path, private: &[PathBuf], beside: &mut Vec<PathBuf>) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else { return true };
    for entry in entries.flatten() {
        let path = entry.path();
        // What a link leads to is not in this folder, so it was not open before either.
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) || private.contains(&path) {
            continue;
        }
        if !holds(&path, private) {
            beside.push(path);
        } else if !add_beside(&path, private, beside) {
            return false;
        }
        if beside.len() > MOST {
            return false;
        }
    }
    true
}

/// Where a path leads, as far as it is there already.
pub fn real(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(path), ..) => path,
        (Err(_), Some(folder), Some(name)) => real(folder).join(name),
        (Err(_), ..) => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// What is open of `paths` in a folder with jobs, a configuration, a program and a link.
    fn check(paths: &[&str], expected: &[&str]) {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        for folder in ["app/bin", "app/lib", "app/data/jobs", "app/data/fonts", "other"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["app/config.json", "app/readme"] {
            fs::write(root.join(file), "").unwrap();
        }
        symlink("data/jobs", root.join("app/shortcut")).unwrap();
        symlink("app", root.join("alias")).unwrap();
        let private = [root.join("app/config.json"), root.join("app/data/jobs")];
        let open = OpenPaths::new(paths.iter().map(|path| root.join(path)), &private);
        let mut open: Vec<_> = open.named.into_iter().chain(open.beside).collect();
        open.sort();
        let expected: Vec<_> = expected.iter().map(|path| root.join(path)).collect();
        assert_eq!(open, expected);
    }

    #[test]
    fn what_holds_nothing_private_is_open_as_it_is() {
        check(&["other", "app/bin"], &["app/bin", "other"]);
    }

    #[test]
    fn what_is_private_is_left_out_of_what_holds_it() {
        let beside = ["app/bin", "app/data/fonts", "app/lib", "app/readme"];
        check(&["app"], &beside);
        check(&["alias"], &beside);
        check(&["app/data"], &["app/data/fonts"]);
        check(&[""], &[&beside[..], &["other"]].concat());
    }

    #[test]
    fn what_is_named_to_the_letter_is_open() {
        check(&["app/config.json", "app/data/jobs"], &["app/config.json", "app/data/jobs"]);
    }

    #[test]
    fn a_place_that_is_still_to_be_made_is_known_by_where_it_will_be() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir(root.join("there")).unwrap();
        symlink("there", root.join("alias")).unwrap();
        assert_eq!(real(&root.join("alias/state/x")), root.join("there/state/x"));
    }
}
