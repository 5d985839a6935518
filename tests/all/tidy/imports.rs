//! Which module of a crate names which: no circles, and nothing to the left.
//!
//! A source file is a module. It names another by a path (`use` or not); a name that a module only passes on
//! (`pub use`) counts for the module it comes from. What is compiled for tests alone does not count.

use std::collections::{BTreeMap, BTreeSet};

use super::sources;

/// The crates whose modules are looked at.
const CRATES: [&str; 4] = ["wire", "supervise", "host", "pontoon"];

/// Rooms in the order of the flow: each may name those behind it and none before it.
const FLOWS: [&[&str]; 2] = [
    &["app", "front", "session", "back"],
    &["back::call", "back::keep", "back::child", "back::conversation"],
];

#[test]
fn imports_point_right() {
    for (crate_name, modules) in crates() {
        let left = to_the_left(&modules.imports());
        assert!(left.is_empty(), "imports to the left in {crate_name}:\n  {}", left.join("\n  "));
    }
}

#[test]
fn imports_do_not_go_in_circles() {
    let mut told = Vec::new();
    for (crate_name, modules) in crates() {
        let imports = modules.imports();
        let circles = circles(&imports);
        told.extend(circles.iter().map(|circle| format!("{crate_name}: {}", circle.join(", "))));
    }
    assert!(told.is_empty(), "modules in a circle:\n  {}", told.join("\n  "));
}

#[test]
fn an_import_to_the_left_is_seen() {
    let left = |files: &[(&str, &str)]| to_the_left(&Modules::new(files).imports());
    let lease = ("back/keep/lease.rs", "pub struct Lease;");
    assert_eq!(
        left(&[lease, ("back/child/ready.rs", "use crate::back::keep::lease::Lease;")]),
        ["back::child::ready names back::keep::lease"]
    );
    assert_eq!(
        left(&[
            ("front/http.rs", "pub struct Site;"),
            ("session/mod.rs", "use crate::{call, front::http::Site};")
        ]),
        ["session names front::http"]
    );
    let right = ("back/call/run.rs", "fn f() { super::super::keep::lease::Lease; }");
    assert!(left(&[lease, right]).is_empty());
}

#[test]
fn a_circle_is_seen() {
    let check = |files: &[(&str, &str)], expected: &[&[&str]]| {
        assert_eq!(circles(&Modules::new(files).imports()), expected, "{files:?}");
    };
    let to_b = ("a.rs", "use crate::b::B;\npub struct A;");
    check(&[to_b, ("b.rs", "pub struct B(crate::a::A);")], &[&["a", "b"]]);
    check(&[to_b, ("b.rs", "pub struct B; // crate::a::A\n/* super::a::A */")], &[]);
    check(&[to_b, ("b.rs", "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }")], &[]);
    check(
        &[("a.rs", "use super::b::{self, c::C};"), ("b.rs", ""), ("b/c.rs", "use crate::a;")],
        &[&["a", "b::c"]],
    );
    // A parent that uses its child, which uses the parent.
    let child = ("a/b.rs", "use super::A;\npub struct B;");
    check(&[("a/mod.rs", "mod b;\nuse b::B;\npub struct A(B);"), child], &[&["a", "a::b"]]);
    check(&[("a/mod.rs", "mod b;\nfn f() { b::g(); }\npub struct A;"), child], &[&["a", "a::b"]]);
    // One that only passes its name on does not use it.
    check(&[("a/mod.rs", "mod b;\npub use b::B;\npub struct A;"), child], &[]);
    let passed_on = ("a/mod.rs", "mod b;\nmod c;\npub use b::{B, D};\npub use self::c::C;");
    let by_facade = ("a/c.rs", "use super::B;\npub struct C;");
    check(&[passed_on, ("a/b.rs", "pub struct B;\npub struct D;"), by_facade], &[]);
    check(
        &[passed_on, ("a/b.rs", "use crate::a::C;\npub struct B;"), by_facade],
        &[&["a::b", "a::c"]],
    );
}

type Imports = BTreeMap<String, BTreeSet<String>>;

fn crates() -> impl Iterator<Item = (&'static str, Modules)> {
    let sources = sources();
    CRATES.into_iter().map(move |name| {
        let root = format!("crates/{name}/src/");
        let of_crate = sources
            .iter()
            .filter_map(|(path, text)| Some((path.strip_prefix(&root)?, text.as_str())));
        (name, Modules::new(&of_crate.collect::<Vec<_>>()))
    })
}

/// The modules of a crate, each with its code.
struct Modules {
    code: BTreeMap<String, Vec<String>>,
    /// By module and name: where a name comes from that the module only passes on.
    passed_on: BTreeMap<(String, String), Vec<String>>,
}

impl Modules {
    fn new(files: &[(&str, &str)]) -> Self {
        let is_product = |path: &&str| {
            *path != "main.rs" && !path.ends_with("tests.rs") && !path.contains("tests/")
        };
        let files = files.iter().filter(|(path, _)| is_product(path));
        let code = files.map(|(path, text)| (module_of(path), tokens(text))).collect();
        let mut modules = Self { code, passed_on: BTreeMap::new() };
        let mut passed_on = BTreeMap::new();
        for (module, code) in &modules.code {
            for (path, is_passed_on) in modules.paths(module, code) {
                if let (true, Some(name)) = (is_passed_on, path.last()) {
                    passed_on.insert((module.clone(), name.clone()), path.clone());
                }
            }
        }
        modules.passed_on = passed_on;
        modules
    }

    /// What each module names.
    fn imports(&self) -> Imports {
        let named = |module: &String, code: &[String]| {
            let paths = self.paths(module, code).into_iter();
            let used = paths.filter(|(_, is_passed_on)| !is_passed_on);
            let homes = used.filter_map(|(path, _)| self.home(&path));
            homes.filter(|home| home != module).collect()
        };
        self.code.iter().map(|(module, code)| (module.clone(), named(module, code))).collect()
    }

