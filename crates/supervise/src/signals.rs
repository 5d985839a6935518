//! Last things: what the program does before a signal ends it.
//!
//! Only where the signal would end it: one that the program ignores, or has a handler for, is its own.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use libc::c_int;

use crate::unix;

/// The signals by which users, terminals and service managers end a program.
const SIGNALS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Where the handler writes the number of a signal.
static TOLD: AtomicI32 = AtomicI32::new(-1);

/// The process that has the thread which reads it. A copy by `fork` has the handler and no thread.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Does `last` when SIGINT, SIGTERM or SIGHUP is about to end this process, in a thread of its own; then
/// the signal ends it. The same signal once more does not wait for that.
///
/// A signal that is ignored, or has a handler, is left alone. One that gets a handler later is, too: the
/// program then decides what becomes of it.
///
/// # Errors
///
/// `AlreadyExists` when it was called before, or when the system gives no pipe or no thread.
pub fn before_a_signal_ends_us(last: impl FnOnce() + Send + 'static) -> io::Result<()> {
    static IS_SET: AtomicBool = AtomicBool::new(false);
    if IS_SET.swap(true, Ordering::SeqCst) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let mouth = start(last).inspect_err(|_| IS_SET.store(false, Ordering::SeqCst))?;
    OWNER.store(std::process::id().cast_signed(), Ordering::SeqCst);
    // Never closed: a handler may run until the very end.
    TOLD.store(mouth.into_raw_fd(), Ordering::SeqCst);
    for signal in SIGNALS {
        if handler_of(signal) == libc::SIG_DFL {
            set_handler(signal, tell as extern "C" fn(c_int) as libc::sighandler_t);
        }
    }
    Ok(())
}

/// Starts the thread, and gives where it is told of signals.
fn start(last: impl FnOnce() + Send + 'static) -> io::Result<OwnedFd> {
    let (ear, mouth) = unix::pipe()?;
    unix::set_nonblocking(&mouth)?;
    let thread = std::thread::Builder::new().name("before-the-end".to_owned());
    thread.spawn(move || wait(&ear, last))?;
    Ok(mouth)
}

/// The handler: it passes the signal on to the thread. Calls only what a handler may call.
extern "C" fn tell(signal: c_int) {
    // SAFETY: a signal may come between a call and its `errno`, which is put back; one byte is written
    // from a local; a full pipe has a signal in it already.
    unsafe {
        if libc::getpid() != OWNER.load(Ordering::SeqCst) {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
            return;
        }
        let errno = errno_place();
        let before = *errno;
        let number = signal as u8;
        libc::write(TOLD.load(Ordering::SeqCst), (&raw const number).cast(), 1);
        *errno = before;
    }
}

/// The thread: it waits for a signal that is to end the process, and lets it.
fn wait(ear: &OwnedFd, last: impl FnOnce()) {
    // The program's own threads get its signals.
    unix::block_signals(&unix::all_signals());
    let mut number = [0];
    while let Ok(1) = unix::read(ear.as_fd(), &mut number) {
        let signal = c_int::from(number[0]);
        // The first signal has reset our handler, so that a second one need not wait. Any other handler
        // has come later, and called ours.
        if handler_of(signal) == libc::SIG_DFL {
            last();
            end_by(signal);
        }
    }
}

/// Ends this process by a signal, as if it had never been caught.
fn end_by(signal: c_int) -> ! {
    // SAFETY: no memory is involved but a set that the calls initialise. The signal is raised for this
    // thread, so the process does not get past it; the first process of a container does.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut open = unix::all_signals();
        libc::sigdelset(&raw mut open, signal);
        unix::block_signals(&open);
        libc::raise(signal);
        libc::_exit(128 + signal)
    }
}

fn handler_of(signal: c_int) -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call writes one action, and all zeros is a valid one if it does not.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    }
}

fn set_handler(signal: c_int, handler: libc::sighandler_t) {
    // SAFETY: an action with an empty mask, whose handler calls only what it may.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&raw mut action.sa_mask);
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

/// Where this thread has its `errno`.
fn errno_place() -> *mut c_int {
    // SAFETY: the place is there as long as the thread.
    unsafe {
        #[cfg(target_os = "linux")]
        return libc::__errno_location();
        #[cfg(not(target_os = "linux"))]
        return libc::__error();
    }
}
