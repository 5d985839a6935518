//! Where cgroups of children can be made: inside the cgroup this program runs in.
//!
//! Version 1 has a tree for each kind of limit, version 2 one for all. A machine may have both
//! mounted; then the limits are where their controllers are, and the other one only kills.
//!
//! Version 2 gives limits to cgroups only below one that has no processes itself. So this program
//! and the spawner move into one of their own first, when the first child needs that. It is done
//! only where nobody else is: a service that was delegated its cgroup, or a container of ours.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use super::trees::{Controllers, Trees};
use crate::support::CgroupSupport;

/// Where to make cgroups.
#[derive(Debug)]
pub(crate) struct Place {
    version: u8,
    /// The directory to make one in, for each kind of limit that can be given.
    pub(super) bases: Controllers<Option<PathBuf>>,
    /// The same in version 2, whether it has limits or not.
    pub(super) unified: Option<PathBuf>,
    /// Whether version 2 gives its limits already.
    is_prepared: bool,
}

/// What the names of ours begin with.
const PREFIX: &str = "pontoon-";

/// Where this program and the spawner are while children have cgroups of version 2.
const OUR_LEAF: &str = "pontoon-main";

impl Place {
    /// Looks for a place, by making a cgroup in each that comes into question.
    pub(crate) fn look() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
        let Trees { one, two } = Trees::find(&mounts, &membership);
        if let Some(two) = &two
            && let Some(place) = Self::in_two(two)
        {
            return Some(place);
        }
        let bases = Controllers {
            memory: one.memory.filter(|base| can_make_in(base)),
            processes: one.processes.filter(|base| can_make_in(base)),
            cpu: one.cpu.filter(|base| can_make_in(base)),
        };
        let unified = two.filter(|base| can_make_in(base));
        let version = if bases == Controllers::default() { 2 } else { 1 };
        (version == 1 || unified.is_some()).then_some(Self {
            version,
            bases,
            unified,
            is_prepared: true,
        })
    }

    /// A place in version 2, if that has limits to give.
    fn in_two(own: &Path) -> Option<Self> {
        let is_leaf = own.file_name().is_some_and(|name| name == OUR_LEAF);
        let base = if is_leaf { own.parent()? } else { own };
        let controllers = fs::read_to_string(base.join("cgroup.controllers")).ok()?;
        let given = |name: &str| {
            controllers.split_ascii_whitespace().any(|word| word == name).then(|| base.into())
        };
        let bases =
            Controllers { memory: given("memory"), processes: given("pids"), cpu: given("cpu") };
        // Only the first cgroup of all may have processes beside cgroups with limits.
        let is_first = !base.join("cgroup.type").exists();
        let is_ours = is_leaf || is_first || processes_in(base) == [process::id()];
        let is_writable =
            fs::File::options().write(true).open(base.join("cgroup.subtree_control")).is_ok();
        if bases == Controllers::default() || !is_ours || !is_writable || !can_make_in(base) {
            return None;
        }
        Some(Self { version: 2, bases, unified: Some(base.into()), is_prepared: false })
    }

    /// What can be limited here.
    pub(crate) fn support(&self) -> CgroupSupport {
        CgroupSupport {
            version: self.version,
            memory: self.bases.memory.is_some(),
            processes: self.bases.processes.is_some(),
            cpu: self.bases.cpu.is_some(),
        }
    }

    /// Makes it ready for the first cgroup: those that a killed spawner left are removed, and
    /// version 2 is made to give limits. To be called in the spawner.
    pub(super) fn prepare(&mut self) -> io::Result<()> {
        if self.is_prepared {
            return Ok(());
        }
        let base = self.unified.as_deref().ok_or(io::ErrorKind::NotFound)?;
        let wanted = [
            (self.bases.memory.is_some(), "+memory"),
            (self.bases.processes.is_some(), "+pids"),
            (self.bases.cpu.is_some(), "+cpu"),
        ];
        let enable = || {
            let mut all = wanted.iter().filter(|(is_given, _)| *is_given);
            all.try_for_each(|(_, word)| fs::write(base.join("cgroup.subtree_control"), word))
        };
        let leaf = base.join(OUR_LEAF);
        // Children may be started while the others are moved.
        for _ in 0..10 {
            match enable() {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                result => {
                    self.is_prepared = result.is_ok();
                    return result;
                }
            }
            match fs::create_dir(&leaf) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            for pid in processes_in(base) {
                // One that ended meanwhile needs no move.
                let _ = fs::write(leaf.join("cgroup.procs"), pid.to_string());
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// The name of a cgroup of this spawner.
    pub(super) fn name(&self, what: &str) -> String {
        let pid = process::id();
        format!("{PREFIX}{pid}-{}-{what}", start_of(pid).unwrap_or(0))
    }

    /// Removes what spawners that are no more could not. Only what is empty can be removed, so a
    /// mistake about who is alive harms nobody.
    pub(crate) fn sweep(&self) {
        let Controllers { memory, processes, cpu } = &self.bases;
        for base in [memory, processes, cpu, &self.unified].into_iter().flatten() {
            let Ok(entries) = fs::read_dir(base) else { continue };
            for name in entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()) {
                if owner_of(&name).is_some_and(|(pid, start)| start_of(pid) != Some(start)) {
                    let _ = fs::remove_dir(base.join(name));
                }
            }
        }
    }
}

/// The spawner that made a cgroup of this name, by its pid and when it was started.
fn owner_of(name: &str) -> Option<(u32, u64)> {
    let mut words = name.strip_prefix(PREFIX)?.split('-');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// When a process was started, in ticks since the machine was.
fn start_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything. The third field comes next, the 22nd is ours.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn processes_in(directory: &Path) -> Vec<u32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn can_make_in(base: &Path) -> bool {
    let directory = base.join(format!("{PREFIX}{}-0-try", process::id()));
    let made = fs::create_dir(&directory);
    let _ = fs::remove_dir(&directory);
    made.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like a cgroup of version 2 with these processes in it.
    fn pretend(base: &Path, processes: &[u32]) {
        let pids: Vec<String> = processes.iter().map(u32::to_string).collect();
        for (name, text) in [
            ("cgroup.controllers", "cpuset cpu io memory pids"),
            ("cgroup.procs", &pids.join("\n")),
            ("cgroup.subtree_control", ""),
            ("cgroup.type", "domain"),
        ] {
            fs::write(base.join(name), text).unwrap();
        }
    }

    #[test]
    fn version_two_is_used_where_nobody_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path();
        assert!(Place::in_two(base).is_none(), "no controllers");
        pretend(base, &[process::id(), 1]);
        assert!(Place::in_two(base).is_none(), "another process is there");
        pretend(base, &[process::id()]);
        let mut place = Place::in_two(base).unwrap();
        let expected = CgroupSupport { version: 2, memory: true, processes: true, cpu: true };
        assert_eq!(place.support(), expected);
        place.prepare().unwrap();
        let enabled = fs::read_to_string(base.join("cgroup.subtree_control")).unwrap();
        assert_eq!(enabled, "+cpu", "the last of three that the kernel would add up");
        // From our own leaf, the place is the same.
        let leaf = base.join(OUR_LEAF);
        fs::create_dir(&leaf).unwrap();
        assert_eq!(Place::in_two(&leaf).unwrap().unified.as_deref(), Some(base));
    }

    #[test]
    fn the_maker_of_a_cgroup_is_in_its_name() {
        assert_eq!(owner_of("pontoon-12-345-6"), Some((12, 345)));
        assert_eq!(owner_of("pontoon-main"), None);
        assert_eq!(owner_of("system.slice"), None);
        assert!(start_of(process::id()).is_some_and(|start| start > 0));
    }
}
