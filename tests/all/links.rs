//! Where links lead: from the host a client used, from what a trusted proxy forwards, and to the newest
//! version of a file.

use pontoon_tests::client::{Client, ERAS, Modern, Request, Response, Speaker};
use pontoon_tests::rig::{Plan, Rig, remove_in_use, wait_until};
use serde_json::json;

use crate::{fixture, plan, rig};

type Headers<'a> = &'a [(&'a str, &'a str)];

/// What a call that writes `a.txt` is answered.
fn write(rig: &Rig, headers: Headers<'_>, text: &str) -> Response {
    let mut client = Modern::with(&rig.endpoint("fixture"), headers);
    let response = client.call(1, "write_file", json!({"name": "a.txt", "text": text}));
    assert!(response.tool_text().is_some(), "{}", response.text());
    response
}

/// The texts of the `resource` blocks of an answer.
fn notes(response: &Response) -> Vec<String> {
    let content = response.answer()["result"]["content"].clone();
    let blocks = content.as_array().cloned().unwrap_or_default();
    let texts = blocks.iter().filter_map(|block| block["resource"]["text"].as_str());
    texts.map(str::to_owned).collect()
}

/// The addresses in the Markdown links of an answer.
fn addresses(response: &Response) -> Vec<String> {
    let notes = notes(response).join("\n");
    let links = notes.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.map(str::to_owned).collect()
}

/// What stands before `/files/` in the first link for people, and in the `uri` for the client.
fn bases(response: &Response) -> (String, String) {
    let base = |url: &str| url[..url.find("/files/").unwrap_or_else(|| panic!("{url}"))].to_owned();
    let answer = response.answer();
    let blocks = answer["result"]["content"].as_array().unwrap();
    let link = blocks.iter().find(|block| block["type"] == "resource_link").unwrap();
    let header = response.head.header("link").unwrap().trim_start_matches('<').to_owned();
    let told = base(&addresses(response)[0]);
    assert_eq!(base(&header), told, "the header says the same");
    (told, base(link["uri"].as_str().unwrap()))
}

/// What is found at an address that begins with `base`.
fn open(rig: &Rig, url: &str, base: &str) -> Response {
    let path = url.strip_prefix(base).unwrap_or_else(|| panic!("{url}"));
    Request::new("GET", path).send(rig.address()).unwrap()
}

fn behind_proxy() -> Plan {
    plan([fixture("stateless")]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8")
}

#[test]
fn a_direct_client_gets_links_from_the_host_it_used() {
    let rig =
        plan([fixture("stateless")]).variable("MCPO_ALLOWED_HOSTS", "tools.example.org").start();
    let forged: Headers<'_> = &[
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Port", "1"),
        ("X-Forwarded-Prefix", "/evil"),
        ("Forwarded", "host=evil.example;proto=https"),
    ];
    let port = rig.address().port();
    for host in
        [format!("127.0.0.1:{port}"), format!("localhost:{port}"), "Tools.Example.org".into()]
    {
        let base = format!("http://{}", host.to_lowercase());
        for others in [&[][..], forged] {
            let headers = [&[("Host", host.as_str())], others].concat();
            let response = write(&rig, &headers, "mine");
            assert_eq!(bases(&response), (base.clone(), base.clone()), "{headers:?}");
            let [url, ..] = &addresses(&response)[..] else { panic!("{}", response.text()) };
            assert_eq!(open(&rig, url, &base).text(), "mine");
        }
    }
    // The guard knows these hosts, but in a link they would be nonsense.
    let response = write(&rig, &[("Host", "localhost:+80")], "mine");
    assert_eq!(bases(&response).0, "");
    rig.stop();
}

