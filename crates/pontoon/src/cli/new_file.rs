//! A file that a command leaves in the current folder, which overwrites none and has a name without a meaning there.

use std::fs::File;
use std::io;

use pontoon_supervise::plain_text;

/// A file of this name in the current folder is what `pontoon serve` would start next.
const OUR_OWN: &str = "mcp-servers.json";

/// Longer ones are no extensions, in bytes.
const LONGEST_EXTENSION: usize = 12;

/// A new file with the last part of this name, or with a number where that is there already; and what it is called. Servers
/// choose the name.
pub(super) fn new_file(name: &str) -> io::Result<(File, String)> {
    for to in names(name) {
        match File::create_new(&to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((made?, to)),
        }
    }
    Err(io::Error::other(format!("there are too many files called {}", harmless(name))))
}

/// What the file may be called, the best first.
fn names(name: &str) -> impl Iterator<Item = String> {
    let name = harmless(name);
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) => (stem.to_owned(), format!(".{extension}")),
        None => (name.clone(), String::new()),
    };
    let bare = Some(name).filter(|name| !name.eq_ignore_ascii_case(OUR_OWN));
    bare.into_iter().chain((2..1000).map(move |number| format!("{stem}-{number}{extension}")))
}

/// The last part of a name, if it is one that can be seen and that shells, tools and people take for a plain file.
fn harmless(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or(name);
    if matches!(last, "" | "." | "..") {
        return "file".to_owned();
    }
    if plain_text(last.to_owned()) != last {
        let is_plain = |it: &&str| {
            it.len() <= LONGEST_EXTENSION && it.bytes().all(|b| b.is_ascii_alphanumeric())
        };
        let extension = last.rsplit_once('.').map(|(_, extension)| extension);
        let extension = extension.filter(is_plain).filter(|it| !it.is_empty());
        return extension.map_or("file".to_owned(), |it| format!("file.{it}"));
    }
    // A hidden file, which many tools read by themselves, or an option.
    if last.starts_with(['.', '-']) { format!("file{last}") } else { last.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: &str) {
        assert_eq!(names(name).next().as_deref(), Some(expected), "{name:?}");
    }

    #[test]
    fn plain_names_stay() {
        check("Sales.md", "Sales.md");
        check("a/b/売上 報告.pptx", "売上 報告.pptx");
        check("README", "README");
        assert_eq!(names("a.tar.gz").nth(1).as_deref(), Some("a.tar-2.gz"));
    }

    #[test]
    fn a_server_chooses_no_name_that_means_something_here() {
        check(".mcp.json", "file.mcp.json");
        check("x/.bashrc", "file.bashrc");
        check("-rf", "file-rf");
        check("mcp-servers.json", "mcp-servers-2.json");
        check("/x/MCP-Servers.json", "MCP-Servers-2.json");
        for name in ["", ".", "..", "a/", "a/.."] {
            check(name, "file");
        }
    }

    #[test]
    fn names_that_deceive_become_plain() {
        check("a\u{1b}]0;owned\u{7}.md", "file.md");
        check("invoice\u{202e}fdp.exe", "file.exe");
        check("a\u{2066}b", "file");
        check("a\nb.md", "file.md");
        check("a.m\u{202e}d", "file");
        check("a\u{7}.", "file");
        check("a\u{7}.averyverylongextension", "file");
    }
}
