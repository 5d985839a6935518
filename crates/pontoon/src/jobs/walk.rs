//! A bounded walk through a folder a child wrote: no link followed, one descriptor at a time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::Dir;

use super::beneath::open_folder;
use super::names::MAX_DEPTH;
use super::node::FileNode;

/// How far a walk may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How many files and folders are looked at.
    pub entries: usize,
    /// How many folders deep.
    pub depth: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: 10_000, depth: MAX_DEPTH }
    }
}

/// One thing on the way.
pub(super) struct WalkStep<'a> {
    /// Where it is below the top, with `/` between; any bytes a file name may have.
    pub(super) path: &'a [u8],
    /// Its own name.
    pub(super) name: &'a [u8],
    pub(super) node: &'a FileNode,
    /// The folder it is in.
    pub(super) folder: &'a OwnedFd,
}

/// Shows `visit` everything beneath `top`, and goes into the folders for which it says so.
///
/// What vanishes on the way is left out. Gives whether all was seen within the bounds.
pub(super) fn walk(
    top: impl AsFd,
    bounds: Bounds,
    mut visit: impl FnMut(&WalkStep<'_>) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut waiting: Vec<(Vec<u8>, usize)> = vec![(Vec::new(), 0)];
    let (mut seen, mut saw_all) = (0, true);
    while let Some((path, depth)) = waiting.pop() {
        let folder = match depth {
            0 => top.as_fd().try_clone_to_owned()?,
            _ => match open_folder(&top, &path) {
                Ok(folder) => folder,
                // Gone, not for us to read, or meanwhile something else.
                Err(_) => {
                    saw_all = false;
                    continue;
                }
            },
        };
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if seen == bounds.entries {
                return Ok(false);
            }
            seen += 1;
            let Ok(node) = FileNode::at(&folder, name) else { continue };
            let path = if path.is_empty() { name.to_vec() } else { [&path, name].join(&b'/') };
            let enter = visit(&WalkStep { path: &path, name, node: &node, folder: &folder })?;
            if enter && node.is_folder() {
                match depth + 1 < bounds.depth {
                    true => waiting.push((path, depth + 1)),
                    false => saw_all = false,
                }
            }
        }
    }
    Ok(saw_all)
}
