//! Whose a confined child is, what it keeps of every child, and what runs under all of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use pontoon_supervise::{Command, Confinement, Network, Spawner, User};

use crate::attempts::*;
use crate::world::*;

tests! {
    another_user_is_another_user_for_good
    a_confined_child_has_no_capabilities
    a_confined_child_keeps_what_every_child_has
    an_escaped_grandchild_of_another_user_ends
    a_confined_child_dies_with_its_spawner
    python_and_node_run_confined
}

async fn another_user_is_another_user_for_good(spawner: Spawner) {
    let (_kept, program) = public_copy();
    let place = Place::new();
    fs::set_permissions(
        place.secret.parent().unwrap().parent().unwrap(),
        PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    fs::set_permissions(&place.secret, PermissionsExt::from_mode(0o600)).unwrap();
    let user = Some(User { uid: 61_234, gid: 61_235 });
    let confinement = Confinement { user, ..Confinement::default() };
    let secret = place.secret();
    for (attempt, expected) in [
        (&["status", "Uid"][..], "61234 61234 61234 61234"),
        (&["status", "Gid"], "61235 61235 61235 61235"),
        (&["status", "Groups"], ""),
        (&["become root"], "EPERM"),
        (&["read", &secret], "EACCES"),
        (&["look into", &std::process::id().to_string()], "EPERM"),
        (&["read", &format!("/proc/{}/environ", std::process::id())], "EACCES"),
        (&["read", &format!("/proc/{}/environ", spawner.pid())], "EACCES"),
    ] {
        let command = Command {
            program: program.clone(),
            confinement: confinement.clone(),
            ..hostile(attempt)
        };
        let said = output_or_refusal(&spawner, &command).await;
        assert!(said.as_deref().is_none_or(|said| said.trim_end() == expected), "{said:?}");
    }
    // What it makes is its own, and only its own.
    if spawner.support().root {
        std::os::unix::fs::chown(&place.workspace, Some(61_234), Some(61_235)).unwrap();
        let made = place.workspace.join("made");
        let directory = Some(place.workspace.clone());
        output(&spawner, &Command { confinement, directory, ..sh("echo x > made") }).await;
        let made = fs::metadata(made).unwrap();
        assert_eq!((made.uid(), made.gid(), made.mode() & 0o777), (61_234, 61_235, 0o600));
    }
}

async fn a_confined_child_has_no_capabilities(spawner: Spawner) {
    let place = Place::new();
    let user = Some(User { uid: 61_236, gid: 61_236 });
    let (_kept, program) = public_copy();
    for confinement in [
        Confinement { deny_calls: true, ..Confinement::default() },
        Confinement { network: Network::None, ..Confinement::default() },
        Confinement { user, ..Confinement::default() },
        place.files(),
    ] {
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            let command = Command { confinement: confinement.clone(), ..hostile(&["status", set]) };
            let program = if confinement.user.is_some() { &program } else { &command.program };
            let command = Command { program: program.clone(), ..command };
            let said = output_or_refusal(&spawner, &command).await;
            assert!(
                said.as_deref().is_none_or(|said| said == "0000000000000000\n"),
                "{set} {said:?}"
            );
        }
    }
}

async fn a_confined_child_keeps_what_every_child_has(spawner: Spawner) {
    let place = Place::new();
    let user = Some(User { uid: 61_237, gid: 61_237 });
    // By name, as scripts do.
    let script = ": > /dev/stdout; exec < /dev/stdin; echo $(umask) $(ulimit -c); read line";
    for confinement in [place.all(), Confinement { user, ..Confinement::default() }] {
        let command = Command { confinement, ..sh(script) };
        if is_refused(&spawner, &command).await {
            continue;
        }
        // Its own group, its three descriptors, and a parent that takes it along.
        let (child, _input, _output, line) = start(&spawner, &command).await;
        assert_eq!(line, "0077 0");
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        assert!(status.contains("NoNewPrivs:\t1\n"), "{status}");
        expect_to_go_first(child.id());
        assert_eq!(stat(child.id()).unwrap()[2], child.id().to_string(), "group");
        let descriptors = fs::read_dir(format!("/proc/{}/fd", child.id()));
        assert!(descriptors.is_ok_and(|it| it.count() == 3), "three descriptors");
        child.kill();
    }
}

