//! Who may come in, and as whom: keys, proxies, users, chats, and those who only say so.

mod people;

use std::time::{SystemTime, UNIX_EPOCH};

use pontoon_tests::client::{Modern, Request, Response, Speaker, sign_token};
use pontoon_tests::rig::{Plan, Rig};
use serde_json::json;

use crate::{fixture, plan};

/// Signed as Open WebUI signs, under this secret; they end in the year 2100, and most do not say when they were
/// signed, so that they stay as they are.
const SECRET: &str = "a-secret-of-both-sides";
const GOOD: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1MSIsImlzcyI6Im9wZW4td2VidWkiLCJleHAiO",
    "jQxMDI0NDQ4MDB9.uOwLkclcpu68yoENgMhSFDbScSMp6zp6zZ9MSnlaor0",
);
const OTHER_USER: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1MiIsImlzcyI6Im9wZW4td2VidWkiLCJleHAiO",
    "jQxMDI0NDQ4MDB9.a0ubekUzsYZUqXMrKa9x0udIyD5nVmidANGY2oukkpc",
);
const WRONG_KEY: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1MSIsImlzcyI6Im9wZW4td2VidWkiLCJleHAiO",
    "jQxMDI0NDQ4MDB9.NLkgmhv_rKQ02jVtFFJfqPUs-mj4DQ1k4wsMfbcGlZs",
);
const EXPIRED: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1MSIsImlzcyI6Im9wZW4td2VidWkiLCJleHAiO",
    "jE3MDAwMDAzMDB9.gpZyYIxG5pSKc9TRKBQ2BXZVSbLB8UyekJ0AHQ630Bs",
);
const OLD: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1MSIsImlzcyI6Im9wZW4td2VidWkiLCJpYXQiO",
    "jE3MDAwMDAwMDAsImV4cCI6NDEwMjQ0NDgwMH0.ATNvzk2J2DyJjVd9y7H3HkBMHMKMkis3sK5O-od6AH4",
);
const FUTURE: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1MSIsImlzcyI6Im9wZW4td2VidWkiLCJpYXQiO",
    "jQxMDI0NDQwMDAsImV4cCI6NDEwMjQ0NDgwMH0.hiXuc1Pa-OgPZAiaaBqBCSlk2AZZgtCCqGbEZmUuGM8",
);
const FOREIGN: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1MSIsImlzcyI6InNvbWVib2R5IiwiZXhwIjo0M",
    "TAyNDQ0ODAwfQ.Y_PKiUOQGQWQhsZ7snR-APSLKbWdSTa--wMhikIbZK4",
);
const NOBODY: &str = concat!(
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIiLCJpc3MiOiJvcGVuLXdlYnVpIiwiZXhwIjo0M",
    "TAyNDQ0ODAwfQ.ZImSBrr0TWSBgpBFYeKF-n5iuiUhLP8ss7Fm67Y14Qk",
);
const UNSIGNED: &str = concat!(
    "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJ1MSIsImlzcyI6Im9wZW4td2VidWkiLCJleHAiOj",
    "QxMDI0NDQ4MDB9.",
);

type Headers<'a> = &'a [(&'static str, &'a str)];

const USER: &str = "X-OpenWebUI-User-Id";
const CHAT: &str = "X-OpenWebUI-Chat-Id";
const TOKEN: &str = "X-OpenWebUI-User-Jwt";

/// Asks the fixture for its process id, with these headers more.
fn ask(rig: &Rig, headers: Headers<'_>) -> Response {
    let client = Modern::new(&rig.endpoint("fixture"));
    let params = json!({"name": "pid", "arguments": {}});
    let mut request = client.request(&client.message(&json!(1), "tools/call", params));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.send(rig.address()).unwrap()
}

/// The process that serves a request with these headers.
fn pid(rig: &Rig, headers: Headers<'_>) -> String {
    let response = ask(rig, headers);
    response.tool_text().unwrap_or_else(|| panic!("{headers:?}: {}", response.text()))
}

fn stateful() -> Plan {
    plan([fixture("stateful").with("max_processes_per_ip", 4)])
}

