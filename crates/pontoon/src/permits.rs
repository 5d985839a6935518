//! Permits: how many of something may go on at once, shared fairly among those who ask.
//!
//! Nobody who is known by name may hold more than three quarters of them, and as soon as two clients
//! were seen within a minute, nobody at all may; so a greedy one never shuts the others out. Only
//! where there is but one, anybody may have it. Clients that wait are served in turn, one call of each
//! after the other, unless they have their share already. A permit comes back when it is dropped, whatever happens.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::client::Principal;
use crate::clock::now;

/// How long a client that was seen counts as present.
const PRESENT: Duration = Duration::from_secs(60);

/// More than this many do not wait at once, in all and of one client.
const MAX_WAITING: usize = 4096;
const MAX_OWN_WAITING: usize = 512;

/// A number of permits.
#[derive(Debug)]
pub struct Permits {
    limit: usize,
    /// So many at most for one client, whoever else is there.
    each: usize,
    state: Mutex<PermitState>,
}

#[derive(Debug, Default)]
struct PermitState {
    used: usize,
    held: HashMap<Principal, usize>,
    /// Those who wait, a queue for each client; the first that may have one is next, and goes to the end then.
    waiting: VecDeque<ClientQueue>,
    /// Who asked last, and when.
    last: Option<(Principal, Instant)>,
    /// When someone else than that asked last.
    other: Option<Instant>,
}

/// The calls of one client that wait, in the order in which they came.
#[derive(Debug)]
struct ClientQueue {
    who: Principal,
    tells: VecDeque<oneshot::Sender<Permit>>,
}

impl ClientQueue {
    fn living(&self) -> usize {
        self.tells.iter().filter(|tell| !tell.is_closed()).count()
    }
}

/// One permit, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Arc<Permits>,
    who: Principal,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.give_back(&self.who);
    }
}

impl Permit {
    /// Where it came from.
    pub fn permits(&self) -> &Arc<Permits> {
        &self.permits
    }

    /// Whose it is.
    pub fn who(&self) -> &Principal {
        &self.who
    }
}

impl Permits {
    /// So many permits.
    pub fn new(limit: usize) -> Arc<Self> {
        Self::with_share(limit, limit)
    }

    /// So many permits, and so many at most for one client.
    pub fn with_share(limit: usize, each: usize) -> Arc<Self> {
        Arc::new(Self { limit, each, state: Mutex::default() })
    }

    /// How many there are.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How many are in use.
    pub fn in_use(&self) -> usize {
        self.lock().used
    }

    /// How many each client holds.
    pub fn holders(&self) -> HashMap<Principal, usize> {
        self.lock().held.clone()
    }

