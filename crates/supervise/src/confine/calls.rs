//! Refused system calls: a seccomp filter, assembled once in the spawner and installed in each
//! child that asked for it.
//!
//! A list of what is refused, not of what is allowed: servers are arbitrary programs. What is in
//! it looks into other processes, changes what the machine is, or opens parts of the kernel that
//! no server needs and in which holes were found.

use libc::{c_int, c_long, sock_filter};

use crate::unix::errno;

/// A filter, ready to be installed.
#[derive(Debug)]
pub(crate) struct Filter(Vec<sock_filter>);

/// The filters a child may need.
#[derive(Debug)]
pub(crate) struct Filters {
    denied: Filter,
    denied_and_offline: Filter,
    offline: Filter,
}

impl Filters {
    pub(crate) fn new() -> Self {
        Self {
            denied: Filter::assemble(true, &FAMILIES),
            denied_and_offline: Filter::assemble(true, &OFFLINE_FAMILIES),
            offline: Filter::assemble(false, &OFFLINE_FAMILIES),
        }
    }

    /// The filter for a child, if it needs one: to refuse it calls, network sockets, or both.
    pub(crate) fn choose(&self, deny_calls: bool, offline: bool) -> Option<&Filter> {
        match (deny_calls, offline) {
            (true, true) => Some(&self.denied_and_offline),
            (true, false) => Some(&self.denied),
            (false, true) => Some(&self.offline),
            (false, false) => None,
        }
    }
}

/// The sockets a server may open. Others reach parts of the kernel that few look after.
const FAMILIES: [c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Those that reach nobody outside of the machine. Netlink tells which interfaces there are.
const OFFLINE_FAMILIES: [c_int; 2] = [libc::AF_UNIX, libc::AF_NETLINK];

/// Refused with EPERM.
const DENIED: &[c_long] = &[
    // Into other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Mounts, roots and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Memory, queues and counters that every process of the machine can find by a number or a name,
    // and that stay when their maker has ended.
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    // What others do with their files. A watch needs no right that Landlock knows of, and tells the
    // names of jobs, which nobody may guess.
    libc::SYS_inotify_add_watch,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    // Parts of the kernel in which holes were found.
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // The machine itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    #[cfg(not(all(target_env = "musl", target_arch = "aarch64")))]
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Calls that write beside a file's contents what any process may read there: Landlock has no right
/// for them, so a server could leave words on every file of its user. They fail as they do on a file
/// system that has no such attributes, which programs know.
const NO_ATTRIBUTES: &[c_long] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_SETXATTRAT,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
];

// Newer than `libc`; their numbers are the same everywhere.
const SYS_SETXATTRAT: c_long = 463;
const SYS_REMOVEXATTRAT: c_long = 466;
const SYS_FILE_SETATTR: c_long = 469;

/// Calls that change the limits or the share of the processor of a process, which is named by their
/// first argument. Only 0, the caller itself, is let through: Landlock guards signals and memory, and
/// all else of a process lies open to everyone with the same user.
///
/// A thread that names itself by its number is refused, too; C libraries take that for lack of
/// privileges, as it mostly is.
const ONLY_ITSELF: &[c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];

/// The same for those whose first argument says what the second names: a process, its group, or,
/// with this number, everything of a user.
const ONLY_ITSELF_BY_KIND: &[(c_long, u32)] = &[
    // The numbers are in <linux/resource.h> and <linux/ioprio.h>.
    (libc::SYS_setpriority, 2),
    (libc::SYS_ioprio_set, 3),
];

/// New namespaces, as flags of `clone`.
const NEW_NAMESPACES: c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// Its number in <linux/audit.h> is to be added; until then there are no filters.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// Where the filter finds things: offsets in `struct seccomp_data`. The lower half of an argument
/// comes first, on both architectures.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;
const SECOND_ARGUMENT: u32 = 24;
const THIRD_ARGUMENT: u32 = 32;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

fn fail_with(error: c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | error.cast_unsigned()
}

impl Filter {
    fn assemble(deny_calls: bool, families: &[c_int]) -> Self {
        let mut cases = vec![(0, vec![give(ALLOW)])];
        let mut case = |call: c_long, answer: Vec<sock_filter>| {
            cases.push((call_number(call), answer));
            cases.push((call_number(call) + 1, vec![give(ALLOW)]));
        };
        // A ring can open sockets behind the back of every filter.
        let rings =
            [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
        for call in if deny_calls { DENIED } else { &rings } {
            case(*call, vec![give(fail_with(libc::EPERM))]);
        }
        if deny_calls {
            for call in NO_ATTRIBUTES {
                case(*call, vec![give(fail_with(libc::EOPNOTSUPP))]);
            }
            // Its flags are behind a pointer. The C libraries then use `clone`.
            case(libc::SYS_clone3, vec![give(fail_with(libc::ENOSYS))]);
            case(
                libc::SYS_clone,
                vec![
                    load(FIRST_ARGUMENT),
                    jump(libc::BPF_JSET, NEW_NAMESPACES.cast_unsigned(), 0, 1),
                    give(fail_with(libc::EPERM)),
                    give(ALLOW),
                ],
            );
            for call in ONLY_ITSELF {
                case(*call, allow_zero(FIRST_ARGUMENT));
            }
            for (call, everything) in ONLY_ITSELF_BY_KIND {
                let mut answer = vec![
                    load(FIRST_ARGUMENT),
                    jump(libc::BPF_JEQ, *everything, 0, 1),
                    give(fail_with(libc::EPERM)),
                ];
                answer.extend(allow_zero(SECOND_ARGUMENT));
                case(*call, answer);
            }
        }
        case(libc::SYS_socket, allow_families(families));
        // A second set of numbers for the same calls.
        #[cfg(target_arch = "x86_64")]
        cases.push((0x4000_0000, vec![give(fail_with(libc::ENOSYS))]));

        // Of two cases with one number the later in the list is meant: a refusal, if there is one.
        cases.sort_by_key(|(number, answer)| (*number, answer[0].k == ALLOW));
        cases.dedup_by_key(|(number, _)| *number);
        // Another architecture has other numbers, so none of its calls can be let through.
        let mut filter = vec![
            load(ARCH),
            jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
            give(fail_with(libc::ENOSYS)),
            load(NUMBER),
        ];
        filter.extend(decide(&cases));
        Self(filter)
    }

    /// Installs the filter for this process and all it starts, for ever. Runs between fork and
    /// exec, in a process that cannot gain privileges.
    pub(crate) fn install(&self) -> Result<(), c_int> {
        const SET_MODE_FILTER: u32 = 1;
        if ARCHITECTURE == 0 {
            return Err(libc::ENOSYS);
        }
        let length = u16::try_from(self.0.len()).unwrap_or(0);
        let program = libc::sock_fprog { len: length, filter: self.0.as_ptr().cast_mut() };
        // SAFETY: the kernel reads `length` instructions, all in the vector, and keeps a copy.
        let result =
            unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) };
        if result == -1 { Err(errno()) } else { Ok(()) }
    }
}

