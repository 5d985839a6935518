//! What a confined child cannot do: files, calls, network, other processes.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use pontoon_supervise::{Command, Confinement, FileRules, Network, SpawnError, Spawner, User};

use crate::attempts::*;
use crate::world::*;

tests! {
    a_child_reaches_its_files_and_no_others
    a_planted_link_leads_nowhere
    nothing_can_be_moved_out_of_the_workspace
    no_file_outside_can_be_emptied
    devices_cannot_be_made
    a_path_that_is_missing_is_named
    a_path_that_may_be_gone_is_not_missed
    a_program_outside_of_its_files_does_not_start
    dangerous_calls_are_refused
    what_others_do_with_their_files_cannot_be_watched
    limits_and_priorities_of_others_cannot_be_changed
    without_a_network_nothing_leaves_and_nothing_listens
    without_a_network_a_child_can_talk_to_itself
    an_open_network_stays_open
    processes_outside_cannot_be_signalled
    processes_outside_cannot_be_looked_into
    the_system_is_seen_and_other_processes_are_not
}

async fn a_child_reaches_its_files_and_no_others(spawner: Spawner) {
    let place = Place::new();
    let (own, secret) = (place.in_workspace("own"), place.secret());
    let beside = place.secret.parent().unwrap().display().to_string();
    let new_beside = format!("{beside}/new");
    check(
        &spawner,
        &place.files(),
        &[
            (&["read", &own], "ok"),
            (&["write", &own], "ok"),
            (&["create", &place.in_workspace("new")], "ok"),
            (&["list", &place.in_workspace("")], "2"),
            (&["remove", &place.in_workspace("new")], "ok"),
            (&["read", "/usr/bin/env"], "ok"),
            (&["write", "/dev/null"], "ok"),
            (&["read", "/etc/passwd"], "ok"),
            // The user of this test may read and write all of these.
            (&["read", &secret], "EACCES"),
            (&["write", &secret], "EACCES|EROFS"),
            (&["remove", &secret], "EACCES|EROFS"),
            (&["create", &new_beside], "EACCES|EROFS"),
            (&["list", &beside], "EACCES"),
            (&["list", "/"], "EACCES"),
            (&["list", "/etc"], "EACCES"),
            (&["list", "/tmp"], "EACCES"),
            (&["list", "/dev/shm"], "EACCES"),
            (&["write", "/etc/passwd"], "EACCES|EROFS"),
            (&["create", "/usr/bin/planted"], "EACCES|EROFS"),
        ],
    )
    .await;
    // The same child, unconfined, can.
    check(&spawner, &Confinement::default(), &[(&["read", &secret], "ok")]).await;
}

async fn a_planted_link_leads_nowhere(spawner: Spawner) {
    let place = Place::new();
    symlink(&place.secret, place.workspace.join("planted")).unwrap();
    symlink(place.secret.parent().unwrap(), place.workspace.join("folder")).unwrap();
    let (planted, own_link) = (place.in_workspace("planted"), place.in_workspace("made"));
    let secret = place.secret();
    check(
        &spawner,
        &place.files(),
        &[
            (&["read", &planted], "EACCES"),
            (&["write", &planted], "EACCES|EROFS"),
            (&["read", &place.in_workspace("folder/secret")], "EACCES"),
            (&["symlink", &secret, &own_link], "ok"),
            (&["read", &own_link], "EACCES"),
            (&["read", &format!("{}/../beside/secret", place.in_workspace(""))], "EACCES"),
            (&["read", &format!("/proc/self/root{secret}")], "EACCES"),
        ],
    )
    .await;
}

