//! Where the cgroups of this program are seen: its place in the trees that are mounted, and how much memory
//! they allow.

use std::fs;
use std::path::PathBuf;

/// How many bytes each cgroup of this program allows, up to the root of what can be seen.
pub(crate) fn memory_limits() -> Vec<u64> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let [mounts, membership] =
        ["/proc/self/mountinfo", "/proc/self/cgroup"].map(|path| read(path.into()));
    let files = limit_files(&mounts, &membership).into_iter();
    // One without a limit says so with a word.
    files.filter_map(|path| read(path).trim().parse().ok()).collect()
}

/// The files that say what the cgroups of a process allow, of both versions.
fn limit_files(mounts: &str, membership: &str) -> Vec<PathBuf> {
    let kinds =
        [("cgroup", Some("memory"), "memory.limit_in_bytes"), ("cgroup2", None, "memory.max")];
    let mut files = Vec::new();
    for (kind, controller, name) in kinds {
        let mount = mount(mounts, kind, controller).zip(path_in(membership, controller));
        let Some((mount, path)) = mount else { continue };
        // One that is outside of what is mounted has at least that limit.
        let own = mount.directory_of(path).unwrap_or_else(|| mount.point.into());
        let up = own.ancestors().take_while(|part| part.starts_with(mount.point));
        files.extend(up.map(|part| part.join(name)));
    }
    files
}

/// Something for each kind of limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Controllers<T> {
    pub(crate) memory: T,
    pub(crate) processes: T,
    pub(crate) cpu: T,
}

/// The cgroups this process is in, as directories.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Trees {
    pub(super) one: Controllers<Option<PathBuf>>,
    pub(super) two: Option<PathBuf>,
}

impl Trees {
    /// From the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`.
    pub(super) fn find(mounts: &str, membership: &str) -> Self {
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

/// The first mount of a kind, with this controller among its options. What was mounted over another hides
/// that.
fn mount<'a>(mounts: &'a str, kind: &str, controller: Option<&str>) -> Option<Mount<'a>> {
    let point_of = |line: &'a str| line.split(' ').nth(4);
    mounts.lines().enumerate().find_map(|(at, line)| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let is_kind = right.next()? == kind;
        let mut options = right.nth(1).unwrap_or("").split(',');
        let has = controller.is_none_or(|controller| options.any(|option| option == controller));
        let is_seen = || !mounts.lines().skip(at + 1).any(|later| point_of(later) == Some(point));
        (is_kind && has && is_seen()).then_some(Mount { root, point })
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
        let over = format!("38 30 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n{mounts}");
        check(&over, "8:pids:/docker/f00/x", [None, pids, None], None);
    }

    #[test]
    fn every_cgroup_up_to_the_root_has_a_say() {
        let check = |mounts: &str, membership: &str, expected: &[&str]| {
            let files = limit_files(mounts, membership);
            assert_eq!(files, expected.iter().map(PathBuf::from).collect::<Vec<_>>());
        };
        let two = "35 25 0:30 / /r rw - cgroup2 cgroup2 rw";
        check(two, "0::/a/b\n", &["/r/a/b/memory.max", "/r/a/memory.max", "/r/memory.max"]);
        check(two, "0::/\nbroken\n", &["/r/memory.max"]);
        // Another tree of version 1 does not matter, wherever it is.
        let one = "35 31 0:32 / /m rw - cgroup cgroup rw,cpu,memory\n\
                   39 31 0:36 / /p rw - cgroup cgroup rw,pids\n\
                   41 31 0:38 / /u rw - cgroup2 cgroup2 rw\n";
        let name = "memory.limit_in_bytes";
        let expected = [format!("/m/x/{name}"), format!("/m/{name}"), "/u/memory.max".into()];
        check(one, "5:cpu,memory:/x\n3:pids:/y\n0::/\n", &expected.each_ref().map(String::as_str));
        check("", "0::/a\n5:memory:/x\n", &[]);
    }

    #[test]
    fn a_container_has_the_limits_inside_of_it() {
        let mounts = "35 25 0:30 /docker/f00 /r ro - cgroup2 cgroup2 rw";
        let inside = ["/r/x/memory.max", "/r/memory.max"].map(PathBuf::from);
        assert_eq!(limit_files(mounts, "0::/docker/f00/x"), inside);
        // What it cannot see of its place is above, so what is mounted still holds.
        for outside in ["0::/docker/f01", "0::/../other"] {
            assert_eq!(limit_files(mounts, outside), inside[1..]);
        }
    }
}