#[test]
fn behind_a_trusted_proxy_links_begin_with_what_it_forwards() {
    let rig = behind_proxy().start();
    let check = |headers: Headers<'_>, expected: &str| {
        assert_eq!(bases(&write(&rig, headers, "x")).0, expected, "{headers:?}");
    };
    let host = ("X-Forwarded-Host", "tools.example.org");
    check(&[host], "http://tools.example.org");
    check(&[host, ("X-Forwarded-Proto", "https")], "https://tools.example.org");
    check(&[host, ("X-Forwarded-Port", "8443")], "http://tools.example.org:8443");
    check(&[host, ("X-Forwarded-Prefix", "/bridge/")], "http://tools.example.org/bridge");
    check(
        &[("Forwarded", "for=1.2.3.4;host=\"a.example:81\";proto=https")],
        "https://a.example:81",
    );
    // The last word is the nearest proxy's; what stands before came from outside.
    check(&[("X-Forwarded-Host", "evil.example, tools.example.org")], "http://tools.example.org");
    check(&[("X-Forwarded-Host", "evil.example\"/x")], "");
    // A name that only containers know opens in no browser, and nothing was said of another.
    check(&[("X-Forwarded-Host", "nginx")], "");
    check(&[], "");
    let uri = bases(&write(&rig, &[("X-Forwarded-Host", "nginx")], "x")).1;
    assert_eq!(uri, "http://nginx", "the client itself knows it");
    let told = || rig.log().matches("links begin with /files").count();
    wait_until("it is told", std::time::Duration::from_secs(10), || told() == 1);
    rig.stop();
}

#[test]
fn links_lead_through_the_root_path_of_a_proxy() {
    let rig = behind_proxy().variable("MCPO_ROOT_PATH", "/rp").start();
    let host = ("X-Forwarded-Host", "tools.example.org");
    for (headers, expected) in [
        (&[host][..], "http://tools.example.org/rp"),
        (&[host, ("X-Forwarded-Prefix", "/rp")], "http://tools.example.org/rp"),
        (&[host, ("X-Forwarded-Prefix", "/x/rp")], "http://tools.example.org/x/rp"),
        // A proxy before the one that takes the root path away, and says nothing.
        (&[host, ("X-Forwarded-Prefix", "/x")], "http://tools.example.org/x/rp"),
        (&[], "/rp"),
    ] {
        let response = write(&rig, headers, "mine");
        assert_eq!(bases(&response).0, expected, "{headers:?}");
        let [url, ..] = &addresses(&response)[..] else { panic!("{}", response.text()) };
        let (_, path) = url.split_once("/rp").unwrap();
        // The proxy takes the path away, or leaves it.
        for path in [path.to_owned(), format!("/rp{path}")] {
            assert_eq!(open(&rig, &path, "").text(), "mine", "{path}");
        }
    }
    rig.stop();
}

#[test]
fn a_base_url_wins_over_every_host() {
    let base = "https://tools.example.org/x";
    for proxies in ["192.0.2.1", "127.0.0.0/8"] {
        let plan = plan([fixture("stateless")]).variable("MCPO_TRUSTED_PROXIES", proxies);
        let rig = plan.variable("MCPO_BASE_URL", base).start();
        for headers in [&[][..], &[("X-Forwarded-Host", "other.example")]] {
            let response = write(&rig, headers, "mine");
            assert_eq!(bases(&response), (base.to_owned(), base.to_owned()));
            assert_eq!(open(&rig, &addresses(&response)[0], base).text(), "mine");
        }
        rig.stop();
    }
}

#[test]
fn pictures_may_be_shown_by_pages_of_other_origins_and_nothing_else() {
    let rig = rig([fixture("stateless")]);
    let check = |name: &str, policy: &str| {
        let mut client = Modern::new(&rig.endpoint("fixture"));
        let response = client.call(1, "write_file", json!({"name": name, "text": "<script>"}));
        let [url, ..] = &addresses(&response)[..] else { panic!("{}", response.text()) };
        let path = &url[url.find("/files/").unwrap()..];
        let found = Request::new("GET", path).send(rig.address()).unwrap();
        let tag = found.head.header("etag").unwrap().to_owned();
        let again = Request::new("GET", path).header("If-None-Match", &tag).send(rig.address());
        let part = Request::new("GET", path).header("Range", "bytes=0-1").send(rig.address());
        for (found, status) in [(&found, 200), (&again.unwrap(), 304), (&part.unwrap(), 206)] {
            let header = |name| found.head.header(name).unwrap_or_default();
            assert_eq!(found.status(), status);
            assert_eq!(header("cross-origin-resource-policy"), policy, "{name} {status}");
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(header("content-security-policy"), "sandbox; default-src 'none'");
        }
        assert!(found.head.header("content-disposition").unwrap().starts_with("attachment;"));
    };
    for name in ["a.png", "a.PNG", "a.jpg", "a.jpeg", "a.gif", "a.webp"] {
        check(name, "cross-origin");
    }
    for name in ["a.svg", "a.html", "a.png.html", "a.txt", "a.pdf", "a.mp4", "a.bmp", "png"] {
        check(name, "same-origin");
    }
    let missing = rig.get("/files/0f6c1d1e-3c5b-4a5e-9d53-0a1b2c3d4e5f/a.png");
    assert_eq!(missing.head.header("cross-origin-resource-policy"), Some("same-origin"));
    rig.stop();
}

