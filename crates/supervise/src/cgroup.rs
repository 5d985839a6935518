//! cgroups: a fresh one for each child that asked, which limits all it starts together.
//!
//! They are made beside each other inside the cgroup this program runs in, and removed after their
//! child. Where the program may not do that, there are none. Where to make them is in `place`.

#[cfg(target_os = "linux")]
mod place;
#[cfg(target_os = "linux")]
mod trees;

#[cfg(target_os = "linux")]
pub(crate) use linux::{Fresh, Leftovers};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{Fresh, Leftovers};
#[cfg(target_os = "linux")]
pub(crate) use place::Place;
#[cfg(target_os = "linux")]
pub(crate) use trees::memory_limits;

/// There are none.
#[cfg(not(target_os = "linux"))]
pub(crate) fn memory_limits() -> Vec<u64> {
    Vec::new()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::{self, File};
    use std::io;
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};

    use libc::c_int;

    use super::place::Place;
    use super::trees::Controllers;
    use crate::command::Limits;
    use crate::confinement::{Cgroup, Restriction};
    use crate::frame::Number;
    use crate::unix::errno;

    /// The cgroup of one child: one directory, or in version 1 one for each limit.
    #[derive(Debug)]
    pub(crate) struct Fresh {
        directories: Vec<PathBuf>,
        /// Where a process writes itself to enter, until the child has.
        doors: Vec<File>,
        memory: Option<PathBuf>,
        kill: Option<PathBuf>,
    }

    impl Fresh {
        /// Makes the cgroup of a child, with its limits.
        pub(crate) fn make(
            place: &mut Place,
            child: Number,
            limits: &Limits,
            cgroup: &Cgroup,
        ) -> Result<Self, (Restriction, c_int)> {
            let failed = |restriction| {
                move |error: io::Error| (restriction, error.raw_os_error().unwrap_or(libc::EIO))
            };
            let needed = Controllers {
                memory: limits.memory_bytes.is_some(),
                processes: limits.processes.is_some(),
                cpu: cgroup.cpu_percent.is_some(),
            };
            place.prepare().map_err(failed(Restriction::Cgroup))?;
            let mut fresh =
                Self { directories: Vec::new(), doors: Vec::new(), memory: None, kill: None };
            // What was made is removed again when a later step fails.
            let result = fresh.build(place, child, needed).map_err(failed(Restriction::Cgroup));
            let result = result.and_then(|found| {
                if let (Some(bytes), Some(memory)) = (limits.memory_bytes, &found.memory) {
                    set_memory(memory, bytes).map_err(failed(Restriction::Memory))?;
                    fresh.memory = Some(memory.clone());
                }
                if let (Some(count), Some(pids)) = (limits.processes, &found.processes) {
                    let text = count.to_string();
                    write(pids, "pids.max", &text).map_err(failed(Restriction::Processes))?;
                }
                if let (Some(percent), Some(cpu)) = (cgroup.cpu_percent, &found.cpu) {
                    set_cpu(cpu, percent).map_err(failed(Restriction::Cpu))?;
                }
                Ok(())
            });
            match result {
                Ok(()) => Ok(fresh),
                Err(failure) => {
                    Leftovers::new().take(Some(fresh));
                    Err(failure)
                }
            }
        }

        /// Makes the directories and opens their doors.
        fn build(
            &mut self,
            place: &Place,
            child: Number,
            needed: Controllers<bool>,
        ) -> io::Result<Controllers<Option<PathBuf>>> {
            let mut make = |base: &Path| -> io::Result<PathBuf> {
                let directory = base.join(place.name(&child.to_string()));
                if !self.directories.contains(&directory) {
                    fs::create_dir(&directory)?;
                    self.directories.push(directory.clone());
                    let door = File::options().write(true).open(directory.join("cgroup.procs"))?;
                    self.doors.push(door);
                }
                Ok(directory)
            };
            let mut make_if = |is_needed: bool, base: &Option<PathBuf>| match base {
                Some(base) if is_needed => make(base).map(Some),
                _ if is_needed => Err(io::Error::from_raw_os_error(libc::ENODEV)),
                _ => Ok(None),
            };
            let found = Controllers {
                memory: make_if(needed.memory, &place.bases.memory)?,
                processes: make_if(needed.processes, &place.bases.processes)?,
                cpu: make_if(needed.cpu, &place.bases.cpu)?,
            };
            if let Some(unified) = make_if(place.unified.is_some(), &place.unified)? {
                // Since Linux 5.14.
                let kill = unified.join("cgroup.kill");
                self.kill = kill.exists().then_some(kill);
            }
            Ok(found)
        }

        /// Moves this process in. Runs between fork and exec.
        pub(crate) fn enter(&self) -> Result<(), c_int> {
            for door in &self.doors {
                // SAFETY: writes from a buffer of that size. Zero stands for the writer.
                if unsafe { libc::write(door.as_raw_fd(), b"0".as_ptr().cast(), 1) } == -1 {
                    return Err(errno());
                }
            }
            Ok(())
        }

        /// Nobody else is going to enter.
        pub(crate) fn close(&mut self) {
            self.doors.clear();
        }

        /// Kills all in it at once, where the kernel can.
        pub(crate) fn kill(&self) {
            if let Some(kill) = &self.kill {
                let _ = fs::write(kill, "1");
            }
        }

        /// Whether the kernel killed a process in it for want of memory.
        pub(crate) fn was_out_of_memory(&self) -> bool {
            let Some(memory) = &self.memory else { return false };
            // The one of version 2, the other of version 1.
            let text = fs::read_to_string(memory.join("memory.events"))
                .or_else(|_| fs::read_to_string(memory.join("memory.oom_control")));
            text.is_ok_and(|text| killed_for_memory(&text) > 0)
        }
    }

    fn write(directory: &Path, name: &str, text: &str) -> io::Result<()> {
        // Not created: these files are there, or the kernel does not know them.
        let mut file = File::options().write(true).open(directory.join(name))?;
        io::Write::write_all(&mut file, text.as_bytes())
    }

    /// Sets a limit the kernel may not know.
    fn write_if_known(directory: &Path, name: &str, text: &str) -> io::Result<()> {
        match write(directory, name, text) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn set_memory(directory: &Path, bytes: u64) -> io::Result<()> {
        let text = bytes.to_string();
        if directory.join("memory.max").exists() {
            write(directory, "memory.max", &text)?;
            write_if_known(directory, "memory.swap.max", "0")?;
            // A server that lost one of its processes is no use to anyone.
            write_if_known(directory, "memory.oom.group", "1")
        } else {
            write(directory, "memory.limit_in_bytes", &text)?;
            write_if_known(directory, "memory.memsw.limit_in_bytes", &text)
        }
    }

    fn set_cpu(directory: &Path, percent: u32) -> io::Result<()> {
        const PERIOD_MICROS: u64 = 100_000;
        let quota = u64::from(percent.max(1)) * PERIOD_MICROS / 100;
        if directory.join("cpu.max").exists() {
            write(directory, "cpu.max", &format!("{quota} {PERIOD_MICROS}"))
        } else {
            write(directory, "cpu.cfs_period_us", &PERIOD_MICROS.to_string())?;
            write(directory, "cpu.cfs_quota_us", &quota.to_string())
        }
    }

    fn killed_for_memory(text: &str) -> u64 {
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// Directories to be removed as soon as they can be.
    #[derive(Debug)]
    pub(crate) struct Leftovers {
        directories: Vec<(PathBuf, u32)>,
    }

    /// A process that cannot be killed would otherwise have us look for it for ever.
    const TRIES: u32 = 200;

    impl Leftovers {
        pub(crate) fn new() -> Self {
            Self { directories: Vec::new() }
        }

        /// Removes a cgroup, now or later: it cannot be while a process in it is still dying.
        pub(crate) fn take(&mut self, cgroup: Option<Fresh>) {
            if let Some(Fresh { directories, .. }) = cgroup {
                self.directories.extend(directories.into_iter().map(|path| (path, 0)));
                self.sweep();
            }
        }

        /// Whether another try soon may do it.
        pub(crate) fn are_left(&self) -> bool {
            self.directories.iter().any(|(_, tries)| *tries < TRIES)
        }

        /// Removes what can be.
        pub(crate) fn sweep(&mut self) {
            self.directories.retain_mut(|(directory, tries)| {
                *tries = tries.saturating_add(1);
                let removed = fs::remove_dir(&*directory);
                removed.is_err_and(|error| error.kind() != io::ErrorKind::NotFound)
            });
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_kernel_tells_both_ways_who_ran_out_of_memory() {
            let check = |text: &str, count: u64| assert_eq!(killed_for_memory(text), count);
            check("low 0\nhigh 0\nmax 9\noom 2\noom_kill 2\noom_group_kill 0\n", 2);
            check("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1);
            check("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", 0);
            check("", 0);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod other {
    /// There are none here.
    #[derive(Debug)]
    pub(crate) enum Fresh {}

    impl Fresh {
        pub(crate) fn close(&mut self) {
            match *self {}
        }

        pub(crate) fn kill(&self) {
            match *self {}
        }

        pub(crate) fn was_out_of_memory(&self) -> bool {
            match *self {}
        }
    }

    /// Nothing is ever left.
    #[derive(Debug)]
    pub(crate) struct Leftovers;

    impl Leftovers {
        pub(crate) fn new() -> Self {
            Self
        }

        pub(crate) fn take(&mut self, cgroup: Option<Fresh>) {
            if let Some(cgroup) = cgroup {
                match cgroup {}
            }
        }

        pub(crate) fn are_left(&self) -> bool {
            false
        }

        pub(crate) fn sweep(&mut self) {}
    }
}
