//! Whose kept child goes when all places are taken.
//!
//! Places are shared first among the credentials, then among the users of each. A client with less than
//! its share gets the place that a holder with more than its own has left alone longest. Any other client
//! gives up what it left alone longest itself. Nothing of a holder goes that has no more than its share.

use std::collections::{HashMap, HashSet};

use crate::client::Principal;

/// The holders of which one has to give way to this client, where all of `limit` places are taken. None
/// when the client has its own share.
pub(crate) fn above_their_share(
    held: &HashMap<Principal, usize>,
    client: &Principal,
    limit: usize,
) -> HashSet<Principal> {
    let mut credentials: HashMap<_, usize> = HashMap::from([(client.credential(), 0)]);
    for (holder, count) in held {
        *credentials.entry(holder.credential()).or_default() += count;
    }
    let share = limit / credentials.len();
    let own = client.credential();
    let has_credential = |holder: &Principal, wanted: Option<&str>| holder.credential() == wanted;
    if credentials[&own] < share {
        let is_above = |holder: &Principal| credentials[&holder.credential()] > share;
        // Of such a credential, those of its users go first that have at least what is usual there.
        let is_usual = |(holder, count): &(&Principal, &usize)| {
            let wanted = holder.credential();
            let users = held.keys().filter(|other| has_credential(other, wanted)).count();
            **count * users >= credentials[&wanted]
        };
        let above = held.iter().filter(|(holder, _)| is_above(holder)).filter(is_usual);
        return above.map(|(holder, _)| holder.clone()).collect();
    }
    let users: HashSet<_> =
        held.keys().chain([client]).filter(|holder| has_credential(holder, own)).collect();
    let share = (credentials[&own] / users.len()).max(1);
    if held.get(client).copied().unwrap_or_default() >= share {
        return HashSet::new();
    }
    let above = users.into_iter().filter(|user| held.get(user).is_some_and(|count| *count > share));
    above.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(key: &str, id: &str) -> Principal {
        Principal::of_user((!key.is_empty()).then(|| key.into()), id)
    }

    /// Who has to give way to `client`, as `key/user`, where these hold all places.
    fn check(held: &[(&str, usize)], client: &str, expected: &[&str]) {
        let principal = |name: &str| {
            let (key, id) = name.split_once('/').unwrap();
            user(key, id)
        };
        let limit = held.iter().map(|(_, count)| count).sum();
        let held: HashMap<_, _> =
            held.iter().map(|(name, count)| (principal(name), *count)).collect();
        let found = above_their_share(&held, &principal(client), limit);
        let expected: HashSet<_> = expected.iter().map(|name| principal(name)).collect();
        assert_eq!(found, expected, "{client}");
    }

    #[test]
    fn a_credential_with_too_much_gives_way_to_another() {
        check(&[("k/a", 50), ("k/b", 50)], "l/c", &["k/a", "k/b"]);
        check(&[("k/a", 90), ("k/b", 10)], "l/c", &["k/a"]);
        check(&[("k/a", 60), ("l/c", 40)], "l/d", &["k/a"]);
        check(&[("k/a", 50), ("l/c", 50)], "l/d", &["l/c"]);
    }

    #[test]
    fn users_of_one_credential_share_what_it_has() {
        for key in ["k", ""] {
            let name = |user: &str| format!("{key}/{user}");
            let (a, b, c) = (name("a"), name("b"), name("c"));
            check(&[(&a, 3), (&b, 1)], &c, &[&a]);
            check(&[(&a, 1), (&b, 1)], &c, &[]);
            check(&[(&a, 3), (&b, 1)], &a, &[]);
            check(&[(&a, 3), (&b, 1)], &b, &[&a]);
        }
    }

    #[test]
    fn there_is_always_someone_above_when_a_client_has_less_than_its_share() {
        for limit in 1..30 {
            for others in 1..6 {
                let held: Vec<_> = (0..others)
                    .map(|n| (format!("k{n}/u"), limit / others + usize::from(n < limit % others)))
                    .filter(|(_, count)| *count > 0)
                    .collect();
                let held: HashMap<_, _> = held
                    .iter()
                    .map(|(name, count)| (user(name.split_once('/').unwrap().0, "u"), *count))
                    .collect();
                let above = above_their_share(&held, &user("new", "u"), limit);
                assert_eq!(above.is_empty(), limit / (held.len() + 1) == 0, "{limit} {others}");
            }
        }
    }
}
