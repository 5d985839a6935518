//! The architecture as tests: which way imports point, what every file opens with, what no file
//! is called.

mod imports;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Names that say nothing of what is in them.
const DRAWERS: [&str; 9] =
    ["utils", "util", "helpers", "common", "misc", "types", "models", "traits", "constants"];

/// The longest a file may be before it has to tell two stories.
const LONGEST: usize = 600;

/// The files that wait for a clock, each with its reason.
const SLEEPERS: [(&str, &str); 6] = [
    ("crates/supervise/tests/all/world.rs", "other processes can only be looked for"),
    ("tests/src/rig/wait.rs", "other processes can only be looked for"),
    ("tests/src/bin/", "a server under test is slow on purpose"),
    ("tests/src/live_app", "an application is slow on purpose, and waits for its port"),
    ("tests/src/seed_app.rs", "an application is slow on purpose"),
    ("tests/all/tidy.rs", "looks for the words"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the workspace")
}

/// Every source file of the workspace by its path from the root, without what was built.
fn sources() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut next: Vec<PathBuf> =
        ["crates", "tests", "fuzz", "benches"].iter().map(|folder| root().join(folder)).collect();
    while let Some(folder) = next.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            let is_built = path.ends_with("target") || path.ends_with("node_modules");
            if path.is_dir() && !is_built {
                next.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(found.len() > 10, "only {} files were found", found.len());
    found
}

/// Fails with every file that breaks a rule.
fn check(rule: &str, broken: impl Fn(&str, &str) -> bool) {
    let sources = sources();
    let broken: Vec<_> = sources.iter().filter(|(name, text)| broken(name, text)).collect();
    let names: Vec<_> = broken.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.is_empty(), "{rule}:\n  {}", names.join("\n  "));
}

#[test]
fn every_file_says_what_it_is_for() {
    check("no `//!` on the first line", |_, text| !text.starts_with("//! "));
    check("only a stub", |_, text| text.starts_with("//! stub"));
}

#[test]
fn no_file_is_too_long() {
    check("longer than 600 lines", |_, text| text.lines().count() > LONGEST);
}

#[test]
fn no_file_is_a_drawer() {
    check("a name that says nothing", |name, _| {
        name.split(['/', '.']).any(|part| DRAWERS.contains(&part))
    });
}

#[test]
fn a_type_name_means_one_thing() {
    for name in ["wire", "schema", "supervise", "host", "pontoon"] {
        let root = format!("crates/{name}/src/");
        let sources = sources();
        let of_crate = sources.iter().filter(|(path, _)| path.starts_with(&root));
        let twice = declared_twice(of_crate.map(|(path, text)| (path.as_str(), text.as_str())));
        assert!(twice.is_empty(), "types of one name in {name}:\n  {}", twice.join("\n  "));
    }
}

#[test]
fn a_second_type_of_one_name_is_seen() {
    let a = ("a.rs", "pub(crate) struct State {\n}\n/// struct Open\nenum Open {}\n");
    let b = ("b.rs", "#[derive(Debug)]\npub enum State<T> {}\n    type Open = u8;\n");
    let c = ("c.rs", "#[cfg(test)]\nmod tests {\nstruct Open;\n}\n");
    assert_eq!(declared_twice([a, b, c]), ["State: a.rs, b.rs"]);
}

/// The types that are declared in more than one file, outside of tests.
fn declared_twice<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut homes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let is_product = |path: &str| !path.contains("tests/") && !path.ends_with("tests.rs");
    for (path, text) in files.into_iter().filter(|(path, _)| is_product(path)) {
        let text = text.split("\nmod tests {").next().unwrap_or_default();
        for name in text.lines().filter_map(declared_type) {
            let files = homes.entry(name).or_default();
            if !files.contains(&path) {
                files.push(path);
            }
        }
    }
    let twice = homes.into_iter().filter(|(_, files)| files.len() > 1);
    twice.map(|(name, files)| format!("{name}: {}", files.join(", "))).collect()
}

/// The name of the type that a line at the left margin declares.
fn declared_type(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let (kind, rest) = line.split_once(' ')?;
    let is_type = ["struct", "enum", "union", "trait", "type"].contains(&kind);
    let end = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
    is_type.then_some(&rest[..end])
}

#[test]
fn tests_do_not_sleep() {
    check("`sleep(Duration` where nobody said why", |name, text| {
        let is_test =
            name.starts_with("tests/") || name.contains("/tests/") || text.contains("#[test]");
        let tests = text.split_once("#[cfg(test)]").map_or("", |(_, tests)| tests);
        let text = if name.contains("tests/") { text } else { tests };
        let may = SLEEPERS.iter().any(|(place, _)| name.starts_with(place));
        is_test && !may && (text.contains("sleep(Duration") || text.contains("sleep(std::time"))
    });
}

#[test]
fn the_protocol_does_no_input_or_output() {
    for name in ["wire", "schema"] {
        let manifest =
            fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
        for banned in ["tokio", "futures", "async", "hyper", "rustix", "libc"] {
            assert!(!manifest.contains(banned), "crates/{name} depends on {banned}");
        }
    }
    check("reads a clock, a file or a socket in `wire` or `schema`", |name, text| {
        let banned =
            ["Instant::now", "SystemTime::now", "std::fs", "std::net", "std::io", "async fn"];
        // A test may make up a point in time; what ships may not.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        let is_pure = ["crates/wire/src/", "crates/schema/src/"]
            .iter()
            .any(|it| name.starts_with(it) && !name.ends_with("/tests.rs"));
        is_pure && banned.iter().any(|it| text.contains(it))
    });
}

