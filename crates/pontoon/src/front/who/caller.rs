//! From who asks to whose child: the key, the person and the client of a request.
//!
//! The order is the one that keeps people apart best: the chat, the MCP session, the name the client
//! gave its conversation, the user, the credential, the address. A request with none of these shares nothing,
//! and the key without a name is no credential where anything is kept: every client may have it.

use std::sync::Arc;

use bytes::Bytes;
use hyper::HeaderMap;
use pontoon_wire::{Message, Revision, Slot};
use uuid::Uuid;

use super::identity::Identity;
use crate::back::conversation::requests::own_info;
use crate::client::{Client, Key, Origin, Person, Principal};
use crate::config::{KeyName, Server, SessionKey};
use crate::hex::hex;
use crate::observe::trace::Trace;
use crate::session::entry::Entry;
use crate::session::legacy::Session;

/// Headers that are never handed to a server: they are for us, or for a proxy.
const OURS: [&str; 3] = ["cookie", "proxy-authorization", "mcp-session-id"];

/// Who made a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// What could be believed.
    pub identity: Identity,
    /// The same, as calls need it.
    pub person: Arc<Person>,
}

impl Caller {
    /// The caller of a request. Of its headers, `ours` are no server's to see.
    pub fn new(
        identity: Identity,
        headers: &HeaderMap,
        ours: &[&str],
        origin: Origin,
        trace: Option<Trace>,
        server: &Server,
    ) -> Self {
        let principal = match (&identity.user, &identity.key) {
            (Some(user), key) => Principal::of_user(key.as_ref().map(name), &user.id),
            (None, Some(key)) => Principal::Credential(name(key)),
            (None, None) => Principal::of_address(identity.address),
        };
        let mut user = Vec::new();
        if let Some(known) = &identity.user {
            user.push(("id", known.id.clone()));
            user.extend(known.email.clone().map(|email| ("email", email)));
            user.extend(known.name.clone().map(|name| ("name", name)));
            user.extend(known.role.clone().map(|role| ("role", role)));
        }
        let headers_for = |server: &Server| match server.is_personal() {
            true => headers
                .iter()
                .filter(|(name, _)| !OURS.iter().chain(ours).any(|it| it == name))
                .filter_map(|(name, value)| {
                    Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
                })
                .collect(),
            false => Vec::new(),
        };
        let person = Arc::new(Person {
            principal,
            user,
            headers: headers_for(server),
            address: identity.address,
            origin,
            trace,
        });
        Self { identity, person }
    }

    /// The conversation that a request belongs to. `session` is the MCP session it names.
    pub fn key(&self, session: Option<&Arc<str>>, server: &Server) -> Key {
        let identity = &self.identity;
        let address = || match identity.is_known_address {
            true => Key::Address(identity.address),
            false => Key::Once(Uuid::new_v4()),
        };
        let credential = || match identity.credential {
            Some(hash) => Key::Credential(hex(&hash).into()),
            None => address(),
        };
        match server.session_key {
            SessionKey::Auto | SessionKey::Together => {}
            SessionKey::Credential => return credential(),
            SessionKey::Ip => return address(),
        }
        let key = identity.key.as_ref().map(name);
        let user = identity.user.as_ref().map(|user| Arc::from(user.id.as_str()));
        if let Some(chat) = &identity.chat {
            return Key::Chat { key, user, chat: Some(chat.as_str().into()) };
        }
        if server.session_key == SessionKey::Together {
            return match user {
                Some(_) => Key::Chat { key, user, chat: None },
                None => Key::Everyone,
            };
        }
        if let Some(session) = session {
            return Key::Session(Arc::clone(session));
        }
        // Any client may say a name: it counts beside something that tells its owner from others.
        let has_owner =
            user.is_some() || identity.credential.is_some() || identity.is_known_address;
        if let Some(name) = identity.session.as_ref().filter(|_| has_owner) {
            return Key::Named(self.person.principal.clone(), name.as_str().into());
        }
        if user.is_some() {
            return Key::Chat { key, user, chat: None };
        }
        match identity.key {
            Some(KeyName::Unnamed) if server.has_sessions() => Key::Unnamed,
            _ => credential(),
        }
    }
}

impl Caller {
    /// The client of a legacy session, as this request shows it.
    pub fn legacy_client(&self, entry: &Entry, session: &Session) -> Arc<Client> {
        let key = self.key(Some(&session.id), &entry.back.server);
        session.client(key, Arc::clone(&self.person))
    }

    /// The client of a legacy request without a session: it said nothing of itself, cannot be asked, and hears nothing
    /// besides its answers.
    pub fn bare_client(&self, entry: &Entry, revision: Revision) -> Arc<Client> {
        Arc::new(Client {
            revision,
            capabilities: Bytes::from_static(b"{}"),
            info: own_info(),
            log_level: None,
            key: self.key(None, &entry.back.server),
            person: Arc::clone(&self.person),
            feed: None,
            subscriptions: Vec::new(),
        })
    }

    /// The client of a modern request, which says of itself what a server needs to know.
    pub fn modern_client(&self, entry: &Entry, request: &Message) -> Arc<Client> {
        described_client(request, self.key(None, &entry.back.server), &self.person)
    }
}

/// The client that a modern request describes.
pub fn described_client(request: &Message, key: Key, person: &Arc<Person>) -> Arc<Client> {
    // Copied, because a child that is kept for this client remembers them longer than the request.
    let copy = |slot| request.raw(slot).map(Bytes::copy_from_slice);
    Arc::new(Client {
        revision: Revision::NEWEST_MODERN,
        capabilities: copy(Slot::MetaCapabilities).unwrap_or_default(),
        info: copy(Slot::MetaClientInfo)
            .filter(|info| info.first() == Some(&b'{'))
            .unwrap_or_else(own_info),
        log_level: copy(Slot::MetaLogLevel).filter(|level| level.first() == Some(&b'"')),
        key,
        person: Arc::clone(person),
        feed: None,
        subscriptions: Vec::new(),
    })
}

