//! What programs need to reach the network through a company's proxy: its certificates, its address.

use super::*;

const PROXY: &str = "http://ada:hunter22@proxy.example.org:3128";

#[test]
fn certificates_and_proxies_reach_every_process() {
    let certificates = ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"];
    let proxies = ["HTTPS_PROXY", "http_proxy", "NO_PROXY"];
    for level in levels() {
        let place = Place::new();
        let mut servers = vec![place.fixture(level)];
        servers.extend((level != "basic").then(|| place.rude(level)));
        let mut plan = place.plan(servers).variable("PIP_INDEX_URL", "https://t@index.example.org");
        // In a folder that a confined process may not read.
        fs::create_dir(place.path("company")).unwrap();
        let [named, other] = ["ca.pem", "other.pem"].map(|name| place.path("company").join(name));
        for file in [&named, &other] {
            fs::write(file, "").unwrap();
            fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
        }
        let [named, other] = [named, other].map(|path| path.display().to_string());
        for name in certificates {
            plan = plan.variable(name, &named);
        }
        for name in proxies {
            plan = plan.variable(name, PROXY);
        }
        let rig = plan.start();
        let response = client(&rig, "fixture", ADA).call(1, "environment", json!({}));
        let environment: Value = serde_json::from_str(&response.tool_text().unwrap()).unwrap();
        for (names, value) in [(certificates, named.as_str()), (proxies, PROXY)] {
            for name in names {
                assert_eq!(environment[name], value, "{level}: {name}");
            }
        }
        assert!(environment["PIP_INDEX_URL"].is_null(), "it often holds a token");
        if level != "basic" {
            check(&rig, ADA, &[(&["read", &named], "ok"), (&["read", &other], REFUSED)]);
        }
        rig.stop();
    }
}

#[test]
fn the_password_of_a_proxy_is_neither_logged_nor_told() {
    let place = Place::new();
    let script = "echo \"cannot reach $HTTPS_PROXY\" >&2; exit 1";
    let server = Server::new("shell", Path::new("/bin/sh"), &["-c", script]).that_may_fail();
    let plan = place.plan([server]).variable("HTTPS_PROXY", PROXY);
    let rig = plan.variable("MCPO_LOG_LEVEL", "DEBUG").start();
    let response = client(&rig, "shell", ADA).call(1, "echo", json!({"text": "x"}));
    let told = response.text();
    assert!(told.contains("cannot reach") && !told.contains("hunter22"), "{told}");
    wait_until("it is logged", SOON, || rig.log().contains("cannot reach"));
    assert!(!rig.log().contains("hunter22"), "{}", rig.log());
    rig.stop();
}

#[test]
fn a_process_that_is_kept_from_a_file_it_needs_says_what_to_do() {
    for level in walled() {
        let place = Place::new();
        let secret = place.path("needed");
        fs::write(&secret, "").unwrap();
        let script = format!("cat {} || exit 1", secret.display());
        let server = Server::new("shell", Path::new("/bin/sh"), &["-c", &script]);
        let rig = place.plan([server.with("isolation", level).that_may_fail()]).start();
        let told = client(&rig, "shell", ADA).call(1, "echo", json!({"text": "x"})).text();
        assert!(told.contains("Permission denied") && told.contains("isolation.read"), "{told}");
        rig.stop();
    }
}
