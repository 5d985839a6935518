//! A file that a command leaves in the current folder, which overwrites none.

use std::fs::File;
use std::io;

/// A new file with the last part of this name, or with a number where that is there already; and what it is called.
pub(super) fn new_file(name: &str) -> io::Result<(File, String)> {
    let last = name.rsplit('/').next().unwrap_or(name);
    let is_name = !matches!(last, "" | "." | "..") && !last.contains(char::is_control);
    let last = if is_name { last } else { "file" };
    let (stem, extension) = match last.rsplit_once('.') {
        Some((stem, extension)) => (stem, format!(".{extension}")),
        None => (last, String::new()),
    };
    let names = (2..1000).map(|number| format!("{stem}-{number}{extension}"));
    for to in std::iter::once(last.to_owned()).chain(names) {
        match File::create_new(&to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return Ok((made?, to)),
        }
    }
    Err(io::Error::other(format!("there are too many files called {last}")))
}