async fn nothing_can_be_moved_out_of_the_workspace(spawner: Spawner) {
    let place = Place::new();
    let (own, secret) = (place.in_workspace("own"), place.secret());
    let outside = format!("{secret}.new");
    fs::create_dir(place.workspace.join("folder")).unwrap();
    check(
        &spawner,
        &place.files(),
        &[
            (&["rename", &own, &outside], "EACCES|EROFS|EXDEV"),
            (&["link", &own, &outside], "EACCES|EROFS|EXDEV"),
            (&["rename", &own, &secret], "EACCES|EROFS|EXDEV"),
            (&["rename", &secret, &place.in_workspace("taken")], "EACCES|EROFS|EXDEV"),
            (&["link", &secret, &place.in_workspace("taken")], "EACCES|EROFS|EXDEV"),
            (&["rename", &own, &place.in_workspace("folder/own")], "ok"),
        ],
    )
    .await;
    assert_eq!(fs::read_to_string(&place.secret).unwrap(), "secret");
    assert!(!Path::new(&outside).exists());
}

async fn no_file_outside_can_be_emptied(spawner: Spawner) {
    let place = Place::new();
    let attempts: [(&[&str], &str); 2] = [
        (&["truncate", &place.secret()], "EACCES|EROFS"),
        (&["truncate", &place.in_workspace("own")], "ok"),
    ];
    check(&spawner, &place.files(), &attempts).await;
    assert_eq!(fs::read_to_string(&place.secret).unwrap(), "secret");
}

async fn devices_cannot_be_made(spawner: Spawner) {
    let place = Place::new();
    let path = place.in_workspace("null");
    let command = Command { confinement: place.files(), ..hostile(&["device", &path]) };
    // Without the capability or without the right, whichever is looked at first.
    let said = output_or_refusal(&spawner, &command).await;
    assert!(said.is_none_or(|said| ["EPERM\n", "EACCES\n", "EROFS\n"].contains(&said.as_str())));
    assert!(!Path::new(&path).exists());
}

async fn a_path_that_is_missing_is_named(spawner: Spawner) {
    let place = Place::new();
    for is_write in [false, true] {
        let mut rules = place.rules();
        let list = if is_write { &mut rules.write } else { &mut rules.read };
        list.insert(0, "/no/such/place".into());
        let confinement = Confinement { files: Some(rules), ..Confinement::default() };
        let command = Command { confinement, ..hostile(&["read", "/usr/bin/env"]) };
        let error = spawner.spawn(&command).await.unwrap_err();
        if spawner.support().missing(&command).is_empty() {
            let text = format!(
                "`/no/such/place`, which `{}` may reach, could not be opened",
                command.program.display()
            );
            assert_eq!(error.to_string(), text);
            let source = std::error::Error::source(&error).unwrap();
            assert!(source.to_string().contains("No such file"), "{source}");
        } else {
            assert!(matches!(error, SpawnError::Impossible { .. }), "{error}");
        }
    }
}

async fn a_path_that_may_be_gone_is_not_missed(spawner: Spawner) {
    let place = Place::new();
    let mut rules = place.rules();
    rules.read_if_there = vec!["/no/such/place".into(), place.secret.clone()];
    let beside = place.secret.parent().unwrap().join("open");
    fs::create_dir(&beside).unwrap();
    rules.write_if_there = vec!["/no/such/place".into(), beside.clone()];
    let confinement = Confinement { files: Some(rules), ..Confinement::default() };
    let new = beside.join("new").display().to_string();
    check(
        &spawner,
        &confinement,
        &[
            (&["read", &place.secret()], "ok"),
            (&["write", &place.secret()], "EACCES|EROFS"),
            (&["create", &new], "ok"),
        ],
    )
    .await;
}

async fn a_program_outside_of_its_files_does_not_start(spawner: Spawner) {
    let place = Place::new();
    let confinement = Confinement { files: Some(FileRules::system()), ..Confinement::default() };
    let command = Command { confinement, ..hostile(&["read", "/usr/bin/env"]) };
    let error = spawner.spawn(&command).await.unwrap_err();
    if spawner.support().missing(&command).is_empty() {
        let text = error.to_string();
        assert!(text.ends_with("could not be executed with only the files it may reach"), "{text}");
    } else {
        assert!(matches!(error, SpawnError::Impossible { .. }), "{error}");
    }
    drop(place);
}

