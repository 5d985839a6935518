//! How many children may be kept in all, of all servers, and whose go when all places are taken.
//!
//! Places are shared first among the credentials, then among the users of each. A client with less than
//! its share gets the place that a holder with more than its own has left alone longest. Any other client
//! gives up what it left alone longest itself. Nothing that is in use goes, and nothing of a holder that
//! has no more than its share.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::kept::Pool;
use crate::back::child::launcher::now;
use crate::client::Principal;
use crate::permits::{Permit, Permits};

/// The places for kept children.
#[derive(Debug, Clone)]
pub struct Budget {
    places: Arc<Permits>,
    pools: Arc<Mutex<Vec<Weak<Pool>>>>,
}

impl Budget {
    /// A budget of this many places.
    pub fn new(limit: usize) -> Self {
        Self { places: Permits::new(limit), pools: Arc::default() }
    }

    /// How many are kept, and how many may be.
    pub fn used(&self) -> (usize, usize) {
        (self.places.in_use(), self.places.limit())
    }

    /// Counts a server's children among those that may have to go.
    pub(crate) fn include(&self, pool: &Arc<Pool>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    /// A place for one more child of this client, made by letting go of an idle one if need be.
    pub(crate) fn take(&self, client: &Principal) -> Option<Permit> {
        let take = || self.places.try_take(client, now());
        if let Some(place) = take() {
            return Some(place);
        }
        let pools: Vec<_> = {
            let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
            pools.iter().filter_map(Weak::upgrade).collect()
        };
        pools.iter().for_each(|pool| pool.reclaim());
        loop {
            if let Some(place) = take() {
                return Some(place);
            }
            let above = match self.used() {
                (used, limit) if used < limit => HashSet::new(),
                (_, limit) => above_their_share(&self.places.holders(), client, limit),
            };
            let is_gone = evict(&pools, |owner| above.contains(owner), true)
                || evict(&pools, |owner| owner == client, false);
            if !is_gone {
                return None;
            }
        }
    }
}

/// Lets go of what such an owner left alone longest, of whichever server.
fn evict(pools: &[Arc<Pool>], may_go: impl Fn(&Principal) -> bool, is_told: bool) -> bool {
    let idle = pools.iter().filter_map(|pool| Some((pool.idle_since(&may_go)?, pool)));
    let oldest = idle.min_by_key(|(since, _)| *since);
    oldest.is_some_and(|(_, pool)| pool.evict_oldest(&may_go, is_told))
}

/// The holders of which one has to give way to this client, where all of `limit` places are taken. None
/// when the client has its own share.
fn above_their_share(
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
