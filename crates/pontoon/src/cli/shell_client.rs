//! The client that a person at a shell is.

use bytes::Bytes;
use pontoon_wire::Revision;

use crate::back::conversation::requests::own_info;
use crate::client::{Client, Key, Person};

/// Who calls from a shell.
pub(super) fn shell_client() -> Client {
    Client {
        revision: Revision::NEWEST_LEGACY,
        capabilities: Bytes::from_static(b"{\"elicitation\":{}}"),
        info: own_info(),
        log_level: None,
        key: Key::Session("shell".into()),
        person: Person::local(),
        feed: None,
        subscriptions: Vec::new(),
    }
}
