//! Runs a program on a kernel that lacks something: system calls that do not exist for it.
//!
//! `without NUMBER[,NUMBER…] PROGRAM [ARGUMENT…]`
//!
//! Each call fails with ENOSYS, for the program and all it starts, as on a kernel that never had
//! it. The program takes the place of this process.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let error = become_program(std::env::args().skip(1));
    let _ = writeln!(std::io::stderr(), "without: {error}");
    ExitCode::from(2)
}

/// Returns only what went wrong.
#[cfg(target_os = "linux")]
fn become_program(mut arguments: impl Iterator<Item = String>) -> String {
    use std::os::unix::process::CommandExt;

    use seccompiler::{SeccompAction, SeccompFilter, apply_filter};

    let calls = arguments.next().unwrap_or_default();
    let calls: Result<Vec<i64>, _> = calls.split(',').map(str::parse).collect();
    let (Ok(calls), Some(program)) = (calls, arguments.next()) else {
        return "wants numbers and a program".to_owned();
    };
    let rules = calls.into_iter().map(|call| (call, Vec::new())).collect();
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let here = std::env::consts::ARCH.try_into();
    let filter = here.and_then(|here| {
        SeccompFilter::new(rules, SeccompAction::Allow, missing, here)?.try_into()
    });
    let filter: seccompiler::BpfProgram = match filter {
        Ok(filter) => filter,
        Err(error) => return error.to_string(),
    };
    if let Err(error) = apply_filter(&filter) {
        return error.to_string();
    }
    #[expect(clippy::disallowed_methods, reason = "this replaces the process and starts none")]
    std::process::Command::new(program).args(arguments).exec().to_string()
}

#[cfg(not(target_os = "linux"))]
fn become_program(_: impl Iterator<Item = String>) -> String {
    "there are no filters here".to_owned()
}
