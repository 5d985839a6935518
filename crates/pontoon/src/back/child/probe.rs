//! Probes: children that are started to be asked what the server offers, and serve no call.
//!
//! What they are asked is for `session/learn` to say.

use std::time::Duration;

use bytes::Bytes;
use pontoon_wire::Revision;

use super::launcher::{StartError, Unopened, chain, failed_handshake, now, own_info};
use super::ready::Live;
use crate::back::Back;
use crate::back::conversation::handshake::{HandshakeError, shake_hands};
use crate::client::Person;

impl Back {
    /// Starts a child to learn what the server offers this person. Nothing is said to it yet.
    pub async fn start_to_learn(&self, person: &Person) -> Result<Live, StartError> {
        let place = self.own_place().await.map_err(|error| StartError::Place(chain(&error)))?;
        let began = now();
        let spawned = self.spawn(person, place, true).await;
        let watched = spawned.map(|Unopened(mut live)| {
            self.watch_lists(&mut live);
            live
        });
        self.counted(watched, began)
    }

    /// Shakes hands with such a child, for no client.
    pub async fn greet(&self, live: &mut Live, patience: Duration) -> Result<(), StartError> {
        let capabilities = Bytes::from_static(b"{\"elicitation\":{},\"sampling\":{},\"roots\":{}}");
        let (revision, info) = (Revision::NEWEST_LEGACY, own_info());
        let deadline = now() + patience.min(self.server.timeout);
        let shaken =
            shake_hands(&live.link, revision, &capabilities, &info, deadline, &self.heals).await;
        match shaken {
            Ok(hello) => live.hello = Some(hello),
            Err(error) => {
                // One that refuses only does not speak this era.
                if !matches!(error, HandshakeError::Refused(_)) {
                    self.metrics.child_failed();
                }
                return Err(failed_handshake(live, error).await);
            }
        }
        Ok(())
    }
}