    /// How many calls wait for one.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.iter().map(ClientQueue::living).sum()
    }

    /// A permit, if one is free for this client now.
    pub fn try_take(self: &Arc<Self>, who: &Principal, now: Instant) -> Option<Permit> {
        let mut state = self.lock();
        state.see(who, now);
        self.is_free_for(&state, who, now).then(|| state.take(self, who))
    }

    /// A permit, waited for if need be; `None` if too many wait already, in all or of this client.
    /// Dropping the future gives the place in the queue up.
    pub async fn take(self: &Arc<Self>, who: &Principal) -> Option<Permit> {
        {
            let mut state = self.lock();
            state.waiting.iter_mut().for_each(|queue| queue.tells.retain(|it| !it.is_closed()));
            state.waiting.retain(|queue| !queue.tells.is_empty());
            let all: usize = state.waiting.iter().map(|queue| queue.tells.len()).sum();
            let own = state.waiting.iter().find(|queue| queue.who == *who);
            if all >= MAX_WAITING || own.is_some_and(|own| own.tells.len() >= MAX_OWN_WAITING) {
                return None;
            }
        }
        self.take_again(who).await
    }

    /// The same for a call that had one already and cannot be turned away.
    pub async fn take_again(self: &Arc<Self>, who: &Principal) -> Option<Permit> {
        let receiver = {
            let mut state = self.lock();
            let now = now();
            state.see(who, now);
            if self.is_free_for(&state, who, now) {
                return Some(state.take(self, who));
            }
            let (tell, receiver) = oneshot::channel();
            match state.waiting.iter_mut().find(|queue| queue.who == *who) {
                Some(queue) => queue.tells.push_back(tell),
                None => {
                    let tells = VecDeque::from([tell]);
                    state.waiting.push_back(ClientQueue { who: who.clone(), tells });
                }
            }
            // The others in the queue may be over their share, and this one not.
            drop(state);
            self.serve_waiting();
            receiver
        };
        receiver.await.ok()
    }

    fn give_back(self: &Arc<Self>, who: &Principal) {
        {
            let mut state = self.lock();
            state.used -= 1;
            if let Some(held) = state.held.get_mut(who) {
                *held -= 1;
                if *held == 0 {
                    state.held.remove(who);
                }
            }
        }
        self.serve_waiting();
    }

    /// Hands what is free to those who wait: to one client after the other, leaving out those who have their share.
    fn serve_waiting(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let now = now();
            let next = state.waiting.iter().position(|it| self.may_take(&state, &it.who, now));
            let Some(mut queue) = next.and_then(|at| state.waiting.remove(at)) else { return };
            let tell = queue.tells.pop_front();
            let who = queue.who.clone();
            if !queue.tells.is_empty() {
                state.waiting.push_back(queue);
            }
            let Some(tell) = tell.filter(|tell| !tell.is_closed()) else { continue };
            let permit = state.take(self, &who);
            // A permit that finds nobody is dropped, which needs the lock.
            drop(state);
            drop(tell.send(permit));
        }
    }

    /// Whether one is free for a client that has not waited. Whoever waits and may have one was
    /// here first.
    fn is_free_for(&self, state: &PermitState, who: &Principal, now: Instant) -> bool {
        let is_next =
            |queue: &ClientQueue| queue.living() > 0 && self.may_take(state, &queue.who, now);
        self.may_take(state, who, now) && !state.waiting.iter().any(is_next)
    }

    fn may_take(&self, state: &PermitState, who: &Principal, now: Instant) -> bool {
        let limit = self.limit;
        let share = match state.is_capped(who, now) {
            // A quarter is for others, and at least one, if there are two.
            true => (limit - (limit / 4).max(1)).max(1).min(self.each),
            false => self.each,
        };
        state.used < limit && state.held.get(who).copied().unwrap_or_default() < share
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PermitState {
    fn see(&mut self, who: &Principal, now: Instant) {
        match &mut self.last {
            Some((last, at)) if last == who => *at = now,
            last => {
                self.other = last.take().map(|(_, at)| at);
                *last = Some((who.clone(), now));
            }
        }
    }

    fn is_capped(&self, who: &Principal, now: Instant) -> bool {
        let is_present = |at: Instant| now.saturating_duration_since(at) < PRESENT;
        let other = match &self.last {
            Some((last, _)) if last == who => self.other,
            last => last.as_ref().map(|(_, at)| *at),
        };
        !matches!(who, Principal::Address(_)) || other.is_some_and(is_present)
    }

    fn take(&mut self, permits: &Arc<Permits>, who: &Principal) -> Permit {
        self.used += 1;
        *self.held.entry(who.clone()).or_default() += 1;
        Permit { permits: Arc::clone(permits), who: who.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Principal {
        Principal::of_user(None, name)
    }

    fn address(last: u8) -> Principal {
        Principal::Address([10, 0, 0, last].into())
    }

    /// How many of `tries` permits this client gets, and holds.
    fn grab(permits: &Arc<Permits>, who: &Principal, tries: usize) -> Vec<Permit> {
        let now = Instant::now();
        (0..tries).map_while(|_| permits.try_take(who, now)).collect()
    }

    #[test]
    fn the_limit_is_kept_and_a_permit_comes_back() {
        let permits = Permits::new(2);
        let held = grab(&permits, &address(1), 9);
        assert_eq!((held.len(), permits.in_use()), (2, 2));
        drop(held);
        assert_eq!(permits.in_use(), 0);
        assert_eq!(grab(&permits, &address(1), 1).len(), 1);
    }

    #[test]
    fn a_user_never_takes_all() {
        let permits = Permits::new(8);
        let greedy = grab(&permits, &user("greedy"), 99);
        assert_eq!(greedy.len(), 6);
        assert_eq!(grab(&permits, &user("polite"), 99).len(), 2);
    }

    #[test]
    fn a_user_leaves_one_of_two_and_of_three() {
        for limit in [2, 3] {
            let permits = Permits::new(limit);
            let greedy = grab(&permits, &user("greedy"), 9);
            assert_eq!(greedy.len(), limit - 1);
            assert_eq!(grab(&permits, &user("polite"), 9).len(), 1);
        }
    }

    #[test]
    fn an_address_alone_may_take_all_but_not_beside_another() {
        let permits = Permits::new(8);
        assert_eq!(grab(&permits, &address(1), 99).len(), 8);
        assert_eq!(grab(&permits, &address(2), 1).len(), 1);
        assert_eq!(grab(&permits, &address(1), 99).len(), 6);
        let later = Instant::now() + PRESENT * 2;
        let held: Vec<_> = (0..8).map_while(|_| permits.try_take(&address(1), later)).collect();
        assert_eq!(held.len(), 8, "the other one is long gone");
    }

    #[test]
    fn nobody_has_more_than_their_own_share() {
        let permits = Permits::with_share(8, 2);
        let _held = grab(&permits, &address(1), 99);
        assert_eq!(permits.in_use(), 2);
        assert_eq!(grab(&permits, &user("a"), 99).len(), 2);
    }

    #[tokio::test]
    async fn nobody_fills_the_queue() {
        let permits = Permits::new(1);
        let held = grab(&permits, &address(1), 1);
        let greedy = user("greedy");
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..MAX_OWN_WAITING {
            let (permits, who) = (Arc::clone(&permits), greedy.clone());
            waiting.spawn(async move { permits.take(&who).await });
        }
        while permits.waiting() < MAX_OWN_WAITING {
            tokio::task::yield_now().await;
        }
        assert!(permits.take(&greedy).await.is_none());
        let polite = user("polite");
        let turn = permits.take(&polite);
        assert!(tokio::time::timeout(Duration::from_millis(1), turn).await.is_err(), "it waits");
        drop(held);
    }

    #[test]
    fn one_permit_is_for_everybody() {
        let permits = Permits::new(1);
        assert_eq!(grab(&permits, &user("a"), 9).len(), 1);
    }

    #[tokio::test]
    async fn who_waits_is_served_in_turn_and_nobody_overtakes() {
        let permits = Permits::new(1);
        let held = grab(&permits, &address(1), 1);
        let waiter = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move { permits.take(&user("a")).await }
        });
        while permits.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        assert!(permits.try_take(&user("b"), Instant::now()).is_none());
        drop(held);
        let permit = waiter.await.unwrap().unwrap();
        assert_eq!(*permit.who(), user("a"));
        drop(permit);
        assert!(permits.try_take(&user("b"), Instant::now()).is_some());
    }

    #[tokio::test]
    async fn one_with_many_calls_that_wait_lets_every_other_have_its_turn() {
        let permits = Permits::new(1);
        let (alice, bob) = (user("alice"), user("bob"));
        let held = permits.try_take(&alice, Instant::now()).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = tokio::task::JoinSet::new();
        for who in std::iter::repeat_n(&alice, 20).chain([&bob]) {
            let (permits, who, order) = (Arc::clone(&permits), who.clone(), Arc::clone(&order));
            waiting.spawn(async move {
                let permit = permits.take(&who).await.unwrap();
                order.lock().unwrap().push(who);
                drop(permit);
            });
        }
        while permits.waiting() < 21 {
            tokio::task::yield_now().await;
        }
        drop(held);
        waiting.join_all().await;
        let order = order.lock().unwrap();
        assert_eq!(order.iter().position(|who| *who == bob), Some(1), "after one of hers");
        assert_eq!(order.len(), 21);
    }

    #[tokio::test]
    async fn who_gives_up_waiting_leaves_nothing_behind() {
        let permits = Permits::new(1);
        let held = grab(&permits, &address(1), 1);
        let who = user("a");
        let gone = permits.take(&who);
        assert!(tokio::time::timeout(Duration::from_millis(1), gone).await.is_err());
        drop(held);
        assert_eq!(permits.in_use(), 0);
        assert!(permits.try_take(&user("b"), Instant::now()).is_some());
    }

    #[tokio::test]
    async fn one_over_its_share_does_not_block_the_queue() {
        let permits = Permits::new(4);
        let mut greedy = grab(&permits, &user("greedy"), 3);
        let rest = grab(&permits, &user("x"), 1);
        let spawn = |who: Principal| {
            let permits = Arc::clone(&permits);
            tokio::spawn(async move { permits.take(&who).await })
        };
        let greedy_waits = spawn(user("greedy"));
        while permits.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let polite_waits = spawn(user("polite"));
        while permits.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        drop(rest);
        assert_eq!(*polite_waits.await.unwrap().unwrap().who(), user("polite"));
        drop(greedy.pop());
        assert_eq!(*greedy_waits.await.unwrap().unwrap().who(), user("greedy"));
    }

    #[tokio::test]
    async fn one_over_its_share_or_gone_from_the_queue_does_not_keep_others_from_what_is_free() {
        let permits = Permits::new(4);
        let (greedy, polite) = (user("greedy"), user("polite"));
        let mut held = grab(&permits, &greedy, 3);
        let again = tokio::spawn({
            let (permits, who) = (Arc::clone(&permits), greedy.clone());
            async move { permits.take_again(&who).await }
        });
        while permits.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let free = permits.try_take(&polite, Instant::now()).expect("the fourth is free");
        let gone = permits.take_again(&polite);
        assert!(tokio::time::timeout(Duration::from_millis(1), gone).await.is_err(), "it waits");
        drop(free);
        assert!(permits.take_again(&polite).await.is_some(), "nobody is before it");
        assert!(permits.try_take(&greedy, Instant::now()).is_none(), "it has its share");
        held.pop();
        assert_eq!(*again.await.unwrap().unwrap().who(), greedy, "and its turn comes");
    }
}