    /// The module in which a path ends.
    fn home(&self, path: &[String]) -> Option<String> {
        let mut length = path.len();
        while !self.code.contains_key(&path[..length].join("::")) {
            length = length.checked_sub(1)?;
        }
        let module = path[..length].join("::");
        let name = path.get(length).cloned().unwrap_or_default();
        match self.passed_on.get(&(module.clone(), name)) {
            Some(origin) => self.home(origin),
            None => Some(module),
        }
    }

    /// The paths in a module's code, from the crate's root, and whether each is only passed on.
    fn paths(&self, module: &str, code: &[String]) -> Vec<(Vec<String>, bool)> {
        let mut paths = Vec::new();
        let here: Vec<String> =
            module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let mut at = 0;
        while at < code.len() {
            let is_start = at == 0 || code[at - 1] != "::";
            let Some(base) = self.base(&here, &code[at]).filter(|_| is_start) else {
                at += 1;
                continue;
            };
            let is_path = code.get(at + 1).is_some_and(|next| next == "::");
            let is_passed_on = at >= 2 && code[at - 1] == "use" && is_public(&code[..at - 1]);
            if is_path {
                let mut found = Vec::new();
                at = tree(code, at, &base, &mut found);
                paths.extend(found.into_iter().map(|path| (path, is_passed_on)));
            } else {
                at += 1;
            }
        }
        paths
    }

    /// Where a path begins whose first word is this.
    fn base(&self, here: &[String], word: &str) -> Option<Vec<String>> {
        match word {
            "crate" => Some(Vec::new()),
            "self" => Some(here.to_vec()),
            "super" => Some(here[..here.len().checked_sub(1)?].to_vec()),
            child => {
                let path: Vec<_> = here.iter().cloned().chain([child.to_owned()]).collect();
                self.code.contains_key(&path.join("::")).then_some(path)
            }
        }
    }
}

/// Whether what comes next is behind a `pub`, `pub(crate)` or the like.
fn is_public(before: &[String]) -> bool {
    match before {
        [.., last] if last == "pub" => true,
        [.., last] if last == ")" => {
            let open = before.iter().rposition(|it| it == "(");
            open.is_some_and(|at| at > 0 && before[at - 1] == "pub")
        }
        _ => false,
    }
}

/// Reads a path with its groups from `at` on, where its first word is; `base` is what that word stands for.
/// Gives where it ends.
fn tree(code: &[String], mut at: usize, base: &[String], found: &mut Vec<Vec<String>>) -> usize {
    let mut path = base.to_vec();
    at += 1;
    while code.get(at).is_some_and(|it| it == "::") {
        at += 1;
        match code.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while let Some(word) = code.get(at).filter(|word| *word != "}") {
                    at = match word.as_str() {
                        "," => at + 1,
                        "self" => {
                            found.push(path.clone());
                            at + 1
                        }
                        word => {
                            let inner = [&path[..], &[word.to_owned()]].concat();
                            tree(code, at, &inner, found)
                        }
                    };
                }
                return at + 1;
            }
            Some("super") => drop(path.pop()),
            Some("*" | "<") | None => break,
            Some(word) => path.push(word.to_owned()),
        }
        at += 1;
    }
    // A name of its own for it here.
    if code.get(at).is_some_and(|it| it == "as") {
        at += 2;
    }
    found.push(path);
    at
}

fn module_of(path: &str) -> String {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    if path == "lib" { String::new() } else { path.replace('/', "::") }
}

/// The words and signs of a file, without comments, texts and what is only for tests.
fn tokens(text: &str) -> Vec<String> {
    let text = text.split("\nmod tests {").next().unwrap_or_default();
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if first == '"' {
            text_length(rest)
        } else if rest.starts_with("r#\"") {
            rest.find("\"#").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with("'\"'") {
            3
        } else if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        let is_code = !first.is_whitespace() && first != '"' && !token.starts_with("/");
        if is_code && !token.starts_with("r#\"") {
            tokens.push(token.to_owned());
        }
        rest = after;
    }
    tokens
}

/// The length of a text in quotes.
fn text_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return at + 1,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

fn to_the_left(imports: &Imports) -> Vec<String> {
    let is_in = |module: &str, room: &str| {
        module.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let mut left = Vec::new();
    for (module, named) in imports {
        for (flow, target) in FLOWS.iter().flat_map(|flow| named.iter().map(move |it| (flow, it))) {
            let place = |of: &str| flow.iter().position(|room| is_in(of, room));
            if let (Some(from), Some(to)) = (place(module), place(target))
                && to < from
            {
                left.push(format!("{module} names {target}"));
            }
        }
    }
    left
}

/// The modules that can be reached from themselves, in groups that reach each other.
fn circles(imports: &Imports) -> Vec<Vec<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (module.as_str(), reachable(imports, module))).collect();
    let mut circles: Vec<Vec<&str>> = Vec::new();
    for (module, _) in reached.iter().filter(|(module, all)| all.contains(*module)) {
        let reach_each_other =
            |other: &&str| reached[*other].contains(module) && reached[module].contains(*other);
        match circles.iter_mut().find(|circle| reach_each_other(&circle[0])) {
            Some(circle) => circle.push(module),
            None => circles.push(vec![module]),
        }
    }
    circles
}

fn reachable<'i>(imports: &'i Imports, from: &str) -> BTreeSet<&'i str> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&str> = imports[from].iter().map(String::as_str).collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(imports.get(module).into_iter().flatten().map(String::as_str));
        }
    }
    found
}
