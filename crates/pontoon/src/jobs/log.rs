//! `server.log`: what children said on their standard error, as much as there is room for.
//!
//! It lies beside `files/`, where no download leads.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use super::record::{LOG, open_record};
use crate::plain_file::write_whole;

/// How much a `server.log` holds.
pub(super) const MAX_LOG: usize = 256 << 10;

/// Writes these lines; of too many, the last.
pub(super) fn write(folder: &OwnedFd, lines: &[String]) -> io::Result<()> {
    write_after(folder, 0, lines)
}

/// Writes these lines behind those that are there.
pub(super) fn append(folder: &OwnedFd, lines: &[String]) -> io::Result<()> {
    let mut text = Vec::new();
    if let Some(file) = open_record(folder, LOG)? {
        // What we wrote is not much longer than that.
        file.take(2 * MAX_LOG as u64).read_to_end(&mut text)?;
    }
    let text = String::from_utf8_lossy(&text);
    let mut all: Vec<String> = text.lines().map(str::to_owned).collect();
    let left_out = all.first().and_then(|line| left_out(line));
    if left_out.is_some() {
        all.remove(0);
    }
    all.extend_from_slice(lines);
    write_after(folder, left_out.unwrap_or_default(), &all)
}

const LEFT_OUT: &str = " lines before these are left out]";

fn left_out(line: &str) -> Option<usize> {
    line.strip_prefix('[')?.strip_suffix(LEFT_OUT)?.parse().ok()
}

fn write_after(folder: &OwnedFd, left_out: usize, lines: &[String]) -> io::Result<()> {
    let mut room = MAX_LOG;
    let fits = |line: &&String| {
        room = room.saturating_sub(line.len() + 1);
        room > 0
    };
    let kept = lines.iter().rev().take_while(fits).count();
    let cut = lines.len() - kept;
    write_whole(folder, LOG, |file| {
        if left_out + cut > 0 {
            writeln!(file, "[{}{LEFT_OUT}", left_out.saturating_add(cut))?;
        }
        lines[cut..].iter().try_for_each(|line| writeln!(file, "{}", plain(line)))
    })
}

/// A line as it may be shown on a terminal.
fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => text.push(c),
            c if c.is_control() => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn a_log_that_grows_keeps_its_end_and_counts_what_it_lost() {
        let place = tempfile::tempdir().unwrap();
        let folder = OwnedFd::from(File::open(place.path()).unwrap());
        let said = |line: &str| append(&folder, &[line.to_owned()]).unwrap();
        let text = || fs::read_to_string(place.path().join(LOG)).unwrap();
        said("first");
        said("\u{1b}[31mred");
        assert_eq!(text(), "first\n\\u{1b}[31mred\n");
        let long = "x".repeat(MAX_LOG / 2);
        (0..5).for_each(|_| said(&long));
        said("last");
        assert!(text().starts_with("[6 lines before these are left out]\nx"));
        assert!(text().ends_with("x\nlast\n") && text().len() <= MAX_LOG + 100);
    }

    #[test]
    fn a_link_in_the_place_of_a_log_is_neither_read_nor_written() {
        let place = tempfile::tempdir().unwrap();
        let secret = place.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        std::os::unix::fs::symlink(&secret, place.path().join(LOG)).unwrap();
        append(&OwnedFd::from(File::open(place.path()).unwrap()), &["said".to_owned()]).unwrap();
        assert_eq!(fs::read_to_string(place.path().join(LOG)).unwrap(), "said\n");
        assert_eq!(fs::read_to_string(secret).unwrap(), "secret");
    }
}
