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

use crate::support::CgroupSupport;

/// Something for each kind of limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Controllers<T> {
    pub(crate) memory: T,
    pub(crate) processes: T,
    pub(crate) cpu: T,
}

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

/// The cgroups this process is in, as directories.
#[derive(Debug, Default, PartialEq, Eq)]
struct Trees {
    one: Controllers<Option<PathBuf>>,
    two: Option<PathBuf>,
}

impl Trees {
    /// From the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
    fn find(mounts: &str, membership: &str) -> Self {
        let two = mount(mounts, "cgroup2", None).zip(path_in(membership, None));
        let one = |controller: &str| {
            let mount = mount(mounts, "cgroup", Some(controller));
            let (mount, path) = mount.zip(path_in(membership, Some(controller)))?;
            mount.directory_of(path)
        };
        Self {
            one: Controllers { memory: one("memory"), processes: one("pids"), cpu: one("cpu") },
            two: two.and_then(|(mount, path)| mount.directory_of(path)),
        }
    }
}

/// A mounted tree: the cgroup at its root, and where that is seen.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
}

impl Mount<'_> {
    /// The directory of a cgroup, if it is below the root that is mounted.
    fn directory_of(&self, path: &str) -> Option<PathBuf> {
        let below = path.strip_prefix(self.root.trim_end_matches('/'))?;
        // A cgroup outside of our namespace begins with dots, and one beside the root has no slash.
        let is_below = below.is_empty() || below.starts_with('/');
        let is_plain = !below.split('/').any(|part| part == "..");
        (is_below && is_plain).then(|| PathBuf::from(self.point).join(below.trim_matches('/')))
    }
}

/// The first mount of a kind, with this controller among its options.
fn mount<'a>(mounts: &'a str, kind: &str, controller: Option<&str>) -> Option<Mount<'a>> {
    mounts.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let is_kind = right.next()? == kind;
        let mut options = right.nth(1).unwrap_or("").split(',');
        let has = controller.is_none_or(|controller| options.any(|option| option == controller));
        (is_kind && has).then_some(Mount { root, point })
    })
}

/// Where this process is in the tree of a controller, or in that of version 2.
fn path_in<'a>(membership: &'a str, controller: Option<&str>) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it = match controller {
            Some(controller) => controllers.split(',').any(|word| word == controller),
            None => controllers.is_empty(),
        };
        is_it.then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mounts: &str, membership: &str, one: [Option<&str>; 3], two: Option<&str>) {
        let [memory, processes, cpu] = one.map(|path| path.map(PathBuf::from));
        let expected =
            Trees { one: Controllers { memory, processes, cpu }, two: two.map(PathBuf::from) };
        assert_eq!(Trees::find(mounts, membership), expected);
    }

    #[test]
    fn version_two_alone_has_one_directory() {
        let mounts =
            "35 25 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        let membership = "0::/system.slice/pontoon.service\n";
        let two = "/sys/fs/cgroup/system.slice/pontoon.service";
        check(mounts, membership, [None; 3], Some(two));
    }

    #[test]
    fn version_one_has_a_directory_for_each_limit() {
        let mounts = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let membership = "8:pids:/\n4:memory:/a/b\n1:cpu,cpuacct:/c\n0::/\n";
        let one = [
            Some("/sys/fs/cgroup/memory/a/b"),
            Some("/sys/fs/cgroup/pids"),
            Some("/sys/fs/cgroup/cpu,cpuacct/c"),
        ];
        check(mounts, membership, one, Some("/sys/fs/cgroup/unified"));
    }

    #[test]
    fn a_container_sees_its_own_part_of_the_tree() {
        let mounts =
            "39 31 0:36 /docker/f00 /sys/fs/cgroup/pids ro,relatime - cgroup cgroup rw,pids";
        let pids = Some("/sys/fs/cgroup/pids/x");
        check(mounts, "8:pids:/docker/f00/x", [None, pids, None], None);
        // Neither what is beside that part nor what only begins like it is inside.
        check(mounts, "8:pids:/docker/f001", [None; 3], None);
        check(mounts, "8:pids:/docker", [None; 3], None);
        check(mounts, "8:pids:/docker/f00/../x", [None; 3], None);
    }

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
