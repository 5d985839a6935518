//! Processes as `/proc` shows them: this one, and what the trees of others use. Elsewhere than on Linux there is nothing to see.
//!
//! One look reads a line for each process of the machine, once, whichever trees are asked for. Memory is what is
//! resident, so pages that processes share count for each of them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Every process there was at one moment.
#[derive(Debug, Default)]
pub struct Processes {
    seen: HashMap<u32, SeenProcess>,
    children: HashMap<u32, Vec<u32>>,
}

/// One process, as a line of `/proc/PID/stat` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SeenProcess {
    parent: u32,
    computed: Duration,
    /// How long those had computed that it waited for.
    computed_below: Duration,
    threads: u64,
    /// After the start of the machine.
    started: Duration,
    virtual_bytes: u64,
    resident_bytes: u64,
}

/// What trees of processes use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeUse {
    /// How many processes there are.
    pub processes: usize,
    /// Their resident memory, added up.
    pub memory_bytes: u64,
    /// How long they, and those they waited for, have computed.
    pub computed: Duration,
}

/// What this process uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnUse {
    /// How long it has computed.
    pub computed: Duration,
    /// Its resident memory.
    pub resident_bytes: u64,
    /// Its address space.
    pub virtual_bytes: u64,
    /// Its threads.
    pub threads: u64,
    /// When it started, since 1970.
    pub started: Duration,
    /// How many descriptors it has open.
    pub open_files: u64,
    /// How many it may have; `None` for no limit.
    pub max_files: Option<u64>,
}

impl Processes {
    /// Every process there is now. Blocks for as long as reading takes.
    pub fn look() -> Self {
        let mut all = Self::default();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
            // One that has ended meanwhile is not there.
            let Some(seen) = read(&pid.to_string()) else { continue };
            all.children.entry(seen.parent).or_default().push(pid);
            all.seen.insert(pid, seen);
        }
        all
    }

    /// What the trees below these processes use, themselves included.
    pub fn trees(&self, tops: impl IntoIterator<Item = u32>) -> TreeUse {
        let mut used = TreeUse::default();
        let (mut left, mut counted) = (Vec::from_iter(tops), HashSet::new());
        while let Some(pid) = left.pop() {
            // A number may have been given anew between two reads, so a tree may look like a circle.
            let Some(seen) = self.seen.get(&pid).filter(|_| counted.insert(pid)) else { continue };
            used.processes += 1;
            used.memory_bytes += seen.resident_bytes;
            used.computed += seen.computed + seen.computed_below;
            left.extend(self.children.get(&pid).into_iter().flatten());
        }
        used
    }
}

/// What this process uses now, where that can be seen.
pub fn own_use() -> Option<OwnUse> {
    let seen = read("self")?;
    // The directory that is being read is one of them, and not ours for long.
    let open_files = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    Some(OwnUse {
        computed: seen.computed,
        resident_bytes: seen.resident_bytes,
        virtual_bytes: seen.virtual_bytes,
        threads: seen.threads,
        started: started_machine()? + seen.started,
        open_files: u64::try_from(open_files).unwrap_or(u64::MAX),
        max_files: getrlimit(Resource::Nofile).current,
    })
}

/// When the machine was started, since 1970.
fn started_machine() -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(Duration::from_secs(seconds.trim().parse().ok()?))
}

fn read(process: &str) -> Option<SeenProcess> {
    // The name in it is whatever the process likes, so it need not be text.
    let text = fs::read(format!("/proc/{process}/stat")).ok()?;
    parse(&text, clock_ticks_per_second(), page_size() as u64)
}

fn parse(text: &[u8], ticks_per_second: u64, page_bytes: u64) -> Option<SeenProcess> {
    // The second field is the name in parentheses, which may contain spaces and parentheses itself.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 1;
    let fields: Vec<&str> =
        std::str::from_utf8(&text[after_name..]).ok()?.split_ascii_whitespace().collect();
    // By their numbers in the manual, where the one after the name is the third.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let time = |ticks: u64| {
        Duration::from_nanos(ticks.saturating_mul(1_000_000_000 / ticks_per_second.max(1)))
    };
    Some(SeenProcess {
        parent: u32::try_from(field(4)?).ok()?,
        computed: time(field(14)? + field(15)?),
        computed_below: time(field(16)? + field(17)?),
        threads: field(20)?,
        started: time(field(22)?),
        virtual_bytes: field(23)?,
        resident_bytes: field(24)? * page_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(parent: u32, seconds: u64, bytes: u64) -> SeenProcess {
        let computed = Duration::from_secs(seconds);
        let (threads, started, virtual_bytes) = (1, Duration::ZERO, 0);
        let computed_below = Duration::ZERO;
        SeenProcess {
            parent,
            computed,
            computed_below,
            threads,
            started,
            virtual_bytes,
            resident_bytes: bytes,
        }
    }

    /// What the trees below `tops` use, of processes given as pid, parent, seconds and bytes.
    fn check(
        processes: &[(u32, u32, u64, u64)],
        tops: &[u32],
        (count, seconds, bytes): (usize, u64, u64),
    ) {
        let mut all = Processes::default();
        for (pid, parent, seconds, bytes) in processes {
            all.seen.insert(*pid, seen(*parent, *seconds, *bytes));
            all.children.entry(*parent).or_default().push(*pid);
        }
        let computed = Duration::from_secs(seconds);
        let expected = TreeUse { processes: count, memory_bytes: bytes, computed };
        assert_eq!(all.trees(tops.iter().copied()), expected);
    }

    #[test]
    fn a_tree_is_all_below_its_top_and_nothing_else() {
        let processes =
            [(2, 1, 1, 10), (3, 2, 2, 20), (4, 3, 4, 40), (5, 1, 8, 80), (6, 5, 16, 160)];
        check(&processes, &[2], (3, 7, 70));
        check(&processes, &[2, 5], (5, 31, 310));
        check(&processes, &[2, 3, 2], (3, 7, 70));
        check(&processes, &[7], (0, 0, 0));
        check(&[(2, 3, 1, 1), (3, 2, 1, 1)], &[2], (2, 2, 2));
    }

    #[test]
    fn a_line_of_the_kernel_is_read_behind_any_name() {
        let line = b"4711 (a b) S 9) R 12 1 1 0 -1 4194560 107 0 0 0 250 50 7 3 20 0 6 0 200 8192 \
                     3 18446744073709551615 1 1 0";
        let expected = SeenProcess {
            parent: 12,
            computed: Duration::from_secs(3),
            computed_below: Duration::from_millis(100),
            threads: 6,
            started: Duration::from_secs(2),
            virtual_bytes: 8192,
            resident_bytes: 3 * 4096,
        };
        assert_eq!(parse(line, 100, 4096), Some(expected));
        assert_eq!(parse(b"4711 (a) R 12", 100, 4096), None);
        assert_eq!(parse(b"", 100, 4096), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_seen() {
        let own = own_use().unwrap();
        assert!(own.resident_bytes > 1 << 20 && own.virtual_bytes >= own.resident_bytes, "{own:?}");
        assert!(own.threads >= 2 && own.open_files >= 3, "{own:?}");
        assert!(own.max_files.is_none_or(|most| most >= own.open_files), "{own:?}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(own.started <= now + Duration::from_secs(1), "{own:?}");
        let trees = Processes::look().trees([std::process::id()]);
        assert!(trees.processes >= 1 && trees.memory_bytes > 1 << 20, "{trees:?}");
    }
}
