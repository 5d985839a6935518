//! Ids that clients bring back: of sessions, of events and of calls that wait (`requestState`).
//!
//! Each says which bridge gave it out and when that one began, and carries a code (MAC) that only
//! bridges with the same secret can make. So a forged or altered one is refused before
//! anything is looked up, and one of another bridge is known as such. The id of a session also
//! carries what it takes to go on with it elsewhere.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use pontoon_wire::{Era, Revision};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::client::Principal;
use crate::mac::{MacKey, Signing};

/// A session may be gone on with elsewhere for so long after it was opened.
const SESSION_AGE: Duration = Duration::from_secs(86_400);

/// So much of what a client said of itself fits into the id of its session, in bytes.
const MAX_CARRIED: usize = 512;

/// No id of ours is longer.
const MAX_LENGTH: usize = 1024;

/// What the ids of sessions and of states end with, and those of events, in bytes.
const CODE: usize = 16;
const EVENT_CODE: usize = 12;

/// How the states of calls that wait begin.
const STATE: &str = "pontoon.";

/// The form that these ids have.
const FORM: u8 = 1;

/// Whether the id is good for one person only, and whether all that is needed to go on is in it.
const PERSONAL: u8 = 1;
const WHOLE: u8 = 2;

/// Which bridge: four bytes for the place it runs at, six for the time it began.
type BridgeStamp = [u8; 10];

/// Makes ids, and reads those that come back.
#[derive(Debug)]
pub struct Ids {
    key: MacKey,
    origin: BridgeStamp,
    hashes: RandomState,
}

/// What a legacy client says of itself when it opens a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The revision that was agreed.
    pub revision: Revision,
    /// Its capabilities, a JSON object.
    pub capabilities: Bytes,
    /// Its name and version, a JSON object, if it said so.
    pub info: Option<Bytes>,
}

/// What the id of a session says.
#[derive(Debug, PartialEq, Eq)]
pub struct SessionFacts {
    opened: SystemTime,
    /// What its client said; `None` if that did not fit.
    hello: Option<Hello>,
}

impl SessionFacts {
    /// What it takes to go on with the session at `now`; `None` if it is too old, or if what its client
    /// said did not fit into its id.
    pub fn to_go_on(self, now: SystemTime) -> Option<Hello> {
        // By a clock that was set back a session may seem to come from the future.
        let age = now.duration_since(self.opened).unwrap_or_default();
        self.hello.filter(|_| age < SESSION_AGE)
    }
}

/// Where an event is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventPlace {
    /// In this bridge: the number of its stream, and its own.
    Here(u64, u64),
    /// In another bridge, or in one that was here before: the number of the stream.
    Elsewhere(u64),
}

/// Where a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatePlace {
    /// In this bridge, if it still does.
    Here,
    /// In another bridge, or in one that was here before.
    Elsewhere,
}

impl Ids {
    /// Ids of the bridge that runs at `place` since `began`.
    pub fn new(secret: &[u8], place: &str, began: SystemTime) -> Self {
        let mut origin = BridgeStamp::default();
        origin[..4].copy_from_slice(&Sha256::digest(place)[..4]);
        let began = began.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        origin[4..].copy_from_slice(&began.to_be_bytes()[2..]);
        Self { key: MacKey::new(secret), origin, hashes: RandomState::new() }
    }

