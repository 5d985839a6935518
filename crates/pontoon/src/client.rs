//! The client behind a call: what it speaks, who it is, and which conversation it belongs to.
//!
//! A front finds out; nothing later looks at headers or addresses.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bytes::Bytes;
use pontoon_wire::{Era, Revision};
use uuid::Uuid;

use crate::call::Feed;
use crate::observe::trace::Trace;

/// What is known of the client behind a call.
#[derive(Debug, Clone)]
pub struct Client {
    /// The revision it speaks.
    pub revision: Revision,
    /// Its capabilities, a JSON object.
    pub capabilities: Bytes,
    /// Its name and version, a JSON object.
    pub info: Bytes,
    /// The log level it asked for, a JSON string.
    pub log_level: Option<Bytes>,
    /// The conversation it belongs to: whose child and whose workspace serve it.
    pub key: Key,
    /// Who it is.
    pub person: Arc<Person>,
    /// Where a legacy session hears what belongs to no call.
    pub feed: Option<Feed>,
    /// The resources a legacy session is subscribed to.
    pub subscriptions: Vec<String>,
}

impl Client {
    /// All clients together, as a process hears of them that serves every one: that none can be asked anything.
    pub fn everyone() -> Self {
        Self {
            revision: Revision::NEWEST_MODERN,
            capabilities: Bytes::from_static(b"{}"),
            info: Bytes::from_static(b"{}"),
            log_level: None,
            key: Key::Everyone,
            person: Person::local(),
            feed: None,
            subscriptions: Vec::new(),
        }
    }

    /// The era of its revision.
    pub fn era(&self) -> Era {
        self.revision.era()
    }
}

/// Who makes a call.
#[derive(Debug, Clone)]
pub struct Person {
    /// Whom limits are counted for.
    pub principal: Principal,
    /// What is known of the user, for `${user:...}`: `id`, `email`, `name`, `role`.
    pub user: Vec<(&'static str, String)>,
    /// The headers a server asked to see with `${header:...}`, their names in lower case.
    pub headers: Vec<(String, String)>,
    /// Where it calls from, as far as that is known.
    pub address: IpAddr,
    /// Where this client reaches us.
    pub origin: Origin,
    /// The trace of its request.
    pub trace: Option<Trace>,
}

/// Where a client reaches us, such as `http://127.0.0.1:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// An address that a browser can open as well.
    Public(Arc<str>),
    /// An address that may be good for this client alone, such as a name in a network of containers.
    Inside(Arc<str>),
    /// Nothing is known of it.
    Unknown,
}

impl Origin {
    /// What links for people begin with; empty where they can only begin at the root of a host.
    pub fn base(&self) -> &str {
        match self {
            Self::Public(address) => address,
            Self::Inside(_) | Self::Unknown => "",
        }
    }

    /// What addresses for the client itself begin with, which are always absolute.
    pub fn address(&self) -> &str {
        match self {
            Self::Public(address) | Self::Inside(address) => address,
            Self::Unknown => "http://localhost",
        }
    }
}

impl Person {
    /// Whoever sits at this machine: a command of ours, or nobody in particular.
    pub fn local() -> Arc<Self> {
        Arc::new(Self {
            principal: Principal::Address(IpAddr::V6(Ipv6Addr::LOCALHOST)),
            user: Vec::new(),
            headers: Vec::new(),
            address: IpAddr::V6(Ipv6Addr::LOCALHOST),
            origin: Origin::Unknown,
            trace: None,
        })
    }

    /// A client at this machine that is another than every other one, so that each has its turn. As long as it is
    /// alone, it may have all there is, as an address may.
    pub fn at_stdio() -> Arc<Self> {
        let address = IpAddr::V6(Ipv6Addr::from_bits(Uuid::new_v4().as_u128()));
        Arc::new(Self { principal: Principal::Address(address), ..Self::clone(&Self::local()) })
    }

    /// A fact about the user.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.user.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// A header that a server asked to see.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// Whom a limit is counted for: the best that is known of who is calling.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A user, as a front end names them that is believed.
    User(Arc<NamedUser>),
    /// Whoever holds this credential; a hash of it.
    Credential(Arc<str>),
    /// An address; of an IPv6 address its first 64 bits, for one client has them all.
    Address(IpAddr),
}

/// A user, by what a front end says.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct NamedUser {
    /// The API key the front end showed, if it did: users of two keys are not the same, whatever
    /// they are called.
    pub key: Option<Arc<str>>,
    /// The id.
    pub id: Box<str>,
}

impl Principal {
    /// The principal of a user that is named under this key.
    pub fn of_user(key: Option<Arc<str>>, id: &str) -> Self {
        Self::User(Arc::new(NamedUser { key, id: id.into() }))
    }

