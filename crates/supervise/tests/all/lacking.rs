//! Systems that lack something: what they cannot give is refused and told.

use pontoon_supervise::{Command, Confinement, Network, Restriction, SpawnError, Spawner, User};

use crate::attempts::*;
use crate::world::*;

tests! {
    without_a_proc_of_its_own_a_child_sees_itself
    a_kernel_without_landlock_is_told
    a_kernel_without_filters_is_told
    without_namespaces_a_filter_keeps_off_the_network
    a_program_without_privileges_is_told_what_it_cannot_have
}

/// What a program that runs without some system calls says of a restriction.
async fn without(spawner: &Spawner, calls: &[i64], attempt: &[&str]) -> String {
    let mut args = vec!["--without".into()];
    args.push(calls.iter().map(i64::to_string).collect::<Vec<_>>().join(",").into());
    args.extend(attempt.iter().map(Into::into));
    let program = std::env::current_exe().unwrap();
    output(spawner, &Command { args, ..Command::new(program) }).await
}

async fn without_a_proc_of_its_own_a_child_sees_itself(spawner: Spawner) {
    if spawner.support().landlock_abi.is_none() {
        return a_kernel_without_landlock_is_told(spawner).await;
    }
    for (path, expected) in
        [("/proc/self/maps", "ok\n"), ("/proc/meminfo", "ok\n"), ("/proc/1/cmdline", "EACCES\n")]
    {
        let attempt = ["files", "read", path];
        assert_eq!(without(&spawner, &[libc::SYS_mount], &attempt).await, expected, "{path}");
    }
}

async fn a_kernel_without_landlock_is_told(spawner: Spawner) {
    let said = without(&spawner, &[libc::SYS_landlock_create_ruleset], &["files"]).await;
    assert_eq!(
        said,
        "this system cannot keep it to its files, as asked for `/bin/true`: it needs Linux 6.2 or \
         newer with Landlock (ABI 3) enabled at boot, or allow less (`isolation.best_effort`)\n\
         softened: [Files]\n"
    );
}

async fn a_kernel_without_filters_is_told(spawner: Spawner) {
    let said = without(&spawner, &[libc::SYS_seccomp], &["calls"]).await;
    assert!(said.starts_with("this system cannot refuse it dangerous system calls, as"), "{said}");
    assert!(said.ends_with("softened: [Calls]\n"), "{said}");
    let neither = [libc::SYS_seccomp, libc::SYS_unshare];
    let said = without(&spawner, &neither, &["network"]).await;
    assert!(said.starts_with("this system cannot keep it off the network, as asked"), "{said}");
}

async fn without_namespaces_a_filter_keeps_off_the_network(spawner: Spawner) {
    if !spawner.support().seccomp {
        return a_kernel_without_filters_is_told(spawner).await;
    }
    for attempt in [&["talk to itself"][..], &["send", "192.0.2.1:53"], &["listen"]] {
        let attempt = [&["network"], attempt].concat();
        let said = without(&spawner, &[libc::SYS_unshare], &attempt).await;
        assert_eq!(said, "EAFNOSUPPORT\n", "{attempt:?}");
    }
}

async fn a_program_without_privileges_is_told_what_it_cannot_have(spawner: Spawner) {
    let (_kept, program) = public_copy();
    let user = Some(User { uid: 61_240, gid: 61_240 });
    let confinement = Confinement { user, ..Confinement::default() };
    let args = vec!["--unprivileged".into()];
    let command = Command { args, confinement, ..Command::new(program) };
    let said = match output_or_refusal(&spawner, &command).await {
        Some(said) => said,
        // This program has none itself.
        None => output(&spawner, &Command { confinement: Confinement::default(), ..command }).await,
    };
    assert_eq!(said, "fine\n");
}

/// The body of the last test, in a program that is not root.
pub(crate) async fn unprivileged(spawner: Spawner) {
    let us = [std::process::id(), spawner.pid()];
    // A child of the same user, which nothing else keeps from it.
    for pid in us {
        for file in ["environ", "mem"] {
            let path = format!("/proc/{pid}/{file}");
            check(&spawner, &Confinement::default(), &[(&["read", &path], "EACCES")]).await;
        }
        let pid = pid.to_string();
        let attempts: [(&[&str], &str); 2] =
            [(&["look into", &pid], "EPERM"), (&["ptrace", &pid], "EPERM")];
        check(&spawner, &Confinement::default(), &attempts).await;
    }
    let impossible = async |command: &Command, expected: Restriction| {
        let error = spawner.spawn(command).await.unwrap_err();
        let is_it =
            matches!(error, SpawnError::Impossible { restriction, .. } if restriction == expected);
        assert!(is_it, "{error}");
    };
    let user = Some(User { uid: 61_241, gid: 61_241 });
    let confinement = Confinement { user, ..Confinement::default() };
    impossible(&Command { confinement, ..sh("exit") }, Restriction::User).await;
    let mut command = sh("exit");
    command.limits.processes = Some(20);
    impossible(&command, Restriction::Processes).await;
    // A network of its own comes with a user namespace, in which it stays who it was.
    let confinement = Confinement { network: Network::None, ..Confinement::default() };
    let command = Command { confinement: confinement.clone(), ..sh("id -u; id -g") };
    // SAFETY: no memory is involved.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    assert_eq!(output(&spawner, &command).await, format!("{uid}\n{gid}\n"));
    let by_namespace = spawner.support().network_namespace;
    let (talk, send) =
        if by_namespace { ("hello", "ENETUNREACH") } else { ("EAFNOSUPPORT", "EAFNOSUPPORT") };
    let attempts: [(&[&str], &str); 3] = [
        (&["talk to itself"], talk),
        (&["send", "192.0.2.1:53"], send),
        (&["status", "CapEff"], "0000000000000000"),
    ];
    check(&spawner, &confinement, &attempts).await;
}