    /// An id for the session that `who` opens with a server.
    pub fn session(
        &self,
        server: &str,
        who: &Principal,
        hello: &Hello,
        now: SystemTime,
    ) -> Arc<str> {
        let mark = who.mark();
        // Without its name a client is served as well, without its capabilities it is not.
        let has_room = |size: usize| size <= MAX_CARRIED;
        let capabilities = &hello.capabilities;
        let info = hello.info.as_deref().unwrap_or_default();
        let (is_whole, carried): (_, &[&[u8]]) = match capabilities.len() {
            size if has_room(size + info.len()) => (true, &[capabilities, info]),
            size if has_room(size) => (true, &[capabilities]),
            _ => (false, &[]),
        };
        let flags = u8::from(mark.is_some()) * PERSONAL + u8::from(is_whole) * WHOLE;
        let revision = Revision::ALL.iter().position(|known| *known == hello.revision);
        let mut bytes = vec![FORM, flags, revision.unwrap_or_default() as u8];
        bytes.extend_from_slice(&self.origin);
        bytes.extend_from_slice(&seconds(now).to_be_bytes());
        bytes.extend_from_slice(&Uuid::new_v4().as_bytes()[8..]);
        let length = carried.first().map_or(0, |first| first.len());
        bytes.extend_from_slice(&(length as u16).to_be_bytes());
        carried.iter().for_each(|part| bytes.extend_from_slice(part));
        let code = self.session_code(server, mark.as_deref(), &bytes).finish();
        bytes.extend_from_slice(&code[..CODE]);
        BASE64.encode(bytes).into()
    }

    /// What the id of a session says, if it is one for this server and this client.
    pub fn read_session(&self, id: &str, server: &str, who: &Principal) -> Option<SessionFacts> {
        let bytes = decode(id)?;
        let (said, code) = bytes.split_at_checked(bytes.len().checked_sub(CODE)?)?;
        let &[FORM, flags, revision, ref rest @ ..] = said else { return None };
        let mark = if flags & PERSONAL == 0 { None } else { Some(who.mark()?) };
        if !self.session_code(server, mark.as_deref(), said).matches(code) {
            return None;
        }
        let (_origin, rest) = rest.split_first_chunk::<10>()?;
        let (opened, rest) = rest.split_first_chunk::<4>()?;
        let (_nonce, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (capabilities, info) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        let revision = *Revision::ALL.get(usize::from(revision))?;
        let is_whole = flags & WHOLE != 0 && revision.era() == Era::Legacy;
        let hello = is_whole.then(|| Hello {
            revision,
            capabilities: Bytes::copy_from_slice(capabilities),
            info: (!info.is_empty()).then(|| Bytes::copy_from_slice(info)),
        });
        let opened = UNIX_EPOCH + Duration::from_secs(u32::from_be_bytes(*opened).into());
        Some(SessionFacts { opened, hello })
    }

    fn session_code(&self, server: &str, mark: Option<&str>, said: &[u8]) -> Signing {
        let signing = self.key.begin("pontoon session 1").part(server.as_bytes());
        signing.part(mark.unwrap_or_default().as_bytes()).last(said)
    }

    /// The id of an event of a session.
    pub fn event(&self, session: &str, stream: u64, event: u64) -> String {
        let code = self.event_code(session, stream, event, &self.origin).finish();
        let tail = BASE64.encode([&self.origin[..], &code[..EVENT_CODE]].concat());
        format!("{stream}-{event}-{tail}")
    }

    /// Where the event with this id is, if it is one of this session.
    pub fn read_event(&self, session: &str, id: &str) -> Option<EventPlace> {
        let mut parts = id.splitn(3, '-');
        let stream = decimal(parts.next()?)?;
        let event = decimal(parts.next()?)?;
        let tail = decode(parts.next()?)?;
        let (origin, code) = tail.split_first_chunk::<10>()?;
        let is_good = code.len() == EVENT_CODE
            && self.event_code(session, stream, event, origin).matches(code);
        is_good.then_some(match *origin == self.origin {
            true => EventPlace::Here(stream, event),
            false => EventPlace::Elsewhere(stream),
        })
    }

    fn event_code(&self, session: &str, stream: u64, event: u64, origin: &BridgeStamp) -> Signing {
        let signing = self.key.begin("pontoon event 1").part(session.as_bytes());
        signing.last(&stream.to_be_bytes()).last(&event.to_be_bytes()).last(origin)
    }

    /// A state for a call to a server that waits for the client with this key.
    pub fn state(&self, server: &str, key: &str) -> String {
        let mut bytes = self.origin.to_vec();
        bytes.extend_from_slice(Uuid::new_v4().as_bytes());
        let code = self.state_code(server, key, &bytes).finish();
        bytes.extend_from_slice(&code[..CODE]);
        format!("{STATE}{}", BASE64.encode(bytes))
    }

    /// Where the call with this state waits, if a bridge gave the state to this client.
    pub fn read_state(&self, state: &str, server: &str, key: &str) -> Option<StatePlace> {
        let bytes = decode(state.strip_prefix(STATE)?)?;
        let (said, code) = bytes.split_at_checked(bytes.len().checked_sub(CODE)?)?;
        if !self.state_code(server, key, said).matches(code) {
            return None;
        }
        Some(match said.starts_with(&self.origin) {
            true => StatePlace::Here,
            false => StatePlace::Elsewhere,
        })
    }

    fn state_code(&self, server: &str, key: &str, said: &[u8]) -> Signing {
        let signing = self.key.begin("pontoon state 1").part(server.as_bytes());
        signing.part(key.as_bytes()).last(said)
    }

    /// A short name for an id, in this process only.
    pub fn short(&self, id: &str) -> u64 {
        self.hashes.hash_one(id)
    }
}

/// The ids of the events of one session.
#[derive(Debug, Clone)]
pub struct EventIds {
    /// Makes them.
    pub ids: Arc<Ids>,
    /// The id of the session.
    pub session: Arc<str>,
}

impl EventIds {
    /// The id of an event.
    pub fn of(&self, stream: u64, event: u64) -> String {
        self.ids.event(&self.session, stream, event)
    }

