//! All places for kept processes are taken: who gives one up, for whom, and what they hear of it.

use pontoon_tests::client::Speaker;
use pontoon_tests::rig::{Rig, wait_until};
use serde_json::json;

use super::{
    ALICE, BOB, CHAT, Headers, SOON, USER, behind_proxy, busy, finish, is_gone, modern, pid, tell,
    with_keys,
};
use crate::fixture;

/// A bridge that keeps so many processes, behind two keys.
fn bridge(places: usize) -> Rig {
    with_keys(fixture("stateful"))
        .variable("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", &places.to_string())
        .start()
}

#[test]
fn a_key_that_names_many_users_leaves_another_key_its_share() {
    let rig = bridge(4);
    let users = ["ada", "ben", "cleo", "dora", "emil", "fay"];
    let people: Vec<_> = users.map(|user| [ALICE, (USER, user)]).to_vec();
    let mut served = Vec::new();
    for person in &people {
        let response = modern(&rig, person).call(1, "pid", json!({}));
        // Each of the first four has one, and nobody of the same key has more than that.
        if response.status() == 200 {
            served.push((person, response.tool_text().unwrap().parse::<u32>().unwrap()));
        } else {
            assert_eq!((response.status(), response.head.header("retry-after")), (429, Some("60")));
        }
    }
    assert_eq!(served.len(), 4);
    // All of them are idle. The other key has none yet, so those that were left alone longest go.
    for (chat, gone) in ["1", "2"].into_iter().zip(&served) {
        let bobs = pid(&rig, &[BOB, (CHAT, chat)]);
        wait_until("the oldest is let go", SOON, || is_gone(gone.1));
        assert_eq!(pid(&rig, &[BOB, (CHAT, chat)]), bobs);
    }
    // Now both keys have their half, and bob gives up what is his own.
    pid(&rig, &[BOB, (CHAT, "3")]);
    for (person, kept) in &served[2..] {
        assert_eq!(pid(&rig, &person[..]), *kept, "nobody else's is touched");
    }
    // Who lost a process hears so, once.
    let mut ada = modern(&rig, &served[0].0[..]);
    let told = tell(&mut ada, "pid");
    assert!(told.contains("had to make room for those of others"), "{told}");
    assert!(told.contains("is lost. This call was not made"), "{told}");
    let refused = ada.call(2, "pid", json!({}));
    assert_eq!(refused.status(), 429, "alice's half is taken: {}", refused.text());
    drop(ada);
    rig.stop();
}

#[test]
fn a_process_at_work_is_nobodys_to_take() {
    let rig = bridge(2);
    let ada = modern(&rig, &[ALICE, (USER, "ada")]);
    let ben = modern(&rig, &[ALICE, (USER, "ben")]);
    let calls = [busy(&rig, &ada, 4000, 1), busy(&rig, &ben, 4000, 2)];
    let refused = modern(&rig, &[BOB]).call(1, "pid", json!({}));
    assert_eq!((refused.status(), refused.head.header("retry-after")), (429, Some("60")));
    for call in calls {
        assert_eq!(finish(call).tool_text().as_deref(), Some("waited 4000 ms"));
    }
    pid(&rig, &[BOB]);
    drop((ada, ben));
    rig.stop();
}

#[test]
fn a_user_with_many_chats_gives_one_up_for_another_user() {
    let plan = behind_proxy(fixture("stateful"));
    let rig = plan.variable("MCPO_STATEFUL_MAX_TOTAL_PROCESSES", "4").start();
    let chat = |chat| [(USER, "ada"), (CHAT, chat)];
    let chats = ["1", "2", "3"].map(chat);
    let adas: Vec<_> = chats.iter().map(|chat| pid(&rig, chat)).collect();
    let (ben, cleo): (Headers<'_>, Headers<'_>) = (&[(USER, "ben")], &[(USER, "cleo")]);
    let bens = pid(&rig, ben);
    pid(&rig, cleo);
    wait_until("her oldest is let go", SOON, || is_gone(adas[0]));
    assert_eq!((pid(&rig, &chats[1]), pid(&rig, ben)), (adas[1], bens), "and no other");
    // The fourth user finds her with two, and everybody else with one.
    pid(&rig, &[(USER, "dora")]);
    assert_eq!(pid(&rig, ben), bens);
    rig.stop();
}