fn name(key: &KeyName) -> Arc<str> {
    key.as_str().into()
}

#[cfg(test)]
mod tests {
    use super::super::identity::User;
    use super::*;
    use crate::config::WorkspaceScope;

    fn identity() -> Identity {
        Identity {
            address: [10, 0, 0, 1].into(),
            is_known_address: true,
            key: None,
            user: None,
            chat: None,
            session: None,
            credential: None,
        }
    }

    fn server(session_key: SessionKey, workspace: WorkspaceScope) -> Server {
        let plain = Server::new("demo".parse().unwrap(), Ok("/bin/true".into()), Vec::new());
        Server { session_key, workspace, ..plain }
    }

    fn key(identity: Identity, session: Option<&str>, rule: SessionKey) -> String {
        let server = server(rule, WorkspaceScope::Session);
        let caller = Caller::new(identity, &HeaderMap::new(), &[], Origin::Unknown, None, &server);
        let session = session.map(Arc::from);
        caller.key(session.as_ref(), &server).to_string()
    }

    #[test]
    fn the_best_that_is_known_decides() {
        let user = || Some(User { id: "u".into(), email: None, name: None, role: None });
        let (session, name, chat) = (Some("m"), Some("n".to_owned()), Some("c".to_owned()));
        let check = |identity, session, expected: &str| {
            assert_eq!(key(identity, session, SessionKey::Auto), expected);
        };
        let all = Identity {
            user: user(),
            chat,
            session: name.clone(),
            credential: Some([1; 32]),
            ..identity()
        };
        check(all.clone(), session, r#"chat Some("u") Some("c")"#);
        let no_chat = Identity { chat: None, ..all.clone() };
        check(no_chat.clone(), session, r#"session "m""#);
        check(no_chat.clone(), None, r#"named User("u") "n""#);
        let no_name = Identity { session: None, ..no_chat };
        check(no_name.clone(), None, r#"chat Some("u") None"#);
        let no_user = Identity { user: None, ..no_name };
        check(no_user.clone(), None, &format!("credential {}", "01".repeat(32)));
        check(Identity { credential: None, ..no_user }, None, "address 10.0.0.1");
        assert_eq!(key(all, session, SessionKey::Ip), "address 10.0.0.1");
    }

    #[test]
    fn a_key_is_part_of_who_asks() {
        let user = || Some(User { id: "u".into(), email: None, name: None, role: None });
        let under = |key: &str| Identity {
            key: Some(KeyName::Named(key.into())),
            user: user(),
            ..identity()
        };
        let check = |identity, expected: &str| {
            assert_eq!(key(identity, None, SessionKey::Auto), expected);
        };
        let (chat, name) = (Some("c".to_owned()), Some("n".to_owned()));
        check(Identity { chat: chat.clone(), ..under("k") }, r#"chat "k" Some("u") Some("c")"#);
        check(Identity { chat: chat.clone(), ..under("l") }, r#"chat "l" Some("u") Some("c")"#);
        check(Identity { user: None, chat, ..under("k") }, r#"chat "k" None Some("c")"#);
        check(Identity { session: name, ..under("k") }, r#"named User("k", "u") "n""#);
        check(under("k"), r#"chat "k" Some("u") None"#);
    }

    #[test]
    fn the_key_without_a_name_is_nobodys_where_anything_is_kept() {
        let unnamed =
            || Identity { key: Some(KeyName::Unnamed), credential: Some([1; 32]), ..identity() };
        let hash = format!("credential {}", "01".repeat(32));
        assert_eq!(key(unnamed(), None, SessionKey::Auto), "unnamed");
        assert_eq!(key(unnamed(), None, SessionKey::Credential), hash);
        assert_eq!(key(unnamed(), None, SessionKey::Ip), "address 10.0.0.1");
        assert_eq!(key(unnamed(), Some("m"), SessionKey::Auto), r#"session "m""#);
        let named = Identity { session: Some("n".into()), ..unnamed() };
        assert_eq!(key(named, None, SessionKey::Auto), r#"named Credential("default") "n""#);
        let person = Identity { key: Some(KeyName::Named("me".into())), ..unnamed() };
        assert_eq!(key(person, None, SessionKey::Auto), hash);
        let stateless = server(SessionKey::Auto, WorkspaceScope::Job);
        let caller =
            Caller::new(unnamed(), &HeaderMap::new(), &[], Origin::Unknown, None, &stateless);
        assert_eq!(caller.key(None, &stateless).to_string(), hash);
    }

    #[test]
    fn who_is_not_known_shares_nothing() {
        let unknown = Identity { is_known_address: false, ..identity() };
        let first = key(unknown.clone(), None, SessionKey::Auto);
        assert!(first.starts_with("once "), "{first}");
        assert_ne!(first, key(unknown.clone(), None, SessionKey::Auto));
        assert_ne!(first, key(unknown.clone(), None, SessionKey::Ip));
        let named = Identity { session: Some("1".into()), ..unknown };
        assert!(key(named, None, SessionKey::Auto).starts_with("once "));
    }

    #[test]
    fn a_name_belongs_to_whoever_gave_it() {
        let named = |last| Identity {
            session: Some("n".into()),
            address: [10, 0, 0, last].into(),
            ..identity()
        };
        assert_ne!(key(named(1), None, SessionKey::Auto), key(named(2), None, SessionKey::Auto));
    }
}