#[test]
fn unsafe_code_is_only_where_it_may_be() {
    for name in ["crates/wire/src/lib.rs", "crates/schema/src/lib.rs", "crates/pontoon/src/lib.rs"]
    {
        let text = fs::read_to_string(root().join(name)).unwrap();
        assert!(text.contains("#![forbid(unsafe_code)]"), "{name} does not forbid unsafe code");
    }
    check("`unsafe` outside of `supervise`", |name, text| {
        let block = ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"];
        !name.starts_with("crates/supervise/")
            && name != "tests/all/tidy.rs"
            && block.iter().any(|it| text.contains(it))
    });
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    check("`unsafe {` without `SAFETY` close above", |name, text| {
        let lines: Vec<&str> = text.lines().collect();
        name.starts_with("crates/supervise/")
            && lines.iter().enumerate().any(|(at, line)| {
                let code = line.split("//").next().unwrap_or_default();
                let above = &lines[at.saturating_sub(8)..=at];
                code.contains("unsafe {") && !above.iter().any(|line| line.contains("SAFETY"))
            })
    });
}

#[test]
fn only_the_supervisor_starts_processes() {
    check("`Command::new` outside of `supervise`", |name, text| {
        name.starts_with("crates/")
            && !name.starts_with("crates/supervise/")
            && !name.contains("/benches/")
            && ["process::Command", "Command::new("].iter().any(|it| text.contains(it))
            && !text.contains("clap::Command")
    });
}

/// The demo is a server, and so has an environment of its own; a log asks whether colours are wanted; a test that writes a
/// page asks whether it is to.
#[test]
fn only_the_configuration_reads_the_environment() {
    let may = [
        "crates/pontoon/src/config/",
        "crates/pontoon/src/cli/demo",
        "crates/pontoon/src/observe/log/",
        "crates/pontoon/src/doctor/docs.rs",
    ];
    check("the environment is read outside of `config`", |name, text| {
        name.starts_with("crates/pontoon/src/")
            && !may.iter().any(|folder| name.starts_with(folder))
            && ["env::var(", "env::var_os(", "env::vars"].iter().any(|it| text.contains(it))
    });
}

#[test]
fn no_queue_is_without_bound() {
    check("an unbounded channel", |name, text| {
        name.starts_with("crates/") && text.contains("unbounded_channel")
    });
}

#[test]
fn the_map_names_every_file_of_the_rooms() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let words: Vec<_> = page.split('`').skip(1).step_by(2).map(str::trim).collect();
    check("not on the map in ARCHITECTURE.md", |name, _| {
        let rooms = ["front", "session", "back", "jobs"];
        let Some(path) = name.strip_prefix("crates/pontoon/src/") else { return false };
        let (room, file) = path.rsplit_once('/').unwrap_or_default();
        let is_of_room = rooms.contains(&room.split('/').next().unwrap_or_default());
        let stem = match file.strip_suffix(".rs").unwrap_or(file) {
            // A folder's own file stands for the folder.
            "mod" => room.rsplit('/').next().unwrap_or(room),
            "tests" | "pair" => return false,
            stem => stem,
        };
        // What is below a file of a room is named with it.
        let above = room.rsplit('/').next().unwrap_or(room);
        let is_named = |stem: &str| {
            let folder = format!("{stem}/");
            words.iter().any(|word| *word == stem || word.ends_with(&folder))
        };
        is_of_room && !is_named(stem) && (room.matches('/').count() < 2 || !is_named(above))
    });
}

/// A call can be followed: the walks name files that are there, and few enough to be read.
#[test]
fn a_call_passes_few_files() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, walks) = page.split_once("## A call, followed").unwrap();
    let (walks, _) = walks.split_once("\n## ").unwrap();
    let (stateless, stateful) = walks.split_once("for each chat").unwrap();
    for (walk, most) in [(stateless, 20), (stateful, 25)] {
        let rows = walk.lines().filter(|line| line.starts_with("| "));
        let files = rows.filter_map(|row| row.split('|').nth(2));
        let files: Vec<_> = files.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        let missing: Vec<_> = files
            .iter()
            .filter(|file| !root().join("crates/pontoon/src").join(file).is_file())
            .collect();
        assert!(missing.is_empty(), "there is no {missing:?}");
        assert!((most / 2..=most).contains(&files.len()), "{} files: {files:?}", files.len());
    }
}

/// The tests that `docs/host-tools.md` says prove a requirement.
#[test]
fn the_table_of_requirements_names_tests_that_exist() {
    let page = fs::read_to_string(root().join("docs/host-tools.md")).unwrap();
    let sources = sources();
    let rows = page
        .lines()
        .filter(|line| ["| FR-", "| SC-", "| edge"].iter().any(|it| line.starts_with(it)));
    let words: Vec<_> = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect();
    let tests: Vec<_> = words.into_iter().filter(|word| word.contains("::")).collect();
    assert!(tests.len() > 20, "only {} are named", tests.len());
    for test in tests {
        let (module, name) = test.rsplit_once("::").unwrap();
        let file = format!("tests/all/{}.rs", module.replace("::", "/"));
        let text = sources.get(&file).unwrap_or_else(|| panic!("{test}: there is no {file}"));
        assert!(text.contains(&format!("fn {name}(")), "{test} is not in {file}");
    }
}
