//! The tool `attempt`: tries what a server has no business to, and says how far it came.
//!
//! Its `acts` are tried in order, each a list of words. The answer is a list in JSON with one word
//! for each: `ok`, what was found, or the name of the error that the system gave.
//!
//! | act | what it tries |
//! | --- | --- |
//! | `read`, `open`, `list`, `write`, `create`, `remove`, `truncate`, `chmod` and a path | that, with a file or folder |
//! | `rename`, `link`, `symlink`, and two paths | that, from the first to the second |
//! | `await` and a path | waits until something is there |
//! | `connect`, `send` and an address; `listen` | that, by TCP, UDP and TCP |
//! | `kill`, `trace`, `peek` and a pid | kills it, traces it, reads its memory |
//! | `fork`, `files` and a number | as many processes or open files; how many there were, and why |
//! | `leave` | leaves a grandchild behind in a session of its own; its pid |
//! | `take` and a number | so many bytes of memory |
//! | `fill` and a path | a file without end |
//! | `spin` | to compute without end |
//! | `status` and a name | gives that line of its status |

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Tries each of the acts, and says in JSON what came of it.
pub(crate) fn attempt_all(acts: &Value) -> String {
    let outcome = |act: &Value| {
        let words: Vec<_> =
            act.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        attempt(&words).unwrap_or_else(|error| name(&error))
    };
    json!(acts.as_array().into_iter().flatten().map(outcome).collect::<Vec<_>>()).to_string()
}

fn attempt(act: &[&str]) -> io::Result<String> {
    match *act {
        ["read", path] => fs::read(path).map(drop)?,
        ["open", path] => File::open(path).map(drop)?,
        ["list", path] => fs::read_dir(path).map(drop)?,
        ["write", path] => OpenOptions::new().append(true).open(path)?.write_all(b"x")?,
        ["create", path] => File::create_new(path).map(drop)?,
        ["remove", path] => fs::remove_file(path)?,
        ["truncate", path] => OpenOptions::new().write(true).truncate(true).open(path).map(drop)?,
        ["chmod", path] => fs::set_permissions(path, fs::Permissions::from_mode(0o777))?,
        ["shut", path] => fs::set_permissions(path, fs::Permissions::from_mode(0o000))?,
        ["rename", from, to] => fs::rename(from, to)?,
        ["link", from, to] => fs::hard_link(from, to)?,
        ["symlink", from, to] => std::os::unix::fs::symlink(from, to)?,
        ["await", path] => wait_for(Path::new(path)),
        ["connect", address] => TcpStream::connect(address).map(drop)?,
        ["send", address] => UdpSocket::bind("0.0.0.0:0")?.send_to(b"x", address).map(drop)?,
        ["listen"] => TcpListener::bind("127.0.0.1:0").map(drop)?,
        ["kill", pid] => kill_process(process(pid)?, Signal::KILL)?,
        ["trace", pid] => trace(process(pid)?)?,
        ["peek", pid] => peek(process(pid)?)?,
        ["fork", most] => return Ok(most_of(most, || sleeper(&["sleep"]).spawn().map(drop))),
        ["files", most] => {
            let mut open = Vec::new();
            return Ok(most_of(most, || File::open("/dev/null").map(|file| open.push(file))));
        }
        ["leave"] => return leave(),
        ["take", bytes] => take(number(bytes)?)?,
        ["fill", path] => fill(path)?,
        ["spin"] => loop {
            std::hint::black_box(0);
        },
        ["status", wanted] => return status(wanted),
        _ => return Err(io::Error::other(format!("no act {act:?}"))),
    }
    Ok("ok".to_owned())
}

fn number(text: &str) -> io::Result<usize> {
    text.parse().map_err(io::Error::other)
}

fn process(text: &str) -> io::Result<Pid> {
    let pid = i32::try_from(number(text)?).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::Error::other(format!("{text} is no pid")))
}

fn name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => format!("{:?}", nix::errno::Errno::from_raw(number)),
        None => error.to_string(),
    }
}

fn wait_for(path: &Path) {
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(target_os = "linux")]
fn trace(pid: Pid) -> io::Result<()> {
    let pid = nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get());
    Ok(nix::sys::ptrace::seize(pid, nix::sys::ptrace::Options::empty())?)
}

#[cfg(target_os = "linux")]
fn peek(pid: Pid) -> io::Result<()> {
    use nix::sys::uio::{RemoteIoVec, process_vm_readv};
    let pid = nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get());
    let there = [RemoteIoVec { base: 0x1000, len: 1 }];
    match process_vm_readv(pid, &mut [io::IoSliceMut::new(&mut [0])], &there) {
        // Nothing is there, but we may look.
        Ok(_) | Err(nix::errno::Errno::EFAULT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn trace(_: Pid) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn peek(_: Pid) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// How often something could be done, up to so often, and why not more.
fn most_of(most: &str, mut act: impl FnMut() -> io::Result<()>) -> String {
    for count in 0..number(most).unwrap_or_default() {
        if let Err(error) = act() {
            return format!("{count} {}", name(&error));
        }
    }
    format!("{most} ok")
}

/// A process that does nothing for ten minutes, and carries nothing of this one.
fn sleeper(command: &[&str]) -> Command {
    #[expect(clippy::disallowed_methods, reason = "children that leak are the point")]
    let mut sleeper = Command::new(command[0]);
    sleeper.args(&command[1..]).arg("600").env_clear();
    if let Some(path) = std::env::var_os("PATH") {
        sleeper.env("PATH", path);
    }
    sleeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    sleeper
}

fn leave() -> io::Result<String> {
    let script = r#"echo $$ > pid.part; mv pid.part pid; exec sleep "$0""#;
    sleeper(&["setsid", "--fork", "sh", "-c", script]).spawn()?;
    wait_for(Path::new("pid"));
    Ok(fs::read_to_string("pid")?.trim().to_owned())
}

fn take(bytes: usize) -> io::Result<()> {
    let mut memory: Vec<u8> = Vec::new();
    memory.try_reserve_exact(bytes).map_err(|_| io::Error::from_raw_os_error(12))?;
    memory.resize(bytes, 1);
    std::hint::black_box(memory);
    Ok(())
}

fn fill(path: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    let piece = vec![0; 1 << 20];
    // No test grants more; the disk under it is not for this server to fill.
    for _ in 0..256 {
        file.write_all(&piece)?;
    }
    Ok(())
}

fn status(wanted: &str) -> io::Result<String> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(':'));
    Ok(line.unwrap_or("no such line").split_whitespace().collect::<Vec<_>>().join(" "))
}