/// Finds the last case that begins at or before the loaded number, by halves: when a filter is
/// installed, the kernel tries it with every call there is.
fn decide(cases: &[(u32, Vec<sock_filter>)]) -> Vec<sock_filter> {
    if let [(_, answer)] = cases {
        return answer.clone();
    }
    let (lower, upper) = cases.split_at(cases.len() / 2);
    let (below, above) = (decide(lower), decide(upper));
    let skip = u8::try_from(below.len()).expect("half of a filter is not that long");
    [vec![jump(libc::BPF_JGE, upper[0].0, skip, 0)], below, above].concat()
}

/// Lets a call through whose argument is 0. Process ids have 32 bits, and the kernel looks at no more.
fn allow_zero(argument: u32) -> Vec<sock_filter> {
    vec![load(argument), jump(libc::BPF_JEQ, 0, 0, 1), give(ALLOW), give(fail_with(libc::EPERM))]
}

/// Lets a socket of these families through, and of netlink only the part that tells which interfaces
/// and routes there are: through another part any two processes can talk.
fn allow_families(families: &[c_int]) -> Vec<sock_filter> {
    let refuse = || give(fail_with(libc::EAFNOSUPPORT));
    let mut answer = vec![load(FIRST_ARGUMENT)];
    for family in families {
        if *family == libc::AF_NETLINK {
            answer.push(jump(libc::BPF_JEQ, family.cast_unsigned(), 0, 4));
            answer.push(load(THIRD_ARGUMENT));
            answer.push(jump(libc::BPF_JEQ, libc::NETLINK_ROUTE.cast_unsigned(), 0, 1));
            answer.push(give(ALLOW));
            answer.push(refuse());
        } else {
            answer.push(jump(libc::BPF_JEQ, family.cast_unsigned(), 0, 1));
            answer.push(give(ALLOW));
        }
    }
    answer.push(refuse());
    answer
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

fn give(result: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, result)
}