    /// The principal of an address.
    pub fn of_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(ip) if !ip.is_loopback() => {
                let [a, b, c, d, ..] = ip.segments();
                Self::Address(IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)))
            }
            address => Self::Address(address),
        }
    }

    /// The credential that was shown, if one was.
    pub fn credential(&self) -> Option<&str> {
        match self {
            Self::User(user) => user.key.as_deref(),
            Self::Credential(hash) => Some(hash),
            Self::Address(_) => None,
        }
    }

    /// Who it is, for the log.
    pub fn words(&self) -> String {
        match self {
            Self::User(user) => match &user.key {
                Some(key) => format!("user {} of key {key}", user.id),
                None => format!("user {}", user.id),
            },
            Self::Credential(key) => format!("key {key}"),
            Self::Address(_) => "unknown".to_owned(),
        }
    }

    /// What tells this one from others, for ids that are good for one person only: the same text on
    /// every replica. `None` for an address, which proves nothing: clients move.
    pub fn mark(&self) -> Option<String> {
        match self {
            Self::Address(_) => None,
            known => Some(known.to_string()),
        }
    }

    /// Whether what this one opened is for that person. An address proves nothing: clients move.
    pub fn lets_in(&self, person: &Person) -> bool {
        matches!(self, Self::Address(_)) || *self == person.principal
    }
}

/// The same text on every replica, different for different people: it is part of a [`Key`]'s.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(user) => match (&user.key, &user.id) {
                (None, id) => write!(f, "User({id:?})"),
                (Some(key), id) => write!(f, "User({key:?}, {id:?})"),
            },
            Self::Credential(hash) => write!(f, "Credential({hash:?})"),
            Self::Address(address) => write!(f, "Address({address})"),
        }
    }
}

/// Whose child and workspace serve a call, where they are kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// A chat of a user, as a front end names them that is believed.
    Chat {
        /// The API key the front end showed, if it did.
        key: Option<Arc<str>>,
        /// The user, if one was named.
        user: Option<Arc<str>>,
        /// The chat, if one was named.
        chat: Option<Arc<str>>,
    },
    /// A legacy session.
    Session(Arc<str>),
    /// A conversation the client named itself; only the same principal finds it again.
    Named(Principal, Arc<str>),
    /// Whoever holds this credential; a hash of it.
    Credential(Arc<str>),
    /// A client address, for requests with nothing better.
    Address(IpAddr),
    /// Only the API key without a name, which may be anybody's: nothing is kept under it.
    Unnamed,
    /// Nobody that could be recognised: shares nothing with anyone.
    Once(Uuid),
    /// All clients, of a server with one process for everybody.
    Everyone,
}

impl Key {
    /// Whether several clients that do not know of each other may have it.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Address(_) | Self::Credential(_) | Self::Everyone)
    }

    /// Whether it is worth keeping a workspace under: whether it can ever come back.
    pub fn can_return(&self) -> bool {
        !matches!(self, Self::Once(_) | Self::Unnamed)
    }
}

/// The same text on every replica, different for different keys. It names a directory by its hash.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chat { key: None, user, chat } => write!(f, "chat {user:?} {chat:?}"),
            Self::Chat { key: Some(key), user, chat } => {
                write!(f, "chat {key:?} {user:?} {chat:?}")
            }
            Self::Session(id) => write!(f, "session {id:?}"),
            Self::Named(principal, name) => write!(f, "named {principal} {name:?}"),
            Self::Credential(hash) => write!(f, "credential {hash}"),
            Self::Address(address) => write!(f, "address {address}"),
            Self::Unnamed => f.write_str("unnamed"),
            Self::Once(id) => write!(f, "once {id}"),
            Self::Everyone => f.write_str("everyone"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_different_people_have_different_names() {
        let under = |key: Option<&str>, user: Option<&str>, chat: Option<&str>| Key::Chat {
            key: key.map(Into::into),
            user: user.map(Into::into),
            chat: chat.map(Into::into),
        };
        let chat = |user, chat| under(None, user, chat);
        let user = |key: Option<&str>, id: &str| Principal::of_user(key.map(Into::into), id);
        let keys = [
            under(Some("k"), Some("a"), Some("b")),
            under(Some("l"), Some("a"), Some("b")),
            under(Some("k"), None, Some("b")),
            under(Some("k\" Some(\"a\")"), None, Some("b")),
            chat(Some("a"), Some("b")),
            chat(Some("a\" \"b"), None),
            chat(Some("a"), None),
            chat(None, Some("a")),
            Key::Session("a".into()),
            Key::Credential("a".into()),
            Key::Named(user(None, "a"), "b".into()),
            Key::Named(user(Some("k"), "a"), "b".into()),
            Key::Named(user(None, "k\", \"a"), "b".into()),
            Key::Named(Principal::Credential("a".into()), "b".into()),
            Key::Unnamed,
            Key::Everyone,
        ];
        let mut names: Vec<_> = keys.iter().map(ToString::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), keys.len());
    }

    #[test]
    fn an_ipv6_client_is_counted_by_its_network() {
        let of = |text: &str| Principal::of_address(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
