//! What tools make, downloaded: the bytes, the headers, and every way out that leads nowhere.

use std::time::{Duration, Instant};

use pontoon_tests::client::{Client, ERAS, Modern, Request, Response, Speaker, send_bytes};
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::{Value, json};

use crate::{fixture, plan, rig, shell};

/// Lets a tool write a file, and gives the job that recorded it and the address of the file.
fn make(rig: &Rig, server: &str, name: &str, content: &str) -> (String, String) {
    let mut client = Modern::new(&rig.endpoint(server));
    let response = client.call(1, "write_file", json!({"name": name, "text": content}));
    let job = response.head.header("x-mcpo-job-id").unwrap_or_else(|| panic!("{response:?}"));
    let link = response.head.header("link").unwrap_or_else(|| panic!("{response:?}"));
    let link = link.trim_start_matches('<').split('>').next().unwrap();
    let path = link.find("/files/").map(|start| &link[start..]).unwrap();
    (job.to_owned(), path.to_owned())
}

fn get(rig: &Rig, path: &str) -> Response {
    Request::new("GET", path).send(rig.address()).unwrap()
}

#[test]
fn a_file_with_a_japanese_name_comes_back_as_it_was_made() {
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        let (job, path) = make(&rig, "fixture", "資料 1.txt", "<script>桟橋</script>");
        assert_eq!(path, format!("/files/{job}/%E8%B3%87%E6%96%99%201.txt"));
        let response = get(&rig, &path);
        assert_eq!((response.status(), response.text().as_str()), (200, "<script>桟橋</script>"));
        let header = |name| response.head.header(name).unwrap_or_default();
        let saved =
            "attachment; filename=\"__ 1.txt\"; filename*=UTF-8''%E8%B3%87%E6%96%99%201.txt";
        assert_eq!(header("content-disposition"), saved);
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("content-security-policy"), "sandbox; default-src 'none'");
        let part = Request::new("GET", &path).header("Range", "bytes=8-13").send(rig.address());
        let part = part.unwrap();
        assert_eq!((part.status(), part.text().as_str()), (206, "桟橋"));
        rig.stop();
    }
}

/// The record of a job, once it has ended and says this.
fn wait_for_record(rig: &Rig, job: &str, name: &str, text: &str) {
    let path = rig.directory().join("jobs").join(job).join(name);
    wait_until(&format!("{} says {text:?}", path.display()), Duration::from_secs(10), || {
        std::fs::read_to_string(&path).is_ok_and(|found| found.contains(text))
    });
}

#[test]
fn a_call_that_failed_says_which_job_recorded_it() {
    for workspace in ["job", "session"] {
        let server = fixture("stateless").with("workspace", workspace);
        let server = server.with("tool_timeouts", json!({"wait": 1}));
        let rig = rig([server]);
        for era in ERAS {
            let mut client = Client::new(era, &rig.endpoint("fixture"));
            for (tool, status, why) in
                [("crash", 502, "exited with code 3"), ("wait", 504, "did not answer within 1 s")]
            {
                let response = client.call(1, tool, json!({"ms": 60_000}));
                assert_eq!(response.told_status(), status, "{}", response.text());
                let job = response.head.header("x-mcpo-job-id").map(str::to_owned);
                let job = job.unwrap_or_else(|| panic!("{tool} {era:?}: {response:?}"));
                wait_for_record(&rig, &job, "metadata.json", why);
                if (workspace, tool) == ("job", "crash") {
                    wait_for_record(&rig, &job, "server.log", "because it was asked to");
                }
            }
            client.end();
        }
        rig.stop();
    }
    // One that has no job, or that was refused before it had one, names none.
    let rig = rig([fixture("stateful")]);
    let mut client = Modern::new(&rig.endpoint("fixture"));
    let response = client.call(1, "crash", json!({}));
    assert_eq!((response.status(), response.head.header("x-mcpo-job-id")), (502, None));
    rig.stop();
}

