//! Where a program and what it needs lie: its own folder, that of its interpreter, and the
//! installation each belongs to.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::config::Environment;
use crate::plain_file::{self, FileKind};

/// The folders that a program needs to read.
pub(super) fn homes_of(program: &Path, environment: &Environment) -> Vec<PathBuf> {
    let mut homes = Vec::new();
    let interpreter = interpreter_of(program, environment);
    for path in [Some(program.to_owned()), interpreter].into_iter().flatten() {
        for path in [path.canonicalize().ok(), Some(path)].into_iter().flatten() {
            let Some(folder) = path.parent() else { continue };
            // Programs of an installation are in `bin`, and the rest of it beside that; those that
            // choose among several versions are in `shims`. But a person's own `bin` must not open
            // all that is theirs.
            let is_bin = folder.file_name().is_some_and(|name| name == "bin" || name == "shims");
            let home = match folder.parent() {
                Some(home) if is_bin && !is_of_a_person(home, environment) => home,
                _ => folder,
            };
            if home.parent().is_some() && !homes.iter().any(|known| known == home) {
                homes.push(home.to_owned());
            }
        }
    }
    homes
}

/// Whether a folder may be somebody's home, or holds everything.
fn is_of_a_person(folder: &Path, environment: &Environment) -> bool {
    let own = environment.get("HOME").is_some_and(|home| folder == Path::new(home));
    own || folder.components().count() <= 2 || folder.parent() == Some(Path::new("/home"))
}

/// The program that a script names in its first line, looked up where `env` looks.
fn interpreter_of(program: &Path, environment: &Environment) -> Option<PathBuf> {
    let file = plain_file::open(program, FileKind::Regular).ok()?;
    let mut line = String::new();
    BufReader::new(file.take(512)).read_line(&mut line).ok()?;
    let mut words = line.strip_prefix("#!")?.split_whitespace();
    let command = Path::new(words.next()?);
    if command.file_name().is_some_and(|name| name == "env") {
        let wanted = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        let path = environment.get("PATH")?;
        let mut places = std::env::split_paths(path).map(|folder| folder.join(wanted));
        return places.find(|place| place.is_absolute() && place.is_file());
    }
    command.is_absolute().then(|| command.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The homes of a script at `place` with this first line.
    fn check(place: &str, line: &str, expected: &str, closed: &[&str]) {
        let root = tempfile::tempdir().unwrap();
        let script = root.path().join(place);
        std::fs::create_dir_all(script.parent().unwrap()).unwrap();
        std::fs::write(&script, line).unwrap();
        let homes = homes_of(&script, &Environment::of_process());
        assert!(homes.contains(&root.path().join(expected)), "{homes:?}");
        for closed in closed {
            assert!(!homes.contains(&root.path().join(closed)), "{closed}: {homes:?}");
        }
        assert!(!homes.contains(&PathBuf::from("/")), "{homes:?}");
    }

    #[test]
    fn a_script_brings_its_whole_installation() {
        check("venv/bin/serve", "#!/bin/sh -e\n", "venv", &[""]);
        check("versions/shims/python3", "#!/usr/bin/env -S A=1 bash\n", "versions", &[""]);
        check("tools/serve.py", "#!/usr/bin/env no-such-interpreter\n", "tools", &[""]);
    }

    #[test]
    fn a_script_brings_its_interpreter() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("python/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("python3"), "").unwrap();
        let script = root.path().join("serve");
        std::fs::write(&script, format!("#!{}\n", bin.join("python3").display())).unwrap();
        assert!(
            homes_of(&script, &Environment::of_process()).contains(&root.path().join("python"))
        );
        let env = interpreter_of(Path::new("/usr/bin/env"), &Environment::default());
        assert_eq!(env, None, "a program that is no script has none");
        std::fs::write(&script, "#!/usr/bin/env sh\n").unwrap();
        assert!(
            interpreter_of(&script, &Environment::of_process())
                .is_some_and(|sh| sh.ends_with("sh") && sh.is_absolute())
        );
    }

    #[test]
    fn a_program_of_a_person_opens_no_home() {
        for home in ["/root", "/home/me", "/Users"] {
            assert!(is_of_a_person(Path::new(home), &Environment::default()), "{home}");
        }
        assert!(!is_of_a_person(Path::new("/opt/tools/venv"), &Environment::default()));
    }
}