#[test]
fn what_a_stranger_says_of_himself_changes_nothing() {
    let rig = stateful().variable("MCPO_OWUI_JWT_SECRET", SECRET).start();
    let plain = pid(&rig, &[]);
    for forged in [
        &[("X-Forwarded-For", "198.51.100.7")][..],
        &[("X-Forwarded-For", "127.0.0.1, 198.51.100.7")],
        &[("X-Real-IP", "198.51.100.7")],
        &[("Forwarded", "for=198.51.100.7")],
        &[(USER, "admin"), (CHAT, "c1")],
        &[(TOKEN, GOOD), (CHAT, "c1")],
        &[(TOKEN, WRONG_KEY)],
        &[(TOKEN, "rubbish"), (TOKEN, "twice")],
    ] {
        assert_eq!(pid(&rig, forged), plain, "{forged:?}");
    }
    rig.stop();
}

#[test]
fn users_and_chats_behind_a_trusted_proxy_never_share_a_process() {
    let rig = stateful().variable("MCPO_TRUSTED_PROXIES", "127.0.0.0/8").start();
    let people: [Headers<'_>; 6] = [
        &[(USER, "u1"), (CHAT, "c1")],
        &[(USER, "u1"), (CHAT, "c2")],
        &[(USER, "u2"), (CHAT, "c1")],
        &[("X-Forwarded-For", "198.51.100.7")],
        &[("X-Forwarded-For", "198.51.100.7, 198.51.100.8")],
        &[("X-Real-IP", "2001:db8::7")],
    ];
    let first: Vec<_> = people.iter().map(|person| pid(&rig, person)).collect();
    let again: Vec<_> = people.iter().map(|person| pid(&rig, person)).collect();
    assert_eq!(first, again, "each keeps its own");
    let different: std::collections::BTreeSet<_> = first.iter().collect();
    assert_eq!(different.len(), people.len(), "{first:?}");
    // The left of the list is only what the client claims.
    assert_eq!(pid(&rig, &[("X-Forwarded-For", "10.9.8.7, 198.51.100.7")]), first[3]);
    // A proxy that tells nothing: nobody is known, so nobody shares.
    assert_ne!(pid(&rig, &[]), pid(&rig, &[]));
    assert_eq!(ask(&rig, &[(USER, "u1"), (USER, "u2")]).status(), 400);
    rig.stop();
}

#[test]
fn with_a_secret_a_user_is_who_the_token_says() {
    let rig = stateful()
        .variable("MCPO_TRUSTED_PROXIES", "127.0.0.1")
        .variable("MCPO_OWUI_JWT_SECRET", SECRET)
        .start();
    let first = pid(&rig, &[(TOKEN, GOOD), (CHAT, "c1")]);
    assert_eq!(pid(&rig, &[(TOKEN, GOOD), (CHAT, "c1"), (USER, "u2")]), first);
    assert_ne!(pid(&rig, &[(TOKEN, OTHER_USER), (CHAT, "c1")]), first);
    assert_ne!(pid(&rig, &[(USER, "u1"), (CHAT, "c1")]), first, "a plain header is no proof");
    for (token, why) in [
        (WRONG_KEY, "signature"),
        (UNSIGNED, "HS256"),
        (EXPIRED, "expired"),
        (OLD, "MCPO_OWUI_JWT_MAX_AGE"),
        (FUTURE, "future"),
        (FOREIGN, "issued by"),
        (NOBODY, "nobody"),
        ("rubbish", "not a token"),
        ("", "not a token"),
    ] {
        let response = ask(&rig, &[(TOKEN, token), (CHAT, "c1")]);
        assert_eq!(response.status(), 401, "{why}: {}", response.text());
        assert!(response.error_text().contains(why), "{why}: {}", response.text());
    }
    rig.stop();
}

#[test]
fn a_signed_user_counts_for_a_long_turn() {
    let signed = stateful().variable("MCPO_API_KEY", "the-key-of-the-front-end");
    let signed = signed.variable("MCPO_OWUI_JWT_SECRET", SECRET);
    let key = ("Authorization", "Bearer the-key-of-the-front-end");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    // As Open WebUI signs by itself: for five minutes, and once for a turn of any length.
    let token = |age: u64| {
        let claims = json!({
            "sub": "u1", "iss": "open-webui", "iat": now - age, "exp": now - age + 300,
        });
        sign_token(SECRET, &claims)
    };
    let rig = signed.start();
    let first = pid(&rig, &[key, (TOKEN, &token(0)), (CHAT, "c1")]);
    assert_eq!(pid(&rig, &[key, (TOKEN, &token(1800)), (CHAT, "c1")]), first);
    let refused = ask(&rig, &[key, (TOKEN, &token(2 * 3600)), (CHAT, "c1")]);
    assert_eq!(refused.status(), 401, "{}", refused.text());
    assert!(refused.error_text().contains("MCPO_OWUI_JWT_MAX_AGE"), "{}", refused.text());
    rig.stop();
    let longer = stateful()
        .variable("MCPO_API_KEY", "the-key-of-the-front-end")
        .variable("MCPO_OWUI_JWT_SECRET", SECRET)
        .variable("MCPO_OWUI_JWT_MAX_AGE", "3h");
    let rig = longer.start();
    pid(&rig, &[key, (TOKEN, &token(2 * 3600)), (CHAT, "c1")]);
    rig.stop();
}