    /// Where the event with this id is.
    pub fn read(&self, id: &str) -> Option<EventPlace> {
        self.ids.read_event(&self.session, id)
    }
}

fn decode(text: &str) -> Option<Vec<u8>> {
    if text.len() > MAX_LENGTH { None } else { BASE64.decode(text).ok() }
}

/// A number as we write it: no sign, no zeros in front.
fn decimal(text: &str) -> Option<u64> {
    let number = text.parse::<u64>().ok()?;
    (number.to_string() == text).then_some(number)
}

fn seconds(time: SystemTime) -> u32 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn ids(secret: &str, began: u64) -> Ids {
        Ids::new(secret.as_bytes(), "here", UNIX_EPOCH + Duration::from_millis(began))
    }

    fn hello(capabilities: &str) -> Hello {
        Hello {
            revision: Revision::V2025_06_18,
            capabilities: Bytes::copy_from_slice(capabilities.as_bytes()),
            info: Some(Bytes::from_static(br#"{"name":"c","version":"1"}"#)),
        }
    }

    fn user(name: &str) -> Principal {
        Principal::of_user(None, name)
    }

    fn address(last: u8) -> Principal {
        Principal::of_address([10, 0, 0, last].into())
    }

    /// Every text that differs from `id` in one byte, is shorter by one, or longer by one.
    fn altered(id: &str) -> impl Iterator<Item = String> {
        let changed = (0..id.len()).flat_map(move |at| {
            (0..7).map(move |bit| {
                let mut bytes = id.as_bytes().to_vec();
                bytes[at] ^= 1 << bit;
                String::from_utf8(bytes).expect("ASCII stays ASCII")
            })
        });
        changed.chain([id[1..].to_owned(), id[..id.len() - 1].to_owned(), format!("{id}A")])
    }

    #[test]
    fn a_session_carries_what_its_client_said_to_any_bridge_with_the_secret() {
        let said = hello(r#"{"elicitation":{},"roots":{"listChanged":true}}"#);
        let id = ids("secret", 1).session("excel", &user("ada"), &said, now());
        assert!(id.len() < 256 && id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
        let facts = ids("secret", 2).read_session(&id, "excel", &user("ada"));
        assert_eq!(facts, Some(SessionFacts { opened: now(), hello: Some(said) }));
    }

    #[test]
    fn a_session_goes_on_for_a_day() {
        let ours = ids("secret", 1);
        let id = ours.session("excel", &user("ada"), &hello("{}"), now());
        let goes_on = |now| {
            let facts = ours.read_session(&id, "excel", &user("ada")).unwrap();
            facts.to_go_on(now).is_some()
        };
        let second = Duration::from_secs(1);
        assert!(goes_on(now()) && goes_on(now() + SESSION_AGE - second));
        assert!(!goes_on(now() + SESSION_AGE));
        assert!(goes_on(now() - second), "the clocks of two replicas differ a little");
    }

    #[test]
    fn a_session_is_for_its_server_its_person_and_its_secret_only() {
        let ours = ids("secret", 1);
        let id = ours.session("excel", &user("ada"), &hello("{}"), now());
        assert!(ours.read_session(&id, "excel", &user("ada")).is_some());
        assert_eq!(ours.read_session(&id, "word", &user("ada")), None);
        assert_eq!(ours.read_session(&id, "excel", &user("bob")), None);
        assert_eq!(ours.read_session(&id, "excel", &address(1)), None);
        let credential = Principal::Credential("ada".into());
        assert_eq!(ours.read_session(&id, "excel", &credential), None);
        assert_eq!(ids("another", 1).read_session(&id, "excel", &user("ada")), None);
        // An address proves nothing: clients move.
        let open = ours.session("excel", &address(1), &hello("{}"), now());
        assert!(ours.read_session(&open, "excel", &address(2)).is_some());
        assert!(ours.read_session(&open, "excel", &user("ada")).is_some());
    }

    #[test]
    fn an_id_with_any_bit_changed_is_refused() {
        let ours = ids("secret", 1);
        let id = ours.session("excel", &user("ada"), &hello("{}"), now());
        for wrong in altered(&id) {
            assert_eq!(ours.read_session(&wrong, "excel", &user("ada")), None, "{wrong}");
        }
        let event = ours.event(&id, 3, 17);
        for wrong in altered(&event) {
            assert_eq!(ours.read_event(&id, &wrong), None, "{wrong}");
        }
        let state = ours.state("excel", "key");
        for wrong in altered(&state) {
            assert_eq!(ours.read_state(&wrong, "excel", "key"), None, "{wrong}");
        }
        for wrong in ["", "A", "pontoon.", "1-2-", "--", &"A".repeat(5000)] {
            assert_eq!(ours.read_session(wrong, "excel", &user("ada")), None);
            assert_eq!(ours.read_event(&id, wrong), None);
            assert_eq!(ours.read_state(wrong, "excel", "key"), None);
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out() {
        let ours = ids("secret", 1);
        let read = |said: &Hello| {
            let id = ours.session("excel", &user("ada"), said, now());
            assert!(id.len() <= MAX_LENGTH, "{}", id.len());
            ours.read_session(&id, "excel", &user("ada")).unwrap().hello
        };
        let fits = hello(&format!("{{\"x\":\"{}\"}}", "y".repeat(400)));
        assert_eq!(read(&fits), Some(fits.clone()));
        let long_name = Hello { info: Some(Bytes::from(vec![b' '; 500])), ..fits };
        assert_eq!(read(&long_name), Some(Hello { info: None, ..long_name }));
        assert_eq!(read(&hello(&format!("{{\"x\":\"{}\"}}", "y".repeat(600)))), None);
    }

    #[test]
    fn events_and_states_of_another_bridge_are_known_as_such() {
        let (first, second) = (ids("secret", 1), ids("secret", 2));
        let event = first.event("session", 3, 17);
        assert!(event.len() < 40, "{event}");
        assert_eq!(first.read_event("session", &event), Some(EventPlace::Here(3, 17)));
        assert_eq!(second.read_event("session", &event), Some(EventPlace::Elsewhere(3)));
        assert_eq!(first.read_event("another", &event), None);
        assert_eq!(ids("another", 1).read_event("session", &event), None);
        let state = first.state("excel", "key");
        assert_eq!(first.read_state(&state, "excel", "key"), Some(StatePlace::Here));
        assert_eq!(second.read_state(&state, "excel", "key"), Some(StatePlace::Elsewhere));
        assert_eq!(first.read_state(&state, "word", "key"), None);
        assert_eq!(first.read_state(&state, "excel", "another"), None);
    }
}