async fn an_escaped_grandchild_of_another_user_ends(spawner: Spawner) {
    let place = Place::new();
    let user = Some(User { uid: 61_238, gid: 61_238 });
    // Without rules for files, as the workspace belongs to the user of this test.
    for confinement in
        [place.all(), Confinement { user, deny_calls: true, ..Confinement::default() }]
    {
        let script = "env -i setsid sh -c 'sleep 1000 <&- >&- 2>&- & echo $!'; exec sleep 1000";
        let command = Command { confinement, ..sh(script) };
        if is_refused(&spawner, &command).await {
            continue;
        }
        let (child, _input, _output, pid) = start(&spawner, &command).await;
        let pid = pid.parse().unwrap();
        assert!(runs(pid));
        child.terminate();
        child.exited().await;
        assert!(!runs(pid));
    }
}

async fn a_confined_child_dies_with_its_spawner(spawner: Spawner) {
    let place = Place::new();
    let user = Some(User { uid: 61_239, gid: 61_239 });
    let mut pids = Vec::new();
    let mut kept = Vec::new();
    for confinement in [place.all(), Confinement { user, ..Confinement::default() }] {
        let command = Command { confinement, ..sh("echo ready; exec sleep 1000") };
        if is_refused(&spawner, &command).await {
            continue;
        }
        let started = start(&spawner, &command).await;
        pids.push(started.0.id());
        kept.push(started);
    }
    signal(spawner.pid(), libc::SIGKILL);
    eventually("they died with it", || !pids.iter().any(|pid| runs(*pid))).await;
}

async fn python_and_node_run_confined(spawner: Spawner) {
    let python = "\
import json, os, resource, ssl, socket, subprocess, sys, tempfile, threading, multiprocessing, decimal
ssl.create_default_context()
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(0)
resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE))
t = threading.Thread(target=lambda: None); t.start(); t.join()
subprocess.run(['/bin/true'], check=True)
m = multiprocessing.get_context('fork'); a, b = m.Pipe()
p = m.Process(target=lambda: b.send(1)); p.start(); a.recv(); p.join()
with open('made', 'w') as f: f.write('日本語')
os.rename('made', 'renamed')
try: open('../beside/secret'); sys.exit('reached')
except PermissionError: print('fine')
";
    let node = "\
const fs = require('fs'), os = require('os'), child = require('child_process');
const { Worker } = require('worker_threads');
process.memoryUsage(); os.cpus(); os.networkInterfaces();
fs.writeFileSync('made', '日本語'); fs.renameSync('made', 'renamed');
child.execFileSync('/bin/true');
try { fs.readFileSync('../beside/secret'); console.log('reached'); } catch (error) {
  new Worker('1', { eval: true }).on('exit', () => console.log(error.code == 'EACCES' ? 'fine' : error));
}
";
    for (programs, flag, code) in [
        (["/usr/bin/python3", "/usr/local/bin/python3"], "-c", python),
        (["/usr/bin/node", "/usr/local/bin/node"], "-e", node),
    ] {
        let Some(program) = programs.iter().find(|path| Path::new(path).exists()) else {
            println!("  not installed here: {}", programs[0]);
            continue;
        };
        let place = Place::new();
        let command = Command {
            args: vec![flag.into(), code.into()],
            env: vec![("TMPDIR".into(), place.workspace.clone().into())],
            directory: Some(place.workspace.clone()),
            confinement: place.all(),
            ..Command::new(*program)
        };
        if is_refused(&spawner, &command).await {
            continue;
        }
        let child = spawner.spawn(&command).await.unwrap();
        let complaints = child.complaints();
        let (said, exit) = outcome(child).await;
        assert_eq!(said, "fine\n", "{program} {exit}: {:?}", complaints.last_lines());
        assert_eq!(fs::read_to_string(place.workspace.join("renamed")).unwrap(), "日本語");
    }
}
