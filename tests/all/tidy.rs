//! The architecture as tests: which way imports point, what every file opens with, what no file
//! is called.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Names that say nothing of what is in them.
const DRAWERS: [&str; 9] =
    ["utils", "util", "helpers", "common", "misc", "types", "models", "traits", "constants"];

/// The longest a file may be before it has to tell two stories.
const LONGEST: usize = 600;

/// The files that wait for a clock, each with its reason.
const SLEEPERS: [(&str, &str); 4] = [
    ("crates/supervise/tests/all/world.rs", "other processes can only be looked for"),
    ("tests/src/rig/wait.rs", "other processes can only be looked for"),
    ("tests/src/bin/", "a server under test is slow on purpose"),
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
fn imports_point_right() {
    let inside = |name: &str, module: &str| {
        name.starts_with(&format!("crates/pontoon/src/{module}/"))
            || name == format!("crates/pontoon/src/{module}.rs")
    };
    let names = |text: &str, module: &str| {
        let text: String = text.split_ascii_whitespace().collect();
        text.contains(&format!("crate::{module}")) || imports_in_braces(&text, module)
    };
    check("`back` names `session`, `front` or `app`", |name, text| {
        inside(name, "back") && ["session", "front", "app"].iter().any(|it| names(text, it))
    });
    check("`session` names `front` or `app`", |name, text| {
        inside(name, "session") && ["front", "app"].iter().any(|it| names(text, it))
    });
    check("`front` names `app`", |name, text| inside(name, "front") && names(text, "app"));
}

/// `use crate::{a, front::b}`, with the spaces taken out.
fn imports_in_braces(text: &str, module: &str) -> bool {
    text.split("crate::{").skip(1).any(|rest| {
        let group = rest.split(';').next().unwrap_or_default();
        group
            .split([',', '{', '}'])
            .any(|it| it == module || it.starts_with(&format!("{module}::")))
    })
}

#[test]
fn grouped_imports_are_seen() {
    assert!(imports_in_braces("usecrate::{call,front::http};", "front"));
    assert!(!imports_in_braces("usecrate::{call,frontier};fnf(){front}", "front"));
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
    let manifest = fs::read_to_string(root().join("crates/wire/Cargo.toml")).unwrap();
    for banned in ["tokio", "futures", "async", "hyper", "rustix", "libc"] {
        assert!(!manifest.contains(banned), "crates/wire depends on {banned}");
    }
    check("reads a clock, a file or a socket in `wire`", |name, text| {
        let banned =
            ["Instant::now", "SystemTime::now", "std::fs", "std::net", "std::io", "async fn"];
        // A test may make up a point in time; what ships may not.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        name.starts_with("crates/wire/src/") && banned.iter().any(|it| text.contains(it))
    });
}

#[test]
fn unsafe_code_is_only_where_it_may_be() {
    for name in ["crates/wire/src/lib.rs", "crates/pontoon/src/lib.rs"] {
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

/// The demo is a server, and so has an environment of its own; a log asks whether colours are wanted.
#[test]
fn only_the_configuration_reads_the_environment() {
    let may = [
        "crates/pontoon/src/config/",
        "crates/pontoon/src/cli/demo",
        "crates/pontoon/src/observe/log/",
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
