//! Whether a process may keep the state of a session in memory, so that a loss can be told: what it claims when it
//! starts, and lets go of when it ends. Where that is written is the business of `holder`.

use std::io;
use std::sync::Arc;

use tracing::warn;

use super::holder::{Holders, TOLD, read, remove};
use super::workspace::SessionWorkspace;

/// State that a process keeps, until it is let go of in order.
#[derive(Debug)]
pub struct Held(Arc<SessionWorkspace>);

/// Whether a process may keep state.
#[derive(Debug)]
pub enum Claim {
    /// It may.
    Held(Held),
    /// A process of another bridge did, and what it kept is lost. That is said once: who asks again may
    /// go on.
    Lost,
    /// A bridge does that is about to end, and may still be asked for it until then.
    Leaving,
    /// Another bridge does, and this one is about to end.
    Elsewhere,
}

impl SessionWorkspace {
    /// Says that a process keeps state here from now on, if it may. Unless `is_patient`, a bridge
    /// that is about to end counts as gone.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn hold(self: &Arc<Self>, is_patient: bool) -> io::Result<Claim> {
        let Holders { bridge, .. } = &self.holders;
        let mut count = self.holders.lock();
        let folder = self.folder()?;
        match read(&folder)?.as_deref() {
            Some(holder) if holder == bridge.id => {}
            None | Some(TOLD) => self.write_holder(&folder, &bridge.id),
            Some(_) if bridge.is_leaving() => return Ok(Claim::Elsewhere),
            Some(holder) if is_patient && self.is_leaving(holder) => return Ok(Claim::Leaving),
            Some(_) => {
                self.write_holder(&folder, TOLD);
                return Ok(Claim::Lost);
            }
        }
        *count += 1;
        Ok(Claim::Held(Held(Arc::clone(self))))
    }

    /// Makes the directory again, if processes keep state here, and says that they do.
    pub(super) fn restore_held(&self) -> io::Result<()> {
        let is_held = *self.holders.lock() > 0;
        if is_held {
            self.prepare()?;
            self.hold_again()?;
        }
        Ok(())
    }

    /// Whether no process keeps state here, and none did that was lost.
    pub fn is_free(&self) -> bool {
        matches!(self.folder().and_then(|folder| read(&folder)), Ok(None))
    }
}

impl Held {
    /// Whether the conversation has gone on at another replica meanwhile, or was told to.
    pub fn is_outdated(&self) -> bool {
        let Self(space) = self;
        let holder = space.folder().and_then(|folder| read(&folder));
        // If the folder was removed, no other replica did that.
        matches!(holder, Ok(Some(holder)) if holder != space.holders.bridge.id)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Self(space) = self;
        let mut count = space.holders.lock();
        *count -= 1;
        if *count > 0 || space.holders.bridge.is_leaving() {
            return;
        }
        let removed = space.folder().and_then(|folder| match read(&folder)? {
            Some(holder) if holder == space.holders.bridge.id => remove(&folder),
            // The conversation went on at another replica.
            _ => Ok(()),
        });
        match removed {
            // It was removed as a whole, perhaps by somebody who cleans up.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let error = &error as &dyn std::error::Error;
                warn!(session = space.name(), error, "a loss may be told that was none");
            }
            _ => {}
        }
        space.changed();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::jobs::holder::NAME;
    use crate::jobs::{Store, StoreOptions};

    fn space(store: &Store) -> Arc<SessionWorkspace> {
        store.workspace("slides", "chat 1").unwrap()
    }

    fn store(place: &Path) -> Store {
        let options = StoreOptions { min_free_bytes: 0, ..StoreOptions::default() };
        Store::open(&place.join("jobs"), options).unwrap()
    }

    fn hold(store: &Store) -> Claim {
        space(store).hold(true).unwrap()
    }

    fn held(store: &Store) -> Held {
        match hold(store) {
            Claim::Held(held) => held,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_space_is_free_until_a_process_keeps_state_there_and_after_it_let_go() {
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        assert!(space(&store).is_free());
        let held = held(&store);
        assert!(!space(&store).is_free());
        drop(held);
        assert!(space(&store).is_free());
    }

    #[test]
    fn what_was_let_go_of_in_order_is_no_loss() {
        let place = tempfile::tempdir().unwrap();
        let (first, second) = (store(place.path()), store(place.path()));
        let ours = [held(&first), held(&first)];
        assert!(!ours.iter().any(Held::is_outdated));
        drop(ours);
        held(&second);
    }

    #[test]
    fn what_ended_with_its_bridge_is_told_once() {
        let place = tempfile::tempdir().unwrap();
        let first = store(place.path());
        let lost = held(&first);
        first.leave();
        drop((lost, first));
        let second = store(place.path());
        assert!(matches!(hold(&second), Claim::Lost));
        let _ours = [held(&second), held(&second)];
    }

    /// It may still be asked, by connections that are open.
    #[test]
    fn a_bridge_that_leaves_keeps_what_it_has_until_it_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let (first, second) = (store(place.path()), store(place.path()));
        let ours = held(&first);
        first.leave();
        assert!(matches!(hold(&second), Claim::Leaving));
        assert!(!ours.is_outdated());
        drop((ours, first));
        assert!(matches!(hold(&second), Claim::Lost));
        let third = store(place.path());
        let _theirs = held(&second);
        third.leave();
        assert!(matches!(hold(&third), Claim::Elsewhere), "it takes nothing over any more");
    }

    /// A reader beside a writer finds one holder or the other, and never none.
    #[test]
    fn a_holder_is_never_seen_half_written() {
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let space = space(&store);
        let folder = space.folder().unwrap();
        space.write_holder(&folder, TOLD);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| (0..2000).for_each(|_| space.write_holder(&folder, TOLD)));
            while !writing.is_finished() {
                assert_eq!(read(&folder).unwrap().as_deref(), Some(TOLD));
            }
        });
        let names = super::super::beneath::names_in(&folder).unwrap();
        assert_eq!(names.iter().filter(|name| name.contains(NAME)).count(), 1, "{names:?}");
    }

    #[test]
    fn what_is_no_holder_bricks_no_chat() {
        let place = tempfile::tempdir().unwrap();
        let store = store(place.path());
        let path = space(&store).files().with_file_name(NAME);
        std::fs::create_dir_all(path.join("inside")).unwrap();
        drop(held(&store));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        drop(held(&store));
    }

    #[test]
    fn patience_ends() {
        let place = tempfile::tempdir().unwrap();
        let (first, second) = (store(place.path()), store(place.path()));
        let ours = held(&first);
        first.leave();
        assert!(matches!(space(&second).hold(false).unwrap(), Claim::Lost));
        assert!(ours.is_outdated());
    }

    #[test]
    fn a_conversation_that_went_on_elsewhere_is_told_when_it_comes_back() {
        let place = tempfile::tempdir().unwrap();
        let (first, second) = (store(place.path()), store(place.path()));
        let old = held(&first);
        assert!(matches!(hold(&second), Claim::Lost));
        assert!(old.is_outdated(), "it was told");
        let theirs = held(&second);
        assert!(matches!(hold(&first), Claim::Lost));
        let ours = held(&first);
        drop((old, theirs));
        assert!(!ours.is_outdated(), "what others let go of is theirs");
    }
}