/// The status of a request to each kind of place.
fn statuses(rig: &Rig, headers: Headers<'_>) -> Vec<(&'static str, u16)> {
    let job = "/files/0f6c1d1e-3c5b-4a5e-9d53-0a1b2c3d4e5f/a.txt";
    let places = [
        ("POST", "/mcp/fixture"),
        ("GET", "/sse/fixture"),
        ("GET", "/metrics"),
        ("GET", job),
        ("GET", "/health"),
    ];
    let ask = |(method, path): &(&'static str, &'static str)| {
        let mut request = match *method {
            "POST" => Request::post(path, "{}"),
            _ => Request::new(method, path).header("Accept", "text/plain"),
        };
        for (name, value) in headers {
            request = request.header(name, value);
        }
        (*path, request.send(rig.address()).unwrap().status())
    };
    places.iter().map(ask).map(|(path, status)| (&path[1..4], status)).collect()
}

#[test]
fn a_key_opens_what_is_locked_and_nothing_else_does() {
    let keys = "alice=first-key-of-two,bob=second-key-of-two";
    let key = [("Authorization", "Bearer second-key-of-two")];
    let wrong = [("Authorization", "Bearer no-key-of-anyone")];
    let password = [("Authorization", "Basic YW55Ym9keTpmaXJzdC1rZXktb2YtdHdv")];
    // 400, 406 and 404 are the answers of those who are let in.
    let inside = [("mcp", 400), ("sse", 406), ("met", 200), ("fil", 404), ("hea", 200)];
    let with = |changes: &[(&str, u16)]| {
        let changed = |(place, status)| {
            let change = changes.iter().find(|(changed, _)| *changed == place);
            (place, change.map_or(status, |(_, status)| *status))
        };
        inside.map(changed).to_vec()
    };
    for is_strict in ["false", "true"] {
        let plan = plan([fixture("stateful")]).variable("MCPO_API_KEYS", keys);
        let rig = plan.variable("MCPO_STRICT_AUTH", is_strict).start();
        assert_eq!(statuses(&rig, &key), inside.to_vec());
        if is_strict == "true" {
            let locked = |status| {
                with(&[("mcp", status), ("sse", status), ("met", status), ("fil", status)])
            };
            assert_eq!(statuses(&rig, &[]), locked(401));
            assert_eq!(statuses(&rig, &wrong), locked(403));
            // A password is for pages; tools want the key itself.
            assert_eq!(statuses(&rig, &password), with(&[("mcp", 401), ("sse", 401)]));
        } else {
            let locked = |status| with(&[("mcp", status), ("sse", status), ("met", status)]);
            assert_eq!(statuses(&rig, &[]), locked(401));
            assert_eq!(statuses(&rig, &wrong), locked(403));
            assert_eq!(statuses(&rig, &password), locked(401));
        }
        let twice = [key[0], key[0]];
        assert!(statuses(&rig, &twice).iter().all(|(_, status)| *status == 400));
        let health = Request::new("GET", "/health").send(rig.address()).unwrap().text();
        assert!(health.contains("\"status\"") && !health.contains("fixture"), "{health}");
        rig.stop();
    }
}

#[test]
fn a_key_makes_a_user_believable_but_no_address() {
    let plan = stateful().variable("MCPO_API_KEYS", "default=the-only-key-here");
    let rig = plan.start();
    let key = ("Authorization", "Bearer the-only-key-here");
    let first = pid(&rig, &[key, (USER, "u1"), (CHAT, "c1")]);
    assert_eq!(pid(&rig, &[key, (USER, "u1"), (CHAT, "c1")]), first);
    assert_ne!(pid(&rig, &[key, (USER, "u2"), (CHAT, "c1")]), first);
    let plain = pid(&rig, &[key]);
    assert_eq!(pid(&rig, &[key, ("X-Forwarded-For", "198.51.100.7")]), plain);
    rig.stop();
}