#[test]
fn a_link_of_the_server_itself_is_also_said_in_words() {
    let uri = "https://reports.example.org/7";
    let told = format!("[a report]({uri})");
    for mode in ["stateless", "stateful"] {
        let rig = rig([fixture(mode)]);
        for era in ERAS {
            let mut client = Client::new(era, &rig.endpoint("fixture"));
            let response = client.call(1, "refer", json!({"uri": uri, "text": "made"}));
            let notes = notes(&response).join("\n");
            assert!(notes.contains(&told), "{mode} {era:?}: {}", response.text());
            assert_eq!(response.text().matches("\"type\":\"resource_link\"").count(), 1);
            client.end();
        }
        let mut client = Modern::new(&rig.endpoint("fixture"));
        let response = client.call(1, "refer", json!({"uri": uri, "text": format!("at {uri}")}));
        assert_eq!(notes(&response), [""; 0], "its text says it already");
        drop(client);
        rig.stop();
    }
    for files in ["header", "off"] {
        let rig = rig([fixture("stateless").with("files", files)]);
        let mut client = Modern::new(&rig.endpoint("fixture"));
        let response = client.call(1, "refer", json!({"uri": uri, "text": "made"}));
        assert_eq!(notes(&response), [""; 0], "{files}: the answer is as it was");
        drop(client);
        rig.stop();
    }
}

const ADA: Headers<'static> = &[("X-OpenWebUI-User-Id", "ada"), ("X-OpenWebUI-Chat-Id", "c1")];
const BEN: Headers<'static> = &[("X-OpenWebUI-User-Id", "ben"), ("X-OpenWebUI-Chat-Id", "c1")];

#[test]
fn the_newest_version_of_a_file_of_a_chat_has_a_link_that_stays() {
    for (mode, is_signed) in [("stateless", false), ("stateless", true), ("stateful", false)] {
        let server = fixture(mode).with("workspace", "session");
        let mut plan = plan([server]).variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8");
        if is_signed {
            plan = plan.variable("MCPO_LINK_SECRET", "a secret for links, long enough");
        }
        let rig = plan.start();
        let links = |headers: Headers<'_>, text: &str| -> [String; 2] {
            let found = addresses(&write(&rig, headers, text));
            found.try_into().unwrap_or_else(|found| panic!("{found:?}"))
        };
        let [snapshot, newest] = links(ADA, "first");
        let get = |path: &str| open(&rig, path, "");
        assert_eq!(get(&newest).text(), "first");
        let [later, again] = links(ADA, "second");
        assert_eq!(get(&snapshot).text(), "first", "{mode}: a snapshot stays as it is");
        assert_eq!(get(&later).text(), "second");
        assert_eq!((get(&newest).text(), get(&again).text()), ("second".into(), "second".into()));
        let path = |link: &str| link.split('?').next().unwrap().to_owned();
        assert_eq!(path(&newest), path(&again), "{mode}: it is the same link");
        let [_, other] = links(BEN, "of ben");
        assert_ne!(path(&other), path(&newest));
        // It opens this file and no other, and nothing beside the files.
        let folder = newest.strip_suffix(newest.rsplit('/').next().unwrap()).unwrap();
        for name in ["b.txt", "..%2fserver.log", "../server.log", "../files/a.txt", ".", ""] {
            assert_eq!(get(&format!("{folder}{name}")).status(), 404, "{name}");
        }
        if is_signed {
            assert_eq!(get(&path(&newest)).status(), 404, "without its signature");
            let query = newest.split_once('?').unwrap().1;
            assert_eq!(get(&format!("{}?{query}", path(&other))).status(), 404);
        }
        for entry in std::fs::read_dir(rig.directory().join("jobs/.sessions")).unwrap() {
            remove_in_use(&entry.unwrap().path());
        }
        assert_eq!(get(&newest).status(), 404, "{mode}: gone with its folder");
        assert_eq!(get(&snapshot).status(), 200);
        rig.stop();
    }
    // Where each call has a folder of its own there is no newer version.
    let rig = behind_proxy().start();
    assert_eq!(addresses(&write(&rig, ADA, "x")).len(), 1);
    rig.stop();
}
