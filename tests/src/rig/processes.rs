//! The process table: who descends from whom, and who carries the tag of a rig.
//!
//! Linux reads `/proc`; other systems have no way to see a foreign environment, so there only
//! descent counts.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;

/// One process, told apart from a later one with the same number by its start time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The process id of its parent.
    pub parent: u32,
    /// Clock ticks after boot when it started.
    pub started: u64,
    /// `R`, `S`, `Z` and so on.
    pub state: char,
    /// The short command name, at most 15 bytes.
    pub name: String,
}

impl Process {
    /// It has ended and nobody has collected its exit.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// It has ended with all its threads, so that none of its files is open any more.
    pub fn is_over(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid));
        self.is_zombie() && threads.is_ok_and(|threads| threads.count() == 1)
    }

    /// The same process is still in the table, zombies included.
    pub fn is_left(&self) -> bool {
        read(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// Its executable file, where the system tells.
    pub fn program(&self) -> Option<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid)).ok()
    }
}

/// Every process of the machine.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(read)
        .collect()
}

/// The process with this id, if there is one.
pub fn read(pid: u32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The processes of `table` below `root`, itself not included.
pub fn below(table: &[Process], root: u32) -> Vec<Process> {
    let mut children: HashMap<u32, Vec<&Process>> = HashMap::new();
    for process in table {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut seen = HashSet::from([root]);
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if seen.insert(child.pid) {
                found.push((*child).clone());
                next.push(child.pid);
            }
        }
    }
    found
}

/// The processes that have this variable in the environment they started with.
pub fn tagged(variable: &str, value: &str) -> Vec<Process> {
    let wanted = format!("{variable}={value}").into_bytes();
    let carries = |process: &Process| {
        fs::read(format!("/proc/{}/environ", process.pid))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|it| it == wanted))
    };
    all().into_iter().filter(carries).collect()
}

/// The name may hold spaces and brackets, so the fields count from the last bracket.
fn parse(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(')')?;
    let (pid, name) = head.split_once('(')?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    Some(Process {
        pid: pid.trim().parse().ok()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        state: fields.first()?.chars().next()?,
        name: name.to_owned(),
    })
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    status_kilobytes(pid, "VmRSS:")
}

/// The most memory a process ever had resident, in bytes.
pub fn peak_resident_bytes(pid: u32) -> Option<u64> {
    status_kilobytes(pid, "VmHWM:")
}

fn status_kilobytes(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The number of descriptors a process has open.
pub fn descriptors(pid: u32) -> Option<usize> {
    Some(fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count())
}

/// The open connections whose local end is this port: established, or closed by the peer only.
pub fn connections_to(port: u16) -> usize {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|table| table.lines().filter(|line| is_open_connection(line, port)).count())
        .sum()
}

fn is_open_connection(line: &str, port: u16) -> bool {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (Some(local), Some(_), Some(state)) = (fields.next(), fields.next(), fields.next()) else {
        return false;
    };
    local.ends_with(&format!(":{port:04X}")) && matches!(state, "01" | "08")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let tail = "S 7 10 10 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        let process = parse(&format!("42 (a) b (c) {tail}")).unwrap();
        assert_eq!((process.pid, process.parent, process.started), (42, 7, 98765));
        assert_eq!((process.state, process.name.as_str()), ('S', "a) b (c"));
    }

    #[test]
    fn grandchildren_are_below_and_the_root_is_not() {
        let process =
            |pid, parent| Process { pid, parent, started: 1, state: 'S', name: String::from("x") };
        let table = [process(1, 0), process(2, 1), process(3, 2), process(9, 1), process(4, 3)];
        let mut pids: Vec<u32> = below(&table, 2).iter().map(|it| it.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [3, 4]);
    }

    #[test]
    fn only_established_and_half_closed_connections_of_the_port_count() {
        let line = |port: &str, state: &str| {
            format!("  0: 0100007F:{port} 0100007F:C350 {state} 00000000:00000000 00:00000000")
        };
        assert!(is_open_connection(&line("1F90", "01"), 8080));
        assert!(is_open_connection(&line("1F90", "08"), 8080));
        assert!(!is_open_connection(&line("1F90", "0A"), 8080), "listening");
        assert!(!is_open_connection(&line("1F90", "06"), 8080), "time-wait");
        assert!(!is_open_connection(&line("1F91", "01"), 8080), "another port");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_sees_itself() {
        let me = read(std::process::id()).unwrap();
        assert!(me.is_left() && !me.is_zombie());
        assert!(resident_bytes(me.pid).unwrap() > 0 && descriptors(me.pid).unwrap() > 2);
    }
}
