//! The deadline of a call to a real process, with what that said last. What else counts to the time of a call is
//! proved in `session/submit`, with a stopped clock.

use std::fs;

use pontoon_tests::client::{Client, ERAS, Speaker};
use serde_json::json;

use crate::{rig, shell};

#[test]
fn a_process_that_never_gets_ready_is_told_with_its_last_words() {
    let directory = tempfile::tempdir().unwrap();
    let flag = directory.path().join("hang");
    let script = format!(
        "[ -e {} ] && {{ echo waiting for the moon >&2; exec sleep 60; }}; exec FIXTURE --era legacy",
        flag.display()
    );
    let rig = rig([shell(&script, "stateless").with("timeout", 1)]);
    fs::write(&flag, "").unwrap();
    for era in ERAS {
        let mut client = Client::new(era, &rig.endpoint("shell"));
        let response = client.call(1, "echo", json!({"text": "x"}));
        assert_eq!(response.told_status(), 504, "{}", response.text());
        let text = response.error_text();
        assert!(text.contains("within 1 s"), "{text}");
        assert!(text.contains("its process was not ready for it"), "{text}");
        assert!(text.contains("its last words: waiting for the moon"), "{text}");
        rig.wait_for_gauge("permits_in_use", 0);
        client.end();
    }
    rig.stop();
}