/// The files that a call is told of; what the tool answers is not looked at.
fn told(rig: &Rig, tool: &str, arguments: Value) -> Vec<String> {
    let response = Modern::new(&rig.endpoint("shell")).call(1, tool, arguments);
    let content = response.answer()["result"]["content"].clone();
    let blocks = content.as_array().unwrap_or_else(|| panic!("{}", response.text())).clone();
    let links = blocks.iter().filter(|block| block["type"] == "resource_link");
    links.map(|link| link["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_file_that_was_there_before_is_offered_when_arguments_or_answer_name_it() {
    let script = "mkdir out; echo x > out/old.txt; ln -s old.txt out/link.txt; ";
    for mode in ["stateless", "stateful"] {
        // A handshake tells when it has started, and so what was there before the call.
        let server = shell(&format!("{script}exec FIXTURE --era legacy"), mode)
            .with("file_path_fields", json!(["file_path"]))
            .with("env", json!({"file_path": "./out/old.txt"}));
        let rig = rig([server]);
        let echo = |path: &str| told(&rig, "echo", json!({"text": "x", "file_path": path}));
        if mode == "stateful" {
            assert_eq!(echo(""), ["out/old.txt"], "the process has just made it");
        }
        assert_eq!(echo(""), [""; 0], "{mode}: nobody spoke of it");
        assert_eq!(echo("out/old.txt"), ["out/old.txt"], "{mode}");
        assert_eq!(told(&rig, "environment", json!({})), ["out/old.txt"], "{mode}: by the answer");
        for path in ["out/link.txt", "out", "out/none.txt", "../metadata.json", "/etc/passwd"] {
            assert_eq!(echo(path), [""; 0], "{mode}: {path}");
        }
        rig.stop();
    }
}

#[test]
fn no_spelling_of_a_path_leaves_the_files_of_a_job() {
    let rig = rig([fixture("stateless")]);
    let (job, path) = make(&rig, "fixture", "a.txt", "mine");
    let (other, _) = make(&rig, "fixture", "b.txt", "another");
    assert_eq!(get(&rig, &path).status(), 200);
    let missing = get(&rig, &format!("/files/{job}/missing"));
    assert_eq!(missing.status(), 404);
    let simple = job.replace('-', "");
    let up = job.to_uppercase();
    let long = "a".repeat(256);
    for path in [
        "../metadata.json",
        "..%2fmetadata.json",
        "%2e%2e/metadata.json",
        "%2e%2e%2fmetadata.json",
        "%252e%252e/metadata.json",
        "..%5cmetadata.json",
        "..\\metadata.json",
        ".%00./metadata.json",
        "%c0%ae%c0%ae/metadata.json",
        "metadata.json",
        "request.json",
        "response.json",
        "server.log",
        "./a.txt",
        "a.txt/",
        "a.txt/.",
        "/a.txt",
        "a.txt%00",
        "a.txt%00.png",
        "a.txt%20",
        "A.txt",
        ".tmp",
        ".tmp/x",
        "%2etmp",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "",
        "%",
        "%zz",
        &long,
        &format!("../../{other}/files/b.txt"),
        &format!("..%2f..%2f{other}%2ffiles%2fb.txt"),
    ] {
        // Sent as it is: a client that tidies paths up would hide what is tried here.
        let line = format!("GET /files/{job}/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let response = send_bytes(rig.address(), line.as_bytes()).unwrap();
        assert!(matches!(response.status(), 400 | 404), "{path}: {}", response.status());
        assert!(response.status() == 400 || response.body == missing.body, "{path}");
    }
    for job in [&simple, &up, &format!("{{{job}}}"), ".sessions", ".instances", "..", "."] {
        let line = format!("GET /files/{job}/a.txt HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let response = send_bytes(rig.address(), line.as_bytes()).unwrap();
        assert!(matches!(response.status(), 400 | 404), "{job}: {}", response.status());
    }
    rig.stop();
}

#[test]
fn only_plain_files_are_served_and_nothing_hangs() {
    let script = "ln -s /etc/passwd link; ln -s / root; ln -s . here; mkdir folder; mkfifo pipe; \
                  echo x > linked; ln linked hard; echo y > folder/inside.txt; exec FIXTURE";
    let rig = rig([shell(script, "stateless")]);
    let (job, path) = make(&rig, "shell", "a.txt", "mine");
    assert_eq!(get(&rig, &path).status(), 200);
    assert_eq!(get(&rig, &format!("/files/{job}/folder/inside.txt")).text(), "y\n");
    for name in [
        "link",
        "root",
        "root/etc/passwd",
        "here",
        "here/a.txt",
        "folder",
        "pipe",
        "hard",
        "linked",
    ] {
        let begun = Instant::now();
        assert_eq!(get(&rig, &format!("/files/{job}/{name}")).status(), 404, "{name}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{name} took {:?}", begun.elapsed());
    }
    rig.stop();
}

#[test]
fn a_signed_link_is_for_one_file_and_no_letter_of_it_can_change() {
    let rig = plan([fixture("stateless")])
        .variable("MCPO_LINK_SECRET", "a secret for links, long enough")
        .start();
    let (_, mine) = make(&rig, "fixture", "a.txt", "mine");
    let (_, theirs) = make(&rig, "fixture", "a.txt", "theirs");
    let (bare, query) = mine.split_once('?').expect("a signed link");
    assert_eq!(get(&rig, &mine).text(), "mine");
    assert_eq!(get(&rig, bare).status(), 404);
    let other = theirs.split_once('?').unwrap().0;
    assert_eq!(get(&rig, &format!("{other}?{query}")).status(), 404);
    for place in 0..query.len() {
        let mut changed = query.to_owned().into_bytes();
        changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
        let changed = format!("{bare}?{}", String::from_utf8(changed).unwrap());
        assert_eq!(get(&rig, &changed).status(), 404, "{changed}");
    }
    rig.stop();
}
