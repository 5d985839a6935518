//! A hostile child: this same program, which tries one thing and says how it went.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::time::Instant;

use crate::world::call;

/// Tries `act` and says `ok`, what it found, or the name of the error.
pub(crate) fn try_it(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let act = arguments.next().expect("an act");
    let mut next = || arguments.next().unwrap_or_default();
    let result = attempt(&act, &mut next);
    match result {
        Ok(text) => println!("{text}"),
        Err(error) => println!("{}", name(&error)),
    }
    io::stdout().flush().expect("read by the test");
    ExitCode::SUCCESS
}

fn attempt(act: &str, next: &mut dyn FnMut() -> String) -> io::Result<String> {
    let ok = |()| "ok".to_owned();
    let zero = std::ptr::null::<u8>() as i64;
    match act {
        "read" => File::open(next())?.read(&mut [0]).map(|_| "ok".to_owned()),
        "list" => fs::read_dir(next()).map(|entries| entries.count().to_string()),
        "write" => File::options().write(true).open(next()).map(|_| "ok".to_owned()),
        "create" => File::create(next()).map(|_| "ok".to_owned()),
        "truncate" => call(libc::SYS_truncate, [text(&next()), 0, 0, 0]).map(|_| "ok".to_owned()),
        "remove" => fs::remove_file(next()).map(ok),
        "rename" => fs::rename(next(), next()).map(ok),
        "link" => fs::hard_link(next(), next()).map(ok),
        "symlink" => std::os::unix::fs::symlink(next(), next()).map(ok),
        "device" => {
            let mode = i64::from(libc::S_IFCHR | 0o666);
            let null = libc::makedev(1, 3).cast_signed();
            let path = text(&next());
            call(libc::SYS_mknodat, [libc::AT_FDCWD.into(), path, mode, null]).map(|_| "ok".into())
        }
        "listen" => TcpListener::bind("127.0.0.1:0").map(|_| "ok".to_owned()),
        "connect" => TcpStream::connect(next()).map(|_| "ok".to_owned()),
        "send" => UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", next()).map(|_| "ok".to_owned()),
        "talk to itself" => talk_to_itself(),
        "unix connect" => UnixStream::connect(next()).map(|_| "ok".to_owned()),
        "unix listen" => UnixListener::bind(next()).map(|_| "ok".to_owned()),
        "abstract connect" => {
            use std::os::linux::net::SocketAddrExt;
            let address = std::os::unix::net::SocketAddr::from_abstract_name(next())?;
            UnixStream::connect_addr(&address).map(|_| "ok".to_owned())
        }
        "vsock" => call(libc::SYS_socket, [libc::AF_VSOCK.into(), 1, 0, 0]).map(|_| "ok".into()),
        "kill" => call(libc::SYS_kill, [number(&next()), 0, 0, 0]).map(|_| "ok".to_owned()),
        "ptrace" => {
            let seize = i64::from(libc::PTRACE_SEIZE);
            call(libc::SYS_ptrace, [seize, number(&next()), zero, 0]).map(|_| "ok".to_owned())
        }
        "watch" => {
            let watcher = call(libc::SYS_inotify_init1, [0, 0, 0, 0])?;
            let all = i64::from(libc::IN_ALL_EVENTS);
            call(libc::SYS_inotify_add_watch, [watcher, text(&next()), all, 0]).map(|_| "ok".into())
        }
        // Asks only; whoever may ask may also set.
        "limits" => {
            call(libc::SYS_prlimit64, [number(&next()), 7, zero, zero]).map(|_| "ok".into())
        }
        "priority" => {
            let (kind, who) = (number(&next()), number(&next()));
            call(libc::SYS_setpriority, [kind, who, 19, 0]).map(|_| "ok".to_owned())
        }
        "processors" => {
            let mut set = [u64::MAX; 16];
            let arguments = [number(&next()), 128, set.as_mut_ptr() as i64, 0];
            call(libc::SYS_sched_setaffinity, arguments).map(|_| "ok".to_owned())
        }
        "look into" => look_into(number(&next())),
        "unshare" => call(libc::SYS_unshare, [number(&next()), 0, 0, 0]).map(|_| "ok".into()),
        "clone" => call(libc::SYS_clone, [number(&next()), 0, 0, 0]).map(|_| "ok".to_owned()),
        "mount" => {
            let (kind, path) = (text("tmpfs"), text(&next()));
            call(libc::SYS_mount, [kind, path, kind, 0]).map(|_| "ok".to_owned())
        }
        "chroot" => call(libc::SYS_chroot, [text("/"), 0, 0, 0]).map(|_| "ok".to_owned()),
        "become root" => call(libc::SYS_setresuid, [0, 0, 0, 0]).map(|_| "ok".to_owned()),
        "fork" => Ok(fork_until_refused()),
        "fork for ever" => {
            println!("ready");
            loop {
                // SAFETY: this process has one thread, and so has each copy. All of them fork on,
                // as fast as a test on a shared machine may.
                unsafe {
                    libc::fork();
                    libc::usleep(1000);
                }
            }
        }
        "take memory" => take(number(&next()), libc::MAP_PRIVATE),
        "take shared memory" => take(number(&next()), libc::MAP_SHARED),
        "spin" => Ok(spin(number(&next()))),
        "spin for ever" => loop {
            std::hint::black_box(0);
        },
        "spin deaf" => {
            // SAFETY: ignoring a signal needs no handler.
            unsafe { libc::signal(libc::SIGXCPU, libc::SIG_IGN) };
            loop {
                std::hint::black_box(0);
            }
        }
        "grow" => {
            let mut file = File::create(next())?;
            // SAFETY: ends with the default action. The runtime of the language leaves it alone,
            // but whoever started the tests may have it ignored.
            unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_DFL) };
            loop {
                file.write_all(&[0; 1000])?;
            }
        }
        "status" => {
            let wanted = next();
            let status = fs::read_to_string("/proc/self/status")?;
            let line = status.lines().find_map(|line| line.strip_prefix(&format!("{wanted}:")));
            Ok(line.unwrap_or("no such line").split_whitespace().collect::<Vec<_>>().join(" "))
        }
        other => panic!("no act `{other}`"),
    }
}

