//! How many children may be kept in all, of all servers.
//!
//! A client that needs a place gives up what it left alone longest, of whichever server: nobody
//! else's, and nothing that is in use.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::children::now;
use super::pool::Pool;
use crate::client::Principal;
use crate::permits::{Permit, Permits};

/// The places for kept children.
#[derive(Debug, Clone)]
pub struct Budget {
    places: Arc<Permits>,
    pools: Arc<Mutex<Vec<Weak<Pool>>>>,
}

impl Budget {
    /// So many.
    pub fn new(limit: usize) -> Self {
        Self { places: Permits::new(limit), pools: Arc::default() }
    }

    /// How many are kept, and how many may be.
    pub fn used(&self) -> (usize, usize) {
        (self.places.in_use(), self.places.limit())
    }

    /// Counts a server's children among those that may have to go.
    pub(super) fn include(&self, pool: &Arc<Pool>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    /// A place for one more child of this client, made by letting go of others of its if need be.
    pub(super) fn take(&self, owner: &Principal) -> Option<Permit> {
        let take = || self.places.try_take(owner, now());
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
            let idle = pools.iter().filter_map(|pool| Some((pool.idle_since(owner)?, pool)));
            let (_, pool) = idle.min_by_key(|(since, _)| *since)?;
            pool.evict_oldest(owner);
        }
    }
}
