//! What the process opened while it was asked: files in its folder, and connections. Where the system does not tell,
//! nothing is known.

use crate::doctor::recommend::Evidence;
use crate::doctor::visit::Visit;
use std::collections::HashSet;
use std::fs;
use std::path::Path;

/// Looks at the folder and the sockets of the process.
pub(super) async fn look(visit: &Visit, evidence: &mut Evidence) {
    let Some(child) = visit.child() else { return };
    let (pid, folder) = (child.id(), child.directory().map(Path::to_owned));
    let looked = tokio::task::spawn_blocking(move || {
        let files = folder.and_then(|folder| fs::read_dir(folder).ok());
        let files = files.into_iter().flatten().filter_map(Result::ok);
        let files: Vec<_> = files.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
        (files, has_connections(pid))
    });
    if let Ok((files, connections)) = looked.await {
        (evidence.files, evidence.has_connections) = (files, connections);
    }
}

/// Whether a process, or one below it, has a socket of the network; `None` where that cannot be seen.
fn has_connections(pid: u32) -> Option<bool> {
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        next += 1;
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        let children = children.unwrap_or_default();
        family.extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
    }
    let mut own = HashSet::new();
    for pid in &family {
        let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        for entry in open.filter_map(Result::ok) {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let target = target.to_string_lossy().into_owned();
            if let Some(inode) = target.strip_prefix("socket:[").and_then(|it| it.strip_suffix(']'))
            {
                own.insert(inode.to_owned());
            }
        }
    }
    let mut is_seen = false;
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/net/{table}")) else { continue };
        is_seen = true;
        let inodes = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9));
        if inodes.into_iter().any(|inode| own.contains(inode)) {
            return Some(true);
        }
    }
    is_seen.then_some(false)
}