async fn dangerous_calls_are_refused(spawner: Spawner) {
    let confinement = Confinement { deny_calls: true, ..Confinement::default() };
    let us = std::process::id().to_string();
    let user_and_network = (libc::CLONE_NEWUSER | libc::CLONE_NEWNET).to_string();
    check(
        &spawner,
        &confinement,
        &[
            (&["ptrace", &us], "EPERM"),
            (&["look into", &us], "EPERM"),
            (&["unshare", &libc::CLONE_NEWUSER.to_string()], "EPERM"),
            (&["unshare", &libc::CLONE_NEWNS.to_string()], "EPERM"),
            (&["clone", &user_and_network], "EPERM"),
            (&["mount", "/mnt"], "EPERM"),
            (&["chroot"], "EPERM"),
            (&["vsock"], "EAFNOSUPPORT"),
            (&["talk to itself"], "hello"),
            (&["status", "Seccomp"], "2"),
        ],
    )
    .await;
}

async fn what_others_do_with_their_files_cannot_be_watched(spawner: Spawner) {
    let place = Place::new();
    let beside = place.secret.parent().unwrap().display().to_string();
    let attempts: [(&[&str], &str); 2] =
        [(&["watch", &beside], "EPERM"), (&["watch", &place.in_workspace("")], "EPERM")];
    check(&spawner, &place.all(), &attempts).await;
    // Landlock alone has nothing against it.
    check(&spawner, &place.files(), &[(&["watch", &beside], "ok")]).await;
}

async fn limits_and_priorities_of_others_cannot_be_changed(spawner: Spawner) {
    let place = Place::new();
    let other = spawner.spawn(&sh("exec sleep 1000")).await.unwrap();
    let (us, other_pid) = (std::process::id().to_string(), other.id().to_string());
    for pid in [&us, &other_pid, &spawner.pid().to_string()] {
        let attempts: [(&[&str], &str); 3] = [
            (&["limits", pid], "EPERM"),
            (&["priority", "0", pid], "EPERM"),
            (&["processors", pid], "EPERM"),
        ];
        check(&spawner, &place.all(), &attempts).await;
    }
    // All of this user.
    check(&spawner, &place.all(), &[(&["priority", "2", "0"], "EPERM")]).await;
    let own: [(&[&str], &str); 3] =
        [(&["limits", "0"], "ok"), (&["priority", "0", "0"], "ok"), (&["processors", "0"], "ok")];
    check(&spawner, &place.all(), &own).await;
    // Nothing else stands in the way.
    check(&spawner, &place.files(), &[(&["limits", &other_pid], "ok")]).await;
    other.kill();
}

async fn without_a_network_nothing_leaves_and_nothing_listens(spawner: Spawner) {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_nonblocking(true).unwrap();
    let receiver_address = receiver.local_addr().unwrap().to_string();
    let name = format!("supervise-test-{}", std::process::id());
    let abstract_listener = listen_abstract(&name);
    let confinement = Confinement { network: Network::None, ..Confinement::default() };
    for confinement in [confinement, place.all()] {
        let by_namespace = spawner.support().network_namespace;
        // In a network of its own nobody listens; without one there are no sockets.
        let refused = if by_namespace { "ECONNREFUSED" } else { "EAFNOSUPPORT" };
        let unreachable = if by_namespace { "ENETUNREACH" } else { "EAFNOSUPPORT" };
        check(
            &spawner,
            &confinement,
            &[
                (&["connect", &address], refused),
                (&["connect", "192.0.2.1:80"], unreachable),
                (&["send", "192.0.2.1:53"], unreachable),
            ],
        )
        .await;
        // Its own loopback swallows it.
        let command = Command { confinement, ..hostile(&["send", &receiver_address]) };
        let _ = output_or_refusal(&spawner, &command).await;
        assert!(receiver.recv_from(&mut [0]).is_err());
    }
    let command = Command { confinement: place.all(), ..hostile(&["abstract connect", &name]) };
    let said = output_or_refusal(&spawner, &command).await;
    assert!(said.is_none_or(|said| said != "ok\n"));
    drop(abstract_listener);
}