fn number(text: &str) -> i64 {
    text.parse().expect("a number")
}

/// A string for a system call. It is never freed, in a process that ends at once.
fn text(text: &str) -> i64 {
    CString::new(text).expect("no zero").into_raw() as i64
}

fn talk_to_itself() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut there = TcpStream::connect(listener.local_addr()?)?;
    there.write_all(b"hello")?;
    let mut bytes = [0; 5];
    listener.accept()?.0.read_exact(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads memory of another process, as far as any is asked for at all.
fn look_into(pid: i64) -> io::Result<String> {
    let mut byte = [0u8; 1];
    let local = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: 0x1000 as *mut libc::c_void, iov_len: 1 };
    // SAFETY: at most one byte is written, into `byte`.
    let read = unsafe {
        libc::process_vm_readv(
            libc::pid_t::try_from(pid).expect("a pid"),
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    match io::Error::last_os_error() {
        // Nothing is mapped there, but we may look.
        error if read == -1 && error.raw_os_error() == Some(libc::EFAULT) => Ok("ok".to_owned()),
        error if read == -1 => Err(error),
        _ => Ok("ok".to_owned()),
    }
}

/// How many processes there could be beside this one, and why not more.
fn fork_until_refused() -> String {
    for count in 0..10_000 {
        // SAFETY: this process has one thread, and the copy only waits to be killed.
        match unsafe { libc::fork() } {
            -1 => return format!("{count} {}", name(&io::Error::last_os_error())),
            0 => loop {
                // SAFETY: no memory is involved.
                unsafe { libc::pause() };
            },
            _ => {}
        }
    }
    "no end".to_owned()
}

fn take(bytes: i64, kind: i32) -> io::Result<String> {
    let size = usize::try_from(bytes).expect("a size");
    // SAFETY: a new mapping, of which every page is written to and none is shared with anybody.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = kind | libc::MAP_ANONYMOUS;
        let memory = libc::mmap(std::ptr::null_mut(), size, protection, flags, -1, 0);
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        for at in (0..size).step_by(4096) {
            memory.cast::<u8>().add(at).write_volatile(1);
        }
    }
    Ok("ok".to_owned())
}

/// Computes for so many milliseconds, and says how long that took.
fn spin(millis: i64) -> String {
    let began = Instant::now();
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    while used.tv_sec * 1000 + used.tv_nsec / 1_000_000 < millis {
        // SAFETY: the call writes one time.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut used) };
    }
    began.elapsed().as_millis().to_string()
}

fn name(error: &io::Error) -> String {
    let name = match error.raw_os_error() {
        Some(libc::EACCES) => "EACCES",
        Some(libc::EPERM) => "EPERM",
        Some(libc::ENOENT) => "ENOENT",
        Some(libc::EXDEV) => "EXDEV",
        Some(libc::EROFS) => "EROFS",
        Some(libc::EAGAIN) => "EAGAIN",
        Some(libc::ENOMEM) => "ENOMEM",
        Some(libc::ENETUNREACH) => "ENETUNREACH",
        Some(libc::ECONNREFUSED) => "ECONNREFUSED",
        Some(libc::EAFNOSUPPORT) => "EAFNOSUPPORT",
        Some(libc::ESRCH) => "ESRCH",
        Some(libc::EINVAL) => "EINVAL",
        _ => return error.to_string(),
    };
    name.to_owned()
}