/// Skips as many instructions as it says when the test is true, or when it is not.
fn jump(test: u32, value: u32, if_true: u8, if_not: u8) -> sock_filter {
    instruction(libc::BPF_JMP | test | libc::BPF_K, if_true, if_not, value)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// The number of a call as the kernel shows it to a filter.
fn call_number(call: c_long) -> u32 {
    u32::try_from(call).expect("calls have small numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter says to a call: the kernel's machine, as far as filters here use it.
    fn run(filter: &Filter, arch: u32, number: u32, arguments: [u64; 3]) -> u32 {
        let mut loaded = 0;
        let mut at = 0;
        loop {
            let sock_filter { code, jt, jf, k } = filter.0[at];
            at += 1;
            let mut jump = |is_true: bool| at += usize::from(if is_true { jt } else { jf });
            match u32::from(code) {
                0x20 => {
                    loaded = match k {
                        NUMBER => number,
                        ARCH => arch,
                        FIRST_ARGUMENT => arguments[0] as u32,
                        SECOND_ARGUMENT => arguments[1] as u32,
                        THIRD_ARGUMENT => arguments[2] as u32,
                        other => panic!("loads from {other}"),
                    }
                }
                0x15 => jump(loaded == k),
                0x35 => jump(loaded >= k),
                0x45 => jump(loaded & k != 0),
                0x06 => return k,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    fn check(filter: &Filter, call: c_long, argument: c_int, expected: Result<(), c_int>) {
        check_all(filter, call, [argument, 0, 0], expected);
    }

    fn check_all(
        filter: &Filter,
        call: c_long,
        arguments: [c_int; 3],
        expected: Result<(), c_int>,
    ) {
        let expected = expected.map_or_else(fail_with, |()| ALLOW);
        let wide = arguments.map(|argument| u64::from(argument.cast_unsigned()));
        let result = run(filter, ARCHITECTURE, call_number(call), wide);
        assert_eq!(result, expected, "call {call} with {arguments:?}");
    }

    #[test]
    fn every_denied_call_is_refused_and_the_others_are_not() {
        let filters = Filters::new();
        let filter = filters.choose(true, false).unwrap();
        for call in 0..600 {
            let expected = match call {
                libc::SYS_clone3 => Err(libc::ENOSYS),
                libc::SYS_socket => Err(libc::EAFNOSUPPORT),
                call if DENIED.contains(&call) => Err(libc::EPERM),
                call if NO_ATTRIBUTES.contains(&call) => Err(libc::EOPNOTSUPP),
                _ => Ok(()),
            };
            check(filter, call, 0, expected);
        }
    }

    #[test]
    fn a_clone_may_make_threads_and_processes_and_no_namespaces() {
        let filters = Filters::new();
        for offline in [false, true] {
            let filter = filters.choose(true, offline).unwrap();
            let thread = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
            check(filter, libc::SYS_clone, thread, Ok(()));
            check(filter, libc::SYS_clone, libc::SIGCHLD, Ok(()));
            for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNET | libc::SIGCHLD] {
                check(filter, libc::SYS_clone, flag, Err(libc::EPERM));
            }
        }
    }

    #[test]
    fn limits_and_priorities_are_a_process_s_own_business() {
        let filters = Filters::new();
        let refused = Err(libc::EPERM);
        for offline in [false, true] {
            let filter = filters.choose(true, offline).unwrap();
            for call in ONLY_ITSELF {
                check(filter, *call, 0, Ok(()));
                check(filter, *call, 4321, refused);
                check(filter, *call, -1, refused);
            }
            for (call, everything) in ONLY_ITSELF_BY_KIND {
                for kind in 0..everything.cast_signed() {
                    check_all(filter, *call, [kind, 0, 0], Ok(()));
                    check_all(filter, *call, [kind, 4321, 0], refused);
                }
                check_all(filter, *call, [everything.cast_signed(), 0, 0], refused);
                check_all(filter, *call, [everything.cast_signed(), 4321, 0], refused);
            }
        }
    }

    #[test]
    fn sockets_are_of_the_families_that_are_left() {
        let filters = Filters::new();
        let refused = Err(libc::EAFNOSUPPORT);
        for (deny_calls, offline) in [(true, false), (true, true), (false, true)] {
            let filter = filters.choose(deny_calls, offline).unwrap();
            let network = if offline { refused } else { Ok(()) };
            check(filter, libc::SYS_socket, libc::AF_UNIX, Ok(()));
            check(filter, libc::SYS_socket, libc::AF_NETLINK, Ok(()));
            for (protocol, expected) in
                [(libc::NETLINK_ROUTE, Ok(())), (libc::NETLINK_USERSOCK, refused)]
            {
                let arguments = [libc::AF_NETLINK, libc::SOCK_RAW, protocol];
                check_all(filter, libc::SYS_socket, arguments, expected);
            }
            check(filter, libc::SYS_socket, libc::AF_INET, network);
            check(filter, libc::SYS_socket, libc::AF_INET6, network);
            check(filter, libc::SYS_socket, libc::AF_VSOCK, refused);
            check(filter, libc::SYS_socket, libc::AF_PACKET, refused);
            check(filter, libc::SYS_socketpair, libc::AF_UNIX, Ok(()));
            check(filter, libc::SYS_io_uring_setup, 0, Err(libc::EPERM));
        }
    }

    #[test]
    fn another_architecture_gets_nothing() {
        let filters = Filters::new();
        let filter = filters.choose(false, true).unwrap();
        assert_eq!(run(filter, 0x4000_0003, 20, [0; 3]), fail_with(libc::ENOSYS));
        #[cfg(target_arch = "x86_64")]
        assert_eq!(run(filter, ARCHITECTURE, 0x4000_0000 + 41, [2, 0, 0]), fail_with(libc::ENOSYS));
    }

    #[test]
    fn who_asks_for_nothing_gets_no_filter() {
        assert!(Filters::new().choose(false, false).is_none());
    }
}