fn listen_abstract(name: &str) -> UnixListener {
    use std::os::linux::net::SocketAddrExt;
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    UnixListener::bind_addr(&address).unwrap()
}

async fn without_a_network_a_child_can_talk_to_itself(spawner: Spawner) {
    let place = Place::new();
    let expected = if spawner.support().network_namespace { "hello" } else { "EAFNOSUPPORT" };
    let socket = place.in_workspace("socket");
    let attempts: [(&[&str], &str); 2] =
        [(&["talk to itself"], expected), (&["unix listen", &socket], "ok")];
    check(&spawner, &place.all(), &attempts).await;
}

async fn an_open_network_stays_open(spawner: Spawner) {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let confinement = Confinement { network: Network::Open, ..place.all() };
    check(&spawner, &confinement, &[(&["connect", &address], "ok"), (&["listen"], "ok")]).await;
}

async fn processes_outside_cannot_be_signalled(spawner: Spawner) {
    let place = Place::new();
    let (us, its_parent) = (std::process::id().to_string(), spawner.pid().to_string());
    if spawner.support().landlock_abi.is_some_and(|abi| abi >= 6) {
        let attempts: [(&[&str], &str); 2] =
            [(&["kill", &us], "EPERM"), (&["kill", &its_parent], "EPERM")];
        check(&spawner, &place.files(), &attempts).await;
    }
    let user = Some(User { uid: 61_001, gid: 61_001 });
    let confinement = Confinement { user, ..Confinement::default() };
    let kill = sh(&format!("kill -0 {us} 2>&1; kill -0 {its_parent} 2>&1"));
    let said = output_or_refusal(&spawner, &Command { confinement, ..kill }).await;
    assert!(said.is_none_or(|said| said.matches("permitted").count() == 2));
}

async fn processes_outside_cannot_be_looked_into(spawner: Spawner) {
    pontoon_supervise::harden_worker();
    let place = Place::new();
    // Even when it may read all of `/proc`.
    let mut rules = place.rules();
    rules.read.push("/proc".into());
    let confinement = Confinement { files: Some(rules), ..Confinement::default() };
    let other = spawner.spawn(&sh("exec sleep 1000")).await.unwrap();
    for pid in [std::process::id(), spawner.pid(), other.id()] {
        for file in ["environ", "mem", "maps"] {
            let path = format!("/proc/{pid}/{file}");
            let read: [(&[&str], &str); 1] = [(&["read", &path], "EACCES|EPERM|ENOENT")];
            check(&spawner, &confinement, &read).await;
        }
        check(&spawner, &confinement, &[(&["look into", &pid.to_string()], "EPERM")]).await;
    }
    other.kill();
}

async fn the_system_is_seen_and_other_processes_are_not(spawner: Spawner) {
    let place = Place::new();
    let us = std::process::id();
    check(
        &spawner,
        &place.files(),
        &[
            (&["read", "/proc/meminfo"], "ok"),
            (&["read", "/proc/self/stat"], "ok"),
            (&["read", "/proc/self/maps"], "ok"),
            (&["read", &format!("/proc/{us}/cmdline")], "EACCES|ENOENT"),
            (&["read", &format!("/proc/{us}/environ")], "EACCES|ENOENT"),
        ],
    )
    .await;
    // What it starts sees itself and its parent, where there is a `/proc` for them.
    if spawner.support().own_proc {
        let script = "sh -c 'cat /proc/$$/comm /proc/$PPID/comm; cd /proc; echo [0-9]*'; :";
        let command = Command { confinement: place.files(), ..sh(script) };
        if let Some(said) = output_or_refusal(&spawner, &command).await {
            let lines: Vec<&str> = said.lines().collect();
            assert_eq!(lines[..2], ["sh", "sh"], "{said}");
            assert_eq!(lines[2].split(' ').count(), 2, "{said}");
        }
    }
}
