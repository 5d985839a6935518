//! Real children: deaf, forking, flooding, dying at once, and the program killed above them.
//!
//! The spawner must be forked before any thread exists, so this file has its own `main`: it forks
//! one spawner for each test, then runs the tests one after the other, each in its own runtime.
#![allow(unsafe_code, reason = "the tests open descriptors to leak and send signals")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this whole program is a test")]
#![cfg_attr(not(target_os = "linux"), allow(unused))]

/// Tests by name, each to be given a spawner in a runtime of its own.
#[cfg(target_os = "linux")]
macro_rules! tests {
    ($($name:ident)*) => {
        pub(crate) const ALL: &[(&str, fn(pontoon_supervise::Starting))] =
            &[$((stringify!($name), |starting| crate::world::in_runtime(starting, $name))),*];
    };
}

#[cfg(target_os = "linux")]
#[path = "all/attempts.rs"]
mod attempts;
#[cfg(target_os = "linux")]
#[path = "all/bounded.rs"]
mod bounded;
#[cfg(target_os = "linux")]
#[path = "all/confined.rs"]
mod confined;
#[cfg(target_os = "linux")]
#[path = "all/executed.rs"]
mod executed;
#[cfg(target_os = "linux")]
#[path = "all/hostile.rs"]
mod hostile;
#[cfg(target_os = "linux")]
#[path = "all/lacking.rs"]
mod lacking;
#[cfg(target_os = "linux")]
#[path = "all/privileges.rs"]
mod privileges;
#[cfg(target_os = "linux")]
#[path = "all/tests.rs"]
mod tests;
#[cfg(target_os = "linux")]
#[path = "all/world.rs"]
mod world;

#[cfg(target_os = "linux")]
use pontoon_supervise::{Cgroup, Confinement, Spawner};

/// The tests look at the system through `/proc`.
#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    // Descriptors that nobody marked to be closed: no child may see them.
    world::leak_descriptors(20);
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("--victim") => {
            let starting = Spawner::start().expect("a spawner");
            world::victim(starting, &arguments.next().expect("a mark"), &Confinement::default())
        }
        Some("--victim-in-cgroup") => {
            let starting = Spawner::start().expect("a spawner");
            let cgroup = Some(Cgroup::default());
            let confinement = Confinement { cgroup, ..Confinement::default() };
            world::victim(starting, &arguments.next().expect("a mark"), &confinement)
        }
        Some("--victim-that-runs") => {
            let program = std::env::current_exe().expect("known");
            let starting = Spawner::run(&program, &["--spawner".into()]).expect("a spawner");
            world::victim(starting, &arguments.next().expect("a mark"), &Confinement::default())
        }
        Some("--spawner") => {
            let error = pontoon_supervise::serve_stdin().expect_err("it does not return");
            panic!("no spawner: {error}")
        }
        Some("--hostile") => hostile::try_it(arguments),
        Some("--without") => world::without(&arguments.next().expect("calls"), arguments),
        Some("--unprivileged") => {
            pontoon_supervise::harden_worker();
            world::with_spawner(async |spawner| {
                lacking::unprivileged(spawner).await;
                println!("fine");
            })
        }
        Some("--sweep") => {
            world::with_spawner(async |spawner| drop(world::output(&spawner, &world::sh("")).await))
        }
        Some("--list") => {
            all().for_each(|(name, _)| println!("{name}: test"));
            std::process::ExitCode::SUCCESS
        }
        filter => run(filter.filter(|word| !word.starts_with('-')).unwrap_or("")),
    }
}

#[cfg(target_os = "linux")]
fn all() -> impl Iterator<Item = &'static (&'static str, fn(pontoon_supervise::Starting))> {
    let lists =
        [tests::ALL, executed::ALL, confined::ALL, privileges::ALL, lacking::ALL, bounded::ALL];
    lists.into_iter().flatten()
}

#[cfg(target_os = "linux")]
fn run(filter: &str) -> std::process::ExitCode {
    let chosen: Vec<_> = all()
        .filter(|(name, _)| name.contains(filter))
        .map(|(name, test)| (name, test, Spawner::start().expect("a spawner")))
        .collect();
    println!("\nrunning {} tests", chosen.len());
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, test, starting) in chosen {
        let began = std::time::Instant::now();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(starting)));
        let took = began.elapsed().as_millis();
        if result.is_ok() {
            passed += 1;
            println!("test {name} ... ok ({took} ms)");
        } else {
            failed.push(name);
            println!("test {name} ... FAILED ({took} ms)");
        }
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {} failed {failed:?}\n", failed.len());
    if failed.is_empty() {
        std::process::ExitCode::SUCCESS
    } else {
        std::process::ExitCode::FAILURE
    }
}
